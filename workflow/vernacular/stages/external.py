"""Stage `external`: values from outside -> results matched to items, and their differences to the models.

What cannot be used is missing from the comparisons only, with the reason; the next run tries it again.
"""

import logging
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from vernacular.comparison.compare import compare_pairs
from vernacular.comparison.schema import COMPARISONS, MATCHED
from vernacular.config.specs import ExternalResultsSpec, ExternalSpec
from vernacular.core import artifacts
from vernacular.core.errors import DataError, UserError, first_line, format_count, is_contained
from vernacular.core.fields import Stage, to_json
from vernacular.core.metadata import Outcome
from vernacular.core.paths import display_path
from vernacular.exchange.aggregates import is_aggregates, read_aggregates
from vernacular.exchange.external_results import Reference, load_external_results, result_files
from vernacular.exchange.publications import is_publication, load_publication, published_signatures
from vernacular.exchange.unpaired import OTHER, UNPAIRED, unpaired_rows
from vernacular.metrics.schema import METRICS, TASK_RESULTS
from vernacular.protocols.lm_eval.metrics import tool_metrics
from vernacular.stages.common import items_in
from vernacular.stages.sides import model_results, signatures_of

log = logging.getLogger("vernacular")


class External(Stage):
    """Match external results to the items of this run and compare them with its models."""

    spec: ExternalResultsSpec  # of the rule: what the results depend on
    results: Path  # directory with one directory per model
    items_dir: Path  # directory of the items files
    out: Path  # file of the differences; beside it are the directory of matched results, and unpaired.parquet


def external(args: External) -> str:
    """Match external results to items, and compare each with the models that the config names."""
    spec, models = args.spec, model_results(args.results, args.spec)
    metadata = {"fingerprint": artifacts.input_fingerprint(to_json(spec))}
    sides, signatures = dict(models), signatures_of(args.results, spec.models)
    notes, missing, unpaired = [], {}, []
    own = [value for model in spec.models for value in _own_values(args.results, model)]
    for name, entry in spec.external_results.items():
        tables, outcome = {}, Outcome()
        try:
            tables, external_notes = _load_external_results(name, entry, models, spec, args.items_dir)
            notes += external_notes
            compared = {side for pair in spec.pairs if name in pair for side in pair}
            found, external_notes = _unpaired(name, entry, [each for each in own if each["model"] in compared])
            unpaired += found
            notes += external_notes
            if entry.model:
                signatures[name] = published_signatures(Path(entry.path), entry.model)
        except BaseException as error:
            if not is_contained(error):
                raise
            reason = _reason(error)
            if any(name in pair for pair in spec.pairs):
                missing[name] = reason
                outcome = Outcome(missing={name: reason})
            else:  # as models of a publication that have other evaluations
                notes.append(f"{name}: {reason}")
            log.error("%s: %s", name, reason, exc_info=not isinstance(error, UserError))
        sides[name] = tables
        columns = [table.append_column("evaluation", pa.array([evaluation] * len(table), pa.string()))
                   for evaluation, table in tables.items()]  # fmt: skip
        rows = pa.concat_tables(columns).select(MATCHED.schema.names) if columns else []
        artifacts.write(args.out.with_suffix("") / f"{name}.parquet", MATCHED, rows, metadata | {"outcome": outcome})
    pairs = [tuple(pair) for pair in spec.pairs]
    settings = {name: vars(evaluation) for name, evaluation in spec.evaluations.items()}
    metrics = {name: tool_metrics(args.results, spec.models, name) for name in settings}
    rows = compare_pairs(pairs, sides, settings, signatures=signatures, tool_metrics=metrics, threads=args.threads)
    artifacts.write(args.out.with_name("unpaired.parquet"), UNPAIRED, unpaired, metadata)
    artifacts.write(args.out, COMPARISONS, rows, metadata | {"notes": notes, "outcome": Outcome(missing=missing)})
    return f"external: {format_count(len(pairs), 'pair')}, {format_count(len(rows), 'difference')}"


def _load_external_results(
    name: str, entry: ExternalSpec, results: Mapping, spec: ExternalResultsSpec, items_dir: Path
) -> tuple[dict, list[str]]:
    """Return external results, matched to items, and notes; the reference is the first model with results."""
    references = {}
    for evaluation, settings in spec.evaluations.items():
        tables = ((model, results[model][evaluation]) for model in spec.models)
        model, rows = next(((model, table) for model, table in tables if table.num_rows), (None, None))
        if rows is not None:
            items = items_in(items_dir / f"{settings.items_stem}.parquet")
            few_shot_examples = artifacts.metadata(results[model].paths[evaluation], TASK_RESULTS).few_shot_examples
            references[evaluation] = Reference(settings.protocol, settings.shots, rows, items, few_shot_examples)
    if is_publication(path := Path(entry.path)):
        tables, notes = load_publication(path, entry.model, references)
    else:
        tables, notes = load_external_results(path, references)
    return tables, [f"{name}: {note}" for note in notes]


def _unpaired(name: str, entry: ExternalSpec, own: list[dict]) -> tuple[list[dict], list[str]]:
    """Return the values without items of external results, beside those of the same items, and notes."""
    path = Path(entry.path)
    files = [] if is_publication(path) else [file for file in result_files(path) if is_aggregates(file)]
    aggregates, notes, failed = [], [], []
    for file in files:
        try:
            found, file_notes = read_aggregates(file)
        except DataError as error:
            failed.append(str(error))
            continue
        aggregates += found
        notes += file_notes
    if failed and not aggregates:
        raise DataError("\n".join(failed))
    others = set(path.rglob("*.json")) - {*files} if files and files[0].suffix == ".json" else ()
    notes += [*failed, *(f"{display_path(file)}: not used: damaged, or of no known format." for file in sorted(others))]
    rows = unpaired_rows(name, aggregates, own)
    if files:
        n_others = sum(row["items"] == OTHER for row in rows)
        text = f"{format_count(len(aggregates), 'value')} without items, which unpaired.csv lists and nothing ranks"
        notes.append(f"{text}; {n_others} of other items, or not known to be of the same ones.")
    return rows, [f"{name}: {note}" for note in notes]


def _own_values(results: Path, model: str) -> list[dict]:
    """Return the values of a model over all items, with what identifies these."""
    table, metadata = artifacts.read_all(results / model / "metrics.parquet", METRICS)
    values = []
    for row in table.to_pylist():
        evaluated = metadata.evaluations.get(row["evaluation"])
        if not row["category"] and row["value"] is not None and evaluated and evaluated.dataset:
            source = evaluated.dataset.source
            row |= {"dataset": source.repository or source.url or source.file, "revision": row["dataset_revision"]}
            values.append(row | {"configuration": source.config, "split": source.split})
    return values


def _reason(error: BaseException) -> str:
    """Return why external results are not used, in one line."""
    text = "; ".join(str(error).splitlines()) if isinstance(error, UserError) else first_line(error)
    kind = "" if isinstance(error, UserError | OSError) else f"{type(error).__name__}: "
    return f"external results not used: {kind}{text}"
