"""Command `metrics`: scores and generations -> per-item results and metrics of one model."""

import logging
from collections import Counter

import pyarrow as pa

from vernacular import __version__
from vernacular.checkpoints.inputs import tokenizer_identity
from vernacular.commands.common import check_inputs, missing_reason
from vernacular.core import artifacts
from vernacular.core.errors import UserError, first_line, format_count, is_contained
from vernacular.core.model_record import ModelRecord, read_model
from vernacular.core.progress import Progress
from vernacular.core.tables import by_items, rows_of
from vernacular.data.schema import ITEMS
from vernacular.inference.schema import GENERATIONS, SCORES
from vernacular.metrics.aggregate import aggregate
from vernacular.metrics.metric import CHANCE, Metric, majority_baseline
from vernacular.metrics.schema import METRICS, SIMILARITIES, TASK_RESULTS, TOKENS
from vernacular.metrics.tokens import token_counts
from vernacular.protocols.declaration import Protocol
from vernacular.protocols.evaluate import evaluate, label_values, signature_conditions
from vernacular.protocols.registry import COMPARED, PROTOCOLS
from vernacular.protocols.schema import REQUESTS
from vernacular.types import SETTING

log = logging.getLogger("vernacular")

_ITEMS_AT_A_TIME = 2_000  # whose rows are Python objects at a time
# few-shot examples, which all requests of an evaluation repeat, are not read
_REQUEST_COLUMNS = [name for name in REQUESTS.schema.names if name not in ("messages", "few_shot_examples")]


def metrics(args) -> str:
    """Compute per-item results and metrics of one model; an evaluation without outputs gets a file that states why."""
    record = read_model(args.model)
    long_rows, tokens, notes = [], [TOKENS.schema.empty_table()], {}
    with Progress(f"metrics {args.spec['model']}", len(args.spec["evaluations"]), "evaluation") as progress:
        for evaluation, spec in args.spec["evaluations"].items():
            evaluation_rows, token_rows, notes[evaluation] = _try(args, _Inputs(args, evaluation, spec), record)
            long_rows += evaluation_rows
            tokens.append(token_rows)
            progress.advance()
    _write(args, record, long_rows, tokens, notes)
    values, evaluations = format_count(len(long_rows), "value"), format_count(len(notes), "evaluation")
    return f"metrics: {args.spec['model']}: {values} of {evaluations}"


def give_up(args, reason: str) -> str:
    """Write files without rows that state why the metrics of this model are missing."""
    record = read_model(args.model)
    notes = {
        evaluation: _Inputs(args, evaluation, spec).write_unavailable({"unavailable": reason})
        for evaluation, spec in args.spec["evaluations"].items()
    }
    _write(args, record, [], [TOKENS.schema.empty_table()], notes)
    return f"metrics: {args.spec['model']}: unavailable ({reason})"


def _try(args, inputs: "_Inputs", record: dict) -> tuple[list[dict], pa.Table, dict]:
    """Return the values, token counts and notes of one evaluation; a failure of this evaluation is a note."""
    try:
        missing = missing_reason(inputs.output_metadata)
        if not missing and inputs.tool_results:
            missing = missing_reason(artifacts.metadata(inputs.tool_results))
        if missing:
            return [], TOKENS.schema.empty_table(), inputs.write_unavailable(missing)
        return _compute(args, inputs, record)
    except UserError:
        raise
    except BaseException as error:
        if not is_contained(error):
            raise
        log.exception("%s failed", inputs.evaluation)
        reason = f"metrics not computed ({type(error).__name__}: {first_line(error)})"
        return [], TOKENS.schema.empty_table(), inputs.write_unavailable({"unavailable": reason})


