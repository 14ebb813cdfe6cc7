"""What the tokenizer of each model makes of each language, and of a language in relation to English.

A premium is tokens(language) / tokens(English) of the same items (Petrov et al. 2023, arXiv 2305.15425), so it is
defined for tasks whose items are translations of each other and have the same IDs (`parallel: true` in the task file).
Sums over the common items are divided; the interval is that of a bootstrap of the items.

`tokenizers.xlsx` has a row per model, language and task.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vernacular.core.languages import is_unspaced
from vernacular.core.tables import finite_or_none, rows_of
from vernacular.metrics.bits import ratio
from vernacular.metrics.schema import TOKENIZERS
from vernacular.statistics.intervals import cluster_bootstrap
from vernacular.summary import cells
from vernacular.summary.rows import columns_of, write_rows
from vernacular.types import DEFAULT_PROMPT, SETTING

REFERENCE = "en"
RESAMPLES = 2_000
_SUMS = ("texts", "tokens", "bytes", "characters", "words", "countable_words", "split_words", "byte_tokens",
         "unknown_tokens")  # fmt: skip
_RATIOS = {  # of sums
    "tokens_per_byte": ("tokens", "bytes"),
    "tokens_per_character": ("tokens", "characters"),
    "tokens_per_word": ("tokens", "words"),
    "split_share": ("split_words", "countable_words"),
    "byte_share": ("byte_tokens", "tokens"),
    "unknown_share": ("unknown_tokens", "tokens"),
}
_OF_WORDS = ("words", "tokens_per_word", "split_share")
_PREMIUMS = {"premium": "tokens", "prompt_premium": "prompt_tokens", "bits_ratio": "bits"}  # with intervals
_TEXT_RATIOS = {"byte_premium": "bytes", "character_premium": "characters"}  # of the texts, whatever the tokenizer


@dataclass(frozen=True)
class ModelTokens:
    """The counts of one model: TOKENS by evaluation, and the setting of each evaluation."""

    model: str
    tokenizer: str | None
    rows: dict[str, pa.Table]
    settings: dict[str, dict]


def tokenizer_rows(models: Iterable[ModelTokens], parallel_tasks: Collection[str]) -> list[dict]:
    """Return rows per TOKENIZERS: for each model, the languages, each in total and by task.

    Of `models`, one is in memory at a time.
    """
    return [row for model in models for row in _model_rows(model, parallel_tasks)]


def _model_rows(model: ModelTokens, parallel_tasks: Collection[str]) -> list[dict]:
    chosen = _choose_evaluations(model)
    rows = []
    for language in sorted({language for language, _ in chosen}):
        tasks = {task: evaluation for (code, task), evaluation in chosen.items() if code == language}
        labels = {"model": model.model, "tokenizer": model.tokenizer, "language": language}
        all_items = pa.concat_tables([model.rows[evaluation] for evaluation in tasks.values()])
        rows.append(labels | {"task": "", "evaluation": ""} | _counts(all_items, language))
        for task, evaluation in sorted(tasks.items()):
            items = model.rows[evaluation]
            row = labels | {"task": task, "evaluation": evaluation} | _counts(items, language)
            row["prompt_tokens"] = pc.mean(items["prompt_tokens"]).as_py()
            if task in parallel_tasks and language != REFERENCE:
                reference = _same_setting(model, evaluation)
                row |= _premiums(rows_of(items), rows_of(model.rows[reference]) if reference else [])
            rows.append(row)
    empty = dict.fromkeys(TOKENIZERS.schema.names)
    return [empty | row for row in rows]


def _choose_evaluations(model: ModelTokens) -> dict[tuple[str, str], str]:
    """Return the evaluation of each language and task whose texts are counted: each text once, and most text.

    The same items are often evaluated with several protocols and numbers of few-shot examples. Preferred are scored
    texts to prompts alone, then the default prompt, then fewer few-shot examples, then more text.
    """
    chosen: dict[tuple[str, str], tuple] = {}
    for evaluation, rows in model.rows.items():
        if not rows.num_rows:
            continue
        setting = model.settings[evaluation]
        n_tokens, prompts = (pc.sum(rows[name], min_count=0).as_py() for name in ("tokens", "prompt_tokens"))
        rank = (n_tokens > 0, setting["prompt"] == DEFAULT_PROMPT, -setting["shots"], n_tokens, prompts)
        key = (setting["language"], setting["task"])
        if key not in chosen or rank > chosen[key][0]:
            chosen[key] = (rank, evaluation)
    return {key: evaluation for key, (_, evaluation) in chosen.items()}


def _same_setting(model: ModelTokens, evaluation: str) -> str | None:
    """Return the evaluation of the reference language with the same task, protocol, shots, seed, style and prompt."""
    expected = model.settings[evaluation] | {"language": REFERENCE}
    keys = [key for key in SETTING if key in expected]
    matches = (other for other, setting in model.settings.items() if all(setting[key] == expected[key] for key in keys))
    return next((other for other in matches if other in model.rows), None)


def _counts(rows: pa.Table, language: str) -> dict:
    """Return the sums of the items that have counts, and their ratios."""
    counted = rows.filter(pc.greater(rows["texts"], 0))
    sums = {name: pc.sum(counted[name], skip_nulls=False).as_py() for name in _SUMS}
    ratios = {name: _divide(sums[above], sums[below]) for name, (above, below) in _RATIOS.items()}
    values = {"items": len(rows)} | {name: sums[name] for name in _SUMS if name in TOKENIZERS.schema.names} | ratios
    return values | dict.fromkeys(_OF_WORDS if is_unspaced(language) else ())


def _premiums(rows: list[dict], reference: list[dict]) -> dict:
    """Return the columns on parallel items; ratios are null without common items that have both values."""
    other = {row["item_id"]: row for row in reference}
    pairs = [(row, other[row["item_id"]]) for row in rows if row["item_id"] in other]
    values: dict[str, float | int | None] = {"parallel_items": len(pairs)}
    for name, column in _PREMIUMS.items():
        numerator, denominator, clusters = _paired(pairs, column)
        values[name] = _divide(numerator.sum(), denominator.sum())
        low, high = cluster_bootstrap(ratio, [numerator, denominator], clusters, resamples=RESAMPLES, seed=0)
        values |= {f"{name}_low": finite_or_none(low), f"{name}_high": finite_or_none(high)}
        if column == "bits" and len(numerator):
            values |= {
                "parallel_bits": finite_or_none(numerator.mean()),
                "parallel_bits_en": finite_or_none(denominator.mean()),
            }
    for name, column in _TEXT_RATIOS.items():
        numerator, denominator, _ = _paired(pairs, column)
        values[name] = _divide(numerator.sum(), denominator.sum())
    return values


def _paired(pairs: list[tuple[dict, dict]], column: str) -> tuple[np.ndarray, np.ndarray, list]:
    """Return the values of both languages, of the items that have both, and their clusters.

    A prompt without text has no premium: its tokens are special ones.
    """

    def is_complete(row: dict) -> bool:
        return row[column] is not None and (column != "prompt_tokens" or bool(row["prompt_characters"]))

    complete = [pair for pair in pairs if all(map(is_complete, pair))]
    numerator, denominator = (np.array([pair[side][column] for pair in complete], dtype=float) for side in (0, 1))
    return numerator, denominator, [left["cluster_id"] for left, _ in complete]


def _divide(numerator, denominator) -> float | None:
    """Return the ratio; None if a sum is unknown, or the denominator is 0."""
    return finite_or_none(numerator / denominator) if numerator is not None and denominator else None


def write_tokenizers(path, rows: list[dict], size: cells.SheetSize = cells.EXCEL) -> Path:
    """Write the rows of TOKENIZERS, in their order, to a workbook."""
    book = cells.new_book("Tokenizers")
    book.active.title = "tokenizers"
    if rows:
        columns = columns_of("tokenizers", task_name=lambda row: row["task"] or "all tasks")
        write_rows(book.active, columns, rows, 5, size)
    else:
        cells.put_text(book.active, 1, 1, "No scored texts.")
    return cells.save(book, path)
