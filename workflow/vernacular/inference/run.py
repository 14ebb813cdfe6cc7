"""One model's whole work: evaluations from the store where they are there, the rest with the model loaded once."""

import logging
from pathlib import Path

import pyarrow as pa
from tqdm import tqdm

from vernacular import artifacts
from vernacular.artifacts import Kind
from vernacular.errors import UserError
from vernacular.inference.schema import GENERATIONS, SCORES
from vernacular.inference.store import Stopped, Store, evaluation_key, stoppable
from vernacular.requests.schema import REQUESTS

log = logging.getLogger("vernacular")


def run_model(
    record: dict, asked: dict[str, Path], out: Path, store_root: Path, *, threads: int | None = None
) -> tuple[dict[str, str], dict[str, str]]:
    """Answer every evaluation of `asked` (id -> requests file) and lay the answers out under `out`.

    Returns how each was done (id -> "found in the store", "computed", "not possible") and what failed (id -> reason);
    a failure costs its evaluation and no other. Raises Stopped when a signal asks for it: what is finished is kept.
    """
    store = Store(store_root)
    done: dict[str, str] = {}
    failed: dict[str, str] = {}
    missing: dict[str, tuple[pa.Table, dict, Kind, str]] = {}
    for evaluation, path in asked.items():
        note = artifacts.metadata(path)
        kind = GENERATIONS if note["protocol"] == "generation" else SCORES
        if why := _impossible(record, note):
            _lay_out(out, evaluation, record, kind, kind.schema.empty_table(), why, artifacts.made_of(why, path))
            done[evaluation] = "not possible"
            continue
        requests = artifacts.read(path, REQUESTS)
        key = evaluation_key(record, requests, kind)
        if found := store.get(key, kind):
            _lay_out(out, evaluation, record, kind, *found, key)
            done[evaluation] = "found in the store"
        else:
            missing[evaluation] = (requests, note, kind, key)
    if not missing:
        return done, failed

    from vernacular.inference.load import load  # the model, and torch with it, only where something is missing

    with stoppable() as stop:
        loaded = load(record, threads=threads)
        bar = tqdm(missing.items(), desc=record["name"], unit="evaluation", disable=None)
        for evaluation, (requests, note, kind, key) in bar:
            bar.set_postfix_str(evaluation)
            try:
                table, facts = _answer(loaded, requests, note, kind, store.journal(key, stop=stop))
            except Stopped:
                raise
            except UserError as error:
                failed[evaluation] = str(error)
                continue
            except Exception as error:  # whatever one evaluation trips over, the others are still asked
                log.exception("%s failed", evaluation)
                failed[evaluation] = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
                continue
            store.put(key, kind, table, facts)
            _lay_out(out, evaluation, record, kind, table, facts, key)
            done[evaluation] = "computed"
    return done, failed


def _impossible(record: dict, note: dict) -> dict | None:
    """Why this model cannot be asked this, as metadata of a file without rows; None where it can."""
    if reason := note.get("unavailable"):
        return {"unavailable": reason}
    if reason := record.get("unavailable"):
        return {"unavailable": reason}
    if record["kind"] == "masked" and note["causal_only"]:
        return {"not_applicable": f"{note['protocol']} needs a causal model; {record['name']} is a masked one"}
    return None


def _answer(loaded, requests: pa.Table, note: dict, kind: Kind, journal) -> tuple[pa.Table, dict]:
    if kind is SCORES:
        from vernacular.inference.score import score

        return score(loaded, requests, journal=journal, strategy=loaded.option("strategy"), progress=True)
    if loaded.option("engine") == "vllm":
        from vernacular.inference.generate_vllm import generate
    else:
        from vernacular.inference.generate import generate
    return generate(loaded, requests, journal=journal, progress=True)


def _lay_out(
    out: Path, evaluation: str, record: dict, kind: Kind, table: pa.Table, facts: dict, fingerprint: str
) -> None:
    # one model under two names has one entry in the store, which knows the name it was first asked under
    model = {**facts.get("model", {}), "name": record["name"]}
    facts = {key: value for key, value in facts.items() if key != "store_key"}  # the store's own
    note = {**facts, "model": model, "evaluation": evaluation, "fingerprint": fingerprint}
    artifacts.write(out / kind.name / f"{evaluation}.parquet", kind, table, note)
