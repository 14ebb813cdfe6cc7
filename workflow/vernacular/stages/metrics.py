"""Command `metrics`: scores and generations -> per-item results and metrics of one model.

What an earlier run computed from the same inputs is kept, so that adding an evaluation computes only that evaluation.
"""

import logging
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from vernacular import __version__
from vernacular.checkpoints.inputs import tokenizer_identity
from vernacular.config.specs import JudgmentSpec, MeasuredSpec, MetricsSpec
from vernacular.core import artifacts
from vernacular.core.errors import ArtifactError, UserError, format_count, is_contained, named
from vernacular.core.fields import Stage, to_json
from vernacular.core.logs import Progress
from vernacular.core.metadata import (
    INFILLING,
    Diagnosis,
    MetricsMetadata,
    Outcome,
    OutputsMetadata,
    ResultsMetadata,
    unavailable,
)
from vernacular.core.model_record import ModelRecord, read_model
from vernacular.core.tables import by_items, rows_of
from vernacular.data.schema import ITEMS
from vernacular.inference.schema import GENERATIONS, SCORES
from vernacular.metrics.aggregate import aggregate
from vernacular.metrics.language import METRICS as LANGUAGE_METRICS
from vernacular.metrics.language import LanguageMeter
from vernacular.metrics.metric import CHANCE, Metric, majority_baseline
from vernacular.metrics.schema import METRICS, SIMILARITIES, TASK_RESULTS, TOKENS, TOOL_RESULTS, value_arrays
from vernacular.metrics.spans import by_item, within_noise
from vernacular.metrics.tokens import token_counts
from vernacular.protocols import judge_metrics
from vernacular.protocols.declaration import Protocol
from vernacular.protocols.diagnosis import Diagnoser, disagreement, order
from vernacular.protocols.evaluate import evaluate, label_values, missing_metrics, signature_conditions, tool_signatures
from vernacular.protocols.observations import Subject
from vernacular.protocols.registry import COMPARED, PROSE, PROTOCOLS
from vernacular.protocols.schema import REQUESTS
from vernacular.stages.common import check_inputs
from vernacular.types import SETTING

log = logging.getLogger("vernacular")
_ITEMS_AT_A_TIME = 2_000  # whose rows are Python objects at a time
# few-shot examples, which all requests of an evaluation repeat, are not read
_REQUEST_COLUMNS = [name for name in REQUESTS.schema.names if name not in ("messages", "few_shot_examples")]


class Metrics(Stage):
    """Compute one model's per-item results and metrics."""

    spec: MetricsSpec  # of the rule: what the results depend on
    model: Path  # its record
    items_dir: Path  # directory of the items files
    requests_dir: Path  # directory of the requests files
    out: Path  # directory of the model's results


def metrics(args: Metrics) -> str:
    """Compute per-item results and metrics of one model; an evaluation without outputs gets a file that states why."""
    record = read_model(args.model)
    long_rows, tokens, results = [], [TOKENS.schema.empty_table()], {}
    others: dict[tuple, tuple[Diagnoser, dict]] = {}
    compared: dict[tuple | None, list[str]] = {}
    for name, spec in args.spec.evaluations.items():
        compared.setdefault(_question(spec), []).append(name)
    evaluations = {
        name: _Inputs(args, name, spec, record, compared[question] if (question := _question(spec)) else [])
        for name, spec in args.spec.evaluations.items()
    }
    kept = {} if args.failure else _kept(args, evaluations)
    with Progress(f"metrics {args.spec.model}", len(evaluations), "evaluation") as progress:
        for evaluation, inputs in evaluations.items():
            found = kept.get(evaluation) or _try(args, inputs, record, others)
            evaluation_rows, token_rows, results[evaluation] = found
            long_rows += evaluation_rows
            tokens.append(token_rows)
            progress.advance()
    _write(args, record, long_rows, tokens, results)
    if reason := args.failure:
        return f"metrics: {args.spec.model}: unavailable ({reason})"
    values, n_evaluations = format_count(len(long_rows), "value"), format_count(len(results), "evaluation")
    return f"metrics: {args.spec.model}: {values} of {n_evaluations}" + (f", {len(kept)} up to date" if kept else "")


