"""Notes: what is unavailable, was excluded or flagged, used a fallback strategy, or was computed by other versions.

A note is of one model and evaluation; the tables list each text once, with all that it applies to.
"""

from collections import Counter

import pandas as pd

from vernacular.core.metadata import (
    INFORMATION,
    NOT_APPLICABLE,
    SEPARATOR,
    UNAVAILABLE,
    MetricsMetadata,
    ResultsMetadata,
    note,
)
from vernacular.core.tables import format_difference, percent
from vernacular.metrics.metric import display_name

_COLUMNS = ["kind", "note", "count", "models", "evaluations"]
_BUDGET_FELT, _BUDGET_MEASURED = 0.02, 0.1  # shares of unclosed responses
_MAX_LIST = 30_000  # characters of a list in one cell; a longer list continues in the next row


def make_notes(metadata: MetricsMetadata) -> list[dict]:
    """Return one model's notes from the metadata of its metrics file, one row per note.

    kind: "unavailable" (a dataset, model or encoder), "not applicable", "dropped" and "repaired" (rows of the dataset),
    "rows" (warnings about the dataset), "prompts" (what is suspicious in them), "skipped" (items that were skipped),
    "flagged" (outputs), "float noise" (choices that it can change), "reasoning" (before answers), "samples" (several
    per item), "fallback" (the engine used a fallback strategy), "judge" (what its values are worth), "language" (of
    responses, if it is not identified), "diagnosis" (a symptom that explains the value), "trusted code", "converted
    tokenizer", "adapter" (without effect), "loading" (settings without effect) and "unused weights" (of the model
    itself, reported once).
    """
    notes = []

    def add_note(evaluation: str | None, kind: str, text: str, count: int | None = None) -> None:
        notes.append(note(kind, text, model=metadata.model, evaluation=evaluation, count=count))

    for evaluation, results in metadata.evaluations.items():
        if not results.outcome.is_complete:
            add_note(evaluation, results.outcome.state, results.outcome.reason)
        for metric, reason in results.outcome.missing.items():
            add_note(evaluation, UNAVAILABLE, f"{metric} not computed: {reason}")
        for metric, reason in results.not_installed.items():
            add_note(evaluation, NOT_APPLICABLE, f"{metric} not computed: {reason}")
        if results.dataset:
            rows = results.dataset.rows
            for kind, counts in (("dropped", rows.dropped), ("repaired", rows.repaired)):
                for reason, count in counts.items():
                    add_note(evaluation, kind, reason, count)
            for warning in results.dataset.warnings:
                add_note(evaluation, "rows", warning)
        for warning in results.prompt_warnings:
            add_note(evaluation, "prompts", warning)
        for reason, count in Counter(results.skipped.values()).items():
            add_note(evaluation, "skipped", reason, count)
        for flag, count in results.flags.items():
            add_note(evaluation, "flagged", flag, count)
        if results.within_noise:
            model = results.inference.model
            text = f"choices that float noise can change ({model.dtype if model else 'unknown type'})"
            add_note(evaluation, "float noise", text, results.within_noise)
        for text in _reasoning_notes(results):
            add_note(evaluation, "reasoning", text)
        if (results.repeats or 1) > 1:
            text = f"avg@{results.repeats}: values are means over items of the means of their samples"
            add_note(evaluation, "samples", text)
        for text in results.judges:
            add_note(evaluation, "judge", text)
        for fallback in results.inference.engine.fallback:
            add_note(evaluation, "fallback", fallback)
        if results.language and results.language.missing:
            add_note(evaluation, "language", results.language.missing)
        for diagnosis in results.diagnoses:
            if diagnosis.severity != INFORMATION:
                text = f"{diagnosis.code} ({diagnosis.severity}): {diagnosis.sentence}"
                add_note(evaluation, "diagnosis", text, diagnosis.count)
    models = [results.inference.model for results in metadata.evaluations.values() if results.inference.model]
    if any(model.remote_code for model in models):
        add_note(None, "trusted code", "custom code of the model was run (trust_remote_code)")
    for name, version in sorted({(m.converted_tokenizer, m.transformers) for m in models if m.converted_tokenizer}):
        text = f"{name} was converted by transformers {version}; token IDs of another version may differ"
        add_note(None, "converted tokenizer", text)
    if any(model.adapter and model.adapter.without_effect for model in models):
        text = "no output differs from the base's: untrained, or saved without its weights (every lora_B is zero)"
        add_note(None, "adapter", text)
    if unused := next((model.unused_weights for model in models if model.unused_weights), None):
        text = f"weights in the checkpoint that the architecture does not use; the first is {unused.first}"
        add_note(None, "unused weights", text, unused.count)
    for text in dict.fromkeys(text for model in models for text in model.loading):
        add_note(None, "loading", text)
    return notes


