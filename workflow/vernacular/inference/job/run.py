"""One job: a base with its adapters, or a shard of their work. What the store lacks is asked, the model loaded once."""

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
    """Have `records` (a base and its adapters) answer shard k of n of every evaluation (id -> requests file).

    `given_up`: (model, evaluation) that is not tried, or (model, None) that is not loaded, and why; `begin` is called
    with such a pair before each step. The outputs go to the store. Returns by model how each evaluation was done
    (FOUND, COMPUTED, NOTHING) and what failed (the reason); a failure costs its evaluation and no other, a base that
    cannot be loaded its job's. Raises Stopped when a signal asks for it (what is finished is kept), StoreError where
    the store cannot be written, and MachineError where this machine cannot do it and another try may.
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
                    store.remove_journal(question.key)  # of a job that was killed after another one had finished
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
        return reason if base == name else f"its base {base} cannot be had: {reason}"
    return given_up.get((name, None)) or given_up.get((name, evaluation))


def _ask_all(base_record: dict, missing, store: Store, stop: StopFlag, threads, done, failed, begin) -> None:
    """Ask the base and its adapters what is missing; `done` and `failed` are added to."""
    # the model, and torch with it, only where something is missing
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
        except ModelError as error:  # this adapter cannot be had; the base and its other adapters can
            reason = _of_base(base_record, record, error) if base.loaded is None else str(error)
            computed, trouble = [], {question.evaluation: reason for question in wanted}
        done[record["name"]] |= dict.fromkeys(computed, COMPUTED)
        failed[record["name"]] |= trouble


def _ask_one(base, record: ModelRecord, wanted: list[Question], store: Store, stop: StopFlag, begin):
    """As `_ask`; nothing here refers to the model afterwards, so that its memory is free if it is loaded again."""
    with stop.at_once(), base.model(record) as loaded:
        return _ask(loaded, wanted, store, stop, begin)


def _of_base(base: dict, record: ModelRecord, error: ModelError) -> str:
    """Why this model cannot be asked, where its base could not be loaded."""
    return str(error) if record is base else f"its base {base['name']} cannot be had: {error}"


def _ask(loaded, wanted: list[Question], store: Store, stop: StopFlag, begin) -> tuple[list[str], dict[str, str]]:
    """(evaluations that were answered, those that failed and why), one model's."""
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
        # what cannot be kept need not be computed: a full disk ends the job
        except (Stopped, StoreError, MachineError):
            raise
        except UserError as error:
            failed[question.evaluation] = str(error)
            continue
        except BaseException as error:  # whatever one evaluation trips over, the others are still asked
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
    """Raise ModelError if files of the model changed since it was recorded, and drop what the journal holds of it.

    A loaded model changes with its files: where memory allows, its weights are pages of them.
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
    if loaded.option("engine") == "vllm":
        from vernacular.inference.generation.vllm import generate
    else:
        from vernacular.inference.generation.generate import generate
    return generate(loaded, question.requests(), journal=journal, progress=True)
