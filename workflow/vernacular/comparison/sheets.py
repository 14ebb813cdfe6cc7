"""Sheets that speakers fill in: labels of responses, and verdicts on items; and values without confirmed faults.

Responses to judge are drawn by whole clusters of items in the order of `data.load.draw_key`, in which a limit draws
them, too. A sheet names no model, and equal responses of several models are one row. A label belongs to the texts that
were read.

Verdicts are from filled audit lists. An item is a confirmed fault if all verdicts on it name a fault; a verdict
refers to the item's texts and gold at the time of the list, and is not used for another version. The value over all
items stays the headline.
"""

import datetime
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa

from vernacular.comparison.audit import DECISIONS, FAULTS, OK, READ_RANDOM_ITEMS, content_of
from vernacular.core.errors import DataError, first_of, format_count, suggest
from vernacular.core.fingerprint import fingerprint
from vernacular.core.paths import display_path
from vernacular.core.tables import formula_safe
from vernacular.data.load import draw_key
from vernacular.data.readers import check_header, located_rows
from vernacular.metrics.aggregate import aggregate
from vernacular.metrics.metric import Metric
from vernacular.types import Item

# scales by name: what a speaker writes -> its value
CORRECT, GRADES, PAIRS = "correct", "1-5", "pairs"
SCALES: dict[str, dict[str, float]] = {
    CORRECT: {"correct": 1.0, "incorrect": 0.0},
    GRADES: {str(grade): float(grade) for grade in range(1, 6)},
    PAIRS: {"A": 1.0, "equal": 0.0, "B": -1.0},
}
LABEL_COLUMNS = ("evaluation", "item_id", "response_id", "scale", "label", "annotator")


@dataclass(frozen=True)
class Label:
    """What an annotator thinks of a response, or of two."""

    evaluation: str
    item_id: str
    response_id: str  # hash of the texts; of two responses, "A B" in the order of the sheet
    scale: str
    label: str
    annotator: str
    file: str  # name of the sheet

    @property
    def responses(self) -> str:
        """The hashes of the responses in one order, whatever that of the sheet."""
        return " ".join(sorted(self.response_id.split()))

    @property
    def value(self) -> float:
        """Of a response, or the preference for the first of `responses`."""
        value = SCALES[self.scale][self.label]
        return value if self.responses == self.response_id else -value


def read_all_labels(paths: Sequence[Path]) -> list[Label]:
    """Return the labels of filled sheets, as `read_labels`; files of one name have that of their directory, too."""
    stems = Counter(path.stem for path in paths)
    names = {path: f"{path.parent.name}/{path.stem}" if stems[path.stem] > 1 else path.stem for path in paths}
    return [label for path in paths for label in read_labels(path, names[path])]


def read_labels(path: Path, name: str | None = None) -> list[Label]:
    """Return the labels of a filled sheet, CSV or Excel; rows without one have none.

    Without a name in the column `annotator`, it is `name`, by default that of the file. Raises DataError if the file
    or a row is not valid, or the sheet is an audit list, whose items are no sample.
    """
    labels: dict[tuple, Label] = {}
    for location, row in filled_rows(path, (), "item_id", ""):
        if "decision" in row and "label" not in row:
            raise DataError(
                f"{display_path(path)}: expected a sheet of `vernacular labels`, got an audit list: its items were "
                "chosen by the models' answers and are no sample. Name it in verdicts:."
            )
        if missing := [name for name in LABEL_COLUMNS if name not in row]:
            advice = "fill in a sheet of `vernacular labels`"
            raise DataError(f'{location}: the column "{missing[0]}" is missing; {advice}.')
        cells = {name: cell_text(row[name]) for name in LABEL_COLUMNS}
        if not cells["label"]:
            continue
        if missing := [name for name in LABEL_COLUMNS[:4] if not cells[name]]:
            raise DataError(f"{location}: {missing[0]}: expected a value beside the label, got an empty cell.")
        _check_known(location, "scale", cells["scale"], SCALES)
        words = {word.casefold(): word for word in SCALES[cells["scale"]]}
        written = words.get(cells["label"].casefold(), cells["label"])
        _check_known(location, "label", written, SCALES[cells["scale"]])
        cells |= {"label": written, "annotator": cells["annotator"] or name or path.stem}
        label = Label(**cells, file=path.name)
        key = label.evaluation, label.item_id, label.response_id, label.annotator
        if (other := labels.setdefault(key, label)).label != label.label:
            raise DataError(f'{location}: {label.annotator} writes "{other.label}" for the same response, too.')
    scales: dict[str, str] = {}
    for label in labels.values():
        if scales.setdefault(label.evaluation, label.scale) != label.scale:
            raise DataError(f"{display_path(path)}: {label.evaluation} has labels on two scales; use one of them.")
    return list(labels.values())


