"""Command `compare`: per-item results of several models -> differences, rankings, changed items."""

import json
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa

from vernacular.commands.common import items_in
from vernacular.commands.tool_metrics import tool_documents, tool_metrics
from vernacular.comparison.changes import align_outcomes, find_changes, sort_changes
from vernacular.comparison.compare import compare_all
from vernacular.comparison.external.load import Reference, load_external_results
from vernacular.comparison.external.publications import load_publication
from vernacular.comparison.external.published_files import is_publication, published_signatures
from vernacular.comparison.prompt_groups import by_documents
from vernacular.comparison.schema import CHANGES, COMPARISONS, OVERALL, PROMPTS, RANKINGS
from vernacular.core import artifacts
from vernacular.core.artifacts import replacing
from vernacular.core.errors import UserError, first_line, format_count, is_contained
from vernacular.core.processes import pool
from vernacular.core.progress import Progress
from vernacular.core.tables import csv_text, values_of
from vernacular.core.written import rewriting
from vernacular.interop import EXPORTS
from vernacular.interop.serbian_cloze import serbian_json
from vernacular.metrics.schema import METRICS, TASK_RESULTS

log = logging.getLogger("vernacular")

_to_json = json.JSONEncoder(ensure_ascii=False).encode  # json.dumps would create an encoder for every cell


_MIN_ITEMS_FOR_POOL = 50_000  # changed items: writing more takes longer than starting a process


class Results(Mapping):
    """TASK_RESULTS of one model by evaluation, read from its directory on each access."""

    def __init__(self, directory: Path, evaluations: list[str]):
        self.paths = {evaluation: directory / "tasks" / f"{evaluation}.parquet" for evaluation in evaluations}

    def __getitem__(self, evaluation: str) -> pa.Table:
        return artifacts.read(self.paths[evaluation], TASK_RESULTS)

    def outcomes(self, evaluation: str) -> pa.Table:
        """Return the results without their values per item, four fifths of the memory."""
        columns = [name for name in TASK_RESULTS.schema.names if name != "metrics"]
        return artifacts.read(self.paths[evaluation], TASK_RESULTS, columns=columns)

    def __contains__(self, evaluation) -> bool:  # the inherited method would read the file
        return evaluation in self.paths

    def __iter__(self) -> Iterator[str]:
        return iter(self.paths)

    def __len__(self) -> int:
        return len(self.paths)


def compare(args) -> str:
    """Compare pairs of models on their common items, rank all models in every column, and aggregate across tasks."""
    spec = args.spec
    evaluations, pairs = spec["evaluations"], [tuple(pair) for pair in spec["pairs"]]
    results: dict[str, Mapping[str, pa.Table]] = {
        model: Results(args.results / model, list(evaluations)) for model in spec["models"]
    }
    signatures = {model: _signatures(args.results / model / "metrics.parquet") for model in spec["models"]}
    notes, failures = [], {}
    for name, entry in spec["external_results"].items():
        try:
            results[name], external_notes = _load_external_results(name, entry, results, spec, args.items_dir)
            notes += external_notes
            if entry.get("model"):
                signatures[name] = published_signatures(Path(entry["path"]), entry["model"])
        except BaseException as error:
            if not is_contained(error):
                raise
            results[name] = {}  # its pairs have no rows
            failures[name] = _reason(error)
            log.error("%s: %s", name, failures[name], exc_info=not isinstance(error, UserError))
    documents = {name: tool_documents(args.results, spec["models"], name) for name in evaluations}
    grouped, document_notes = by_documents(evaluations, documents)
    comparison = compare_all(
        pairs,
        results,
        grouped,
        signatures=signatures,
        tool_metrics={name: tool_metrics(args.results, spec["models"], name) for name in evaluations},
        external_names=spec["external_results"],
        unranked=spec.get("earlier_checkpoints", ()),
        threads=args.threads,
    )
    tasks = [args.results / model / "metrics.parquet" for model in spec["models"]]
    metadata = {
        "fingerprint": artifacts.input_fingerprint(spec, *tasks),
        "notes": notes,
        "failures": failures,
        "prompt_notes": document_notes,
    }
    for kind, rows in (
        (COMPARISONS, comparison.comparisons),
        (RANKINGS, comparison.rankings),
        (OVERALL, comparison.overall),
        (PROMPTS, comparison.prompts),
    ):
        path = artifacts.write(args.out / f"{kind.name}.parquet", kind, rows, metadata)
        _write_csv(path.with_suffix(".csv"), artifacts.read(path, kind))
    with rewriting(args.changes, "comparisons") as directory:
        n_changed = _write_changes(
            directory, pairs, results, evaluations, args.items_dir, metadata["fingerprint"], args.threads
        )
    counts = [
        format_count(len(pairs), "pair"),
        format_count(len(comparison.comparisons), "difference"),
        format_count(n_changed, "item"),
    ]
    return f"compare: {', '.join(counts)} improved or regressed"