def _kept(args, evaluations: dict[str, "_Inputs"]) -> dict[str, tuple[list[dict], pa.Table, ResultsMetadata]]:
    """Return what `_compute` returned in an earlier run for evaluations whose inputs are the same, by evaluation."""
    kept = {}
    try:
        values, known = artifacts.read_all(args.out / "metrics.parquet", METRICS)
        tokens = artifacts.read(args.out / "tokens.parquet", TOKENS)
        for name, inputs in evaluations.items():
            stated = known.evaluations.get(name)
            if (
                stated
                and inputs.is_current(stated)
                and inputs.is_current(artifacts.metadata(inputs.target, TASK_RESULTS))
            ):
                rows, counts = (table.filter(pc.equal(table["evaluation"], name)) for table in (values, tokens))
                kept[name] = rows.to_pylist(), counts, stated
    except ArtifactError:  # missing or damaged
        return {}
    # of two evaluations that are compared, both or none
    kept = {name: found for name, found in kept.items() if kept.keys() >= {*evaluations[name].compared}}
    for name in kept:
        os.utime(evaluations[name].target)  # newer than the inputs of this job, or Snakemake would run it again
    return kept


def _try(args, inputs: "_Inputs", record: ModelRecord, others: dict) -> tuple[list[dict], pa.Table, ResultsMetadata]:
    """Return the values, token counts and metadata of one evaluation, which state its failure."""
    try:
        outcome = unavailable(args.failure) if args.failure else inputs.incomplete()
        return inputs.write_without_rows(outcome) if outcome else _compute(args, inputs, record, others)
    except UserError:
        raise
    except BaseException as error:
        if not is_contained(error):
            raise
        log.exception("%s failed", inputs.evaluation)
        reason = f"metrics not computed ({named(error)})"
        return inputs.write_without_rows(unavailable(reason))


class _Inputs:
    """Input files for the metrics of one evaluation, and the output file of its per-item results.

    `compared`: the evaluations, with this one, whose results are compared with each other.
    """

    def __init__(self, args, evaluation: str, spec: MeasuredSpec, record: ModelRecord, compared: list[str]):
        self.evaluation, self.spec, self.compared = evaluation, spec, compared
        self.kind = GENERATIONS if PROTOCOLS[spec.protocol].generates else SCORES
        self.outputs = args.out / self.kind.name / f"{evaluation}.parquet"
        self.similarities = self.tool_results = None
        if spec.protocol in COMPARED:
            self.similarities = args.out / "similarity" / f"{evaluation}.parquet"
        if tool := PROTOCOLS[spec.protocol].tool:
            self.tool_results = args.out / tool / f"{evaluation}.parquet"
        self.items = args.items_dir / f"{spec.items_stem}.parquet"
        self.requests = args.requests_dir / f"{evaluation}.parquet"
        self.target = args.out / "tasks" / f"{evaluation}.parquet"
        self.output_metadata: OutputsMetadata = artifacts.metadata(self.outputs, self.kind)
        judges = args.spec.judges.get(evaluation, ())
        self.judgments = [_Judgment(args.out, judgment, evaluation) for judgment in judges]
        sources = [path for path in (self.outputs, self.similarities, self.tool_results) if path]
        judges = [source for each in self.judgments for source in (to_json(each.spec), each.outputs)]
        by_language = (each.get(spec.language) for each in (args.spec.refusals, args.spec.answers))
        shared = [args.spec.code, args.spec.libraries, args.spec.model, record.as_dict(), self.compared]
        settings = [to_json(each) for each in (spec, *shared, *by_language)]
        sources += [self.items, self.requests]
        self.input_fingerprint = artifacts.input_fingerprint(*settings, *sources, *judges)

    def is_current(self, metadata: ResultsMetadata) -> bool:
        """Return whether results with these metadata were computed from these inputs, and lack nothing."""
        outcome = metadata.outcome
        return metadata.fingerprint == self.input_fingerprint and outcome.is_complete and not outcome.may_try_again

    def incomplete(self) -> Outcome | None:
        """Return the outcome of the outputs, or of the tool that evaluates them, that is not complete."""
        outcomes = [self.output_metadata.outcome]
        outcomes += [artifacts.metadata(self.tool_results, TOOL_RESULTS).outcome] if self.tool_results else []
        return next((outcome for outcome in outcomes if not outcome.is_complete), None)

    def write_without_rows(self, outcome: Outcome) -> tuple[list[dict], pa.Table, ResultsMetadata]:
        """Write a file without rows that states the outcome; return what `_compute` returns."""
        metadata = ResultsMetadata(evaluation=self.evaluation, outcome=outcome, fingerprint=self.input_fingerprint)
        artifacts.write(self.target, TASK_RESULTS, [], metadata)
        return [], TOKENS.schema.empty_table(), metadata


