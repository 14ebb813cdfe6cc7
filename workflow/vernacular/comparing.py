"""The verb that compares: per-item results of several models -> differences, standings, what was won and lost."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
from tqdm import tqdm

from vernacular import artifacts
from vernacular.artifacts import replacing
from vernacular.asking import items_in
from vernacular.errors import DataError
from vernacular.metrics.schema import METRICS, TASK_RESULTS


class Results(Mapping):
    """One model's TASK_RESULTS by evaluation, read from its folder whenever one is asked for."""

    def __init__(self, folder: Path, evaluations: list[str]):
        self.paths = {evaluation: folder / "tasks" / f"{evaluation}.parquet" for evaluation in evaluations}

    def __getitem__(self, evaluation: str) -> pa.Table:
        return artifacts.read(self.paths[evaluation], TASK_RESULTS)

    def __iter__(self) -> Iterator[str]:
        return iter(self.paths)

    def __len__(self) -> int:
        return len(self.paths)


def compare(args) -> str:
    """Pairs of models on the items both answered, each model's place in every column, and all of it across tasks."""
    from vernacular.comparison.everything import compare_all
    from vernacular.comparison.schema import COMPARISONS, OVERALL, STANDINGS
    from vernacular.summary.tables import to_frame, write_csv

    spec = args.spec
    evaluations, pairs = spec["evaluations"], [tuple(pair) for pair in spec["pairs"]]
    results: dict[str, Mapping[str, pa.Table]] = {
        model: Results(args.results / model, list(evaluations)) for model in spec["models"]
    }
    signatures = {model: _signatures(args.results / model / "metrics.parquet") for model in spec["models"]}
    notes = []
    for name, what in spec["joined"].items():
        results[name], said = _joined(name, Path(what["results"]), results, spec, args.items_folder)
        notes += said
    found = compare_all(
        pairs, results, evaluations, signatures=signatures, outsiders=spec["joined"], threads=args.threads
    )
    tasks = [args.results / model / "metrics.parquet" for model in spec["models"]]
    told = {"fingerprint": artifacts.made_of(spec, *tasks), "notes": notes}
    for kind, rows in ((COMPARISONS, found.comparisons), (STANDINGS, found.standings), (OVERALL, found.overall)):
        path = artifacts.write(args.out / f"{kind.name}.parquet", kind, rows, told)
        write_csv(path.with_suffix(".csv"), to_frame(artifacts.read(path, kind)))
    args.changes.mkdir(parents=True, exist_ok=True)
    changed = sum(
        _write_changes(args.changes / f"{baseline}--{candidate}", results[baseline], results[candidate], evaluations)
        for baseline, candidate in tqdm(pairs, desc="won and lost items", disable=None)
    )
    return f"compare: {len(pairs)} pairs, {len(found.comparisons)} differences, {changed} items won or lost"


def _write_changes(folder: Path, baseline: Mapping, candidate: Mapping, evaluations: dict) -> int:
    """A pair's won and lost items, as Parquet and CSV, and a cloze evaluation's as the Serbian scripts write it."""
    from vernacular.comparison.changes import changes, worst_first
    from vernacular.comparison.schema import CHANGES
    from vernacular.comparison.serbian import serbian_json
    from vernacular.summary.tables import to_frame, write_csv

    rows, made_of = [], []
    for evaluation, what in evaluations.items():
        if evaluation not in baseline or evaluation not in candidate:
            continue
        sides = baseline[evaluation], candidate[evaluation]
        rows += changes(*sides, evaluation)
        made_of.append(evaluation)
        if what["protocol"] == "cloze" and (text := serbian_json(*sides)):
            with replacing(folder / f"{evaluation}.json") as temporary:
                temporary.write_text(text + "\n", "utf-8")
    rows = worst_first(rows)
    note = {"fingerprint": artifacts.made_of(folder.name, made_of, [[r["evaluation"], r["item_id"]] for r in rows])}
    path = artifacts.write(folder / "changes.parquet", CHANGES, rows, note)
    frame = to_frame(artifacts.read(path, CHANGES))
    for name in ("options", "gold", "baseline_scores", "candidate_scores"):
        frame[name] = [None if v is None else json.dumps(v.tolist(), ensure_ascii=False) for v in frame[name]]
    write_csv(folder / "changes.csv", frame)
    return len(rows)


def _joined(name: str, path: Path, results: Mapping, spec: dict, items_folder: Path) -> tuple[dict, list[str]]:
    """Results made elsewhere, matched to our items; what is known of our items is the first model's that has them."""
    from vernacular.comparison.joined import Reference, join

    references = {}
    for evaluation, what in spec["evaluations"].items():
        rows = next((table for of_model in results.values() if (table := of_model[evaluation]).num_rows), None)
        if rows is not None:
            items = items_in(items_folder / f"{what['items']}.parquet")
            references[evaluation] = Reference(what["protocol"], what["shots"], rows, items)
    try:
        tables, notes = join(path, references)
    except DataError as error:
        raise DataError(f"joined.{name}: {error}") from None
    return tables, [f"{name}: {note}" for note in notes]


def _signatures(path: Path) -> dict[tuple[str, str], str]:
    table = artifacts.read(path, METRICS)
    columns = (table.column(name).to_pylist() for name in ("evaluation", "metric", "signature"))
    return {(evaluation, metric): signature for evaluation, metric, signature in zip(*columns, strict=True)}
