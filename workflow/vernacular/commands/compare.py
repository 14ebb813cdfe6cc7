"""Command `compare`: per-item results of several models -> differences, rankings, changed items.

Items whose outcome differs between two models are listed: regressed before improved, largest change first. For this,
each model's rows are prepared once, and each of its pairs only selects rows: with many pairs, an item changes many
times.
"""

import json
import logging
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vernacular.commands.common import items_in
from vernacular.comparison.align import Side, align, margins
from vernacular.comparison.borrowing import borrow
from vernacular.comparison.compare import ComparisonResults, compare_all
from vernacular.comparison.external.load import Reference, load_external_results
from vernacular.comparison.external.publications import is_publication, load_publication, published_signatures
from vernacular.comparison.labels import ESTIMATES, as_comparisons, estimates
from vernacular.comparison.over_prompts import by_documents
from vernacular.comparison.schema import (
    CHANGES,
    COMPARISONS,
    IMPROVED,
    MARGIN_SIGNS,
    OVERALL,
    PROMPTS,
    RANKINGS,
    REGRESSED,
)
from vernacular.comparison.sheets import (
    COMPARISONS_WITHOUT_FAULTS,
    WITHOUT_FAULTS,
    WithoutFaults,
    beside,
    confirmed,
    read_labels,
    read_verdicts,
    values_without,
)
from vernacular.config.specs import ComparisonsSpec, ExternalSpec
from vernacular.core import artifacts
from vernacular.core.artifacts import replacing
from vernacular.core.errors import UserError, first_line, format_count, is_contained, writing
from vernacular.core.fields import Stage, to_json
from vernacular.core.logs import Progress
from vernacular.core.metadata import Outcome
from vernacular.core.processes import pool
from vernacular.core.tables import csv_text, values_of
from vernacular.core.written import rewriting
from vernacular.interop import EXPORTS
from vernacular.interop.source_tools import serbian_json
from vernacular.metrics.schema import METRICS, TASK_RESULTS, as_table
from vernacular.protocols.evaluate import declared_metrics
from vernacular.protocols.lm_eval.metrics import tool_documents, tool_metrics

log = logging.getLogger("vernacular")
_SORT_KEYS = [("change", "descending"), ("margin_change", "descending"), ("evaluation", "ascending"),
              ("item_id", "ascending")]  # fmt: skip
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


class Compare(Stage):
    """Compare models on the items that they share."""

    spec: ComparisonsSpec  # of the rule: what the results depend on
    results: Path  # directory with one directory per model
    items_dir: Path  # directory of the items files
    out: Path  # directory of the tables
    changes: Path  # directory of the improved and regressed items, by pair