class _Judgment:
    """What a judge made of the texts of one evaluation."""

    def __init__(self, model_directory: Path, spec: JudgmentSpec, evaluation: str):
        self.spec = spec
        directory = model_directory.parent / "judges" / spec.judge / model_directory.name
        self.kind = GENERATIONS if spec.rubric.reads == "text" else SCORES
        self.requests = directory / "requests" / f"{evaluation}.parquet"
        self.outputs = directory / self.kind.name / f"{evaluation}.parquet"
        self.definitions, self.metrics = judge_metrics.definitions(spec), judge_metrics.metrics(spec)
        self.values: dict[str, dict[str, float]] = {}

    def read(self, generations: Path, generations_metadata: OutputsMetadata) -> None:
        """Read the values of each item; none if the judge's outputs are not complete."""
        self.metadata: OutputsMetadata = artifacts.metadata(self.outputs, self.kind)
        self.request_metadata = artifacts.metadata(self.requests, REQUESTS)
        check, prints = artifacts.check_input_fingerprint, self.request_metadata.options["outputs"]
        check(self.requests, prints, generations_metadata.fingerprint, "generations")
        if self.metadata.outcome.is_complete:
            check(self.outputs, self.metadata.requests, self.request_metadata.fingerprint, "requests")
            requests = artifacts.read(self.requests, REQUESTS).to_pylist()
            self.values = judge_metrics.values(self.spec, requests, artifacts.read(self.outputs, self.kind).to_pylist())

    @property
    def missing(self) -> dict[str, str]:
        """Why there are no values that another run may compute, by name."""
        outcome = self.metadata.outcome
        return {f"judge {self.spec.judge}": outcome.reason} if outcome.may_try_again else {}

    def notes(self, rows: list[dict]) -> list[str]:
        """Return what readers of the values must know; `rows`: values of the evaluation."""
        outcome, name = self.metadata.outcome, f"judge {self.spec.judge}"
        if not outcome.is_complete:
            return [] if outcome.may_try_again else [f"{name}: not applicable: {outcome.reason}"]
        skipped = self.request_metadata.skipped
        notes = judge_metrics.notes(self.spec, len(self.values), self.values, skipped, rows)
        return notes + [f"{name}: {warning}" for warning in self.request_metadata.warnings]

    def signature(self) -> dict[str, str]:
        model, rubric = self.metadata.model, artifacts.input_fingerprint(to_json(self.spec.rubric))[:8]
        parts = f"judge:{self.spec.model}", f"model:{(model.fingerprint or '')[:8] if model else ''}"
        parts += f"rubric:{self.spec.name}@{rubric}", f"read:{self.spec.rubric.reads}"
        return {f"judge_{self.spec.judge}": "|".join(parts)}