def _reasoning_notes(results: ResultsMetadata) -> list[str]:
    """Return what the metadata of outputs state of reasoning, and the share of responses that end within it."""
    reasoning = results.inference.tokenizer.details.get("reasoning", {})
    notes = list(reasoning.get("notes", []))
    if reasoning.get("asked_for") and results.few_shot_examples:
        notes.append("few-shot examples contain no reasoning, and models recite them in theirs; set shots: 0")
    if results.unclosed:
        budget = reasoning.get("budgets", [0, 0])[-1]
        text = f"{percent(results.unclosed)} of the responses end within their reasoning"
        text += f" of {budget:,} tokens" if budget else ""
        if results.unclosed > _BUDGET_MEASURED:
            text += ": the values measure the budget; raise think_max_toks"
        elif results.unclosed > _BUDGET_FELT:
            text += "; consider a larger think_max_toks"
        notes.append(text)
    return notes


def no_interval_notes(rows: pd.DataFrame) -> list[dict]:
    """Return a note for each headline value over all items, of the long table, that is undefined or has no interval."""
    is_headline = rows["headline"].fillna(False).astype(bool) & (rows["category"].fillna("") == "")
    lacking = rows[is_headline & (rows["n"] > 0) & rows["ci_low"].isna()]
    interval = "too few items, too few with one of the labels, an infinite value, or a metric that is not resampled"
    reasons = [f"no 95 % interval ({interval})", "undefined (items with one of the labels only, or an infinite value)"]
    pairs = zip(lacking["metric"], lacking["value"].isna(), strict=True)
    texts = [f"{display_name(metric)}: {reasons[is_undefined]}" for metric, is_undefined in pairs]
    columns = zip(texts, lacking["model"], lacking["evaluation"], strict=True)
    return [note("no interval", text, model=model, evaluation=evaluation) for text, model, evaluation in columns]


def unreviewed_notes(languages: dict[str, str]) -> list[dict]:
    """Return a note for each evaluation whose prompt no speaker has read; `languages`: of its prompt."""
    text = 'the prompt lines in "{}" are not reviewed by a speaker'
    return [note("not reviewed", text.format(code), evaluation=name) for name, code in languages.items()]


def self_preference_notes(rows: pd.DataFrame, judges: dict[str, list[str]]) -> list[dict]:
    """Return a note for each judge and evaluation with judged models of the judge's own family.

    The difference between these and the other models is stated beside that by a score that knows no family.

    Args:
        rows: The long table.
        judges: Models of the judge's family that it judges, by judge.
    """
    notes = []
    headlines = rows[rows["headline"].fillna(False).astype(bool) & (rows["category"].fillna("") == "")]
    for judge, family in judges.items():
        is_judge = headlines["metric"].str.fullmatch(f"judge_{judge}(_unvalidated)?")
        for evaluation, judged in headlines[is_judge].groupby("evaluation", sort=False):
            if not judged["model"].isin(family).any():
                continue
            text = f"judge {judge} is of the family of {', '.join(family)}: it may prefer their texts"
            others = headlines[(headlines["evaluation"] == evaluation) & ~headlines["metric"].str.startswith("judge_")]
            for scores in (judged, *(group for _, group in others.groupby("metric", sort=False))):
                scores = scores[scores["model"].isin(judged["model"])]
                is_own, row = scores["model"].isin(family), scores.iloc[0] if len(scores) else None
                if row is None or is_own.all() or not is_own.any():
                    continue
                gap = scores.loc[is_own, "value"].mean() - scores.loc[~is_own, "value"].mean()
                text += f"; {display_name(row['metric'])}: {format_difference(gap, row['unit'])} to the other models"
            notes.append(note("judge", text, evaluation=evaluation))
    return notes


