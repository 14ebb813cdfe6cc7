"""Command `infer`: requests -> the store, for one base model and its adapters."""

import logging
from collections import Counter

from vernacular.commands.batch import Attempts
from vernacular.commands.batch import died as died  # called by cli.py
from vernacular.commands.common import asked_as, check_recorded
from vernacular.core.errors import counted
from vernacular.core.records import write_asked
from vernacular.inference.job.run import run_group

log = logging.getLogger("vernacular")

_SHOWN = {"nothing to ask": "without requests"}  # status: text of the result line


def infer(args) -> str:
    """Evaluate a base and its adapters on all requests, or a shard of them, and write the outputs to the store.

    All evaluations are tried. A failed one is recorded in the status file and in the summary's notes, and the other
    evaluations and models continue. The last attempt skips evaluations in which the process died before.
    """
    attempts = Attempts(args)
    attempts.begin()
    records = [asked_as(path, args.spec) for path in args.models]
    for path, record in zip(args.models, records, strict=True):
        check_recorded(path, record)
    index, count = (int(number) for number in args.shard.split("of"))
    asked = {path.stem: path for path in args.requests}
    try:
        done, failed = run_group(
            records,
            asked,
            args.store,
            shard=(index - 1, count),
            threads=args.threads,
            given_up=attempts.given_up(),
            begin=attempts.working,
        )
    finally:  # runs unless the process is killed
        attempts.end()
    write_asked(args.out, done, failed)
    told = [_failure(name, of_model, done[name]) for name, of_model in failed.items() if of_model]
    for line in told:
        log.error(line)
    counts = Counter(how for of_model in done.values() for how in of_model.values())
    counts["failed"] = sum(map(len, failed.values()))
    outcomes = ", ".join(f"{counted(n, 'evaluation')} {_SHOWN.get(how, how)}" for how, n in sorted(counts.items()) if n)
    return "\n".join([*told, f"infer: {', '.join(done)}: {outcomes or 'no evaluations'}"])


def give_up(args, reason: str) -> str:
    """Record that all evaluations failed; the next run uses what is in the store by now."""
    names = [path.stem for path in args.models]
    failed = {path.stem: reason for path in args.requests}
    write_asked(args.out, {name: {} for name in names}, dict.fromkeys(names, failed))
    Attempts(args).end()
    return f"infer: {', '.join(names)}: failed ({reason})"


def _failure(name: str, failed: dict[str, str], done: dict) -> str:
    """Return one line if all evaluations failed for the same reason, else one line for each."""
    if not done and len(set(failed.values())) == 1:
        return f"infer: {name}: all evaluations failed: {next(iter(failed.values()))}"
    return "\n".join(f"infer: {name}: {evaluation}: failed: {reason}" for evaluation, reason in failed.items())
