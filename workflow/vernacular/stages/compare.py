"""Stage `compare`: per-item results of the models -> differences of pairs, rankings, and aggregates over tasks."""

from pathlib import Path

from vernacular.comparison.compare import compare_all
from vernacular.comparison.curves.schema import DECIDING_METRICS
from vernacular.comparison.over_prompts import by_documents
from vernacular.comparison.schema import COMPARISONS, OVERALL, PROMPTS, RANKINGS
from vernacular.config.specs import ComparisonsSpec
from vernacular.core import artifacts
from vernacular.core.errors import format_count
from vernacular.core.fields import Stage, to_json
from vernacular.protocols.lm_eval.metrics import tool_documents, tool_metrics
from vernacular.stages.sides import model_results, signatures_of, write_table


class Compare(Stage):
    """Compare models on the items that they share."""

    spec: ComparisonsSpec  # of the rule: what the results depend on
    results: Path  # directory with one directory per model
    out: Path  # directory of the tables
    pairs: Path  # table of the differences


def compare(args: Compare) -> str:
    """Compare pairs of models on their common items, rank all models in every column, and aggregate across tasks."""
    spec, pairs = args.spec, [tuple(pair) for pair in args.spec.pairs]
    settings = {name: vars(evaluation) for name, evaluation in spec.evaluations.items()}
    documents = {name: tool_documents(args.results, spec.models, name) for name in settings}
    grouped, notes = by_documents(settings, documents)
    found = compare_all(
        pairs,
        model_results(args.results, spec),
        grouped,
        signatures=signatures_of(args.results, spec.models),
        tool_metrics={name: tool_metrics(args.results, spec.models, name) for name in settings},
        unranked=spec.earlier_checkpoints,
        threads=args.threads,
    )
    sources = [args.results / model / "metrics.parquet" for model in spec.models]
    metadata = {"fingerprint": artifacts.input_fingerprint(to_json(spec), *sources), "notes": notes}
    artifacts.write(args.pairs, COMPARISONS, found.comparisons, metadata)
    for kind, rows in ((RANKINGS, found.rankings), (OVERALL, found.overall), (PROMPTS, found.prompts)):
        write_table(args.out / f"{kind.name}.parquet", kind, rows, metadata)
    write_table(args.out / "deciding_models.parquet", DECIDING_METRICS, found.deciding, metadata)
    return f"compare: {format_count(len(pairs), 'pair')}, {format_count(len(found.comparisons), 'difference')}"
