"""Jobs that make several files: one failure costs one file, and a killed job continues with the others."""

import contextlib
import json
import logging
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from vernacular.core.artifacts import replacing
from vernacular.core.errors import ArtifactError, DataError, UserError, first_line, is_contained, refusal

log = logging.getLogger("vernacular")

_KILLED = "its process was ended without a word in an earlier attempt (out of memory?)"


def make_each(args, specs: dict[str, dict], current: Callable, make: Callable, fail: Callable) -> tuple[int, int, int]:
    """Make the files of a job, `args.out/{name}.parquet`, one after the other; those that are up to date are kept.

    What fails for one file (a dataset that is unavailable, an exception of any class, a process that was killed in
    every attempt) costs that file alone.

    Args:
        specs: name -> what its file depends on.
        current: (path, spec) -> whether the file at `path` was made of this.
        make: (path, spec) -> one line about the file it wrote.
        fail: (path, spec, reason) -> one line about the file it wrote, which states the reason.

    Returns:
        How many files were made, kept, and failed.

    Raises:
        MachineError: the machine cannot do it, for example because the disk is full.
        ArtifactError: an input is damaged.
    """
    attempts = Attempts(args)
    attempts.begin()
    given_up = attempts.given_up()
    made, kept, failed = 0, 0, 0
    try:
        for name, spec in specs.items():
            path = args.out / f"{name}.parquet"
            if _is_current(current, path, spec):
                os.utime(path)  # newer than the inputs of this job, or Snakemake would run it again
                kept += 1
                continue
            started = time.perf_counter()
            reason = given_up.get((name,))
            if reason is None:
                attempts.working(name)
                try:
                    line = make(path, spec)
                except DataError as error:
                    reason = str(error)
                except BaseException as error:
                    if isinstance(error, UserError) or not is_contained(error) or _is_refusal(error):
                        raise
                    log.exception("unexpected")
                    reason = f"{type(error).__name__}: {first_line(error)}"
            if reason is None:
                made += 1
                log.info(line)
                if (seconds := time.perf_counter() - started) > 1:  # a download, or a large dataset
                    print(f"{line} ({seconds:.1f} s)", flush=True)
            else:
                failed += 1
                line = fail(path, spec, reason)
                log.error(line)
                print(line, file=sys.stderr, flush=True)
    finally:  # reached however Python ends, not where the process is killed
        attempts.end()
    return made, kept, failed


def fail_rest(args, specs: dict[str, dict], current: Callable, fail: Callable, reason: str) -> str:
    """Write files that state `reason` for all that `make_each` has not made; return a line for each."""
    paths = {name: args.out / f"{name}.parquet" for name in specs}
    lines = [
        fail(paths[name], spec, reason) for name, spec in specs.items() if not _is_current(current, paths[name], spec)
    ]
    Attempts(args).end()
    return "\n".join(lines)


def _is_current(current: Callable, path: Path, spec: dict) -> bool:
    try:
        return path.exists() and current(path, spec)
    except ArtifactError:
        return False


def _is_refusal(error: BaseException) -> bool:
    return isinstance(error, OSError) and refusal(error) is not None


class Attempts:
    """What a job was working on when it was killed; a file next to its output, from one attempt to the next."""

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

    def working(self, *subject: str | None) -> None:
        """From now on the job works on this: a dataset, an evaluation, or a model and its evaluation."""
        self._state["working"] = subject
        self._write()

    def given_up(self) -> dict[tuple[str | None, ...], str]:
        """What is not tried in this attempt, the last one -> the reason."""
        if self.number < self.count:
            return {}
        return {tuple(subject): reason for *subject, reason in self._state["died"]}

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