def compare(args: Compare) -> str:
    """Compare pairs of models on their common items, rank all models in every column, and aggregate across tasks."""
    spec = args.spec
    evaluations, pairs = spec.evaluations, [tuple(pair) for pair in spec.pairs]
    results: dict[str, Mapping[str, pa.Table]] = {
        model: Results(args.results / model, list(evaluations)) for model in spec.models
    }
    signatures = {model: _signatures(args.results / model / "metrics.parquet") for model in spec.models}
    notes, missing = [], {}
    for name, entry in spec.external_results.items():
        try:
            results[name], external_notes = _load_external_results(name, entry, results, spec, args.items_dir)
            notes += external_notes
            if entry.model:
                signatures[name] = published_signatures(Path(entry.path), entry.model)
        except BaseException as error:
            if not is_contained(error):
                raise
            results[name] = {}  # its pairs have no rows
            missing[name] = _reason(error)
            log.error("%s: %s", name, missing[name], exc_info=not isinstance(error, UserError))
    documents = {name: tool_documents(args.results, spec.models, name) for name in evaluations}
    settings = {name: vars(spec) for name, spec in evaluations.items()}
    grouped, document_notes = by_documents(settings, documents)
    common = {
        "signatures": signatures,
        "tool_metrics": {name: tool_metrics(args.results, spec.models, name) for name in evaluations},
        "external_names": spec.external_results,
        "unranked": spec.earlier_checkpoints,
        "threads": args.threads,
    }
    comparison = compare_all(pairs, results, grouped, **common)
    faults, verdict_notes = _confirmed_faults(args) if spec.verdicts else ({}, [])
    estimated, label_notes = _estimates(args, results, pairs, common["tool_metrics"])
    without = ComparisonResults([], [], [], [])
    if faults:
        others = {name: WithoutFaults(tables, faults) for name, tables in results.items()}
        without = compare_all(pairs, others, {name: grouped[name] for name in faults}, **common)
    tasks = [args.results / model / "metrics.parquet" for model in spec.models]
    metadata = {
        "fingerprint": artifacts.input_fingerprint(to_json(spec), *tasks),
        "notes": notes,
        "outcome": Outcome(missing=missing),  # external results
        "prompt_notes": document_notes + verdict_notes + label_notes,
    }
    if spec.verdicts:
        values = [
            {name: row.get(name) for name in WITHOUT_FAULTS.schema.names} | {"category": row.get("category") or ""}
            for row in without.prompts
            if row["baseline"] is None
        ]
        for model in spec.models:
            for name, table in WithoutFaults(results[model], faults).items():
                known = [*declared_metrics(evaluations[name].protocol).values(), *common["tool_metrics"][name]]
                values += values_without(model, name, table, known) if table.num_rows else []
        rows = without.comparisons
        artifacts.write(args.out / "without_faults.parquet", WITHOUT_FAULTS, values, metadata)
        artifacts.write(args.out / "comparisons_without_faults.parquet", COMPARISONS_WITHOUT_FAULTS, rows, metadata)
    if spec.labels or spec.borrow_from:
        path = artifacts.write(args.out / "labels.parquet", ESTIMATES, estimated, metadata)
        _write_csv(path.with_suffix(".csv"), artifacts.read(path, ESTIMATES))
    for kind, rows in (
        (COMPARISONS, comparison.comparisons + as_comparisons(estimated, settings)),
        (RANKINGS, comparison.rankings),
        (OVERALL, comparison.overall),
        (PROMPTS, comparison.prompts),
    ):
        path = artifacts.write(args.out / f"{kind.name}.parquet", kind, rows, metadata)
        table = artifacts.read(path, kind)
        if spec.verdicts and kind is COMPARISONS:
            table = beside(table, without.comparisons)
        _write_csv(path.with_suffix(".csv"), table)
    with rewriting(args.changes, "comparisons") as directory:
        n_changed = _write_changes(directory, pairs, results, args, metadata["fingerprint"])
    counts = {"pair": len(pairs), "difference": len(comparison.comparisons), "item": n_changed}
    texts = (format_count(count, noun) for noun, count in counts.items())
    return f"compare: {', '.join(texts)} improved or regressed"


def _confirmed_faults(args: Compare) -> tuple[dict[str, frozenset[str]], list[dict]]:
    """Return the confirmed faults of each evaluation that has any, and notes on all verdicts."""
    verdicts = [verdict for path in args.spec.verdicts for verdict in read_verdicts(Path(path))]
    faults, notes, by_items = {}, [], {}
    for name, spec in args.spec.evaluations.items():
        own = [verdict for verdict in verdicts if (verdict.task, verdict.language) == (spec.task, spec.language)]
        if own and spec.items_stem not in by_items:
            items = items_in(args.items_dir / f"{spec.items_stem}.parquet")
            by_items[spec.items_stem] = confirmed(own, {item["item_id"]: item for item in items})
        if own:
            found = by_items[spec.items_stem]
            faults |= {name: found.faults} if found.faults else {}
            notes += [_verdict_note(name, note) for note in found.notes]
    tasks = {(spec.task, spec.language) for spec in args.spec.evaluations.values()}
    others = sorted({f"{each.task}.{each.language}" for each in verdicts if (each.task, each.language) not in tasks})
    if others:
        notes.append(_verdict_note(None, f"verdicts on items that are not evaluated: {', '.join(others)}."))
    return faults, notes


def _verdict_note(evaluation: str | None, note: str, kind: str = "verdicts") -> dict:
    return {"model": None, "evaluation": evaluation, "kind": kind, "note": note, "count": None}


