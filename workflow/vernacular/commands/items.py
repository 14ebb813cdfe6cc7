"""Command `items`: datasets of a run, each in one language -> items."""

import logging
import sys
from pathlib import Path

from vernacular.commands.batch import Batch
from vernacular.commands.batch import died as died  # called by cli.py
from vernacular.core import artifacts
from vernacular.core.errors import counted
from vernacular.core.fingerprint import fingerprint
from vernacular.core.paths import WORKFLOW
from vernacular.data.load import load_items
from vernacular.data.schema import ITEMS

log = logging.getLogger("vernacular")


def items(args) -> str:
    """Read every dataset into `args.out/{task}.{language}.parquet`.

    An unavailable dataset gets a file that states the reason; the others are read.
    """
    return f"items: {_Datasets(args, 'items').run()}"


def give_up(args, reason: str) -> str:
    """Write items files without rows that state why the remaining datasets are unavailable."""
    return _Datasets(args, "items").fail_rest(reason)


class _Datasets(Batch):
    noun, made, failed = "dataset", "read", "unavailable"

    def is_current(self, metadata: dict, spec: dict) -> bool:
        return metadata.get("key") == fingerprint(spec)

    def make(self, path: Path, spec: dict) -> str:
        rows, note = load_items(
            spec["task"], spec["language"], source=spec["data"], limit=spec["limit"], seed=0, root=WORKFLOW
        )
        made_of = artifacts.made_of(spec, note["source"]["sha256"])
        artifacts.write(path, ITEMS, rows, {**note, "key": fingerprint(spec), "fingerprint": made_of})
        for warning in note["warnings"]:
            log.warning(warning)
            print(f"items: {warning}", file=sys.stderr)
        shown = sum(row["few_shot"] for row in rows)
        dropped = sum(note["rows"]["dropped"].values())
        return (
            f"items: {path.stem}: {counted(len(rows) - shown, 'item')}"
            + (f", {counted(shown, 'candidate')} for few-shot examples" if shown else "")
            + (f", {counted(dropped, 'row')} dropped (reasons in results/summary/notes.csv)" if dropped else "")
        )

    def fail(self, path: Path, spec: dict, reason: str) -> str:
        note = {"task": spec["task"]["task"], "unavailable": reason}
        artifacts.write(path, ITEMS, [], {**note, "fingerprint": artifacts.made_of(note)})
        return f"items: {path.stem}: unavailable ({reason})"