def _write_changes(
    directory: Path,
    pairs: list[tuple],
    results: Mapping,
    evaluations: dict,
    items_dir: Path,
    input_fingerprint: str,
    processes: int,
) -> int:
    """Write each pair's improved and regressed items as Parquet and CSV; return the number of these items.

    Items of cloze evaluations are also written in the format of the Serbian scripts. Evaluations are processed one
    after the other, so that each file is read once, regardless of the number of pairs.
    """
    changed_tables: dict[tuple, list[pa.Table]] = {pair: [] for pair in pairs}
    with Progress("changed items", len(evaluations), "evaluation") as progress:
        for evaluation, evaluation_spec in evaluations.items():
            available_pairs = [pair for pair in pairs if all(evaluation in results[side] for side in pair)]
            names = dict.fromkeys(side for pair in available_pairs for side in pair)
            tables = {side: results[side] for side in names}
            sides = align_outcomes(
                {
                    side: table.outcomes(evaluation) if isinstance(table, Results) else table[evaluation]
                    for side, table in tables.items()
                }
            )
            for baseline, candidate in available_pairs:
                changed_tables[baseline, candidate].append(find_changes(sides[baseline], sides[candidate], evaluation))
            if available_pairs and EXPORTS.get(evaluation_spec["protocol"]) == "serbian_cloze":
                order = {
                    item["item_id"]: item["source_row"]
                    for item in items_in(items_dir / f"{evaluation_spec['items']}.parquet")
                }
                for baseline, candidate in available_pairs:
                    if text := serbian_json(sides[baseline].table, sides[candidate].table, order):
                        with replacing(directory / f"{baseline}--{candidate}" / f"{evaluation}.json") as temporary:
                            temporary.write_text(text + "\n", "utf-8")
            progress.advance()
    files = [
        (directory / f"{baseline}--{candidate}", tables, input_fingerprint)
        for (baseline, candidate), tables in changed_tables.items()
    ]
    n_changed = sum(table.num_rows for tables in changed_tables.values() for table in tables)
    if processes > 1 and n_changed >= _MIN_ITEMS_FOR_POOL:
        with pool(processes) as workers:
            list(workers.map(_write_pair, *zip(*files, strict=True)))
    else:
        for pair_dir, tables, _ in files:
            _write_pair(pair_dir, tables, input_fingerprint)
    return n_changed


def _write_pair(directory: Path, tables: list[pa.Table], input_fingerprint: str) -> None:
    """Write one pair's improved and regressed items of all evaluations, ordered by `sort_changes`."""
    table = sort_changes(pa.concat_tables([CHANGES.schema.empty_table(), *tables]))
    metadata = {"fingerprint": artifacts.input_fingerprint(directory.name, input_fingerprint)}
    artifacts.write(directory / "changes.parquet", CHANGES, table, metadata)
    _write_csv(directory / "changes.csv", table)


def _write_csv(path: Path, table: pa.Table) -> None:
    """Write a table with its lists as JSON; NaN is an empty cell. Without pandas, whose import takes half a second."""
    columns = []
    for field in table.schema:
        values = values_of(table[field.name])
        if pa.types.is_list(field.type):
            values = [None if value is None else _to_json(value) for value in values]
        columns.append([None if value != value else value for value in values])
    with replacing(path) as temporary:
        temporary.write_text(csv_text(table.column_names, zip(*columns, strict=True)), encoding="utf-8", newline="")


def _load_external_results(
    name: str, entry: dict, results: Mapping, spec: dict, items_dir: Path
) -> tuple[dict, list[str]]:
    """Return external results, matched to items, and notes; the reference is the first model with results."""
    references = {}
    for evaluation, evaluation_spec in spec["evaluations"].items():
        tables = ((model, results[model][evaluation]) for model in spec["models"])
        model, rows = next(((model, table) for model, table in tables if table.num_rows), (None, None))
        if rows is not None:
            items = items_in(items_dir / f"{evaluation_spec['items']}.parquet")
            few_shot_examples = artifacts.metadata(results[model].paths[evaluation]).get("few_shot_examples")
            references[evaluation] = Reference(
                evaluation_spec["protocol"], evaluation_spec["shots"], rows, items, few_shot_examples
            )
    path = Path(entry["path"])
    if is_publication(path):
        tables, notes = load_publication(path, entry.get("model"), references)
    else:
        tables, notes = load_external_results(path, references)
    return tables, [f"{name}: {note}" for note in notes]


def _reason(error: BaseException) -> str:
    """Return why external results are not used, in one line."""
    text = "; ".join(str(error).splitlines()) if isinstance(error, UserError) else first_line(error)
    kind = "" if isinstance(error, UserError | OSError) else f"{type(error).__name__}: "
    return f"external results not used: {kind}{text}"


def _signatures(path: Path) -> dict[tuple[str, str], str]:
    table = artifacts.read(path, METRICS)
    columns = (table.column(name).to_pylist() for name in ("evaluation", "metric", "signature"))
    return {(evaluation, metric): signature for evaluation, metric, signature in zip(*columns, strict=True)}
