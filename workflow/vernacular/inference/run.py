"""One job: a base with its adapters, or a shard of their work. What the store lacks is asked, the model loaded once."""

import contextlib
import logging
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from tqdm import tqdm

from vernacular import artifacts
from vernacular.artifacts import Kind
from vernacular.errors import ModelError, UserError
from vernacular.inference.keys import evaluation_key
from vernacular.inference.schema import GENERATIONS, SCORES
from vernacular.inference.shards import cut
from vernacular.inference.store import StopFlag, Stopped, Store, StoreError, stoppable
from vernacular.requests.schema import REQUESTS

log = logging.getLogger("vernacular")

FOUND, COMPUTED, NOTHING = "found in the store", "computed", "nothing to ask"


@dataclass(frozen=True)
class Question:
    """One evaluation, or a shard of it, as one model is asked."""

    evaluation: str
    requests: pa.Table
    kind: Kind
    key: str
    whole: str  # the key of all of it; `key` itself where the work is not cut


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
    missing: list[tuple[dict, list[Question]]] = []
    for record in records:
        wanted = []
        for question in questions(record, asked, shard):
            if not question.requests.num_rows:
                done[record["name"]][question.evaluation] = NOTHING
            elif any(store.get(key, question.kind) for key in dict.fromkeys((question.key, question.whole))):
                done[record["name"]][question.evaluation] = FOUND
            else:
                wanted.append(question)
        if wanted:
            missing.append((record, wanted))
    if not missing:
        return done, failed

    # the model, and torch with it, only where something is missing
    from vernacular.inference.load import load
    from vernacular.inference.trouble import MachineError

    with stoppable() as stop:
        try:
            base = load({key: value for key, value in records[0].items() if key != "adapter"}, threads=threads)
        except MachineError:
            raise
        except ModelError as error:
            reasons = {record["name"]: _of_base(records[0], record, error) for record, _ in missing}
            return done, failed | {r["name"]: {q.evaluation: reasons[r["name"]] for q in qs} for r, qs in missing}
        for record, wanted in missing:
            name = record["name"]
            try:
                with _as(base, record) as loaded:
                    computed, trouble = _ask(loaded, wanted, store, stop)
                    base.evaluations = loaded.evaluations
            except MachineError:
                raise
            except ModelError as error:  # this adapter cannot be had; the base and its other adapters can
                computed, trouble = [], {question.evaluation: str(error) for question in wanted}
            done[name] |= dict.fromkeys(computed, COMPUTED)
            failed[name] |= trouble
    return done, failed


def questions(record: dict, asked: dict[str, Path], shard: tuple[int, int] = (0, 1)) -> list[Question]:
    """What this model can be asked of `asked`, in shard k of n; requests without rows where the shard has no share."""
    kinds, tables = {}, {}
    for evaluation, path in asked.items():
        note = artifacts.metadata(path)
        if impossible(record, note) is None:
            kinds[evaluation] = GENERATIONS if note["protocol"] == "generation" else SCORES
            tables[evaluation] = artifacts.read(path, REQUESTS)
    index, count = shard
    parts = {evaluation: shares[index] for evaluation, shares in cut(tables, count).items()}
    found = []
    for evaluation, part in parts.items():
        kind = kinds[evaluation]
        key = evaluation_key(record, part, kind)
        whole = key if count == 1 else evaluation_key(record, tables[evaluation], kind)
        found.append(Question(evaluation, part, kind, key, whole))
    return found


def impossible(record: dict, note: dict) -> dict | None:
    """Why this model cannot be asked this, as metadata of a file without rows; None where it can."""
    if reason := note.get("unavailable"):
        return {"unavailable": reason}
    if reason := record.get("unavailable"):
        return {"unavailable": reason}
    if record["kind"] == "masked" and note["causal_only"]:
        return {"not_applicable": f"{note['protocol']} needs a causal model; {record['name']} is a masked one"}
    return None


def _of_base(base: dict, record: dict, error: ModelError) -> str:
    """Why this model cannot be asked, where its base could not be loaded."""
    return str(error) if record is base else f"its base {base['name']} cannot be had: {error}"


@contextlib.contextmanager
def _as(base, record: dict):
    if not record.get("adapter"):
        yield base
        return
    from vernacular.inference.adapter import adapted

    with adapted(base, record) as loaded:
        yield loaded


def _ask(loaded, wanted: list[Question], store: Store, stop: StopFlag) -> tuple[list[str], dict[str, str]]:
    """(evaluations that were answered, those that failed and why), one model's."""
    from vernacular.inference.trouble import MachineError, is_lost_device

    computed, failed = [], {}
    bar = tqdm(wanted, desc=loaded.record["name"], unit="evaluation", disable=None)
    for question in bar:
        bar.set_postfix_str(question.evaluation)
        try:
            table, facts = _answer(loaded, question, store.journal(question.key, stop=stop))
        # what cannot be kept need not be computed: a full disk ends the job
        except (Stopped, StoreError, MachineError):
            raise
        except UserError as error:
            failed[question.evaluation] = str(error)
            continue
        except Exception as error:  # whatever one evaluation trips over, the others are still asked
            log.exception("%s failed", question.evaluation)
            said = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
            if is_lost_device(error):
                raise MachineError(f"model {loaded.record['name']}: {loaded.device} failed: {said}") from error
            failed[question.evaluation] = said
            continue
        store.put(question.key, question.kind, table, facts)
        computed.append(question.evaluation)
    return computed, failed


def _answer(loaded, question: Question, journal) -> tuple[pa.Table, dict]:
    if question.kind is SCORES:
        from vernacular.inference.score import score

        strategy = loaded.option("strategy")
        return score(loaded, question.requests, journal=journal, strategy=strategy, progress=True)
    if loaded.option("engine") == "vllm":
        from vernacular.inference.generate_vllm import generate
    else:
        from vernacular.inference.generate import generate
    return generate(loaded, question.requests, journal=journal, progress=True)
