"""One inference job: a base with its adapters, or a shard of their evaluations.

Only outputs missing from the store are computed, and the model is loaded once.
"""

import logging
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from vernacular.core.errors import MachineError, ModelError, ServerError, UserError, first_line, is_contained
from vernacular.core.processes import StopFlag, Stopped, stop_on_signals
from vernacular.core.progress import Progress
from vernacular.inference.job.store import Store, StoreError
from vernacular.inference.job.work import WorkUnit, engine_version, work_units
from vernacular.inference.schema import SCORES
from vernacular.types import ModelRecord

log = logging.getLogger("vernacular")

CACHED, COMPUTED, EMPTY = "found in the store", "computed", "without requests"


def run_group(
    records: list[dict],
    request_files: dict[str, Path],
    store_root: Path,
    *,
    shard: tuple[int, int] = (0, 1),
    threads=None,
    skip_reasons: dict[tuple[str, str | None], str] | None = None,
    on_begin: Callable[[str, str | None], None] | None = None,
) -> tuple[dict[str, dict[str, str]], dict[str, dict[str, str]]]:
    """Compute the outputs of a base and its adapters for shard k of n of every evaluation, and store them.

    A failure affects one evaluation only; a base that cannot be loaded affects all evaluations of the job.

    Args:
        records: The base and its adapters.
        request_files: Requests file by evaluation ID.
        shard: (k, n).
        skip_reasons: Reason by (model, evaluation) that is not run, or by (model, None) that is not loaded.
        on_begin: Called with such a pair before each step.

    Returns:
        By model: how each evaluation was completed (CACHED, COMPUTED, EMPTY), and the reason for each failed one.

    Raises:
        Stopped: A stop signal was received; completed batches are stored.
        StoreError: The store cannot be read or written.
        MachineError: This machine cannot run the job; another attempt may succeed.
    """
    store = Store(store_root)
    done: dict[str, dict[str, str]] = {record["name"]: {} for record in records}
    failed: dict[str, dict[str, str]] = {record["name"]: {} for record in records}
    with stop_on_signals() as stop, stop.interruptible():
        missing: list[tuple[dict, list[WorkUnit]]] = []
        for record in records:
            units = []
            for unit in work_units(record, request_files, shard):
                if not unit.n_rows:
                    done[record["name"]][unit.evaluation] = EMPTY
                elif any(store.get(key, unit.kind) for key in dict.fromkeys((unit.key, unit.full_key))):
                    done[record["name"]][unit.evaluation] = CACHED
                    store.remove_journal(unit.key)  # left by a job that was killed after another had finished
                elif reason := _skip_reason(skip_reasons or {}, records[0]["name"], record["name"], unit.evaluation):
                    failed[record["name"]][unit.evaluation] = reason
                else:
                    units.append(unit)
            if units:
                missing.append((record, units))
        if missing:
            _run_models(records[0], missing, store, stop, threads, done, failed, on_begin or (lambda *_: None))
    return done, failed


def _skip_reason(skip_reasons: dict, base: str, name: str, evaluation: str) -> str | None:
    if reason := skip_reasons.get((base, None)):
        return reason if base == name else f"its base {base} is unavailable: {reason}"
    return skip_reasons.get((name, None)) or skip_reasons.get((name, evaluation))


def _run_models(base_record: dict, missing, store: Store, stop: StopFlag, threads, done, failed, on_begin) -> None:
    """Compute the missing evaluations of the base and its adapters; update `done` and `failed`."""
    on_begin(base_record["name"], None)
    try:
        with stop.interruptible():
            base = _open(base_record, threads=threads, shared=len(missing) > 1)
    except MachineError:
        raise
    except ModelError as error:
        for record, units in missing:
            reason = _base_failure(base_record, record, error)
            failed[record["name"]] |= {unit.evaluation: reason for unit in units}
        return
    for record, units in missing:
        on_begin(record["name"], None)
        try:
            computed, failures = _run_model(base, record, units, store, stop, on_begin)
        except MachineError:
            raise
        except ModelError as error:  # this adapter is unavailable; the base and its other adapters are not affected
            reason = _base_failure(base_record, record, error) if base.loaded is None else str(error)
            computed, failures = [], {unit.evaluation: reason for unit in units}
        done[record["name"]] |= dict.fromkeys(computed, COMPUTED)
        failed[record["name"]] |= failures


