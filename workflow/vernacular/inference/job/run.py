"""One inference job: a base with its adapters, or a shard of their evaluations.

Only outputs missing from the store are computed, and the model is loaded once. The work units of a model overlap: while
the device computes one, the next is prepared and the last written. Preparing (reading, tokenization, the trie) and
finishing (rows, writing) run in threads, which begin when the device has its first batch: before, they would delay it,
because only one thread at a time runs Python code. The device is used by the main thread only, which receives signals
and errors: an error of the store ends the job at the next batch, any other affects its own evaluation.

Evaluations without few-shot examples that differ in the prompt only are computed as one: a passage before the words
that differ is read once. The keys and rows of the outputs are those of single evaluations.
"""

import contextlib
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from vernacular.checkpoints.inputs import DELETED, is_deleted
from vernacular.core import artifacts
from vernacular.core.artifacts import Kind
from vernacular.core.errors import MachineError, ModelError, ServerError, UserError, is_contained, named
from vernacular.core.library_errors import is_lost_device, wrap_tokenizer_panics
from vernacular.core.logs import Progress
from vernacular.core.metadata import Counters, OutputsMetadata, decode, encode
from vernacular.core.model_record import ModelRecord
from vernacular.core.processes import StopFlag, Stopped, Task, stop_on_signals
from vernacular.inference.engine import Engine, engine_name, engine_of
from vernacular.inference.job.store import Store, StoreError
from vernacular.inference.job.work import WorkUnit, engine_version, work_units
from vernacular.inference.schema import SCORES, distinct, missing_statistics
from vernacular.protocols.schema import REQUESTS

_SETTING = ("task", "language", "protocol", "style", "seed", "options")  # all but the prompt
_NOT_SUMMED = ("budget", "chunks")  # counters that describe the computation, and are the same for all its evaluations


@dataclass(frozen=True)
class Computation:
    """A work unit, or several that are computed as one, which has the name and the journal of the first."""

    units: tuple[WorkUnit, ...]

    @property
    def evaluation(self) -> str:
        return self.units[0].evaluation

    @property
    def key(self) -> str:
        return self.units[0].key

    @property
    def kind(self) -> Kind:
        return self.units[0].kind

    def requests(self, columns: list[str] | None = None) -> pa.Table:
        """Read the rows of all units, one unit after the other."""
        return pa.concat_tables([unit.requests(columns) for unit in self.units]).unify_dictionaries()

    def outputs(self, table: pa.Table, metadata: OutputsMetadata) -> list[tuple[WorkUnit, pa.Table, OutputsMetadata]]:
        """Return (unit, its rows, its metadata) for each unit, the first one last: the journal is removed with it."""
        if len(self.units) == 1:
            return [(self.units[0], table, metadata)]
        parts, start = [], 0
        for unit in self.units:
            rows = table.slice(start, unit.n_rows)
            parts.append((unit, rows, self._metadata(unit, rows, metadata)))
            start += unit.n_rows
        return parts[::-1]

    def _metadata(self, unit: WorkUnit, rows: pa.Table, metadata: OutputsMetadata) -> OutputsMetadata:
        """Return a unit's metadata; the first one has the counters, so that sums are those of the computation."""
        first_rows = distinct(rows)
        counters = metadata.counters
        if unit is not self.units[0]:
            counts = encode(counters).items()
            counters = decode(Counters, {name: count if name in _NOT_SUMMED else 0 for name, count in counts})
        others = [other.evaluation for other in self.units if other is not unit]
        is_scored = first_rows.filter(pc.is_valid(first_rows["logprobs"]))
        n_unscored = pc.sum(pc.equal(is_scored["n_prompt_tokens"], 0)).as_py() or 0
        n_chat = len(is_scored) - is_scored["rendered"].null_count
        return replace(
            metadata,
            fingerprint=unit.key,
            counters=replace(counters, requests=len(first_rows)),
            flags=_flags(first_rows["flags"], metadata.flags),
            tokenizer=replace(metadata.tokenizer, unscored_first_tokens=n_unscored, chat=n_chat),
            engine=replace(metadata.engine, computed_with=others),
        )


def share(units: list[WorkUnit]) -> list[Computation]:
    """Return the units, in their order, where evaluations that differ in the prompt only are one."""
    groups: dict[tuple, list[WorkUnit]] = {}
    for number, unit in enumerate(units):
        metadata = artifacts.metadata(unit.path, REQUESTS)
        is_shared = unit.kind is SCORES and metadata.task is not None and metadata.shots == 0
        setting = tuple(str(getattr(metadata, name)) for name in _SETTING)
        groups.setdefault(setting if is_shared else (number,), []).append(unit)
    return [Computation(tuple(group)) for group in groups.values()]


