"""Command `metrics`: scores and generations -> per-item results and metrics of one model."""

import logging
from collections import Counter

from tqdm import tqdm

from vernacular import __version__
from vernacular.commands.common import check_inputs, items_in, why_missing
from vernacular.core import artifacts
from vernacular.core.errors import UserError, counted, first_line, is_contained
from vernacular.core.records import read_record
from vernacular.inference.schema import GENERATIONS, SCORES
from vernacular.metrics.metric import CHANCE, majority_baseline
from vernacular.metrics.schema import METRICS, SIMILARITIES, TASK_RESULTS
from vernacular.protocols.evaluate import evaluate, values
from vernacular.protocols.registry import PROTOCOLS
from vernacular.protocols.schema import REQUESTS
from vernacular.types import SETTING, ModelRecord

log = logging.getLogger("vernacular")


def metrics(args) -> str:
    """Compute per-item results and metrics of one model; an evaluation without outputs gets a file that states why."""
    record = read_record(args.model)
    long, notes = [], {}
    for evaluation, what in tqdm(args.spec["evaluations"].items(), desc="metrics", disable=None):
        inputs = _Inputs(args, evaluation, what)
        try:
            found = why_missing(inputs.answered)
            values_of, notes[evaluation] = ([], inputs.unavailable(found)) if found else _measured(args, inputs, record)
        except UserError:
            raise
        except BaseException as error:
            if not is_contained(error):
                raise
            log.exception("%s failed", evaluation)
            reason = f"metrics not computed ({type(error).__name__}: {first_line(error)})"
            values_of, notes[evaluation] = [], inputs.unavailable({"unavailable": reason})
        long += values_of
    _write(args, record, long, notes)
    return f"metrics: {args.spec['model']}: {counted(len(long), 'value')} of {counted(len(notes), 'evaluation')}"


def give_up(args, reason: str) -> str:
    """Write files without rows that state why the metrics of this model are missing."""
    record = read_record(args.model)
    notes = {
        evaluation: _Inputs(args, evaluation, what).unavailable({"unavailable": reason})
        for evaluation, what in args.spec["evaluations"].items()
    }
    _write(args, record, [], notes)
    return f"metrics: {args.spec['model']}: unavailable ({reason})"


class _Inputs:
    """Input files for the metrics of one evaluation, and the output file of its per-item results."""

    def __init__(self, args, evaluation: str, what: dict):
        self.evaluation, self.what = evaluation, what
        self.kind = GENERATIONS if PROTOCOLS[what["protocol"]].generates else SCORES
        self.outputs = args.out / self.kind.name / f"{evaluation}.parquet"
        self.similar = args.out / "similarity" / f"{evaluation}.parquet" if self.kind is GENERATIONS else None
        self.items = args.items_dir / f"{what['items']}.parquet"
        self.requests = args.requests_dir / f"{evaluation}.parquet"
        self.target = args.out / "tasks" / f"{evaluation}.parquet"
        self.answered = artifacts.metadata(self.outputs)
        self.made_of = artifacts.made_of(what, self.outputs, *([self.similar] if self.similar else []))

    def unavailable(self, why: dict) -> dict:
        """Write a file without rows that states why; return the metadata of the evaluation."""
        note = {**why, "fingerprint": self.made_of}
        artifacts.write(self.target, TASK_RESULTS, [], {"evaluation": self.evaluation, **note})
        return note


def _measured(args, inputs: _Inputs, record: ModelRecord) -> tuple[list[dict], dict]:
    """Write the per-item results of one evaluation, and return (rows per METRICS, metadata)."""
    what, evaluation = inputs.what, inputs.evaluation
    asked = artifacts.metadata(inputs.requests)
    check_inputs(inputs.items, inputs.requests, inputs.outputs, inputs.answered, record)
    compared, found = [], {}
    if inputs.similar:
        compared, found = artifacts.read(inputs.similar, SIMILARITIES).to_pylist(), artifacts.metadata(inputs.similar)
        made_of = inputs.answered["fingerprint"]
        artifacts.check_made_of(inputs.similar, found.get("generations"), made_of, "generations")
    rows, known = evaluate(
        what["protocol"],
        items_in(inputs.items),
        artifacts.read(inputs.requests, REQUESTS).to_pylist(),
        artifacts.read(inputs.outputs, inputs.kind).to_pylist(),
        compared,
    )
    note = {**_facts(asked, inputs.answered, rows), "without": found.get("without", {}), "fingerprint": inputs.made_of}
    artifacts.write(inputs.target, TASK_RESULTS, rows, {"evaluation": evaluation, **note})
    names = {key: what[key] for key in SETTING}
    adapter = record.get("adapter") or {}
    facts = {"model": args.spec["model"], "adapter": adapter.get("source"), "evaluation": evaluation, **names}
    facts |= {"base": record.get("base"), "model_revision": _model_revision(record)}
    facts |= {"dataset_revision": _dataset_revision(asked["items"]["source"])}
    majority = majority_baseline(PROTOCOLS[what["protocol"]].majority, rows)
    long = []
    for row in values(rows, known, facts, found.get("signatures", {})):
        # the baseline applies to accuracies over all items, from which it is computed
        accuracy = row["chance_level"] is not None and row["metric"].partition("_")[0] not in CHANCE
        long.append({**row, "majority_baseline": majority if accuracy and not row["category"] else None})
    return long, note


def _write(args, record: ModelRecord, long: list[dict], notes: dict) -> None:
    told = {"model": args.spec["model"], "record": record, "version": __version__, "evaluations": notes}
    told |= {"fingerprint": artifacts.made_of(args.spec, [note["fingerprint"] for note in notes.values()])}
    artifacts.write(args.out / "metrics.parquet", METRICS, long, told)


def _facts(asked: dict, answered: dict, rows: list[dict]) -> dict:
    """Return the metadata of an evaluation: dataset, prompts, inference, number of items, and counts of flags."""
    return {
        "dataset": asked["items"],
        "few_shot_examples": asked["few_shot_examples"],
        "skipped": asked["skipped"],
        "inference": answered,
        "items": len(rows),
        "flags": dict(
            Counter(_kind_of_flag(part) for row in rows for part in (row["flags"] or "").split("; ") if part)
        ),
    }


def _model_revision(record: ModelRecord) -> str:
    """Return the commit of a model, and for an adapter its own after its base's; for local files a hash."""
    adapter = record.get("adapter")
    if adapter and adapter["revision"] and record.get("revision"):
        return f"{record['revision']} + {adapter['revision']}"
    return (not adapter and record.get("revision")) or record.get("fingerprint", "")[:12]


def _dataset_revision(source: dict) -> str:
    """Return the commit of a dataset; for samples and files, the hash of their rows."""
    return source.get("revision") or f"{source['kind']} {source['sha256'][:12]}"


def _kind_of_flag(flag: str) -> str:
    """Return the type of a flag, the same for `truncated: 3 …` and `truncated: 2 …`; the complete text for errors."""
    return flag if flag.startswith("error") else flag.split(":")[0]
