"""Stage `changes`: per-item results of pairs -> the items that improved or regressed.

Items whose outcome differs between two sides are listed: regressed before improved, largest change first. For this,
the rows of each side are prepared once, and each of its pairs only selects rows: with many pairs, an item changes many
times.
"""

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vernacular.comparison.align import Side, align, margins
from vernacular.comparison.schema import CHANGES, IMPROVED, MARGIN_SIGNS, REGRESSED
from vernacular.config.specs import SidesSpec
from vernacular.core import artifacts
from vernacular.core.errors import format_count, writing
from vernacular.core.fields import Stage, to_json
from vernacular.core.logs import Progress
from vernacular.core.processes import pool
from vernacular.core.written import rewriting
from vernacular.data.schema import ITEMS
from vernacular.exchange import EXPORTS
from vernacular.exchange.source_tools import serbian_json
from vernacular.metrics.schema import as_table
from vernacular.stages.sides import csv_beside, outcomes, read_sides, sides_files

_SORT_KEYS = [("change", "descending"), ("margin_change", "descending"), ("evaluation", "ascending"),
              ("item_id", "ascending")]  # fmt: skip
_MIN_ITEMS_FOR_POOL = 50_000  # changed items: writing more takes longer than starting a process


class Changes(Stage):
    """List the items that improved or regressed between the sides of each pair."""

    spec: SidesSpec  # of the rule: what the results depend on
    results: Path  # directory with one directory per model
    items_dir: Path  # directory of the items files
    matched: Path | None = None  # directory of the matched external results
    out: Path  # directory with a directory per pair


def changes(args: Changes) -> str:
    """Write each pair's improved and regressed items as Parquet and CSV.

    Items of cloze evaluations are also written in the format of the Serbian scripts. Evaluations are processed one
    after the other, so that each file is read once, regardless of the number of pairs. Until a pair is written, its
    items are in a temporary file: the texts of 12 models and 289,000 items would need 300 MB.
    """
    pairs = [tuple(pair) for pair in args.spec.pairs]
    results = read_sides(args.results, args.spec, args.matched)
    sources = sides_files(args.results, args.spec, args.matched)
    key = artifacts.input_fingerprint(to_json(args.spec), *sources)
    with rewriting(args.out, "comparisons") as directory:
        n_changed = _write_changes(directory, pairs, results, args, key)
    return f"changes: {format_count(n_changed, 'item')} of {format_count(len(pairs), 'pair')} improved or regressed"


def _write_changes(directory: Path, pairs: list[tuple], results: Mapping, args: Changes, key: str) -> int:
    """Write the files of each pair to `directory`; return the number of improved and regressed items."""
    changed: dict[tuple, list[int]] = {pair: [] for pair in pairs}  # offsets in the file
    evaluations, n_changed = args.spec.evaluations, 0
    with (
        tempfile.NamedTemporaryFile() as file,
        Progress("changed items", len(evaluations), "evaluation") as progress,
    ):
        for evaluation, settings in evaluations.items():
            available_pairs = [pair for pair in pairs if all(evaluation in results[side] for side in pair)]
            names = dict.fromkeys(side for pair in available_pairs for side in pair)
            sides = align_outcomes((side, outcomes(results[side], evaluation)) for side in names)
            for baseline, candidate in available_pairs:
                table = find_changes(sides[baseline], sides[candidate], evaluation)
                n_changed += table.num_rows
                changed[baseline, candidate].append(file.tell())
                with writing(file.name):
                    with pa.ipc.new_stream(file, CHANGES.schema) as stream:
                        stream.write_table(table)
                    file.flush()
            if available_pairs and EXPORTS.get(settings.protocol) == "serbian_cloze":
                file_of_items = args.items_dir / f"{settings.items_stem}.parquet"
                items = artifacts.read(file_of_items, ITEMS, columns=["item_id", "source_row"]).to_pylist()
                order = {item["item_id"]: item["source_row"] for item in items}
                for baseline, candidate in available_pairs:
                    tables = (outcomes(results[side], evaluation) for side in (baseline, candidate))
                    if text := serbian_json(*tables, order):
                        path = directory / f"{baseline}--{candidate}" / f"{evaluation}.json"
                        artifacts.write_text(path, text + "\n")
            progress.advance()
        parts = [(directory / "--".join(pair), file.name, offsets, key) for pair, offsets in changed.items()]
        if args.threads > 1 and n_changed >= _MIN_ITEMS_FOR_POOL:
            with pool(args.threads) as workers:
                list(workers.map(_write_pair, *zip(*parts, strict=True)))
        else:
            for part in parts:
                _write_pair(*part)
    return n_changed


