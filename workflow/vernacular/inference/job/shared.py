"""Evaluations that differ in the prompt only, computed as one: a passage before the words that differ is read once.

Only evaluations without few-shot examples are shared, because each prompt has its own examples. The keys and rows of
the outputs are those of single evaluations.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from vernacular.core import artifacts
from vernacular.core.artifacts import Kind
from vernacular.inference.job.work import WorkUnit
from vernacular.inference.schema import SCORES

_SETTING = ("task", "language", "protocol", "style", "seed", "options")  # all but the prompt
_NOT_SUMMED = ("budget", "chunks")  # counters that describe the computation, and are the same for all its evaluations


@dataclass(frozen=True)
class SharedUnit:
    """Work units that are computed as one, which has the name and the journal of the first."""

    units: tuple[WorkUnit, ...]

    @property
    def evaluation(self) -> str:
        return self.units[0].evaluation

    @property
    def key(self) -> str:
        return self.units[0].key

    @property
    def kind(self) -> Kind:
        return self.units[0].kind

    def requests(self) -> pa.Table:
        """Read the rows of all units, one unit after the other."""
        return pa.concat_tables([unit.requests() for unit in self.units]).unify_dictionaries()

    def outputs(self, table: pa.Table, metadata: dict) -> list[tuple[WorkUnit, pa.Table, dict]]:
        """Return (unit, its rows, its metadata) for each unit, the first one last: the journal is removed with it."""
        parts, start = [], 0
        for unit in self.units:
            rows = table.slice(start, unit.n_rows)
            parts.append((unit, rows, self._metadata(unit, rows, metadata)))
            start += unit.n_rows
        return parts[::-1]

    def _metadata(self, unit: WorkUnit, rows: pa.Table, metadata: dict) -> dict:
        """Return a unit's metadata: its own flags and numbers of requests; the first one has the other counters.

        The sums over the units are those of the computation.
        """
        first_rows = rows.take(pa.array(_first_rows(rows["request_id"])))
        counters = metadata["counters"]
        if unit is not self.units[0]:
            counters = {name: count if name in _NOT_SUMMED else 0 for name, count in counters.items()}
        others = [other.evaluation for other in self.units if other is not unit]
        is_scored = first_rows.filter(pc.is_valid(first_rows["logprobs"]))
        tokenizer = {
            "unscored_first_tokens": pc.sum(pc.equal(is_scored["n_prompt_tokens"], 0)).as_py() or 0,
            "chat": len(is_scored) - is_scored["rendered"].null_count,
        }
        return metadata | {
            "counters": counters | {"requests": len(first_rows)},
            "flags": _flags(first_rows["flags"], metadata["flags"]),
            "tokenizer": metadata["tokenizer"] | tokenizer,
            "engine": metadata["engine"] | {"computed_with": others},
        }


def share(units: list[WorkUnit]) -> list[WorkUnit | SharedUnit]:
    """Return the units, in their order, where evaluations that differ in the prompt only are one."""
    groups: dict[tuple, list[WorkUnit]] = {}
    for number, unit in enumerate(units):
        metadata = artifacts.metadata(unit.path)
        is_shared = unit.kind is SCORES and "task" in metadata and metadata.get("shots") == 0
        setting = tuple(str(metadata.get(name)) for name in _SETTING)
        groups.setdefault(setting if is_shared else (number,), []).append(unit)
    return [group[0] if len(group) == 1 else SharedUnit(tuple(group)) for group in groups.values()]


def _first_rows(request_ids: pa.ChunkedArray) -> list[int]:
    """Return the first row of each distinct request."""
    first: dict[str, int] = {}
    for number, request_id in enumerate(request_ids.to_pylist()):
        first.setdefault(request_id, number)
    return list(first.values())


def _flags(texts: pa.ChunkedArray, known: Iterable[str]) -> dict[str, int]:
    """Return the number of requests by flag, one of `known`, without what follows a colon: "truncated: …"."""
    names = (flag.split(":")[0] for text in texts.drop_null().to_pylist() for flag in text.split("; "))
    counts = Counter(names)
    return {name: counts[name] for name in known if counts[name]}