def labeled_evaluations(sheets: Iterable[Path | str]) -> set[str]:
    """Return the evaluations with labels: without any, a judge's value is not validated."""
    return {label.evaluation for path in sheets for label in read_labels(Path(path))}


def response_id(row: Mapping) -> str:
    """Return the hash of the texts that a label is about, from a row of TASK_RESULTS.

    It says nothing about the model, so that equal responses of several models are read once.
    """
    return f"r{fingerprint([row[name] for name in ('item_id', 'prompt', 'choices', 'gold', 'prediction')])[:15]}"


TEXTS = ["item_id", "cluster_id", "prompt", "choices", "gold", "prediction"]


class Responses:
    """One model's responses in the order of the draw; items without a response, such as failed ones, are left out."""

    def __init__(self, table: pa.Table):
        rows = [row for row in table.select(TEXTS).to_pylist() if row["prediction"] is not None]
        keys = [draw_key(row["item_id"], row["cluster_id"]) for row in rows]
        order = sorted(range(len(rows)), key=lambda i: (keys[i], rows[i]["item_id"]))
        self.rows = [rows[i] for i in order]
        self.keys = [keys[i] for i in order]
        self.ids = [row["item_id"] for row in self.rows]

    @cached_property
    def response_ids(self) -> list[str]:
        return [response_id(row) for row in self.rows]

    def of_items(self, table: pa.Table, values: np.ndarray) -> np.ndarray:
        """Return values per row of a table of these items, in this order; NaN for items that it lacks."""
        known = dict(zip(table["item_id"].to_pylist(), values.tolist(), strict=True))
        return np.array([known.get(item_id, np.nan) for item_id in self.ids], dtype=float)


@dataclass(frozen=True)
class ToRead:
    """A row of a sheet: a response, or two in random order."""

    number: int  # of the item, in the order of the draw
    item_id: str
    response_id: str
    responses: tuple[str, ...]
    prompt: str
    reference: str  # correct options; "" without any


def rows_to_read(
    responses: Mapping[str, Responses],
    n: int,
    pairs: Iterable[tuple[str, str]] | None,
    references: Mapping[str, str],
    known: Iterable[Label],
) -> list[ToRead]:
    """Return the rows of the first clusters with at least n items, without those that have a label in `known`.

    `pairs`: models whose responses are compared; None: single responses are judged. `references`: by item.
    """
    items: dict[str, dict[str, dict]] = {}  # item -> model -> row of TASK_RESULTS
    keys: dict[str, str] = {}
    for model, own in responses.items():
        for row, key in zip(own.rows, own.keys, strict=True):
            items.setdefault(row["item_id"], {})[model] = row
            keys[row["item_id"]] = key
    order = sorted(items, key=lambda item: (keys[item], item))
    has_label = {label.responses for label in known}
    rows: list[ToRead] = []
    for number, item in enumerate(order, 1):
        if number > n and keys[item] != keys[order[number - 2]]:
            break
        texts = {response_id(row): row["prediction"] for row in items[item].values()}
        own = {model: response_id(row) for model, row in items[item].items()}
        both = [(own[a], own[b]) for a, b in pairs or () if a in own and b in own]
        groups = {tuple(sorted(each)) for each in both if len(set(each)) == 2}
        if pairs is None:
            groups = {(each,) for each in texts}
        # neither the order of rows nor that of a pair tells a model from another
        shuffled = sorted(tuple(sorted(group, key=lambda each: fingerprint([item, each]))) for group in groups)
        for group in sorted(shuffled, key=lambda group: fingerprint([item, *group])):
            if " ".join(sorted(group)) in has_label:
                continue
            row = next(row for row in items[item].values() if response_id(row) in group)
            reference = references.get(item) or " | ".join(row["choices"][i] for i in row["gold"])
            shown = tuple(texts[each] for each in group)
            rows.append(ToRead(number, item, " ".join(group), shown, row["prompt"], reference))
    return rows


