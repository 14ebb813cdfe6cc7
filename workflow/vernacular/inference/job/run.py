"""One inference job: a base with its adapters, or a shard of their evaluations.

Only outputs missing from the store are computed, and the model is loaded once.
"""

import logging
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from tqdm import tqdm

from vernacular.core.errors import MachineError, ModelError, UserError, first_line, is_contained
from vernacular.core.processes import StopFlag, Stopped, stoppable
from vernacular.inference.job.store import Store, StoreError
from vernacular.inference.job.work import Question, engine_version, questions
from vernacular.inference.schema import SCORES
from vernacular.types import ModelRecord

log = logging.getLogger("vernacular")

FOUND, COMPUTED, NOTHING = "found in the store", "computed", "nothing to ask"


def run_group(
    records: list[dict],
    asked: dict[str, Path],
    store_root: Path,
    *,
    shard: tuple[int, int] = (0, 1),
    threads=None,
    given_up: dict[tuple[str, str | None], str] | None = None,
    begin: Callable[[str, str | None], None] | None = None,
) -> tuple[dict[str, dict[str, str]], dict[str, dict[str, str]]]:
    """Compute the outputs of a base and its adapters for shard k of n of every evaluation, and store them.

    A failure affects one evaluation only; a base that cannot be loaded affects all evaluations of the job.

    Args:
        records: The base and its adapters.
        asked: Requests file by evaluation ID.
        shard: (k, n).
        given_up: Reason by (model, evaluation) that is not run, or by (model, None) that is not loaded.
        begin: Called with such a pair before each step.

    Returns:
        By model: how each evaluation was completed (FOUND, COMPUTED, NOTHING), and the reason for each failed one.

    Raises:
        Stopped: A stop signal was received; completed batches are stored.
        StoreError: The store cannot be read or written.
        MachineError: This machine cannot run the job; another attempt may succeed.
    """
    store = Store(store_root)
    done: dict[str, dict[str, str]] = {record["name"]: {} for record in records}
    failed: dict[str, dict[str, str]] = {record["name"]: {} for record in records}
    with stoppable() as stop, stop.at_once():
        missing: list[tuple[dict, list[Question]]] = []
        for record in records:
            wanted = []
            for question in questions(record, asked, shard):
                if not question.rows:
                    done[record["name"]][question.evaluation] = NOTHING
                elif any(store.get(key, question.kind) for key in dict.fromkeys((question.key, question.whole))):
                    done[record["name"]][question.evaluation] = FOUND
                    store.remove_journal(question.key)  # left by a job that was killed after another had finished
                elif reason := _given_up(given_up or {}, records[0]["name"], record["name"], question.evaluation):
                    failed[record["name"]][question.evaluation] = reason
                else:
                    wanted.append(question)
            if wanted:
                missing.append((record, wanted))
        if missing:
            _ask_all(records[0], missing, store, stop, threads, done, failed, begin or (lambda *_: None))
    return done, failed


def _given_up(given_up: dict, base: str, name: str, evaluation: str) -> str | None:
    if reason := given_up.get((base, None)):
        return reason if base == name else f"its base {base} is unavailable: {reason}"
    return given_up.get((name, None)) or given_up.get((name, evaluation))


def _ask_all(base_record: dict, missing, store: Store, stop: StopFlag, threads, done, failed, begin) -> None:
    """Compute the missing evaluations of the base and its adapters; update `done` and `failed`."""
    # imported here, because it imports torch, which is needed only if outputs are missing
    from vernacular.inference.model.base import Base

    begin(base_record["name"], None)
    try:
        with stop.at_once():
            base = Base(base_record, threads=threads, shared=len(missing) > 1)
    except MachineError:
        raise
    except ModelError as error:
        for record, wanted in missing:
            reason = _of_base(base_record, record, error)
            failed[record["name"]] |= {question.evaluation: reason for question in wanted}
        return
    for record, wanted in missing:
        begin(record["name"], None)
        try:
            computed, trouble = _ask_one(base, record, wanted, store, stop, begin)
        except MachineError:
            raise
        except ModelError as error:  # this adapter is unavailable; the base and its other adapters are not affected
            reason = _of_base(base_record, record, error) if base.loaded is None else str(error)
            computed, trouble = [], {question.evaluation: reason for question in wanted}
        done[record["name"]] |= dict.fromkeys(computed, COMPUTED)
        failed[record["name"]] |= trouble


def _ask_one(base, record: ModelRecord, wanted: list[Question], store: Store, stop: StopFlag, begin):
    """Call `_ask` with the model of `record`.

    No reference to the model remains afterwards, so that its memory is free if it is loaded again.
    """
    with stop.at_once(), base.model(record) as loaded:
        return _ask(loaded, wanted, store, stop, begin)


def _of_base(base: dict, record: ModelRecord, error: ModelError) -> str:
    """Return the reason why a model is unavailable if its base could not be loaded."""
    return str(error) if record is base else f"its base {base['name']} is unavailable: {error}"


def _ask(loaded, wanted: list[Question], store: Store, stop: StopFlag, begin) -> tuple[list[str], dict[str, str]]:
    """Compute one model's work units; return (completed evaluations, reason by failed evaluation)."""
    from vernacular.core.failures import is_lost_device, tokenizer_panics

    computed, failed = [], {}
    bar = tqdm(wanted, desc=loaded.record["name"], unit="evaluation", disable=None)
    for question in bar:
        bar.set_postfix_str(question.evaluation)
        begin(loaded.record["name"], question.evaluation)
        try:
            with stop.at_once(), tokenizer_panics(loaded.record):
                _verify(loaded.record, store, question.key)
                store.check_writable(question.key, question.kind)
                table, facts = _answer(loaded, question, store.journal(question.key, stop=stop))
                _verify(loaded.record, store, question.key)
        # end the job: on a full disk (StoreError), for example, no outputs can be stored
        except (Stopped, StoreError, MachineError):
            raise
        except UserError as error:
            failed[question.evaluation] = str(error)
            continue
        except BaseException as error:  # an unexpected error in one evaluation does not affect the others
            if not is_contained(error):
                raise
            log.exception("%s failed", question.evaluation)
            said = f"{type(error).__name__}: {first_line(error)}"
            if is_lost_device(error):
                raise MachineError(f"model {loaded.record['name']}: {loaded.device} failed: {said}") from error
            failed[question.evaluation] = said
            continue
        facts["engine"] = {**facts.get("engine", {}), "version": engine_version(question.kind)}
        with stop.finishing():
            store.put(question.key, question.kind, table, facts)
        computed.append(question.evaluation)
    return computed, failed


def _verify(record: ModelRecord, store: Store, key: str) -> None:
    """Remove the journal of `key` and raise ModelError if the model's files changed since it was recorded.

    The loaded model changes with its files if its weights are memory-mapped.
    """
    from vernacular.checkpoints import inputs

    try:
        inputs.verify(record)
    except ModelError:
        store.remove_journal(key)
        raise


def _answer(loaded, question: Question, journal) -> tuple[pa.Table, dict]:
    if question.kind is SCORES:
        from vernacular.inference.scoring.score import score

        strategy = loaded.option("strategy")
        return score(loaded, question.requests(), journal=journal, strategy=strategy, progress=True)
    if loaded.option("generation_engine") == "vllm":
        from vernacular.inference.generation.vllm import generate
    else:
        from vernacular.inference.generation.generate import generate
    return generate(loaded, question.requests(), journal=journal, progress=True)
