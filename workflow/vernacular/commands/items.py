"""Command `items`: datasets of a run, each in one language -> items."""

import logging
import sys
from pathlib import Path

from vernacular.commands.batch import Attempts, fail_rest, make_each
from vernacular.commands.common import counted
from vernacular.core import artifacts
from vernacular.core.fingerprint import fingerprint
from vernacular.core.paths import WORKFLOW
from vernacular.data.load import load_items
from vernacular.data.schema import ITEMS

log = logging.getLogger("vernacular")


def items(args) -> str:
    """Read every dataset into `args.out/{task}.{language}.parquet`.

    An unavailable dataset gets a file that states the reason; the others are read.
    """
    made, kept, failed = make_each(args, _specs(args), _is_current, _read, _state)
    counts = [
        f"{counted(made, 'dataset')} read",
        f"{kept} up to date" * bool(kept),
        f"{failed} unavailable" * bool(failed),
    ]
    return f"items: {', '.join(filter(None, counts))}"


def died(args, reason: str) -> bool:
    """Record at which dataset the process died; return whether to try again without it."""
    return Attempts(args).died(reason)


def give_up(args, reason: str) -> str:
    """Write items files without rows that state why the remaining datasets are unavailable."""
    return fail_rest(args, _specs(args), _is_current, _state, reason)


def _specs(args) -> dict[str, dict]:
    shared = {key: value for key, value in args.spec.items() if key != "items"}
    return {name: {**shared, **spec} for name, spec in args.spec["items"].items()}


def _is_current(path: Path, spec: dict) -> bool:
    found = artifacts.metadata(path)
    return "unavailable" not in found and found.get("key") == fingerprint(spec)


def _read(path: Path, spec: dict) -> str:
    rows, note = load_items(
        spec["task"], spec["language"], source=spec["data"], limit=spec["limit"], seed=0, root=WORKFLOW
    )
    made_of = artifacts.made_of(spec, note["source"]["sha256"])
    artifacts.write(path, ITEMS, rows, {**note, "key": fingerprint(spec), "fingerprint": made_of})
    for warning in note["warnings"]:
        log.warning(warning)
        print(f"items: {warning}", file=sys.stderr)
    shown = sum(row["demonstration"] for row in rows)
    dropped = sum(note["rows"]["dropped"].values())
    return (
        f"items: {path.stem}: {counted(len(rows) - shown, 'item')}"
        + (f", {counted(shown, 'candidate')} for few-shot examples" if shown else "")
        + (f", {counted(dropped, 'row')} dropped (reasons in results/summary/notes.csv)" if dropped else "")
    )


def _state(path: Path, spec: dict, reason: str) -> str:
    note = {"task": spec["task"]["task"], "unavailable": reason}
    artifacts.write(path, ITEMS, [], {**note, "fingerprint": artifacts.made_of(note)})
    return f"items: {path.stem}: unavailable ({reason})"
