"""Sheets in which speakers judge responses: which rows they have, and the labels of filled ones.

Items are drawn by whole clusters in the order of `data.load.draw_key`, in which a limit draws them, too. A sheet names
no model, and equal responses of several models are one row. A label belongs to the texts that were read.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa

from vernacular.comparison.verdicts import cell_text, filled_rows
from vernacular.core.errors import DataError, suggest
from vernacular.core.fingerprint import fingerprint
from vernacular.core.paths import display_path
from vernacular.data.load import draw_key

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
    def value(self) -> float:
        return SCALES[self.scale][self.label]


def read_labels(path: Path) -> list[Label]:
    """Return the labels of a filled sheet, CSV or Excel; rows without one have none.

    Without a name in the column `annotator`, it is that of the file.

    Raises:
        DataError: The file or a row is not valid, or the sheet is a reading list, whose items are no sample.
    """
    labels: dict[tuple, Label] = {}
    for location, row in filled_rows(path, (), "item_id", ""):
        if "decision" in row and "label" not in row:
            raise DataError(
                f"{display_path(path)}: expected a sheet of `vernacular labels`, got a reading list: its items were "
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
        if cells["scale"] not in SCALES:
            raise DataError(f'{location}: scale: unknown value "{cells["scale"]}".{suggest(cells["scale"], SCALES)}')
        words = SCALES[cells["scale"]]
        written = next((word for word in words if word.casefold() == cells["label"].casefold()), None)
        if written is None:
            raise DataError(f'{location}: label: unknown value "{cells["label"]}".{suggest(cells["label"], words)}')
        cells |= {"label": written, "annotator": cells["annotator"] or path.stem}
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
    """Return the rows of the first clusters with at least n items, without those that have a label.

    Args:
        responses: By model.
        pairs: Models whose responses are compared; None: single responses are judged.
        references: Correct answers by item.
        known: Labels of the evaluation.
    """
    items: dict[str, dict[str, dict]] = {}  # item -> model -> row of TASK_RESULTS
    keys: dict[str, str] = {}
    for model, own in responses.items():
        for row, key in zip(own.rows, own.keys, strict=True):
            items.setdefault(row["item_id"], {})[model] = row
            keys[row["item_id"]] = key
    order = sorted(items, key=lambda item: (keys[item], item))
    has_label = {" ".join(sorted(label.response_id.split())) for label in known}
    rows: list[ToRead] = []
    for number, item in enumerate(order, 1):
        if number > n and keys[item] != keys[order[number - 2]]:
            break
        texts = {response_id(row): row["prediction"] for row in items[item].values()}
        own = {model: response_id(row) for model, row in items[item].items()}
        if pairs is None:
            groups = {(each,) for each in texts}
        else:
            both = [(own[a], own[b]) for a, b in pairs if a in own and b in own]
            groups = {tuple(sorted(each)) for each in both if len(set(each)) == 2}
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