def _compute(args, inputs: _Inputs, record: ModelRecord, others: dict) -> tuple[list[dict], pa.Table, ResultsMetadata]:
    """Write the per-item results of one evaluation, and return (rows per METRICS, table per TOKENS, metadata).

    `others`: what was decided on the same items by `letters` and by `choice`, for the evaluation that comes second.
    """
    spec, evaluation = inputs.spec, inputs.evaluation
    requests, outputs = artifacts.metadata(inputs.requests, REQUESTS), inputs.output_metadata
    check_inputs(inputs.items, inputs.requests, inputs.outputs, outputs, record)
    outcome, signatures = Outcome(), {}
    if inputs.similarities:
        similarities = artifacts.metadata(inputs.similarities, SIMILARITIES)
        outcome, signatures = similarities.outcome, similarities.signatures
        stated, known = similarities.generations, outputs.fingerprint
        artifacts.check_input_fingerprint(inputs.similarities, stated, known, "generations")
    signatures = signatures | tool_signatures(spec.protocol, requests.output_language or spec.language)
    not_installed, not_fetched = missing_metrics(spec.protocol)
    outcome = replace(outcome, missing=outcome.missing | not_fetched)
    refusals = tuple(args.spec.refusals.get(spec.language, ()))
    tokenizer = outputs.tokenizer
    by_default = tokenizer.details.get("reasoning", {}).get("by_default", False)
    diagnoser = Diagnoser(Subject(spec.protocol, spec.style, refusals, tokenizer.has_chat_template, by_default))
    meter = LanguageMeter(requests.output_language or spec.language) if spec.protocol in PROSE else None
    answers = args.spec.answers.get(spec.language, [])
    for judgment in inputs.judgments:
        judgment.read(inputs.outputs, outputs)
        outcome = replace(outcome, missing=outcome.missing | judgment.missing)
        signatures = signatures | judgment.signature()
    roles = _counted_roles(PROTOCOLS[spec.protocol], spec.language, requests.output_language)
    rows, tokens, known = _results(inputs, diagnoser, meter, requests.options.get("pass_at"), answers, roles)
    tool = artifacts.metadata(inputs.tool_results, TOOL_RESULTS) if inputs.tool_results else None
    values = tool.values if tool else aggregate(rows, known, seed=0, categories=True)
    if meter:
        values = [*values, *aggregate(rows, LANGUAGE_METRICS, seed=0, categories=True), *meter.values()]
    if judged := [metric for judgment in inputs.judgments if judgment.values for metric in judgment.metrics]:
        values = [*values, *aggregate(rows, judged, seed=0, categories=True)]
    majority = majority_baseline(PROTOCOLS[spec.protocol].majority, rows)
    noisy = value_arrays(rows).get("within_noise")
    if (
        noisy is None
        and outputs.engine.noise is None
        and inputs.kind is SCORES
        and rows["option_scores"].null_count < len(rows)
    ):
        not_installed |= {"within_noise": f"the float noise of {outputs.engine.name or 'the engine'} is unknown"}
    diagnoses = [*diagnoser.diagnose(values, majority, meter), *_disagreement(spec, diagnoser, values, others)]
    flags = (part for text in rows["flags"].drop_null().to_pylist() for part in text.split("; ") if part)
    # the same for `truncated: 3 …` and `truncated: 2 …`; errors have their text
    flag_types = (flag if flag.startswith("error") else flag.split(":")[0] for flag in flags)
    metadata = ResultsMetadata(
        evaluation=evaluation,
        outcome=outcome,
        metrics=tool.definitions if tool else [each for judge in inputs.judgments for each in judge.definitions],
        dataset=requests.items,
        few_shot_examples=requests.few_shot_examples,
        skipped=requests.skipped,
        prompt_warnings=requests.warnings,
        inference=outputs,
        items=len(rows),
        repeats=requests.options.get("repeats"),
        not_installed=not_installed,
        unclosed=next((row["value"] for row in values if row["metric"] == "unclosed" and not row["category"]), None),
        flags=dict(Counter(flag_types)),
        within_noise=None if noisy is None else int((noisy == 1).sum()),
        diagnoses=sorted(diagnoses, key=order),
        profile=diagnoser.profile(),
        language=meter.counts() if meter else None,
        judges=[note for judgment in inputs.judgments for note in judgment.notes(values)],
        fingerprint=inputs.input_fingerprint,
    )
    artifacts.write(inputs.target, TASK_RESULTS, rows, metadata)
    names = {key: getattr(spec, key) for key in SETTING}
    adapter = record.adapter.source if record.adapter else None
    labels = {"model": args.spec.model, "adapter": adapter, "evaluation": evaluation, **names}
    labels |= {"base": record.base, "model_revision": _model_revision(record)}
    source = requests.items.source
    # of rows without a commit, their hash
    labels |= {"dataset_revision": source.revision or f"{source.kind} {source.sha256[:12]}"}
    long_rows = []
    conditions = signature_conditions(spec.protocol, requests.options, outputs.tokenizer.bos_policy)
    if source.release:
        conditions |= {source.kind: source.release}
    conditions |= {"data": f"{source.kind}@{(source.revision or source.sha256)[:12]}"}
    conditions |= {"likelihood": INFILLING} if INFILLING in (outputs.engine.pll or ()) else {}
    conditions |= {"limit": requests.items.limit} if requests.items.limit else {}
    for row in label_values(values, labels, signatures, conditions):
        # the baseline applies to accuracies over all items, from which it is computed
        accuracy = row["chance_level"] is not None and row["metric"].partition("_")[0] not in CHANCE
        long_rows.append({**row, "majority_baseline": majority if accuracy and not row["category"] else None})
    return long_rows, tokens, metadata


def _disagreement(spec: MeasuredSpec, diagnoser: Diagnoser, values: list[dict], others: dict) -> list[Diagnosis]:
    """Return the diagnosis of two protocols on the same items, if the other one was computed before."""
    headline = next((row for row in values if row["headline"] and not row["category"]), None)
    if (key := _question(spec)) is None or headline is None or headline["value"] is None:
        return []
    others[key, spec.protocol] = diagnoser, headline
    pair = [others.get((key, protocol)) for protocol in ("letters", "choice")]
    return disagreement(*zip(*pair, strict=True)) if all(pair) else []


def _question(spec: MeasuredSpec) -> tuple | None:
    """Return what two evaluations with the same items and prompts have in common if their results are compared."""
    is_compared = spec.protocol in ("letters", "choice")
    return (spec.items_stem, spec.shots, spec.seed, spec.style, spec.prompt) if is_compared else None


