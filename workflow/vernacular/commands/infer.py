"""Command `infer`: requests -> the store, for one base model and its adapters."""

import logging
from collections import Counter

from vernacular.commands.batch import Attempts
from vernacular.commands.common import asked_as, check_recorded
from vernacular.core.records import write_asked
from vernacular.inference.job.run import run_group

log = logging.getLogger("vernacular")


def infer(args) -> str:
    """Everything a base and its adapters are asked, or a shard of it, into the store.

    All evaluations are tried. What cannot be answered is said in the file, and goes into the summary's notes: the other
    evaluations and models go on. An evaluation at which the process died in every earlier attempt is not tried again.
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
    finally:  # reached however Python ends, not where the process is killed
        attempts.end()
    write_asked(args.out, done, failed)
    told = [_failure(name, of_model, done[name]) for name, of_model in failed.items() if of_model]
    for line in told:
        log.error(line)
    counts = Counter(how for of_model in done.values() for how in of_model.values())
    counts["CANNOT BE ANSWERED"] = sum(map(len, failed.values()))
    said = ", ".join(f"{n} evaluations {how}" for how, n in sorted(counts.items()) if n)
    return "\n".join([*told, f"infer: {', '.join(done)}: {said or 'nothing to ask'}"])


def died(args, reason: str) -> bool:
    """Note where the process died; return whether there is something else to try, without that evaluation."""
    return Attempts(args).died(reason)


def give_up(args, reason: str) -> str:
    """Record that all evaluations failed; what the store holds by now is found by the next run."""
    names = [path.stem for path in args.models]
    failed = {path.stem: reason for path in args.requests}
    write_asked(args.out, {name: {} for name in names}, dict.fromkeys(names, failed))
    Attempts(args).end()
    return f"infer: {', '.join(names)}: failed ({reason})"


def _failure(name: str, failed: dict[str, str], done: dict) -> str:
    """One line where all failed for one reason, else one for each evaluation."""
    if not done and len(set(failed.values())) == 1:
        return f"infer: {name} CANNOT BE ASKED: {next(iter(failed.values()))}"
    return "\n".join(f"infer: {name} CANNOT ANSWER {evaluation}: {reason}" for evaluation, reason in failed.items())