def _open(record: dict, *, threads, shared: bool):
    """Load a base, or probe its server; imported here, because outputs may all be in the store."""
    if record.get("server"):
        from vernacular.inference.server.start import StartedServer

        return StartedServer(record)
    from vernacular.inference.model.base import Base

    return Base(record, threads=threads, shared=shared)


def _run_model(base, record: ModelRecord, units: list[WorkUnit], store: Store, stop: StopFlag, on_begin):
    """Call `_run_units` with the model of `record`.

    No reference to the model remains afterwards, so that its memory is free if it is loaded again.
    """
    progress = Progress(f"infer {record['name']}", len(units), "evaluation")
    with stop.interruptible(), progress, base.model(record) as loaded:
        return _run_units(loaded, units, store, stop, on_begin, progress)


def _base_failure(base: dict, record: ModelRecord, error: ModelError) -> str:
    """Return the reason why a model is unavailable if its base could not be loaded."""
    return str(error) if record is base else f"its base {base['name']} is unavailable: {error}"


def _run_units(
    loaded, units: list[WorkUnit], store: Store, stop: StopFlag, on_begin, progress: Progress
) -> tuple[list[str], dict[str, str]]:
    """Compute one model's work units; return (completed evaluations, reason by failed evaluation)."""
    from vernacular.core.failures import is_lost_device, wrap_tokenizer_panics

    computed, failed = [], {}
    for index, unit in enumerate(units):
        progress.done = index
        on_begin(loaded.record["name"], unit.evaluation)
        try:
            with stop.interruptible(), wrap_tokenizer_panics(loaded.record):
                _verify(loaded, store, unit.key)
                store.check_writable(unit.key, unit.kind)
                table, metadata = _compute_outputs(loaded, unit, store.journal(unit.key, stop=stop))
                _verify(loaded, store, unit.key)
        # end the job: on a full disk (StoreError), for example, no outputs can be stored
        except (Stopped, StoreError, MachineError):
            raise
        except ServerError as error:  # the other evaluations would wait for it in vain
            failed |= {remaining.evaluation: str(error) for remaining in units[index:]}
            break
        except UserError as error:
            failed[unit.evaluation] = str(error)
            continue
        except BaseException as error:  # an unexpected error in one evaluation does not affect the others
            if not is_contained(error):
                raise
            log.exception("%s failed", unit.evaluation)
            message = f"{type(error).__name__}: {first_line(error)}"
            if is_lost_device(error):
                raise MachineError(f"model {loaded.record['name']}: {loaded.device} failed: {message}") from error
            failed[unit.evaluation] = message
            continue
        metadata["engine"] = {
            **metadata.get("engine", {}),
            "version": engine_version(unit.kind, served=bool(loaded.record.get("server"))),
        }
        with stop.defer_signals():
            store.put(unit.key, unit.kind, table, metadata)
        computed.append(unit.evaluation)
    return computed, failed


def _verify(loaded, store: Store, key: str) -> None:
    """Remove the journal of `key` and raise ModelError if the model changed since it was recorded.

    The loaded model changes with its files if its weights are memory-mapped; a server can be restarted with another.
    """
    from vernacular.checkpoints import inputs

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


def _compute_outputs(loaded, unit: WorkUnit, journal) -> tuple[pa.Table, dict]:
    if loaded.record.get("server"):
        from vernacular.inference.server.generate import generate as generate_served
        from vernacular.inference.server.score import score as score_served

        compute = score_served if unit.kind is SCORES else generate_served
        return compute(loaded, unit.requests(), journal=journal)
    if unit.kind is SCORES:
        from vernacular.inference.scoring.score import score

        strategy = loaded.option("strategy")
        return score(loaded, unit.requests(), journal=journal, strategy=strategy)
    if loaded.option("generation_engine") == "vllm":
        from vernacular.inference.generation.vllm import generate
    else:
        from vernacular.inference.generation.generate import generate
    return generate(loaded, unit.requests(), journal=journal)
