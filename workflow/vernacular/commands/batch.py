"""Jobs that make several files: a failure affects one file only, and a killed job continues with the others."""

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

_KILLED = "its process was killed in an earlier attempt (probable cause: out of memory)"


def make_each(args, specs: dict[str, dict], current: Callable, make: Callable, fail: Callable) -> tuple[int, int, int]:
    """Make the files of a job, `args.out/{name}.parquet`, one after the other; retain those that are up to date.

    A failure (an unavailable dataset, an exception of any class, a process that was killed in every attempt) affects
    its own file only.

    Args:
        specs: name -> the inputs of its file.
        current: (path, spec) -> whether the file at `path` was made from `spec`.
        make: (path, spec) -> one line about the file it wrote.
        fail: (path, spec, reason) -> one line about the file it wrote, which states the reason.

    Returns:
        The numbers of files that were made, were up to date, and failed.

    Raises:
        ArtifactError: An input is damaged.
        WriteError, OSError: A file cannot be written, for example because the disk is full.
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
    finally:  # runs unless the process is killed
        attempts.end()
    return made, kept, failed


def fail_rest(args, specs: dict[str, dict], current: Callable, fail: Callable, reason: str) -> str:
    """Write files that state `reason` for all files that `make_each` has not made; return one line for each."""
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
    """State of a job that survives a kill: its current subject and its earlier deaths, in a file next to its output."""

    def __init__(self, args):
        self.path: Path = args.out.with_name(f".{args.out.stem}.attempts")
        self.number, self.count = args.attempt
        self.restarted = getattr(args, "restarted", False)
        self._state = {"working": None, "died": []}
        with contextlib.suppress(OSError, ValueError):  # missing, or truncated by a kill
            self._state |= json.loads(self.path.read_text("utf-8"))

    def begin(self) -> None:
        """Start an attempt: the first one discards the state of earlier runs, later ones record an unnoticed death."""
        if self.number == 1 and not self.restarted:
            self._state = {"working": None, "died": []}
        elif self._state["working"]:
            self._note_death(_KILLED)
        self._write()

    def working(self, *subject: str | None) -> None:
        """Record the current subject of the job: a dataset, an evaluation, or a model and its evaluation."""
        self._state["working"] = subject
        self._write()

    def given_up(self) -> dict[tuple[str | None, ...], str]:
        """Return {subject: reason} of what this attempt does not try; {} unless it is the last one."""
        if self.number < self.count:
            return {}
        return {tuple(subject): reason for *subject, reason in self._state["died"]}

    def died(self, reason: str) -> bool:
        """Record that the process died; return False if it had no subject yet."""
        if not self._state["working"]:
            return False
        self._note_death(reason)
        self._write()
        return True

    def end(self) -> None:
        """Delete the state, because the attempt ends regularly or gives up."""
        self.path.unlink(missing_ok=True)

    def _note_death(self, reason: str) -> None:
        self._state["died"].append([*self._state["working"], reason])
        self._state["working"] = None

    def _write(self) -> None:
        with replacing(self.path) as temporary:
            temporary.write_text(json.dumps(self._state), "utf-8")
