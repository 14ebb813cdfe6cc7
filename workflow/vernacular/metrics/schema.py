"""Schemas of the metrics stage: similarities and per-item results by evaluation, metric values by model."""

from dataclasses import replace

import numpy as np
import pyarrow as pa

from vernacular.core.artifacts import Kind
from vernacular.core.metadata import MetricsMetadata, ResultsMetadata, SimilaritiesMetadata, ToolResultsMetadata


def text_columns(*names: str) -> list:
    """Return columns of texts."""
    return [(name, pa.string()) for name in names]


def float_columns(*names: str) -> list:
    """Return columns of numbers."""
    return [(name, pa.float64()) for name in names]


EVALUATION_COLUMNS = [
    *text_columns("evaluation", "task", "language", "protocol"),
    ("shots", pa.int32()),
    ("seed", pa.int64()),
    ("style", pa.string()),
    ("prompt", pa.string()),  # name of the wording; "all": the mean over several
]

# results/{model}/similarity/{evaluation}.parquet: similarity of the response and each option, by metric
SIMILARITIES = Kind(
    "similarities",
    [
        ("item_id", pa.string()),
        ("metric", pa.string()),  # "cosine", "moverscore", "bertscore"; "cosine@1": of the second sample
        ("similarities", pa.list_(pa.float64())),  # one per choice (null: not computed), or [target]
    ],
    key=("item_id", "metric"),
    required=("similarities",),
    metadata=SimilaritiesMetadata,
    path_depth=3,
)

# results/{model}/tasks/{evaluation}.parquet: a row per item, with its texts
TASK_RESULTS = Kind(
    "task results",
    [
        *text_columns("item_id", "cluster_id", "category"),
        ("prompt", pa.string()),  # the item's part of the prompt; the few-shot prefix is in the metadata
        ("choices", pa.list_(pa.string())),
        ("gold", pa.list_(pa.int32())),
        ("option_scores", pa.list_(pa.float64())),  # log-likelihood (nats) or similarity of each option
        ("prediction", pa.string()),  # chosen option, letter or response
        ("predicted_indices", pa.list_(pa.int32())),  # indices of the chosen options: several = a tie
        ("correct", pa.bool_()),  # null: gold unknown, or no prediction; false for a tie with an incorrect option
        ("tie", pa.bool_()),
        ("metrics", pa.map_(pa.string(), pa.float64())),  # every per-item metric, by its name
        ("flags", pa.string()),  # null without a problem
    ],
    key=("item_id",),
    required=("prompt", "choices", "gold", "metrics"),
    metadata=ResultsMetadata,
    path_depth=3,
    is_public=True,
)

TOOL_RESULTS = replace(TASK_RESULTS, name="tool results", metadata=ToolResultsMetadata)  # results/{model}/lm_eval/

# results/{model}/metrics.parquet: one model's rows of the results, in long format
ABOUT_SAMPLES = "(samples): a few demonstration items of the package, which show how a task runs and measure nothing."


def is_from_samples(dataset_revision: str | None) -> bool:
    """Return whether a value is of the package's demonstration items, by its `dataset_revision`.

    >>> is_from_samples("samples 0123456789ab"), is_from_samples("file 0123456789ab"), is_from_samples(None)
    (True, False, False)
    """
    return isinstance(dataset_revision, str) and dataset_revision.startswith("samples ")


METRICS = Kind(
    "metrics",
    [
        ("model", pa.string()),
        ("adapter", pa.string()),  # its source; null for a model without adapter
        ("base", pa.string()),  # name of the adapter's base model; null for a model without adapter
        *EVALUATION_COLUMNS,
        ("category", pa.string()),  # "" = all items
        ("metric", pa.string()),
        ("value", pa.float64()),  # unrounded; null if no item could be scored, or undefined
        *float_columns("ci_low", "ci_high"),
        ("n", pa.int64()),  # number of items from which the value is computed
        ("n_flagged", pa.int64()),  # items with a flag
        ("n_ties", pa.int64()),
        ("chance_level", pa.float64()),
        ("majority_baseline", pa.float64()),  # accuracy of always choosing the most common gold; null if undefined
        ("unit", pa.string()),  # "share", "nats", "bits", "percent", "cosine", …
        ("metric_group", pa.string()),  # "similarity" or "surprisal": the workbook that contains it
        ("headline", pa.bool_()),  # is shown in the leaderboard and in overviews
        ("higher_is_better", pa.bool_()),  # null: neither
        ("signature", pa.string()),  # metric, encoder and layer, versions
        *text_columns("model_revision", "dataset_revision"),
    ],
    key=("model", "evaluation", "category", "metric"),
    required=("n", "n_flagged"),
    metadata=MetricsMetadata,
    path_depth=2,
)

