"""What several stages share: reading and checking of inputs, and jobs that make several files.

In a job of several files, a failure affects one file only, and a killed job continues with the others.
"""

import contextlib
import json
import logging
import os
import sys
import time
from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import replace
from pathlib import Path

from vernacular.config.specs import InferenceSpec
from vernacular.core import artifacts
from vernacular.core.artifacts import Kind
from vernacular.core.errors import (
    ArtifactError,
    DataError,
    ModelError,
    UserError,
    as_write_error,
    format_count,
    is_contained,
    named,
)
from vernacular.core.fields import Stage, to_json
from vernacular.core.logs import Progress
from vernacular.core.metadata import Metadata, Outcome, OutputsMetadata, unavailable
from vernacular.core.model_record import ModelRecord, read_model, write_model
from vernacular.data.schema import ITEMS
from vernacular.protocols.schema import REQUESTS

log = logging.getLogger("vernacular")


def items_in(path: Path) -> list[dict]:
    return artifacts.read(path, ITEMS).to_pylist(maps_as_pydicts="strict")


def inference_record(path: Path, spec: InferenceSpec) -> ModelRecord:
    """Return a model's record, combined with the settings with which it is evaluated."""
    record = read_loadable(path)
    return record | spec.models[record.name]


def read_loadable(path: Path) -> ModelRecord:
    """Read a record; raise ArtifactError, too, if it lacks the hashes of the files that a job is about to load."""
    record = read_model(path)
    if record.contents is None and record.server is None and record.unavailable is None:
        raise ArtifactError(f"{path}: hashes of the model's files not found; delete it to rebuild.")
    return record


def check_inputs(
    items: Path, requests: Path, outputs: Path, output_metadata: OutputsMetadata, model: ModelRecord
) -> None:
    """Raise ArtifactError unless `outputs` are this model's outputs of these requests, built from these items."""
    check, request_metadata = artifacts.check_input_fingerprint, artifacts.metadata(requests, REQUESTS)
    check(requests, request_metadata.items.fingerprint, artifacts.metadata(items, ITEMS).fingerprint, "items")
    check(outputs, output_metadata.requests, request_metadata.fingerprint, "requests")
    check(outputs, output_metadata.model.fingerprint, model.fingerprint, "models")


_KILLED = "its process was killed in an earlier attempt (probable cause: out of memory)"


class Batch(ABC):
    """The files of a job, `args.out/{name}.parquet`, written one after the other; up-to-date files are retained.

    A failure (an unavailable dataset, an exception of any class, a process that was killed in every attempt) affects
    its own file only.
    """

    key = "evaluations"  # the field of `args.spec` with {name: the spec of its file}; all files depend on the others
    noun, done_label, failed_label = "evaluation", "built", "failed"  # a file's content and outcome, in the summary
    kind: Kind
    prints_files = True  # whether a file that takes more than a second, such as a download, gets a line in the terminal

    def __init__(self, args: Stage):
        self.args = args
        self.specs = getattr(args.spec, self.key)
        self.shared = {name: value for name, value in to_json(args.spec).items() if name != self.key}

    def inputs(self, spec) -> dict:
        """Return all that the file of a spec depends on, as JSON-like values."""
        return self.shared | to_json(spec)

    @abstractmethod
    def metadata(self, spec) -> Metadata:
        """Return the metadata of a file as far as they are known before it is made."""

    @abstractmethod
    def make(self, path: Path, spec) -> str:
        """Write a file; return what it contains."""

    def is_current(self, metadata: Metadata, spec) -> bool:
        """Return whether the file with this metadata was computed from `spec`."""
        return metadata.fingerprint == self.metadata(spec).fingerprint

    def failure(self, spec, reason: str) -> Outcome:
        """Return the outcome of a file that could not be made."""
        return unavailable(reason)

    def write(self, path: Path, spec, rows, /, **metadata) -> None:
        """Write a file with these metadata in addition to those that are known before."""
        artifacts.write(path, self.kind, rows, replace(self.metadata(spec), **metadata))

    def run(self, label: str) -> str:
        """Make the files that are not up to date; return a summary of one line, which begins with `label`.

        If an attempt has ended (`Stage.failure`), all these files are written without rows.

        Raises:
            ArtifactError: An input is damaged.
            WriteError, OSError: A file cannot be written, for example because the disk is full.
        """
        self.label = label
        attempts, counts = Attempts(self.args), Counter()
        attempts.begin()
        skip_reasons = attempts.skip_reasons()
        try:
            with Progress(label.replace(":", ""), len(self.specs), self.noun) as progress:
                for name, spec in self.specs.items():
                    path = self.args.out / f"{name}.parquet"
                    if self._is_current(path, spec):
                        os.utime(path)  # newer than the inputs of this job, or Snakemake would run it again
                        counts["up to date"] += 1
                    elif reason := self.args.failure or skip_reasons.get((name,)):
                        counts[self.failed_label] += 1
                        self._report_failure(path, spec, reason)
                    else:
                        attempts.set_current(name)
                        counts[self._try(path, spec)] += 1
                    progress.advance()
        finally:  # runs unless the process is killed
            attempts.end()
        extra = [f"{counts[outcome]} {outcome}" for outcome in ("up to date", self.failed_label) if counts[outcome]]
        return ", ".join([f"{label}: {format_count(counts[self.done_label], self.noun)} {self.done_label}", *extra])

    def items(self, spec) -> Path:
        """Return the file with the items of an evaluation."""
        return self.args.items_dir / f"{spec.items_stem}.parquet"

    def requests(self, spec) -> Path:
        """Return the file with the requests of an evaluation."""
        return self.args.requests_dir / f"{spec.evaluation}.parquet"

    def _is_current(self, path: Path, spec) -> bool:
        try:
            metadata = artifacts.metadata(path, self.kind)
            return not metadata.outcome.may_try_again and self.is_current(metadata, spec)
        except ArtifactError:  # missing or damaged
            return False

    def _try(self, path: Path, spec) -> str:
        """Return the outcome of a file, `done_label` or `failed_label`."""
        started = time.perf_counter()
        try:
            line = f"{self.label}: {path.stem}: {self.make(path, spec)}"
        except DataError as error:
            self._report_failure(path, spec, str(error))
            return self.failed_label
        except BaseException as error:
            if isinstance(error, UserError) or not is_contained(error) or as_write_error(error):
                raise
            log.exception("unexpected")
            self._report_failure(path, spec, named(error))
            return self.failed_label
        log.info(line)
        if self.prints_files and (seconds := time.perf_counter() - started) > 1:
            print(f"{line} ({seconds:.1f} s)", flush=True)
        return self.done_label

    def _report_failure(self, path: Path, spec, reason: str) -> None:
        self.write(path, spec, [], outcome=self.failure(spec, reason))
        line = f"{self.label}: {path.stem}: unavailable ({reason})"
        log.error(line)
        print(line, file=sys.stderr, flush=True)