class _Inputs:
    """Input files for the metrics of one evaluation, and the output file of its per-item results."""

    def __init__(self, args, evaluation: str, spec: dict):
        self.evaluation, self.spec = evaluation, spec
        self.kind = GENERATIONS if PROTOCOLS[spec["protocol"]].generates else SCORES
        self.outputs = args.out / self.kind.name / f"{evaluation}.parquet"
        self.similarities = self.tool_results = None
        if spec["protocol"] in COMPARED:
            self.similarities = args.out / "similarity" / f"{evaluation}.parquet"
        if tool := PROTOCOLS[spec["protocol"]].tool:
            self.tool_results = args.out / tool / f"{evaluation}.parquet"
        self.items = args.items_dir / f"{spec['items']}.parquet"
        self.requests = args.requests_dir / f"{evaluation}.parquet"
        self.target = args.out / "tasks" / f"{evaluation}.parquet"
        self.output_metadata = artifacts.metadata(self.outputs)
        sources = [path for path in (self.outputs, self.similarities, self.tool_results) if path]
        self.input_fingerprint = artifacts.input_fingerprint(spec, *sources)

    def write_unavailable(self, reason_metadata: dict) -> dict:
        """Write a file without rows that states why; return the metadata of the evaluation."""
        note = {**reason_metadata, "fingerprint": self.input_fingerprint}
        artifacts.write(self.target, TASK_RESULTS, [], {"evaluation": self.evaluation, **note})
        return note


def _compute(args, inputs: _Inputs, record: ModelRecord) -> tuple[list[dict], pa.Table, dict]:
    """Write the per-item results of one evaluation, and return (rows per METRICS, table per TOKENS, metadata)."""
    spec, evaluation = inputs.spec, inputs.evaluation
    request_metadata = artifacts.metadata(inputs.requests)
    check_inputs(inputs.items, inputs.requests, inputs.outputs, inputs.output_metadata, record)
    similarity_metadata: dict = {}
    if inputs.similarities:
        similarity_metadata = artifacts.metadata(inputs.similarities)
        actual, expected = similarity_metadata.get("generations"), inputs.output_metadata["fingerprint"]
        artifacts.check_input_fingerprint(inputs.similarities, actual, expected, "generations")
    rows, tokens, known = _results(inputs)
    definitions: dict = {}
    if inputs.tool_results:
        tool_metadata = artifacts.metadata(inputs.tool_results)
        values, definitions = tool_metadata["values"], {"metrics": tool_metadata["definitions"]}
    else:
        values = aggregate(rows, known, seed=0, categories=True)
    note = {
        **definitions,
        **_evaluation_metadata(request_metadata, inputs.output_metadata, rows),
        "missing_metrics": similarity_metadata.get("missing_metrics", {}),
        "fingerprint": inputs.input_fingerprint,
    }
    artifacts.write(inputs.target, TASK_RESULTS, rows, {"evaluation": evaluation, **note})
    names = {key: spec[key] for key in SETTING}
    adapter = record.adapter.source if record.adapter else None
    labels = {"model": args.spec["model"], "adapter": adapter, "evaluation": evaluation, **names}
    labels |= {"base": record.base, "model_revision": _model_revision(record)}
    labels |= {"dataset_revision": _dataset_revision(request_metadata["items"]["source"])}
    majority = majority_baseline(PROTOCOLS[spec["protocol"]].majority, rows)
    long_rows = []
    bos_policy = inputs.output_metadata.get("tokenizer", {}).get("bos_policy")
    conditions = signature_conditions(spec["protocol"], request_metadata.get("options", {}), bos_policy)
    for row in label_values(values, labels, similarity_metadata.get("signatures", {}), conditions):
        # the baseline applies to accuracies over all items, from which it is computed
        accuracy = row["chance_level"] is not None and row["metric"].partition("_")[0] not in CHANCE
        long_rows.append({**row, "majority_baseline": majority if accuracy and not row["category"] else None})
    return long_rows, tokens, note


