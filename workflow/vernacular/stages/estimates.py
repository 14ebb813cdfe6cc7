"""Stage `estimates`: labels of speakers, and other models' results -> values that they correct or replace."""

from pathlib import Path

from vernacular.comparison.borrowing import borrow
from vernacular.comparison.labels import Estimated
from vernacular.comparison.labels import estimates as by_labels
from vernacular.comparison.schema import ESTIMATES
from vernacular.comparison.sheets import Label, read_all_labels
from vernacular.config.specs import EstimatesSpec
from vernacular.core import artifacts
from vernacular.core.errors import format_count
from vernacular.core.fields import Stage, to_json
from vernacular.core.metadata import note
from vernacular.metrics.metric import Metric
from vernacular.metrics.schema import TASK_RESULTS
from vernacular.protocols.evaluate import declared_metrics
from vernacular.protocols.lm_eval.metrics import tool_metrics
from vernacular.stages.sides import Results, model_results, write_table


class Estimates(Stage):
    """Estimate values from labels of speakers, and from what other models answered to all items."""

    spec: EstimatesSpec  # of the rule: what the results depend on
    results: Path  # directory with one directory per model
    out: Path  # table of the estimates


def estimates(args: Estimates) -> str:
    """Write values by labels and borrowed values, and print the notes on them."""
    spec, labels = args.spec, {}
    results = model_results(args.results, spec)
    for label in read_all_labels(list(map(Path, spec.labels))):
        labels.setdefault(label.evaluation, []).append(label)
    rows, notes = [], []
    for name, settings in spec.evaluations.items():
        metrics = [*declared_metrics(settings.protocol).values(), *tool_metrics(args.results, spec.models, name)]
        found = [("labels", _by_labels(spec, name, labels[name], results, metrics))] if name in labels else []
        for model in spec.models if name in spec.limits else ():
            found.append(("borrowed", _borrowed(spec, name, model, results, metrics)))
        for kind, estimated in found:
            rows += estimated.rows
            notes += [note(kind, text, evaluation=name) for text in estimated.notes]
    if others := ", ".join(sorted(labels.keys() - spec.evaluations.keys())):
        notes.append(note("labels", f"labels of evaluations that are not in the config: {others}."))
    for each in notes:
        print(": ".join(filter(None, (each["evaluation"], each["note"]))))
    sources = [args.results / model / "metrics.parquet" for model in spec.models]
    key = artifacts.input_fingerprint(to_json(spec), *sources)
    write_table(args.out, ESTIMATES, rows, {"fingerprint": key, "notes": notes})
    return f"estimates: {format_count(len(rows), 'value')}"


def _by_labels(
    spec: EstimatesSpec, name: str, labels: list[Label], results: dict[str, Results], metrics: list[Metric]
) -> Estimated:
    tables = {model: [table] for model in spec.models if (table := results[model][name]).num_rows}
    return by_labels(name, labels, tables, [tuple(pair) for pair in spec.pairs], metrics)


def _borrowed(
    spec: EstimatesSpec, name: str, model: str, results: dict[str, Results], metrics: list[Metric]
) -> Estimated:
    lenders = {
        other: artifacts.read(Path(path), TASK_RESULTS)
        for path in spec.borrow_from
        if Path(path).stem == name and (other := Path(path).parts[-3]) != model
    }
    return borrow(name, model, results[model][name], lenders, metrics, spec.limits[name])