def _estimates(args: Compare, results: Mapping, pairs: list[tuple], tool_metrics: dict) -> tuple[list, list]:
    """Return values by labels and borrowed values as rows per ESTIMATES, and notes, which are printed, too."""
    spec, rows, notes, labels = args.spec, [], [], {}
    for path in spec.labels:
        for label in read_labels(Path(path)):
            labels.setdefault(label.evaluation, []).append(label)
    for name, settings in spec.evaluations.items():
        known = [*declared_metrics(settings.protocol).values(), *tool_metrics[name]]
        if own := labels.get(name):
            tables = {model: [results[model][name]] for model in spec.models}
            tables = {model: own_tables for model, own_tables in tables.items() if own_tables[0].num_rows}
            found = estimates(name, own, tables, pairs, known)
            rows += found.rows
            notes += [_verdict_note(name, note, "labels") for note in found.notes]
        for model in spec.models if name in spec.limits else ():
            lenders = {
                other: artifacts.read(Path(path), TASK_RESULTS)
                for path in spec.borrow_from
                if Path(path).stem == name and (other := Path(path).parts[-3]) != model
            }
            found = borrow(name, model, results[model][name], lenders, known, spec.limits[name])
            rows += found.rows
            notes += [_verdict_note(name, note, "borrowed") for note in found.notes]
    if others := ", ".join(sorted(set(labels) - set(spec.evaluations))):
        notes.append(_verdict_note(None, f"labels of evaluations that are not in the config: {others}.", "labels"))
    for note in notes:
        print(": ".join(filter(None, (note["evaluation"], note["note"]))))
    return rows, notes


def _outcomes(tables: Mapping[str, pa.Table], evaluation: str) -> pa.Table:
    return tables.outcomes(evaluation) if isinstance(tables, Results) else tables[evaluation]


def _write_changes(directory: Path, pairs: list[tuple], results: Mapping, args: Compare, key: str) -> int:
    """Write each pair's improved and regressed items as Parquet and CSV; return the number of these items.

    Items of cloze evaluations are also written in the format of the Serbian scripts. Evaluations are processed one
    after the other, so that each file is read once, regardless of the number of pairs. Until a pair is written, its
    items are in a temporary file: the texts of 12 models and 289,000 items would need 300 MB.
    """
    changed: dict[tuple, list[int]] = {pair: [] for pair in pairs}  # offsets in the file
    evaluations, n_changed = args.spec.evaluations, 0
    with (
        tempfile.NamedTemporaryFile() as file,
        Progress("changed items", len(evaluations), "evaluation") as progress,
    ):
        for evaluation, settings in evaluations.items():
            available_pairs = [pair for pair in pairs if all(evaluation in results[side] for side in pair)]
            names = dict.fromkeys(side for pair in available_pairs for side in pair)
            sides = align_outcomes((side, _outcomes(results[side], evaluation)) for side in names)
            for baseline, candidate in available_pairs:
                table = find_changes(sides[baseline], sides[candidate], evaluation)
                n_changed += table.num_rows
                changed[baseline, candidate].append(file.tell())
                with writing(file.name):
                    with pa.ipc.new_stream(file, CHANGES.schema) as stream:
                        stream.write_table(table)
                    file.flush()
            if available_pairs and EXPORTS.get(settings.protocol) == "serbian_cloze":
                items = items_in(args.items_dir / f"{settings.items_stem}.parquet")
                order = {item["item_id"]: item["source_row"] for item in items}
                for baseline, candidate in available_pairs:
                    tables = (_outcomes(results[side], evaluation) for side in (baseline, candidate))
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
    name: str, entry: ExternalSpec, results: Mapping, spec: ComparisonsSpec, items_dir: Path
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


def _reason(error: BaseException) -> str:
    """Return why external results are not used, in one line."""
    text = "; ".join(str(error).splitlines()) if isinstance(error, UserError) else first_line(error)
    kind = "" if isinstance(error, UserError | OSError) else f"{type(error).__name__}: "
    return f"external results not used: {kind}{text}"


def _signatures(path: Path) -> dict[tuple[str, str], str]:
    table = artifacts.read(path, METRICS)
    columns = (table.column(name).to_pylist() for name in ("evaluation", "metric", "signature"))
    return {(evaluation, metric): signature for evaluation, metric, signature in zip(*columns, strict=True)}


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