def _flags(texts: pa.ChunkedArray, known: Iterable[str]) -> dict[str, int]:
    """Return the number of requests by flag, one of `known`, without what follows a colon: "truncated: …"."""
    names = (flag.split(":")[0] for text in texts.drop_null().to_pylist() for flag in text.split("; "))
    counts = Counter(names)
    return {name: counts[name] for name in known if counts[name]}


log = logging.getLogger("vernacular")


class Pipeline:
    """The work units of one model, which its engine has made ready."""

    def __init__(self, engine: Engine, units: list[WorkUnit], store: Store, stop: StopFlag, *, overlaps: bool):
        self.engine, self.store, self.stop, self.overlaps = engine, store, stop, overlaps
        is_shared = overlaps and engine.shares_prompts
        self.units = share(units) if is_shared else [Computation((unit,)) for unit in units]
        self.computed: list[str] = []
        self.failed: dict[str, str] = {}
        self.preparing: Task | None = None  # the next unit
        self.writing: tuple[Computation, Task[None]] | None = None  # the last unit
        self.busy = threading.Event()  # the device computes the current unit, or has no more to do

    def run(self, on_begin, progress: Progress) -> tuple[list[str], dict[str, str]]:
        """Compute all units; return (completed evaluations, reason by failed evaluation)."""
        sizes = {part.path: part.path.stat().st_size for unit in self.units for part in unit.units}
        total, completed = sum(sizes.values()), 0
        try:
            index = 0
            while index < len(self.units):
                unit = self.units[index]
                size = sum(sizes[part.path] for part in unit.units)
                progress.span = completed / total, size / total
                on_begin(self.engine.record.name, unit.evaluation)
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

    def _compute(self, index: int) -> Any:
        """Compute a unit, and begin to prepare the next one; return it as `Engine.prepare` did."""
        unit = self.units[index]
        preparing, self.preparing = self.preparing or self._prepare(index), None
        try:
            with wrap_tokenizer_panics(self.engine.record):
                self._verify(unit.key)
                with self.stop.defer_signals():  # it creates a file for a moment
                    self.store.check_writable(unit.key, unit.kind)
                journal = self.store.journal(unit.key, stop=self.stop)
                prepared = preparing.result()
                if unit.kind is not SCORES or not self.engine.is_asynchronous:
                    self.busy.set()  # at once: when the first batch is returned, it is computed
                if self.overlaps and index + 1 < len(self.units):
                    self.preparing = self._prepare(index + 1, after=self.busy)
                self.engine.on_batch = self.busy.set
                self.engine.compute(prepared, journal)
                self._verify(unit.key)
                return prepared
        finally:
            self.busy.set()
            preparing.cancel()

    def _prepare(self, index: int, after: threading.Event | None = None) -> Task:
        unit = self.units[index]
        return Task(lambda: self.engine.prepare(unit.kind, unit.requests()), after=after)

    def _verify(self, key: str) -> None:
        """Remove the journal of `key` and raise ModelError if the model changed: its files, or what is served."""
        try:
            self.engine.verify()
        except ServerError:
            raise
        except ModelError:
            self.store.remove_journal(key)
            raise

    def _write(self, unit: Computation, prepared: Any) -> None:
        """Begin to write the outputs of a computed unit."""

        def write() -> None:
            table, metadata = self.engine.finish(prepared)
            version = engine_version(unit.kind, engine_name(self.engine.record))
            metadata = decode(OutputsMetadata, {"fingerprint": unit.key, **metadata})
            fallback = metadata.engine.fallback
            if reason := unit.kind is SCORES and self.engine.abilities(self.engine.record).reason("entropies"):
                fallback = [*fallback, *missing_statistics(unit.requests(["item_id", "extras"]), reason)]
            engine = replace(metadata.engine, version=version, fallback=list(dict.fromkeys(fallback)))
            metadata = replace(metadata, engine=engine)
            try:
                for part, rows, part_metadata in unit.outputs(table, metadata):
                    self.store.put(part.key, part.kind, rows, encode(part_metadata))
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
    def _contained(self, unit: Computation) -> Iterator[None]:
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
            message = named(error)
            if is_lost_device(error):
                model = f"model {self.engine.record.name}: {self.engine.device}"
                raise MachineError(f"{model} failed: {message}") from error
            self._fail(unit, message)

    def _fail(self, unit: Computation, message: str) -> None:
        """Record why a unit failed; evaluations that were computed as one are computed again, one by one."""
        if len(unit.units) == 1:
            self.failed[unit.evaluation] = message
            return
        log.warning("%s and others with its items failed together, computed singly: %s", unit.evaluation, message)
        self.units += [Computation((part,)) for part in unit.units]


