"""The work units of one model, overlapped: while the device computes one, the next is prepared and the last written.

Preparing (reading, tokenization, the trie) and finishing (rows, writing) run in threads, which begin when the device
has its first batch: before, they would delay it, because only one thread at a time runs Python code. The device is
used by the main thread only, which receives signals and errors: an error of the store ends the job at the next batch,
any other affects its own evaluation.
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol

import pyarrow as pa

from vernacular.checkpoints import inputs
from vernacular.core.background import Task
from vernacular.core.errors import MachineError, ModelError, ServerError, UserError, first_line, is_contained
from vernacular.core.failures import is_lost_device, wrap_tokenizer_panics
from vernacular.core.processes import StopFlag, Stopped
from vernacular.core.progress import Progress
from vernacular.inference.job.shared import SharedUnit, share
from vernacular.inference.job.store import Store, StoreError
from vernacular.inference.job.work import WorkUnit, engine_version
from vernacular.inference.journal import Journal
from vernacular.inference.model.loaded import LoadedModel
from vernacular.inference.model.rendering import try_template
from vernacular.inference.schema import SCORES

log = logging.getLogger("vernacular")


class Evaluation(Protocol):
    """An evaluation that is prepared; only `compute` uses the device."""

    def compute(self, journal: Journal) -> None:
        """Run the model."""

    def finish(self) -> tuple[pa.Table, dict]:
        """Return (rows, metadata)."""


class Pipeline:
    """The work units of one loaded model."""

    def __init__(self, loaded: LoadedModel, units: list[WorkUnit], store: Store, stop: StopFlag, *, overlaps: bool):
        self.loaded, self.store, self.stop, self.overlaps = loaded, store, stop, overlaps
        shares = overlaps and loaded.kind == "causal" and not loaded.record.get("server")
        self.units: list[WorkUnit | SharedUnit] = share(units) if shares else list(units)
        self.computed: list[str] = []
        self.failed: dict[str, str] = {}
        self.preparing: Task[Evaluation] | None = None  # the next unit
        self.writing: tuple[WorkUnit | SharedUnit, Task[None]] | None = None  # the last unit
        self.busy = threading.Event()  # the device computes the current unit, or has no more to do

    def run(self, on_begin, progress: Progress) -> tuple[list[str], dict[str, str]]:
        """Compute all units; return (completed evaluations, reason by failed evaluation)."""
        with self.stop.interruptible():
            try_template(self.loaded)
        sizes = {part.path: part.path.stat().st_size for unit in self.units for part in unit.units}
        total, completed = sum(sizes.values()), 0
        try:
            index = 0
            while index < len(self.units):
                unit = self.units[index]
                size = sum(sizes[part.path] for part in unit.units)
                progress.span = completed / total, size / total
                on_begin(self.loaded.record["name"], unit.evaluation)
                try:
                    with self._contained(unit):
                        self._write(unit, self._compute(index))
                except ServerError as error:  # the other evaluations would wait for it in vain
                    self.failed |= {remaining.evaluation: str(error) for remaining in self.units[index:]}
                    break
                index += 1
                completed += size
                progress.done = len({part.evaluation for other in self.units[:index] for part in other.units})
                if index == len(self.units):
                    progress.span = 1.0, 0.0
                    self._wait_for_writing()
            self._wait_for_writing()
        finally:
            self.busy.set()
            if self.preparing is not None:
                self.preparing.cancel()
            if self.writing is not None:  # after an error or a signal, too: finished outputs are stored
                with self._contained(self.writing[0]):
                    self.writing[1].result()
        return self.computed, self.failed

    def _compute(self, index: int) -> Evaluation:
        """Run the model on a unit, and begin to prepare the next one."""
        unit = self.units[index]
        preparing, self.preparing = self.preparing or self._prepare(index), None
        try:
            with wrap_tokenizer_panics(self.loaded.record):
                _verify(self.loaded, self.store, unit.key)
                with self.stop.defer_signals():  # it creates a file for a moment
                    self.store.check_writable(unit.key, unit.kind)
                journal = self.store.journal(unit.key, stop=self.stop)
                evaluation = preparing.result()
                if unit.kind is not SCORES or not self.loaded.is_asynchronous:
                    self.busy.set()  # at once: when the first batch is returned, it is computed
                if self.overlaps and index + 1 < len(self.units):
                    self.preparing = self._prepare(index + 1, after=self.busy)
                self.loaded.on_batch = self.busy.set
                evaluation.compute(journal)
                _verify(self.loaded, self.store, unit.key)
                return evaluation
        finally:
            self.busy.set()
            preparing.cancel()

    def _prepare(self, index: int, after: threading.Event | None = None) -> Task[Evaluation]:
        unit = self.units[index]
        prepare = _evaluation_factory(self.loaded, unit)
        return Task(lambda: prepare(self.loaded, unit.requests()), after=after)

    def _write(self, unit: WorkUnit | SharedUnit, evaluation: Evaluation) -> None:
        """Begin to write the outputs of a computed unit."""

        def write() -> None:
            table, metadata = evaluation.finish()
            version = engine_version(unit.kind, served=bool(self.loaded.record.get("server")))
            metadata["engine"] = {**metadata.get("engine", {}), "version": version}
            try:
                for part, rows, part_metadata in unit.outputs(table, metadata):
                    self.store.put(part.key, part.kind, rows, part_metadata)
            except StoreError as error:
                self.stop.fail(error)
                raise

        self._wait_for_writing()
        self.busy = threading.Event()  # the next unit's
        with self.stop.defer_signals():
            self.writing = unit, Task(write, after=self.busy)
        if not self.overlaps:
            self._wait_for_writing()

    def _wait_for_writing(self) -> None:
        if self.writing is not None:
            self.busy.set()
            unit, task = self.writing
            with self._contained(unit):
                task.result()
                self.computed += [part.evaluation for part in unit.units]
            self.writing = None

    @contextlib.contextmanager
    def _contained(self, unit: WorkUnit | SharedUnit) -> Iterator[None]:
        """Record an error of one evaluation, which does not affect the others; raise errors that end the job."""
        try:
            with self.stop.interruptible():
                yield
        # end the job: on a full disk (StoreError), for example, no outputs can be stored
        except (Stopped, StoreError, MachineError, ServerError):
            raise
        except UserError as error:
            self._fail(unit, str(error))
        except BaseException as error:
            if not is_contained(error):
                raise
            log.exception("%s failed", unit.evaluation)
            message = f"{type(error).__name__}: {first_line(error)}"
            if is_lost_device(error):
                name, device = self.loaded.record["name"], self.loaded.device
                raise MachineError(f"model {name}: {device} failed: {message}") from error
            self._fail(unit, message)

    def _fail(self, unit: WorkUnit | SharedUnit, message: str) -> None:
        """Record why a unit failed; evaluations that were computed as one are computed again, one by one."""
        if len(unit.units) == 1:
            self.failed[unit.evaluation] = message
            return
        log.warning("%s and others with its items failed together, computed singly: %s", unit.evaluation, message)
        self.units += unit.units


def _evaluation_factory(
    loaded: LoadedModel, unit: WorkUnit | SharedUnit
) -> Callable[[LoadedModel, pa.Table], Evaluation]:
    if loaded.record.get("server"):
        from vernacular.inference.server.generate import Generation as ServedGeneration
        from vernacular.inference.server.score import Scoring as ServedScoring

        return ServedScoring if unit.kind is SCORES else ServedGeneration
    if unit.kind is SCORES:
        from vernacular.inference.scoring.score import Scoring

        return partial(Scoring, strategy=loaded.option("strategy"))
    if loaded.option("generation_engine") == "vllm":
        from vernacular.inference.generation.vllm import Generation
    else:
        from vernacular.inference.generation.generate import Generation
    return Generation


def _verify(loaded: LoadedModel, store: Store, key: str) -> None:
    """Remove the journal of `key` and raise ModelError if the model changed since it was recorded.

    The loaded model changes with its files if its weights are memory-mapped; a server can be restarted with another.
    """
    try:
        inputs.verify(loaded.record)
        if loaded.record.get("server"):
            from vernacular.inference.server.start import verify_answers

            verify_answers(loaded)
    except ServerError:
        raise
    except ModelError:
        store.remove_journal(key)
        raise