_COLUMNS_READ = ("task", "language", "item_id", "content", "decision", "annotator", "date")
_CHOSEN = f"The items were chosen by the models' answers. {READ_RANDOM_ITEMS}"


@dataclass(frozen=True)
class Verdict:
    """What an annotator has decided on an item."""

    task: str
    language: str
    item_id: str
    content: str  # hash of the item's texts and gold that were read
    decision: str
    annotator: str
    date: str  # of the decision
    file: str  # name of the sheet


def read_verdicts(path: Path) -> list[Verdict]:
    """Return the verdicts of a filled sheet, CSV or Excel; rows without a decision have none.

    Raises DataError if the file or a row is not valid.
    """
    verdicts: dict[tuple, Verdict] = {}
    for location, row in filled_rows(path, _COLUMNS_READ, "decision", "fill in audit.csv or audit.xlsx of a run"):
        cells = {name: cell_text(row.get(name)) for name in _COLUMNS_READ}
        if not cells["decision"]:
            continue
        cells["decision"] = cells["decision"].lower()  # phones begin a cell with a capital
        _check_known(location, "decision", cells["decision"], DECISIONS)
        if missing := [name for name in _COLUMNS_READ if not cells[name]]:
            raise DataError(f"{location}: {missing[0]}: expected a value beside the decision, got an empty cell.")
        try:
            datetime.date.fromisoformat(cells["date"])
        except ValueError:
            raise DataError(f'{location}: date: expected a date such as 2026-11-30, got "{cells["date"]}".') from None
        verdict = Verdict(**cells, file=path.name)
        key = verdict.task, verdict.language, verdict.item_id, verdict.content, verdict.annotator
        if (other := verdicts.setdefault(key, verdict)).decision != verdict.decision:
            raise DataError(f'{location}: {verdict.annotator} decides "{other.decision}" on the same item, too.')
    return list(verdicts.values())


def filled_rows(path: Path, columns: Sequence[str], filled: str, advice: str) -> Iterator[tuple[str, dict]]:
    """Yield the rows of a filled sheet with their location: of a CSV file, or of the sheets with a column `filled`.

    Raises DataError if the file is not readable, or one of `columns` is missing.
    """

    def check(location: str, header) -> None:
        if missing := [name for name in columns if name not in header]:
            raise DataError(f'{location}: the column "{missing[0]}" is missing; {advice}.')

    if path.suffix.lower() != ".xlsx":
        rows = list(located_rows(path))
        check(display_path(path), rows[0][1] if rows else columns)
        yield from rows
        return
    if not path.is_file():
        raise DataError(f"{display_path(path)}: file not found.")
    import openpyxl  # not for every config: it takes a third of a second

    try:
        with warnings.catch_warnings(action="ignore"):  # of formatting that openpyxl does not know
            book = openpyxl.load_workbook(path, data_only=True)
    except Exception as error:  # noqa: BLE001  of zipfile, XML and openpyxl
        raise DataError(f"{display_path(path)}: not an Excel workbook ({type(error).__name__}).") from None
    n_sheets = 0
    for sheet in book:
        for merged in list(sheet.merged_cells.ranges):  # what they show belongs to each of their rows
            sheet.unmerge_cells(merged.coord)
            for number in range(merged.min_row + 1, merged.max_row + 1):
                sheet.cell(number, merged.min_col).value = sheet.cell(merged.min_row, merged.min_col).value
        cells, *rows = list(sheet.iter_rows(values_only=True)) or [()]
        if filled not in (header := list(map(cell_text, cells))):
            continue
        n_sheets += 1
        location = f"{display_path(path)}, sheet {sheet.title}"
        check_header(header, location)
        check(location, header)
        for number, row in enumerate(rows, 2):
            yield f"{location}, row {number}", dict.fromkeys(header) | dict(zip(header, row, strict=False))
    if not n_sheets:
        raise DataError(f'{display_path(path)}: no sheet has a column "{filled}".')