def raise_failure(args: Stage) -> None:
    """Raise the reason why a stage has failed (`Stage.failure`) as ModelError."""
    if args.failure:
        raise ModelError(args.failure)


def write_unavailable(args: Stage, label: str, reason: str) -> str:
    """Write a record that states why a model or encoder is unavailable; return one line, which begins with `label`."""
    spec = args.spec
    log.error(reason)
    source = getattr(spec, "adapter", None) or spec.source
    write_model(args.out, ModelRecord(name=spec.name, source=source, unavailable=reason))
    return f"{label}: {spec.name}: unavailable ({reason})"


class Attempts:
    """State of a job that survives a kill: its current subject and its earlier deaths, in a file next to its output.

    `overlaps`: the job also works on other subjects at the same time, until it has died for the first time. Then the
    subject of a death is certain.
    """

    def __init__(self, args: Stage):
        self.path: Path = args.out.with_name(f".{args.out.stem}.attempts")
        self.number, self.count = args.attempt
        self.restarted = args.restarted
        self._state = {"working": None, "died": [], "overlaps": False}
        with contextlib.suppress(OSError, ValueError):  # missing, or truncated by a kill
            self._state |= json.loads(self.path.read_text("utf-8"))

    @property
    def overlaps(self) -> bool:
        """Whether this attempt works on several subjects at the same time."""
        return self._state["overlaps"]

    def begin(self, *, overlaps: bool = False) -> None:
        """Start an attempt: the first one discards the state of earlier runs, later ones record an unnoticed death."""
        if self.number == 1 and not self.restarted:
            self._state = {"working": None, "died": [], "overlaps": overlaps}
        elif self._state["working"]:
            self._append_death(_KILLED)
        self._write()

    def set_current(self, *subject: str | None) -> None:
        """Record the current subject of the job: a dataset, an evaluation, or a model and its evaluation."""
        self._state["working"] = subject
        self._write()

    def skip_reasons(self) -> dict[tuple[str | None, ...], str]:
        """Return {subject: reason} of what this attempt does not try; {} unless it is the last one."""
        if self.number < self.count:
            return {}
        return {tuple(subject): reason for *subject, reason in self._state["died"]}

    def record_death(self, reason: str) -> bool:
        """Record that the process died; return False if it had no subject yet."""
        if not self._state["working"]:
            return False
        self._append_death(reason)
        self._write()
        return True

    def end(self) -> None:
        """Delete the state, because the attempt ends regularly or gives up."""
        self.path.unlink(missing_ok=True)

    def _append_death(self, reason: str) -> None:
        if not self._state["overlaps"]:
            self._state["died"].append([*self._state["working"], reason])
        self._state["working"], self._state["overlaps"] = None, False

    def _write(self) -> None:
        artifacts.write_text(self.path, json.dumps(self._state))
