"""What a model is asked: each evaluation, or a shard of it, by its key; the requests are read when it is its turn.

Rows repeat the few-shot block and its turns; read as they stand, those of one large evaluation would take gigabytes.
"""

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from vernacular.core import artifacts
from vernacular.core.artifacts import Kind
from vernacular.inference.keys import evaluation_key
from vernacular.inference.schema import GENERATIONS, SCORES
from vernacular.inference.shards import cut
from vernacular.requests.schema import REQUESTS

_KEY = ["item_id", "role", "request_id"]
_SIZE = ["text", "max_new_tokens", "longest_answer"]
_REPEATED = ("role", "kind", "prefix", "turns.list.element.role", "turns.list.element.content")
_REPEATED += ("demonstrations.list.element", "stop.list.element", "extras.list.element")


@dataclass(frozen=True)
class Question:
    """One evaluation, or a shard of it, as one model is asked."""

    evaluation: str
    path: Path  # of its requests
    rows: int  # how many of them are asked here
    items: pa.Array | None  # of these items; None: of all
    kind: Kind
    key: str
    whole: str  # the key of all of it; `key` itself where the work is not cut

    def requests(self) -> pa.Table:
        """Its rows of REQUESTS, in which what many repeat is held once."""
        table = artifacts.read(self.path, REQUESTS, repeated=_REPEATED)
        return table if self.items is None else table.filter(pc.is_in(table["item_id"], self.items))


def questions(record: dict, asked: dict[str, Path], shard: tuple[int, int] = (0, 1)) -> list[Question]:
    """What this model can be asked of `asked`, in shard k of n; without rows where the shard has no share."""
    index, count = shard
    columns = _KEY if count == 1 else _KEY + _SIZE
    kinds, tables = {}, {}
    for evaluation, path in asked.items():
        note = artifacts.metadata(path)
        if impossible(record, note) is None:
            kinds[evaluation] = GENERATIONS if note["protocol"] == "generation" else SCORES
            tables[evaluation] = artifacts.read(path, REQUESTS, columns=columns)
    found = []
    for evaluation, shares in cut(tables, count).items():
        kind, part = kinds[evaluation], shares[index]
        key = evaluation_key(record, part, kind)
        whole = key if count == 1 else evaluation_key(record, tables[evaluation], kind)
        items = None if count == 1 else part["item_id"].unique()
        found.append(Question(evaluation, asked[evaluation], part.num_rows, items, kind, key, whole))
    return found


def impossible(record: dict, note: dict) -> dict | None:
    """Why this model cannot be asked this, as metadata of a file without rows; None where it can."""
    if reason := note.get("unavailable"):
        return {"unavailable": reason}
    if reason := record.get("unavailable"):
        return {"unavailable": reason}
    if record["kind"] == "masked" and note["causal_only"]:
        return {"not_applicable": f"{note['protocol']} needs a causal model; {record['name']} is a masked one"}
    return None
