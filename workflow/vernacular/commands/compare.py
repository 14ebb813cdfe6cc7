"""Command `compare`: per-item results of several models -> differences, rankings, changed items."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
from tqdm import tqdm

from vernacular.commands.common import items_in
from vernacular.comparison.changes import changes, lay_out, worst_first
from vernacular.comparison.compare import compare_all
from vernacular.comparison.external.join import Reference, join
from vernacular.comparison.schema import CHANGES, COMPARISONS, OVERALL, RANKINGS
from vernacular.core import artifacts
from vernacular.core.artifacts import replacing
from vernacular.core.errors import DataError, counted
from vernacular.core.processes import pool
from vernacular.core.tables import to_frame, write_csv
from vernacular.metrics.schema import METRICS, TASK_RESULTS

try:
    from vernacular.interop.exports import EXPORTS
    from vernacular.interop.serbian_cloze import serbian_json
except ModuleNotFoundError:  # the package of export formats is optional
    EXPORTS = {}

_AS_JSON = json.JSONEncoder(ensure_ascii=False).encode  # json.dumps would create an encoder for every cell


_WORTH_PROCESSES = 50_000  # changed items: writing more takes longer than starting a process


class Results(Mapping):
    """TASK_RESULTS of one model by evaluation, read from its directory on each access."""

    def __init__(self, folder: Path, evaluations: list[str]):
        self.paths = {evaluation: folder / "tasks" / f"{evaluation}.parquet" for evaluation in evaluations}

    def __getitem__(self, evaluation: str) -> pa.Table:
        return artifacts.read(self.paths[evaluation], TASK_RESULTS)

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
    notes = []
    for name, what in spec["external_results"].items():
        results[name], said = _joined(name, Path(what["path"]), results, spec, args.items_dir)
        notes += said
    found = compare_all(
        pairs, results, evaluations, signatures=signatures, outsiders=spec["external_results"], threads=args.threads
    )
    tasks = [args.results / model / "metrics.parquet" for model in spec["models"]]
    told = {"fingerprint": artifacts.made_of(spec, *tasks), "notes": notes}
    for kind, rows in ((COMPARISONS, found.comparisons), (RANKINGS, found.rankings), (OVERALL, found.overall)):
        path = artifacts.write(args.out / f"{kind.name}.parquet", kind, rows, told)
        write_csv(path.with_suffix(".csv"), to_frame(artifacts.read(path, kind)))
    changed = _write_changes(
        args.changes, pairs, results, evaluations, args.items_dir, told["fingerprint"], args.threads
    )
    counts = [counted(len(pairs), "pair"), counted(len(found.comparisons), "difference"), counted(changed, "item")]
    return f"compare: {', '.join(counts)} improved or regressed"


def _write_changes(
    folder: Path,
    pairs: list[tuple],
    results: Mapping,
    evaluations: dict,
    items_dir: Path,
    made_of: str,
    processes: int,
) -> int:
    """Write each pair's improved and regressed items as Parquet and CSV; return the number of these items.

    Items of cloze evaluations are also written in the format of the Serbian scripts. Evaluations are processed one
    after the other, so that each file is read once, regardless of the number of pairs.
    """
    folder.mkdir(parents=True, exist_ok=True)
    found: dict[tuple, list[pa.Table]] = {pair: [] for pair in pairs}
    for evaluation, what in tqdm(evaluations.items(), desc="changed items", disable=None):
        there = [pair for pair in pairs if all(evaluation in results[side] for side in pair)]
        named = dict.fromkeys(side for pair in there for side in pair)
        sides = lay_out({side: results[side][evaluation] for side in named})
        for baseline, candidate in there:
            found[baseline, candidate].append(changes(sides[baseline], sides[candidate], evaluation))
        if there and EXPORTS.get(what["protocol"]) == "serbian_cloze":
            order = {item["item_id"]: item["source_row"] for item in items_in(items_dir / f"{what['items']}.parquet")}
            for baseline, candidate in there:
                if text := serbian_json(sides[baseline].table, sides[candidate].table, order):
                    with replacing(folder / f"{baseline}--{candidate}" / f"{evaluation}.json") as temporary:
                        temporary.write_text(text + "\n", "utf-8")
    files = [(folder / f"{baseline}--{candidate}", tables, made_of) for (baseline, candidate), tables in found.items()]
    changed = sum(table.num_rows for tables in found.values() for table in tables)
    if processes > 1 and changed >= _WORTH_PROCESSES:
        with pool(processes) as several:
            list(several.map(_write_pair, *zip(*files, strict=True)))
    else:
        for place, tables, _ in files:
            _write_pair(place, tables, made_of)
    return changed


def _write_pair(place: Path, tables: list[pa.Table], made_of: str) -> None:
    """Write one pair's improved and regressed items of all evaluations, ordered by `worst_first`."""
    table = worst_first(pa.concat_tables([CHANGES.schema.empty_table(), *tables]))
    note = {"fingerprint": artifacts.made_of(place.name, made_of)}
    artifacts.write(place / "changes.parquet", CHANGES, table, note)
    frame = to_frame(table)
    for name in ("choices", "gold", "baseline_scores", "candidate_scores"):
        frame[name] = [None if value is None else _AS_JSON(value) for value in table[name].to_pylist()]
    write_csv(place / "changes.csv", frame)


def _joined(name: str, path: Path, results: Mapping, spec: dict, items_dir: Path) -> tuple[dict, list[str]]:
    """Return external results, matched to items, and notes; the reference is the first model with results."""
    references = {}
    for evaluation, what in spec["evaluations"].items():
        tables = ((model, results[model][evaluation]) for model in spec["models"])
        model, rows = next(((model, table) for model, table in tables if table.num_rows), (None, None))
        if rows is not None:
            items = items_in(items_dir / f"{what['items']}.parquet")
            solved = artifacts.metadata(results[model].paths[evaluation]).get("few_shot_examples")
            references[evaluation] = Reference(what["protocol"], what["shots"], rows, items, solved)
    try:
        tables, notes = join(path, references)
    except DataError as error:
        raise DataError(f"external_results.{name}: {error}") from None
    return tables, [f"{name}: {note}" for note in notes]


def _signatures(path: Path) -> dict[tuple[str, str], str]:
    table = artifacts.read(path, METRICS)
    columns = (table.column(name).to_pylist() for name in ("evaluation", "metric", "signature"))
    return {(evaluation, metric): signature for evaluation, metric, signature in zip(*columns, strict=True)}