def _results(
    inputs: _Inputs,
    diagnoser: Diagnoser,
    meter: LanguageMeter | None,
    pass_at: int | None,
    answers: list,
    roles: tuple[str, ...],
) -> tuple[pa.Table, pa.Table, list[Metric]]:
    """Return (TASK_RESULTS, TOKENS, the metrics of the results), computed in parts of `_ITEMS_AT_A_TIME` items.

    `diagnoser` and `meter` get the same rows; `roles` are those whose texts are counted.
    """
    protocol, masked = inputs.spec.protocol, inputs.output_metadata.model.kind == "masked"
    similarities, tool_results = SIMILARITIES.schema.empty_table(), TASK_RESULTS.schema.empty_table()
    if inputs.similarities:
        similarities = artifacts.read(inputs.similarities, SIMILARITIES)
    if inputs.tool_results:
        tool_results = artifacts.read(inputs.tool_results, TOOL_RESULTS)
    requests = artifacts.read(inputs.requests, REQUESTS, columns=_REQUEST_COLUMNS, dictionary_columns=("prefix",))
    tables = [requests, artifacts.read(inputs.outputs, inputs.kind), similarities, tool_results]
    results, tokens = [TASK_RESULTS.schema.empty_table()], [TOKENS.schema.empty_table()]
    metrics: list[Metric] = []
    unknown_token, noise = inputs.output_metadata.tokenizer.unk_token, inputs.output_metadata.engine.noise or {}
    for part in by_items(artifacts.read(inputs.items, ITEMS), tables, _ITEMS_AT_A_TIME):
        items, requests, outputs, similarity_rows, rows = map(rows_of, part)
        if inputs.tool_results:  # the tool's own code has computed them
            spans = by_item(requests, outputs) if noise else {}
            for row in rows:
                row["metrics"] |= within_noise(row["option_scores"], spans.get(row["item_id"], {}), noise)
        else:
            options = {"masked": masked, "pass_at": pass_at, "answers": answers, "language": meter and meter.language}
            options |= {"fills_in": INFILLING in (inputs.output_metadata.engine.pll or ())}
            options["noise"] = noise
            rows, known = evaluate(protocol, items, requests, outputs, similarity_rows, **options)
            metrics = max(metrics, known, key=len)  # of a classification, more: a part may have no classified item
        if meter:
            meter.add(items, outputs, rows, is_tool=bool(inputs.tool_results))
        diagnoser.add(items, requests, outputs, rows)
        for row in rows:
            for judgment in inputs.judgments:
                row["metrics"] |= judgment.values.get(row["item_id"], {})
        counts = token_counts(items, requests, outputs, rows, roles=roles, unknown_token=unknown_token)
        counts = [{"evaluation": inputs.evaluation, **row} for row in counts]
        results.append(pa.Table.from_pylist(rows, schema=TASK_RESULTS.schema))
        tokens.append(pa.Table.from_pylist(counts, schema=TOKENS.schema))
    return pa.concat_tables(results), pa.concat_tables(tokens), metrics


def _counted_roles(protocol: Protocol, language: str, output_language: str | None) -> tuple[str, ...]:
    """Return the roles whose texts are counted: none if they are no text in the language of the items.

    They may be labels, as in another tool's tasks, data, or translations into another language.
    """
    is_foreign = output_language not in (None, language)
    is_no_text = protocol.generates or protocol.label_spans or protocol.structured or protocol.tool
    return () if is_foreign or is_no_text else protocol.displayed_roles


def _write(args, record: ModelRecord, long_rows: list[dict], tokens: list[pa.Table], evaluations: dict) -> None:
    fingerprints = [evaluation.fingerprint for evaluation in evaluations.values()]
    metadata = MetricsMetadata(
        model=args.spec.model,
        record=record.as_dict(),
        version=__version__,
        evaluations=evaluations,
        fingerprint=artifacts.input_fingerprint(to_json(args.spec), fingerprints),
    )
    artifacts.write(args.out / "metrics.parquet", METRICS, long_rows, metadata)
    settings = {name: {key: getattr(spec, key) for key in SETTING} for name, spec in args.spec.evaluations.items()}
    token_metadata = {"model": args.spec.model, "tokenizer": tokenizer_identity(record), "evaluations": settings}
    token_metadata |= {"fingerprint": artifacts.input_fingerprint("tokens", metadata.fingerprint)}
    artifacts.write(args.out / "tokens.parquet", TOKENS, pa.concat_tables(tokens), token_metadata)


def _model_revision(record: ModelRecord) -> str:
    """Return the commit of a model, and for an adapter its own after its base's; for local files a hash."""
    adapter = record.adapter
    if adapter and adapter.revision and record.revision:
        return f"{record.revision} + {adapter.revision}"
    return (not adapter and record.revision) or (record.fingerprint or "")[:12]