# results/{model}/tokens.parquet: what the model's tokenizer makes of each item; null: not scored, or truncated
TOKENS = Kind(
    "tokens",
    [
        *text_columns("evaluation", "item_id", "cluster_id"),
        ("texts", pa.int32()),  # scored texts of the item; null if only its prompt is counted
        ("tokens", pa.int64()),
        ("bytes", pa.int64()),  # UTF-8
        ("characters", pa.int64()),  # code points
        ("words", pa.int64()),  # separated by whitespace
        ("countable_words", pa.int64()),  # words with a letter or digit
        ("split_words", pa.int64()),  # of these, words of two or more tokens
        ("byte_tokens", pa.int64()),  # tokens that are a part of a character
        ("unknown_tokens", pa.int64()),
        ("prompt_tokens", pa.int64()),  # of the first request, special tokens included
        ("prompt_bytes", pa.int64()),
        ("prompt_characters", pa.int64()),
        ("bits", pa.float64()),  # of the correct text
    ],
    key=("evaluation", "item_id"),
    path_depth=2,
)

# results/summary/tokenizers.parquet: a row per model, language and task; task "" = all tasks of the language
TOKENIZERS = Kind(
    "tokenizers",
    [
        *text_columns("model", "tokenizer"),  # hash of its files; equal for models with the same tokenizer
        *text_columns("language", "task", "evaluation"),  # whose texts are counted; "" for all tasks
        ("items", pa.int64()),
        ("texts", pa.int64()),
        ("tokens", pa.int64()),
        ("bytes", pa.int64()),
        ("characters", pa.int64()),
        ("words", pa.int64()),  # null in languages that are written without spaces between words
        *float_columns("tokens_per_byte", "tokens_per_character", "tokens_per_word"),
        *float_columns("split_share", "byte_share", "unknown_share"),
        ("prompt_tokens", pa.float64()),  # mean per item, special tokens included
        ("parallel_items", pa.int64()),  # items in this language and in English; null: the items are not parallel
        *float_columns("premium", "premium_low", "premium_high"),
        *float_columns("prompt_premium", "prompt_premium_low", "prompt_premium_high"),
        *float_columns("bits_ratio", "bits_ratio_low", "bits_ratio_high"),
        *float_columns("byte_premium", "character_premium"),
        *float_columns("parallel_bits", "parallel_bits_en"),  # bits per parallel item, of its correct text
    ],
    key=("model", "language", "task"),
    required=("items", "evaluation"),
)


def as_table(rows) -> pa.Table:
    """Return TASK_RESULTS rows as a table, from a table or a list of dicts."""
    return rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(rows, schema=TASK_RESULTS.schema)


def value_arrays(table: pa.Table) -> dict[str, np.ndarray]:
    """Return the per-item values of TASK_RESULTS by name, (n,), NaN for items without the value.

    A column of maps becomes one array per key, without a Python object per number.
    """
    maps = table.column("metrics").combine_chunks()
    if not len(maps):
        return {}
    offsets = np.asarray(maps.offsets)
    start, stop = offsets[0], offsets[-1]
    row_indices = np.repeat(np.arange(len(maps)), np.diff(offsets))
    keys = maps.keys[start:stop].dictionary_encode()
    values = maps.items[start:stop].to_numpy(zero_copy_only=False).astype(float)
    codes = keys.indices.to_numpy(zero_copy_only=False)
    arrays = {}
    for code, name in enumerate(keys.dictionary.to_pylist()):
        mask = codes == code
        arrays[name] = np.full(len(maps), np.nan)
        arrays[name][row_indices[mask]] = values[mask]
    return arrays


POSITION = [  # of a checkpoint of a series, in training; null for other models
    ("series", pa.string()),
    ("curve", pa.string()),  # the series, with its phase if it has several: "olmo/stage1"
    ("step", pa.int64()),
    ("tokens", pa.int64()),
    ("words", pa.int64()),
]

# results/summary/results.parquet: the rows of all models' metrics.parquet; `grid.combine_tables` checks identity
RESULTS = Kind("results", [*METRICS.columns, *POSITION], key=(), required=METRICS.required, is_public=True)


def same_item(left: dict, right: dict) -> bool:
    """Return whether two rows have the same prompt, options and gold."""
    return all(left[name] == right[name] for name in ("prompt", "choices", "gold"))
