"""Command `infer`: requests -> the store, for one base model and its adapters."""

import contextlib
import json
import logging
from collections import Counter
from pathlib import Path

from vernacular.commands.common import asked_as, check_recorded
from vernacular.core.artifacts import replacing
from vernacular.core.records import write_asked
from vernacular.inference.job.run import run_group

log = logging.getLogger("vernacular")

_KILLED = "its process was ended without a word in an earlier attempt (out of memory?)"


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


class Attempts:
    """What this job was working on when it was killed, kept beside its output from one attempt to the next."""

    def __init__(self, args):
        self.path: Path = args.out.with_name(f".{args.out.stem}.attempts")
        self.number, self.count = args.attempt
        self.restarted = getattr(args, "restarted", False)
        self._state = {"working": None, "died": []}
        with contextlib.suppress(OSError, ValueError):  # none yet, or one that a kill cut short
            self._state |= json.loads(self.path.read_text("utf-8"))

    def begin(self) -> None:
        """A first attempt forgets what an earlier run left; a later one counts what ended without a word."""
        if self.number == 1 and not self.restarted:
            self._state = {"working": None, "died": []}
        elif self._state["working"]:
            self._note_death(_KILLED)
        self._write()

    def working(self, model: str, evaluation: str | None) -> None:
        """From now on the job works on this evaluation; None: it loads this model."""
        self._state["working"] = [model, evaluation]
        self._write()

    def given_up(self) -> dict[tuple[str, str | None], str]:
        """(model, evaluation) -> why it is not tried in this attempt, the last one; (model, None): is not loaded."""
        if self.number < self.count:
            return {}
        return {(model, evaluation): reason for model, evaluation, reason in self._state["died"]}

    def died(self, reason: str) -> bool:
        """Note that the process died; False where it had not begun."""
        if not self._state["working"]:
            return False
        self._note_death(reason)
        self._write()
        return True

    def end(self) -> None:
        """This attempt ends in good order, or gives up."""
        self.path.unlink(missing_ok=True)

    def _note_death(self, reason: str) -> None:
        self._state["died"].append([*self._state["working"], reason])
        self._state["working"] = None

    def _write(self) -> None:
        with replacing(self.path) as temporary:
            temporary.write_text(json.dumps(self._state), "utf-8")


def _failure(name: str, failed: dict[str, str], done: dict) -> str:
    """One line where all failed for one reason, else one for each evaluation."""
    if not done and len(set(failed.values())) == 1:
        return f"infer: {name} CANNOT BE ASKED: {next(iter(failed.values()))}"
    return "\n".join(f"infer: {name} CANNOT ANSWER {evaluation}: {reason}" for evaluation, reason in failed.items())