def _write_pair(directory: Path, changed: str, offsets: list[int], input_fingerprint: str) -> None:
    """Write one pair's improved and regressed items of all evaluations, ordered by `sort_changes`.

    `changed` is a file with a stream of items at each of the offsets.
    """
    tables = [CHANGES.schema.empty_table()]
    with pa.OSFile(changed) as file:
        for offset in offsets:
            file.seek(offset)
            tables.append(pa.ipc.open_stream(file).read_all())
    table = sort_changes(pa.concat_tables(tables))
    metadata = {"fingerprint": artifacts.input_fingerprint(directory.name, input_fingerprint)}
    artifacts.write(directory / "changes.parquet", CHANGES, table, metadata)
    csv_beside(directory / "changes.parquet", table)


_SHARED = ["item_id", "cluster_id", "category", "prompt", "choices", "gold"]


@dataclass(frozen=True)
class ItemOutcomes:
    """One model's rows of an evaluation, aligned to all N items that any of its models has."""

    texts: pa.Table  # _SHARED columns of TASK_RESULTS
    answers: pa.Table  # its columns prediction and option_scores
    side: Side
    correct: np.ndarray  # (N,) 1, 0; NaN: unknown
    margin: np.ndarray  # (N,) best correct score - best incorrect score; NaN if a score is missing


def align_outcomes(tables: Iterable[tuple[str, pa.Table]]) -> dict[str, ItemOutcomes]:
    """Align several models' TASK_RESULTS (tables or lists of rows) of one evaluation; return them by model.

    One table is in memory at a time; its texts remain, once for all models that have the same.
    """
    read: dict[str, tuple] = {}

    def reading() -> Iterator[tuple[str, pa.Table]]:
        for model, rows in tables:
            table = as_table(rows)
            texts = table.select(_SHARED)
            first, *_ = next(iter(read.values()), (texts,))
            correct = np.array(table["correct"].to_pylist(), dtype=float)
            answers = table.select(["prediction", "option_scores"])
            read[model] = first if texts.equals(first) else texts, answers, correct, margins(table)
            yield model, table

    sides = align(reading(), [])[1]
    return {
        model: ItemOutcomes(texts, answers, side := sides[model], side.of_items(correct), side.of_items(margin))
        for model, (texts, answers, correct, margin) in read.items()
    }


def find_changes(baseline: ItemOutcomes, candidate: ItemOutcomes, evaluation: str) -> pa.Table:
    """Return CHANGES rows of one evaluation, in any order: items whose value of `correct` differs.

    An item counts if both sides have a value of `correct` and the same prompt, options and gold. `margin_change` is
    how far the correct option rose (improved) or fell (regressed) relative to the best incorrect one, in the unit of
    the option scores; null if a side has no scores.
    """
    known = ~np.isnan(baseline.correct) & ~np.isnan(candidate.correct)
    same = known & (baseline.side.text_id == candidate.side.text_id)
    indices = np.flatnonzero(same & (baseline.correct != candidate.correct))
    improved = candidate.correct[indices] == 1
    with np.errstate(invalid="ignore"):  # inf - inf
        margin_change = candidate.margin[indices] - baseline.margin[indices]
    margin_change *= np.where(improved, MARGIN_SIGNS[IMPROVED], MARGIN_SIGNS[REGRESSED])
    baseline_rows, candidate_rows = (
        model.answers.take(pa.array(model.side.rows[indices])) for model in (baseline, candidate)
    )
    texts = candidate.texts.take(pa.array(candidate.side.rows[indices]))
    columns = {name: texts[name] for name in _SHARED} | {
        "evaluation": pa.array([evaluation] * len(indices), pa.string()),
        "change": pa.array(np.where(improved, IMPROVED, REGRESSED), pa.string()),
        "margin_change": pa.array(margin_change, pa.float64(), mask=~np.isfinite(margin_change)),
        "baseline_prediction": baseline_rows["prediction"],
        "candidate_prediction": candidate_rows["prediction"],
        "baseline_scores": baseline_rows["option_scores"],
        "candidate_scores": candidate_rows["option_scores"],
    }
    return pa.table({name: columns[name] for name in CHANGES.schema.names}, schema=CHANGES.schema)


def sort_changes(table: pa.Table) -> pa.Table:
    """Sort CHANGES rows: regressed before improved, largest change first within each, rows without scores last."""
    return table.take(pc.sort_indices(table, sort_keys=_SORT_KEYS))
