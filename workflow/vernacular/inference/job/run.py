"""One inference job: a base with its adapters, or a shard of their evaluations.

Only outputs missing from the store are computed, and the model is loaded once.
"""

from collections.abc import Callable
from pathlib import Path

from vernacular.checkpoints.inputs import DELETED, is_deleted
from vernacular.core.errors import MachineError, ModelError
from vernacular.core.logs import Progress
from vernacular.core.model_record import ModelRecord
from vernacular.core.processes import StopFlag, stop_on_signals
from vernacular.inference.engine import engine_of
from vernacular.inference.job.pipeline import Pipeline
from vernacular.inference.job.store import Store
from vernacular.inference.job.work import WorkUnit, work_units

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

    A failure affects one evaluation only; a base that cannot be loaded affects all evaluations of the job.

    Args:
        records: The base and its adapters.
        request_files: Requests file by evaluation ID.
        shard: (k, n).
        skip_reasons: Reason by (model, evaluation) that is not run, or by (model, None) that is not loaded.
        on_begin: Called with such a pair before each step.
        overlaps: Whether the next evaluation is prepared, and the last one written, while one is computed.

    Returns:
        By model: how each evaluation was completed (CACHED, COMPUTED, EMPTY, DELETED), and the reason for each failed
        one.

    Raises:
        Stopped: A stop signal was received; completed batches are stored.
        StoreError: The store cannot be read or written.
        MachineError: This machine cannot run the job; another attempt may succeed.
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
        return reason if base == name else f"its base {base} is unavailable: {reason}"
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
            reason = _base_failure(base_record, record, error)
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
            reason = _base_failure(base_record, record, error) if not engine.is_open else str(error)
            computed, reasons = [], {unit.evaluation: reason for unit in units}
        done[record.name] |= dict.fromkeys(computed, COMPUTED)
        failed[record.name] |= reasons


def _base_failure(base: ModelRecord, record: ModelRecord, error: ModelError) -> str:
    """Return the reason why a model is unavailable if its base could not be loaded."""
    return str(error) if record is base else f"its base {base.name} is unavailable: {error}"