def _results(inputs: _Inputs) -> tuple[pa.Table, pa.Table, list[Metric]]:
    """Return (TASK_RESULTS, TOKENS, the metrics of the results), computed in parts of `_ITEMS_AT_A_TIME` items."""
    protocol, masked = inputs.spec["protocol"], inputs.output_metadata.get("model", {}).get("kind") == "masked"
    similarities, tool_results = SIMILARITIES.schema.empty_table(), TASK_RESULTS.schema.empty_table()
    if inputs.similarities:
        similarities = artifacts.read(inputs.similarities, SIMILARITIES)
    if inputs.tool_results:
        tool_results = artifacts.read(inputs.tool_results, TASK_RESULTS)
    requests = artifacts.read(inputs.requests, REQUESTS, columns=_REQUEST_COLUMNS, dictionary_columns=("prefix",))
    tables = [requests, artifacts.read(inputs.outputs, inputs.kind), similarities, tool_results]
    results, tokens = [TASK_RESULTS.schema.empty_table()], [TOKENS.schema.empty_table()]
    metrics: list[Metric] = []
    for part in by_items(artifacts.read(inputs.items, ITEMS), tables, _ITEMS_AT_A_TIME):
        items, requests, outputs, similarity_rows, rows = map(rows_of, part)
        if not inputs.tool_results:  # otherwise, the tool's own code has computed them
            rows, metrics = evaluate(protocol, items, requests, outputs, similarity_rows, masked=masked)
        counts = token_counts(
            items,
            requests,
            outputs,
            rows,
            roles=_counted_roles(PROTOCOLS[protocol]),
            unknown_token=inputs.output_metadata.get("tokenizer", {}).get("unk_token"),
        )
        results.append(pa.Table.from_pylist(rows, schema=TASK_RESULTS.schema))
        tokens.append(
            pa.Table.from_pylist([{"evaluation": inputs.evaluation, **row} for row in counts], schema=TOKENS.schema)
        )
    return tool_results if inputs.tool_results else pa.concat_tables(results), pa.concat_tables(tokens), metrics


def _counted_roles(protocol: Protocol) -> tuple[str, ...]:
    """Return the roles whose texts are counted: none if they are labels, or may be, as in another tool's tasks."""
    return () if protocol.generates or protocol.label_spans or protocol.tool else protocol.displayed_roles


def _write(args, record: ModelRecord, long_rows: list[dict], tokens: list[pa.Table], notes: dict) -> None:
    metadata = {"model": args.spec["model"], "record": record.as_dict(), "version": __version__, "evaluations": notes}
    fingerprints = [note["fingerprint"] for note in notes.values()]
    metadata |= {"fingerprint": artifacts.input_fingerprint(args.spec, fingerprints)}
    artifacts.write(args.out / "metrics.parquet", METRICS, long_rows, metadata)
    settings = {name: {key: spec[key] for key in SETTING} for name, spec in args.spec["evaluations"].items()}
    token_metadata = {"model": args.spec["model"], "tokenizer": tokenizer_identity(record), "evaluations": settings}
    token_metadata |= {"fingerprint": artifacts.input_fingerprint("tokens", metadata["fingerprint"])}
    artifacts.write(args.out / "tokens.parquet", TOKENS, pa.concat_tables(tokens), token_metadata)


def _evaluation_metadata(request_metadata: dict, output_metadata: dict, rows: pa.Table) -> dict:
    """Return the metadata of an evaluation: dataset, prompts, inference, number of items, and counts of flags."""
    return {
        "dataset": request_metadata["items"],
        "few_shot_examples": request_metadata["few_shot_examples"],
        "skipped": request_metadata["skipped"],
        "inference": output_metadata,
        "items": len(rows),
        "flags": dict(
            Counter(
                _flag_type(part)
                for flags in rows["flags"].drop_null().to_pylist()
                for part in flags.split("; ")
                if part
            )
        ),
    }


def _model_revision(record: ModelRecord) -> str:
    """Return the commit of a model, and for an adapter its own after its base's; for local files a hash."""
    adapter = record.adapter
    if adapter and adapter.revision and record.revision:
        return f"{record.revision} + {adapter.revision}"
    return (not adapter and record.revision) or (record.fingerprint or "")[:12]


def _dataset_revision(source: dict) -> str:
    """Return the commit of a dataset; for samples and files, the hash of their rows."""
    return source.get("revision") or f"{source['kind']} {source['sha256'][:12]}"


def _flag_type(flag: str) -> str:
    """Return the type of a flag, the same for `truncated: 3 …` and `truncated: 2 …`; the complete text for errors."""
    return flag if flag.startswith("error") else flag.split(":")[0]
