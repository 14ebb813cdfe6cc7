"""One job: a base with its adapters, or a shard of their work. What the store lacks is asked, the model loaded once."""

import logging
from pathlib import Path

import pyarrow as pa
from tqdm import tqdm

from vernacular.core.errors import ModelError, UserError, first_line
from vernacular.core.signals import StopFlag, Stopped, stoppable
from vernacular.inference.keys import engine_version
from vernacular.inference.questions import Question, questions
from vernacular.inference.schema import SCORES
from vernacular.inference.store import Store, StoreError

log = logging.getLogger("vernacular")

FOUND, COMPUTED, NOTHING = "found in the store", "computed", "nothing to ask"


def run_group(
    records: list[dict], asked: dict[str, Path], store_root: Path, *, shard: tuple[int, int] = (0, 1), threads=None
) -> tuple[dict[str, dict[str, str]], dict[str, dict[str, str]]]:
    """Have `records` (a base and its adapters) answer shard k of n of every evaluation (id -> requests file).

    The answers go to the store. Returns by model how each evaluation was done (FOUND, COMPUTED, NOTHING) and what
    failed (the reason); a failure costs its evaluation and no other, a base that cannot be loaded its job's. Raises
    Stopped when a signal asks for it (what is finished is kept), StoreError where the store cannot be written, and
    MachineError where this machine cannot do it and another try may.
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
                else:
                    wanted.append(question)
            if wanted:
                missing.append((record, wanted))
        if missing:
            _ask_all(records[0], missing, store, stop, threads, done, failed)
    return done, failed


def _ask_all(base_record: dict, missing, store: Store, stop: StopFlag, threads, done: dict, failed: dict) -> None:
    """Ask the base and its adapters what is missing; `done` and `failed` are added to."""
    # the model, and torch with it, only where something is missing
    from vernacular.core.failures import MachineError
    from vernacular.inference.base import Base

    try:
        with stop.at_once():
            base = Base(base_record, threads=threads, shared=len(missing) > 1)
    except MachineError:
        raise
    except ModelError as error:
        for record, wanted in missing:
            reason = _of_base(base_record, record, error)
            failed[record["name"]] = {question.evaluation: reason for question in wanted}
        return
    for record, wanted in missing:
        try:
            computed, trouble = _ask_one(base, record, wanted, store, stop)
        except MachineError:
            raise
        except ModelError as error:  # this adapter cannot be had; the base and its other adapters can
            reason = _of_base(base_record, record, error) if base.loaded is None else str(error)
            computed, trouble = [], {question.evaluation: reason for question in wanted}
        done[record["name"]] |= dict.fromkeys(computed, COMPUTED)
        failed[record["name"]] |= trouble


def _ask_one(base, record: dict, wanted: list[Question], store: Store, stop: StopFlag):
    """As `_ask`; nothing here refers to the model afterwards, so that its memory is free if it is loaded again."""
    with stop.at_once(), base.model(record) as loaded:
        return _ask(loaded, wanted, store, stop)


def _of_base(base: dict, record: dict, error: ModelError) -> str:
    """Why this model cannot be asked, where its base could not be loaded."""
    return str(error) if record is base else f"its base {base['name']} cannot be had: {error}"


def _ask(loaded, wanted: list[Question], store: Store, stop: StopFlag) -> tuple[list[str], dict[str, str]]:
    """(evaluations that were answered, those that failed and why), one model's."""
    from vernacular.core.failures import MachineError, is_lost_device

    computed, failed = [], {}
    bar = tqdm(wanted, desc=loaded.record["name"], unit="evaluation", disable=None)
    for question in bar:
        bar.set_postfix_str(question.evaluation)
        try:
            with stop.at_once():
                table, facts = _answer(loaded, question, store.journal(question.key, stop=stop))
        # what cannot be kept need not be computed: a full disk ends the job
        except (Stopped, StoreError, MachineError):
            raise
        except UserError as error:
            failed[question.evaluation] = str(error)
            continue
        except Exception as error:  # whatever one evaluation trips over, the others are still asked
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


def _answer(loaded, question: Question, journal) -> tuple[pa.Table, dict]:
    if question.kind is SCORES:
        from vernacular.inference.score import score

        strategy = loaded.option("strategy")
        return score(loaded, question.requests(), journal=journal, strategy=strategy, progress=True)
    if loaded.option("engine") == "vllm":
        from vernacular.inference.generate_vllm import generate
    else:
        from vernacular.inference.generate import generate
    return generate(loaded, question.requests(), journal=journal, progress=True)
