"""Command `items`: one dataset in one language -> items."""

import logging
import sys

from vernacular.core import artifacts
from vernacular.core.errors import DataError
from vernacular.core.paths import WORKFLOW
from vernacular.data.load import load_items
from vernacular.data.schema import ITEMS

log = logging.getLogger("vernacular")


def items(args) -> str:
    """One data set in one language; a set that cannot be had leaves a file that says so, and the others go on."""
    spec = args.spec
    name = f"{spec['task']['task']}.{spec['language']}"
    try:
        rows, note = load_items(
            spec["task"],
            spec["language"],
            source=spec["data"],
            limit=spec["limit"],
            seed=0,
            root=WORKFLOW,
        )
    except DataError as error:
        log.error(str(error))
        return give_up(args, str(error))
    made_of = artifacts.made_of(spec, note["source"]["sha256"])
    artifacts.write(args.out, ITEMS, rows, {**note, "fingerprint": made_of})
    for warning in note["warnings"]:
        log.warning(warning)
        print(f"items: {warning}", file=sys.stderr)
    shown = sum(row["demonstration"] for row in rows)
    dropped = sum(note["rows"]["dropped"].values())
    return (
        f"items: {name}: {len(rows) - shown} items"
        + (f", {shown} to draw demonstrations from" if shown else "")
        + (f", {dropped} rows left out (reasons in {args.log or 'the metadata'})" if dropped else "")
    )


def give_up(args, reason: str) -> str:
    """Write an items file without rows that states why the dataset is unavailable."""
    task, language = args.spec["task"]["task"], args.spec["language"]
    note = {"task": task, "unavailable": reason}
    artifacts.write(args.out, ITEMS, [], {**note, "fingerprint": artifacts.made_of(note)})
    return f"items: {task}.{language}: unavailable ({reason})"