def mixed_script_notes(models: list[MetricsMetadata]) -> list[dict]:
    """Return a note for each language whose datasets are in different scripts, and whose mean would hide that."""
    scripts: dict[str, dict[str, set[str]]] = {}  # language -> script -> tasks
    for metadata in models:
        for results in metadata.evaluations.values():
            dataset = results.dataset
            if dataset and dataset.language and dataset.script:
                scripts.setdefault(dataset.language, {}).setdefault(dataset.script, set()).add(dataset.task or "")
    notes = []
    for language, by_script in scripts.items():
        if len(by_script) > 1:
            listed = "; ".join(f"{script} ({', '.join(sorted(tasks))})" for script, tasks in sorted(by_script.items()))
            text = f"the mean of {language} includes texts in different scripts: {listed}"
            notes.append(note("mixed scripts", text, count=len(by_script)))
    return notes


def mixed_version_notes(models: list[MetricsMetadata]) -> list[dict]:
    """Return a note for each way in which models were computed by different versions of the engine or its libraries.

    Values of one evaluation are compared across models, so all of them should come from one version; they do not if
    some models could not be run again after an upgrade.
    """
    versions: dict[str, dict[str, list[str]]] = {}  # evaluation -> version -> models
    for metadata in models:
        for evaluation, results in metadata.evaluations.items():
            engine, model = results.inference.engine, results.inference.model
            if engine.version:
                libraries = {"torch": model.torch, "transformers": model.transformers}
                names = ", ".join(f"{name} {version}" for name, version in libraries.items() if version)
                version = f"{names or 'a server'} (engine {engine.version[:8]})"
                if model.converted_tokenizer:
                    version += f", which converted its {model.converted_tokenizer} and may give it other token IDs"
                versions.setdefault(evaluation, {}).setdefault(version, []).append(metadata.model)
    # scoring and generation have separate versions: group by the models that share a version
    groups: dict[tuple, list[str]] = {}
    for models_by_version in versions.values():
        if len(models_by_version) > 1:
            parts = [f"{', '.join(names)}: {version}" for version, names in models_by_version.items()]
            groups.setdefault(tuple(map(tuple, models_by_version.values())), []).append("; ".join(parts))
    text = "computed with different versions, which may cause differences between these models: "
    return [note("mixed versions", text + descriptions[0], count=len(descriptions)) for descriptions in groups.values()]


def group_notes(notes: list[dict]) -> list[dict]:
    """Return one row per text, for all models and evaluations that it applies to in the same way; nothing is dropped.

    "models" and "evaluations" are lists of names; every one of these models has the note for every one of these
    evaluations. "count" is the number in each evaluation; where it differs, it is in parentheses after the evaluation.

    >>> note = {"kind": "flagged", "note": "truncated", "model": "a"}
    >>> group_notes([note | {"evaluation": "x", "count": 2}, note | {"evaluation": "y", "count": 3}])
    [{'kind': 'flagged', 'note': 'truncated', 'count': None, 'models': 'a', 'evaluations': 'x (2), y (3)'}]
    """
    by_text: dict[tuple[str, str], dict[str | None, list[tuple]]] = {}
    for row in notes:
        by_model = by_text.setdefault((row["kind"], row["note"]), {})
        by_model.setdefault(row["model"], []).append((row["evaluation"], row["count"]))
    rows = []
    for (kind, text), by_model in by_text.items():
        groups: dict[tuple, list[str | None]] = {}
        for model, counted in by_model.items():
            groups.setdefault(tuple(counted), []).append(model)
        for counted, models in groups.items():
            counts = {count for _, count in counted}
            count = counts.pop() if len(counts) == 1 else None
            names = [
                name if name is None or count is not None or number is None else f"{name} ({number})"
                for name, number in counted
            ]
            rows += [
                {"kind": kind, "note": text, "count": count, "models": model_list, "evaluations": evaluation_list}
                for model_list in _lists(models)
                for evaluation_list in _lists(names)
            ]
    return rows


def _lists(names: list[str | None]) -> list[str | None]:
    """Return the names as lists that fit a cell; [None] if there are none."""
    lists: list[str] = []
    for name in filter(None, names):
        if lists and len(lists[-1]) + len(SEPARATOR) + len(name) <= _MAX_LIST:
            lists[-1] += SEPARATOR + name
        else:
            lists.append(name)
    return lists or [None]


def notes_to_frame(notes: list[dict]) -> pd.DataFrame:
    """Return the grouped notes as a table, in the order of their first appearance."""
    return pd.DataFrame(group_notes(notes), columns=_COLUMNS).astype({"count": "Int64"})