CACHED, COMPUTED, EMPTY = "found in the store", "computed", "without requests"


def run_group(
    records: list[ModelRecord],
    request_files: dict[str, Path],
    store_root: Path,
    *,
    shard: tuple[int, int] = (0, 1),
    threads=None,
    skip_reasons: dict[tuple[str, str | None], str] | None = None,
    on_begin: Callable[[str, str | None], None] | None = None,
    overlaps: bool = True,
) -> tuple[dict[str, dict[str, str]], dict[str, dict[str, str]]]:
    """Compute the outputs of a base and its adapters for shard k of n of every evaluation, and store them.

    A failure affects one evaluation; a base that cannot be loaded, all. `skip_reasons`: by (model, evaluation) that is
    not run, or (model, None) that is not loaded; `on_begin` is called with such pairs. Returns, by model and
    evaluation, how it was completed (CACHED, COMPUTED, EMPTY, DELETED), and why it failed.

    Raises Stopped at a signal, StoreError, and MachineError if another attempt may succeed.
    """
    store = Store(store_root)
    done: dict[str, dict[str, str]] = {record.name: {} for record in records}
    failed: dict[str, dict[str, str]] = {record.name: {} for record in records}
    with stop_on_signals() as stop, stop.interruptible():
        missing: list[tuple[ModelRecord, list[WorkUnit], Progress]] = []
        for record in records:
            units = []
            for unit in work_units(record, request_files, shard):
                if not unit.n_rows:
                    done[record.name][unit.evaluation] = EMPTY
                elif any(store.get(key, unit.kind) for key in dict.fromkeys((unit.key, unit.full_key))):
                    done[record.name][unit.evaluation] = CACHED
                    store.remove_journal(unit.key)  # left by a job that was killed after another had finished
                elif record.checkpoint and is_deleted(record):
                    done[record.name][unit.evaluation] = DELETED
                elif reason := _skip_reason(skip_reasons or {}, records[0].name, record.name, unit.evaluation):
                    failed[record.name][unit.evaluation] = reason
                else:
                    units.append(unit)
            if units:
                label = f"infer {record.name}{shard_label(shard)}"
                missing.append((record, units, Progress(label, len(units), "evaluation")))
        if missing:
            on_begin = on_begin or (lambda *_: None)
            _run_models(records[0], missing, store, stop, threads, done, failed, on_begin, overlaps)
    return done, failed


def shard_label(shard: tuple[int, int]) -> str:
    """Return what tells the lines of shards that run at the same time apart; nothing if the work is not split.

    >>> shard_label((0, 2)), shard_label((0, 1))
    (' (shard 1of2)', '')
    """
    index, count = shard
    return f" (shard {index + 1}of{count})" if count > 1 else ""


def _skip_reason(skip_reasons: dict, base: str, name: str, evaluation: str) -> str | None:
    if reason := skip_reasons.get((base, None)):
        return _base_failure(base, name, reason)
    return skip_reasons.get((name, None)) or skip_reasons.get((name, evaluation))


def _run_models(
    base_record: ModelRecord, missing, store: Store, stop: StopFlag, threads, done, failed, on_begin, overlaps: bool
) -> None:
    """Compute the missing evaluations of the base and its adapters; update `done` and `failed`."""
    on_begin(base_record.name, None)
    try:
        with stop.interruptible():
            units = [unit for _, units, _ in missing for unit in units]
            tables = (unit.requests(["item_id", "prefix", "text"]) for unit in units)
            engine = engine_of(base_record)(base_record, threads=threads, is_shared=len(missing) > 1, requests=tables)
    except MachineError:
        raise
    except ModelError as error:
        for record, units, _ in missing:
            reason = _base_failure(base_record.name, record.name, str(error))
            failed[record.name] |= {unit.evaluation: reason for unit in units}
        return
    for record, units, progress in missing:
        on_begin(record.name, None)
        try:
            with stop.interruptible(), progress, engine.model(record):
                computed, reasons = Pipeline(engine, units, store, stop, overlaps=overlaps).run(on_begin, progress)
        except MachineError:
            raise
        except ModelError as error:  # this adapter is unavailable; the base and its other adapters are not affected
            reason = str(error)
            if not engine.is_open:
                reason = _base_failure(base_record.name, record.name, reason)
            computed, reasons = [], {unit.evaluation: reason for unit in units}
        done[record.name] |= dict.fromkeys(computed, COMPUTED)
        failed[record.name] |= reasons


def _base_failure(base: str, name: str, reason: str) -> str:
    """Return the reason why a model is unavailable if its base is, for the given one."""
    return reason if name == base else f"its base {base} is unavailable: {reason}"
