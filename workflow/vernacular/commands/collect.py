"""Command `collect`: store -> one model's scores and generations."""

import logging

from vernacular.commands.common import asked_as
from vernacular.core.errors import counted
from vernacular.core.records import add_failures, failures
from vernacular.inference.job.collect import lay_out

log = logging.getLogger("vernacular")

_SHOWN = {"answered": "collected", "not possible": "not applicable"}  # status: text of the result line


def collect(args) -> str:
    """Write one model's scores and generations from the store; `--status` are the status files of its inference jobs.

    Outputs missing from the store are added to the failures in these files, so that the next run computes them.
    """
    record = asked_as(args.model, args.spec)
    asked = {path.stem: path for path in args.requests}
    failed = {e: reason for path in args.status for e, reason in failures(path, record["name"]).items()}
    counts, lost = lay_out(record, asked, args.out, args.store, shards=len(args.status), failed=failed)
    told = [f"collect: {record['name']}: {evaluation}: {reason}" for evaluation, reason in lost.items()]
    for line in told:
        log.error(line)
    if lost:
        add_failures(args.status[0], record["name"], lost)
    counts |= {"not found in the store": len(lost)}
    outcomes = ", ".join(f"{counted(n, 'evaluation')} {_SHOWN.get(how, how)}" for how, n in counts.items() if n)
    return "\n".join([*told, f"collect: {record['name']}: {outcomes or 'no evaluations'}"])
