"""Command `summary`: metrics, token counts and comparisons of all models -> tables, spreadsheets and notes."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from vernacular.comparison.curves.schema import CURVE_STATISTICS, DECIDING_METRICS, TASK_TRUST
from vernacular.comparison.over_prompts import without_single_prompts
from vernacular.comparison.schema import (
    BETWEEN_LANGUAGES,
    COMPARISONS,
    COMPARISONS_WITHOUT_FAULTS,
    ESTIMATES,
    LANGUAGE_ITEMS,
    OVERALL,
    PROMPTS,
    RANKINGS,
    WITHOUT_FAULTS,
)
from vernacular.comparison.table import as_comparisons, beside
from vernacular.config.specs import SummarySpec
from vernacular.core import artifacts
from vernacular.core.errors import format_count
from vernacular.core.fields import Stage, to_json
from vernacular.core.metadata import MetricsMetadata, ModelInfo, note
from vernacular.core.model_record import ModelRecord, recorded_model
from vernacular.core.paths import publishable
from vernacular.core.tables import write_csv
from vernacular.core.written import rewriting
from vernacular.exchange.every_eval_ever import write_every_eval_ever
from vernacular.exchange.lm_eval_results import write_lm_eval_results
from vernacular.exchange.unpaired import UNPAIRED
from vernacular.metrics.schema import METRICS, RESULTS, TOKENIZERS, TOKENS
from vernacular.stages.sides import csv_beside, write_table
from vernacular.summary.grid import as_questions, combine_tables, make_headings, model_labels, to_arrow, wide
from vernacular.summary.lists import (
    add_estimates,
    add_positions,
    between_languages_sheets,
    confusion_rows,
    curve_sheets,
    deciding_sheets,
    diagnosis_codes,
    diagnosis_rows,
    equal_weight_notes,
    estimates_sheet,
    language_rows,
    unpaired_sheet,
    with_estimate_columns,
    with_values_without_faults,
    without_faults_sheet,
    worst_first,
    write_confusion,
)
from vernacular.summary.notes import (
    group_notes,
    make_notes,
    mixed_script_notes,
    mixed_version_notes,
    no_interval_notes,
    notes_to_frame,
    self_preference_notes,
    unreviewed_notes,
)
from vernacular.summary.prompts import add_prompt_means, prompt_notes, standard_errors
from vernacular.summary.tokenizers import ModelTokens, tokenizer_rows, write_tokenizers
from vernacular.summary.workbook import dataset_sources, write_group, write_leaderboard
from vernacular.types import SETTING


class Summary(Stage):
    """Collect the metrics of all models in tables and spreadsheets."""

    spec: SummarySpec  # of the rule: what the results depend on
    metrics: list[Path]  # metrics files, one per model
    compared: list[Path]  # differences of pairs: of models, and with external results if there are any
    config: list[str]  # files of the config, which are recorded
    out: Path  # directory of the tables


def summary(args: Summary) -> str:
    """Write tables and spreadsheets of all models, and notes on missing, flagged, excluded and fallback results."""
    _write_tokenizers(args)
    tables_of_models, models_metadata = zip(*(artifacts.read_all(path, METRICS) for path in args.metrics), strict=True)
    checkpoints = args.spec.positions
    results = combine_tables(tables_of_models)
    sources = [args.out / f"{name}.parquet" for name in ("rankings", "overall", "prompts", "deciding_models")]
    sources += args.compared
    comparison_tables = {kind.name: _rows(args, kind.name, kind) for kind in (RANKINGS, OVERALL)}
    prompts = _rows(args, "prompts", PROMPTS)
    estimates = _rows(args, "labels", ESTIMATES) if args.spec.estimates else []
    input_fingerprint = artifacts.input_fingerprint(to_json(args.spec), *args.metrics, *sources)
    comparison_tables["comparisons"] = _write_comparisons(args, estimates, results, input_fingerprint)
    results = add_prompt_means(results, prompts)
    measured = add_positions(results, checkpoints)  # what exports contain
    results = add_positions(add_estimates(results, estimates), checkpoints) if estimates else measured
    notes = [row for metadata in models_metadata for row in make_notes(metadata)]
    diagnoses = diagnosis_rows(models_metadata)
    notes += mixed_version_notes(models_metadata)
    notes += mixed_script_notes(models_metadata)
    notes += equal_weight_notes(models_metadata, checkpoints)
    notes += no_interval_notes(measured)
    notes += unreviewed_notes(args.spec.unreviewed)
    notes += self_preference_notes(results, args.spec.judges)
    notes = publishable(notes + _comparison_notes(args) + prompt_notes(prompts))
    models = list(map(_describe, models_metadata))
    metadata = {"models": models, "notes": notes, "fingerprint": input_fingerprint}
    metadata |= {"worst_diagnosis": min(diagnoses, key=worst_first, default=None)}
    # paths from the directory of the tables; the next run compares them with its own (`output_conflicts`)
    metadata["config"] = [os.path.relpath(os.path.realpath(file), os.path.realpath(args.out)) for file in args.config]
    metadata |= {"api_key_env": args.spec.api_key_env}  # of this file only: no copy of it is published
    metadata |= {"benchmarks": args.spec.benchmarks}
    artifacts.write(args.out / "results.parquet", RESULTS, to_arrow(results), metadata)
    published = results.assign(adapter=results["adapter"].map(publishable, na_action="ignore"))
    codes = {
        (model.model, name): diagnosis_codes(each)
        for model in models_metadata
        for name, each in model.evaluations.items()
    }
    headings = make_headings(results, args.spec.tasks, model_labels(map(_precision, models_metadata)))
    keys = zip(published["model"], published["evaluation"], published["category"].fillna(""), strict=True)
    cells = [None if category else codes.get((model, evaluation)) for model, evaluation, category in keys]
    values = published.assign(diagnosis=pd.Series(cells, published.index, "str"))
    if args.spec.verdicts:
        values = with_values_without_faults(values, _rows(args, "without_faults", WITHOUT_FAULTS))
    if args.spec.estimates:
        values = with_estimate_columns(values, estimates)
    write_csv(args.out / "results.csv", values)
    models_by_value = wide(published, headings)
    write_csv(args.out / "wide.csv", add_positions(models_by_value, checkpoints) if checkpoints else models_by_value)
    write_csv(args.out / "notes.csv", notes_to_frame(notes))
    datasets = dataset_sources(models_metadata)
    with rewriting(args.out / "lm_eval", "lm_eval") as directory:
        write_lm_eval_results(directory, standard_errors(measured, prompts))
    with rewriting(args.out / "every_eval_ever", "every_eval_ever") as directory:
        write_every_eval_ever(directory, measured, models, datasets)
    provenance = publishable({"evaluated models": models, "item sources": datasets})
    order = ("kind", "models", "evaluations", "count", "note")  # long texts in the wide columns of the sheet
    provenance["notes"] = [{name: row[name] for name in order} for row in group_notes(notes)]
    questions = as_questions(published, prompts)
    common = {"rankings": comparison_tables.pop("rankings"), "headings": headings}
    for group in ("similarity", "surprisal"):
        write_group(args.out / f"{group}_summary.xlsx", questions, provenance, group=group, **common)
    comparison_tables["comparisons"] = without_single_prompts(comparison_tables["comparisons"], prompts)
    comparison_tables |= {"prompts": prompts, "extra_sheets": _curve_sheets(args) if checkpoints else {}}
    deciding = [f"deciding_{of}" for of in ["metrics"] * bool(checkpoints) + ["models"]]
    deciding = [row for name in deciding for row in _rows(args, name, DECIDING_METRICS)]
    comparison_tables["extra_sheets"] |= deciding_sheets(deciding)
    if args.spec.verdicts:
        comparison_tables["extra_sheets"] |= {"without faults": without_faults_sheet(values)}
    if args.spec.external:
        unpaired = artifacts.read(args.compared[-1].with_name("unpaired.parquet"), UNPAIRED)
        write_table(args.out / "unpaired.parquet", UNPAIRED, unpaired, {"fingerprint": input_fingerprint})
        if unpaired.num_rows:
            comparison_tables["extra_sheets"] |= {"unpaired": unpaired_sheet(unpaired.to_pylist())}
    if args.spec.estimates:
        comparison_tables["extra_sheets"] |= {"labels": estimates_sheet(estimates)}
    if args.spec.languages:
        kinds = {"between_languages": BETWEEN_LANGUAGES, "language_items": LANGUAGE_ITEMS}
        sheets = between_languages_sheets(*(_rows(args, name, kind) for name, kind in kinds.items()))
        comparison_tables["extra_sheets"] |= sheets
    comparison_tables |= {"diagnoses": diagnoses, "languages": language_rows(models_metadata)}
    classifications = set(results.loc[results["metric"] == "macro_f1", "evaluation"])
    if confusion := publishable(confusion_rows(models_metadata, classifications)):
        comparison_tables["extra_sheets"]["confusion"] = lambda sheet, size: write_confusion(sheet, confusion, size)
    write_leaderboard(args.out / "leaderboard.xlsx", questions, provenance, **common, **comparison_tables)
    values, models = format_count(len(results), "value"), format_count(len(models_metadata), "model")
    return f"summary: {values} of {models} in {args.out}"


def _write_comparisons(args: Summary, estimates: list[dict], results: pd.DataFrame, key: str) -> list[dict]:
    """Write the differences of all pairs, with those by labels and without faults; return them as rows."""
    names = ["evaluation", *SETTING]
    settings = {row["evaluation"]: row for row in results[names].drop_duplicates("evaluation").to_dict("records")}
    rows = pa.Table.from_pylist(as_comparisons(estimates, settings), schema=COMPARISONS.schema)
    table = pa.concat_tables([*(artifacts.read(path, COMPARISONS) for path in args.compared), rows])
    path = artifacts.write(args.out / "comparisons.parquet", COMPARISONS, table, {"fingerprint": key})
    if args.spec.verdicts:
        table = beside(table, _rows(args, "comparisons_without_faults", COMPARISONS_WITHOUT_FAULTS))
    csv_beside(path, table)
    return table.to_pylist()


def _comparison_notes(args: Summary) -> list[dict]:
    """Return what the stages of comparisons state: external results, prompts, verdicts and labels."""
    pairs, *external = map(artifacts.metadata, args.compared)
    found = pairs["notes"]
    for each in external:
        found += [note("external results", text, model=text.partition(":")[0]) for text in each["notes"]]
        found += [note("unavailable", reason, model=name) for name, reason in each["outcome"].missing.items()]
    optional = {"without_faults": args.spec.verdicts, "labels": args.spec.estimates}
    optional |= {"between_languages": args.spec.languages}
    for name in (name for name, exists in optional.items() if exists):
        found += artifacts.metadata(args.out / f"{name}.parquet")["notes"]
    return found


def _write_tokenizers(args) -> None:
    """Write tokens per byte, character and word, split words and premiums of each model and language."""
    paths = [path.with_name("tokens.parquet") for path in args.metrics]  # written by the same job
    rows = tokenizer_rows(map(_tokens_in, paths), args.spec.parallel)
    table = pa.Table.from_pylist(rows, schema=TOKENIZERS.schema)
    fingerprint = artifacts.input_fingerprint(to_json(args.spec), *paths)
    artifacts.write(args.out / "tokenizers.parquet", TOKENIZERS, table, {"fingerprint": fingerprint})
    write_csv(args.out / "tokenizers.csv", table.to_pandas())
    write_tokenizers(args.out / "tokenizers.xlsx", rows)


def _tokens_in(path: Path) -> ModelTokens:
    table, metadata = artifacts.read_all(path, TOKENS)
    names = table["evaluation"].combine_chunks().dictionary_encode()  # rows of an evaluation are consecutive
    ends = np.searchsorted(names.indices.to_numpy(), np.arange(len(names.dictionary) + 1))
    slices = zip(names.dictionary.to_pylist(), ends[:-1], ends[1:], strict=True)
    rows = {name: table.slice(start, end - start) for name, start, end in slices}
    return ModelTokens(metadata["model"], metadata["tokenizer"], rows, metadata["evaluations"])


def _rows(args, name: str, kind: artifacts.Kind) -> list[dict]:
    return artifacts.read(args.out / f"{name}.parquet", kind).to_pylist()


def _curve_sheets(args) -> dict:
    trust, metadata = artifacts.read_all(args.out / "task_trust.parquet", TASK_TRUST)
    statistics = _rows(args, "curve_statistics", CURVE_STATISTICS)
    return curve_sheets(statistics, trust.to_pylist(), metadata["sentence"])


def _precision(metadata: MetricsMetadata) -> dict:
    """Return name, base and precision of a model, from the metadata of its metrics file."""
    model = next(_models(metadata), ModelInfo(name=metadata.model))
    base = recorded_model(metadata).base
    return {"name": metadata.model, "base": base, "dtype": model.dtype, "quantization": model.quantized}


def _models(metadata: MetricsMetadata) -> Iterator[ModelInfo]:
    """Yield the model of each evaluation with outputs, as it was loaded."""
    return (results.inference.model for results in metadata.evaluations.values() if results.inference.model)


def _describe(metadata: MetricsMetadata) -> dict:
    """Return what is published of a model, from the metadata of its metrics file: its source, version and engine."""
    record = recorded_model(metadata)
    names = ("name", "source", "revision", "architecture", "kind", "parameters", "bytes", "fingerprint")
    described = {name: getattr(record, name) for name in names}
    if adapter := record.adapter:
        described |= {"base": record.base, "adapter source": adapter.source, "adapter revision": adapter.revision}
    return described | _engine(record, metadata)


# what servers state as the owner of their models
_ENGINES = {"vllm": "vLLM", "sglang": "SGLang", "llamacpp": "llama.cpp"}


def _engine(record: ModelRecord, metadata: MetricsMetadata) -> dict:
    """Return the engine that ran a model, as far as it is known; a server is asked for its own name."""
    if server := record.server:
        reported = server.reported
        engine = {"engine": _ENGINES.get(reported.get("owned_by")), "engine version": reported.get("version")}
        engine |= {"served model": server.model, "served file": reported.get("file")}
        return {key: value for key, value in engine.items() if value}
    versions = {model.transformers for model in _models(metadata) if model.transformers}
    return {"engine": "transformers", "engine version": ", ".join(sorted(versions))} if versions else {}
