"""Command `infer`: requests -> the store, for one base model and its adapters."""

import logging
from collections import Counter
from pathlib import Path

from vernacular.checkpoints.inputs import DELETED, deleted
from vernacular.config.specs import InferenceSpec
from vernacular.core.errors import format_count
from vernacular.core.fields import ONLY, Part, Stage
from vernacular.core.metadata import Outcome, unavailable
from vernacular.core.model_record import ModelRecord, write_status
from vernacular.inference.job.run import EMPTY, run_group, shard_label
from vernacular.stages.common import Attempts, inference_record

log = logging.getLogger("vernacular")


class Infer(Stage):
    """Compute the outputs of a base model and its adapters that the store lacks."""

    spec: InferenceSpec  # of the rule: what the results depend on
    models: list[Path]  # records of the base model, then of its adapters
    requests: list[Path]  # requests files
    shard: Part = ONLY  # 2of4: of the work
    out: Path  # status file, written at the end
    store: Path  # directory of the store


def infer(args: Infer) -> str:
    """Evaluate a base and its adapters on all requests, or a shard of them, and write the outputs to the store.

    All evaluations are tried. A failed one is recorded in the status file and in the summary's notes, and the other
    evaluations and models continue. The last attempt skips evaluations in which the process died before.
    """
    if reason := args.failure:  # the next run uses what is in the store by now
        names = [path.stem for path in args.models]
        failed = {path.stem: unavailable(reason) for path in args.requests}
        write_status(args.out, dict.fromkeys(names, failed))
        Attempts(args).end()
        return f"infer: {', '.join(names)}: failed ({reason})"
    attempts = Attempts(args)
    attempts.begin(overlaps=True)
    records = [inference_record(path, args.spec) for path in args.models]
    shard = (args.shard.number - 1, args.shard.count)
    request_files = {path.stem: path for path in args.requests}
    try:
        options = {"skip_reasons": attempts.skip_reasons(), "on_begin": attempts.set_current}
        options |= {"shard": shard, "threads": args.threads, "overlaps": attempts.overlaps}
        statuses, failed = run_group(records, request_files, args.store, **options)
    finally:  # runs unless the process is killed
        attempts.end()
    write_status(args.out, {record.name: _outcomes(record, statuses, failed) for record in records})
    messages = [_failure(name, reasons, statuses[name]) for name, reasons in failed.items() if reasons]
    for line in messages:
        log.error(line)
    models = ", ".join(statuses) + shard_label(shard)
    return "\n".join([*messages, f"infer: {models}: {_counts(statuses, failed, args.shard.count > 1)}"])


def _counts(statuses: dict[str, dict[str, str]], failed: dict[str, dict[str, str]], has_shards: bool) -> str:
    """Return how many evaluations were completed in which way.

    >>> _counts({"m": {"a": "computed", "b": EMPTY}}, {"m": {}}, False)
    '1 evaluation computed, 1 evaluation with nothing to compute: not applicable, or without a dataset (notes.csv)'
    """
    counts = Counter(status for by_evaluation in statuses.values() for status in by_evaluation.values())
    n_empty, counts["failed"] = counts.pop(EMPTY, 0), sum(map(len, failed.values()))
    parts = [f"{format_count(n, 'evaluation')} {status}" for status, n in sorted(counts.items()) if n]
    if n_empty:
        reasons = f"not applicable, {'in another shard, ' if has_shards else ''}or without a dataset (notes.csv)"
        parts.append(f"{format_count(n_empty, 'evaluation')} with nothing to compute: {reasons}")
    return ", ".join(parts) or "no evaluations"


def _outcomes(record: ModelRecord, statuses: dict, failed: dict) -> dict[str, Outcome]:
    outcomes = {e: Outcome(reason=status) for e, status in statuses[record.name].items()}
    outcomes |= {e: deleted(record) for e, outcome in outcomes.items() if outcome.reason == DELETED}
    return outcomes | {e: unavailable(reason) for e, reason in failed[record.name].items()}


def _failure(name: str, failed: dict[str, str], statuses: dict) -> str:
    """Return one line if all evaluations failed for the same reason, else one line for each."""
    if not statuses and len(set(failed.values())) == 1:
        return f"infer: {name}: all evaluations failed: {next(iter(failed.values()))}"
    return "\n".join(f"infer: {name}: {evaluation}: failed: {reason}" for evaluation, reason in failed.items())