def _check_known(location: str, column: str, value: str, known: Iterable[str]) -> None:
    if value not in known:
        raise DataError(f'{location}: {column}: unknown value "{value}".{suggest(value, known)}')


def cell_text(value) -> str:
    """Return a cell as it was before a spreadsheet was protected from it, and as a date or integer is written."""
    if isinstance(value, datetime.datetime):
        return value.date().isoformat()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = "" if value is None else str(value).strip()
    return text[1:] if text.startswith("'") and formula_safe(text[1:]) == text else text


class WithoutFaults(Mapping):
    """TASK_RESULTS of one model by evaluation, of those with confirmed faults, and without these."""

    def __init__(self, tables: Mapping[str, pa.Table], faults: Mapping[str, frozenset[str]]):
        self.tables, self.faults = tables, {name: ids for name, ids in faults.items() if name in tables}

    def __getitem__(self, evaluation: str) -> pa.Table:
        table, ids = self.tables[evaluation], self.faults[evaluation]
        return table.filter(pa.array([item_id not in ids for item_id in table["item_id"].to_pylist()], pa.bool_()))

    def __iter__(self) -> Iterator[str]:
        return iter(self.faults)

    def __len__(self) -> int:
        return len(self.faults)


@dataclass(frozen=True)
class Confirmed:
    """The confirmed faults among the items of one task and language, and what was not used."""

    faults: frozenset[str]  # item IDs
    notes: list[str]


def confirmed(verdicts: list[Verdict], items: Mapping[str, Item]) -> Confirmed:
    """Return the confirmed faults among items by ID, from the verdicts on their task and language."""
    by_item: dict[str, list[Verdict]] = {}
    unknown, outdated = [], []
    for verdict in verdicts:
        item = items.get(verdict.item_id)
        if item is None:
            unknown.append(verdict.item_id)
        elif content_of(item) != verdict.content:
            outdated.append(verdict.item_id)
        else:
            by_item.setdefault(verdict.item_id, []).append(verdict)
    decisions = {item_id: {each.decision for each in own} for item_id, own in by_item.items()}
    faults = sorted(item_id for item_id, own in decisions.items() if OK not in own)
    disputed = sorted(item_id for item_id, own in decisions.items() if OK in own and len(own) > 1)
    used = [verdict for own in by_item.values() for verdict in own]
    counts = Counter(verdict.decision for verdict in used if verdict.item_id in set(faults))
    kinds = ", ".join(f"{kind} {counts[kind]}" for kind in FAULTS if counts[kind])
    notes = []
    if used:
        dates, annotators = sorted(verdict.date for verdict in used), sorted({verdict.annotator for verdict in used})
        when = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
        read = f"{format_count(len(by_item), 'item')} read by {', '.join(annotators)} ({when})"
        files = ", ".join(sorted({verdict.file for verdict in used}))
        found = f"{format_count(len(faults), 'confirmed fault')}{f': {kinds}' if kinds else ''}"
        notes.append(f"{files}: {read}, {found}. {_CHOSEN}")
    for ids, problem in (
        (disputed, "annotators disagree, and the items stay"),
        (outdated, "the verdict is on another version of the item, and not used"),
        (unknown, "the item is not among those of this run"),
    ):
        if ids:
            notes.append(f"verdicts on {format_count(len(ids), 'item')} ({first_of(ids)}): {problem}.")
    return Confirmed(frozenset(faults), notes)


def values_without(model: str, evaluation: str, table: pa.Table, metrics: list[Metric]) -> list[dict]:
    """Return rows of WITHOUT_FAULTS from TASK_RESULTS without confirmed faults, as values over all items are made."""
    metrics = [metric for metric in metrics if not metric.of_dataset]
    names = ("category", "metric", "value", "ci_low", "ci_high", "n")
    return [
        {"model": model, "evaluation": evaluation} | {name: row[name] for name in names}
        for row in aggregate(table, metrics, seed=0, categories=True)
    ]
