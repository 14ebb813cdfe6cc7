"""Command `collect`: store -> one model's scores and generations."""

import logging

from vernacular.commands.common import inference_record
from vernacular.core.errors import format_count
from vernacular.core.records import add_failures, failures
from vernacular.inference.job.collect import write_outputs

log = logging.getLogger("vernacular")


def collect(args) -> str:
    """Write one model's scores and generations from the store; `--status` are the status files of its inference jobs.

    Outputs missing from the store are added to the failures in these files, so that the next run computes them.
    """
    record = inference_record(args.model, args.spec)
    request_files = {path.stem: path for path in args.requests}
    failed = {e: reason for path in args.status for e, reason in failures(path, record["name"]).items()}
    counts, missing = write_outputs(record, request_files, args.out, args.store, shards=len(args.status), failed=failed)
    messages = [f"collect: {record['name']}: {evaluation}: {reason}" for evaluation, reason in missing.items()]
    for line in messages:
        log.error(line)
    if missing:
        add_failures(args.status[0], record["name"], missing)
    counts |= {"not found in the store": len(missing)}
    parts = [f"{format_count(n, 'evaluation')} {status}" for status, n in counts.items() if n]
    return "\n".join([*messages, f"collect: {record['name']}: {', '.join(parts) or 'no evaluations'}"])
