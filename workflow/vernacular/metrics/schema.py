"""What the metrics stage leaves: similarities and per-item results per evaluation, one table of values per model."""

import pyarrow as pa

from vernacular.core.artifacts import Kind

# results/{model}/similarity/{evaluation}.parquet: the answer against every option, per similarity metric
SIMILARITIES = Kind(
    "similarities",
    pa.schema(
        [
            ("item_id", pa.string()),
            ("metric", pa.string()),  # "cosine", "moverscore", "bertscore"
            ("similarities", pa.list_(pa.float64())),  # one per choice (null: not computed), or [target]
        ]
    ),
    key=("item_id", "metric"),
    required=("similarities",),
    place=3,
)

# results/{model}/tasks/{evaluation}.parquet: a row per item, with what is needed to read it
TASK_RESULTS = Kind(
    "task results",
    pa.schema(
        [
            ("item_id", pa.string()),
            ("cluster_id", pa.string()),
            ("category", pa.string()),
            ("prompt", pa.string()),  # the item's own part of the prompt; the few-shot block is in the metadata
            ("options", pa.list_(pa.string())),
            ("gold", pa.list_(pa.int32())),
            ("option_scores", pa.list_(pa.float64())),  # log-likelihood (nats) or similarity of each option
            ("prediction", pa.string()),  # chosen option, letter or generated answer
            ("predicted", pa.list_(pa.int32())),  # indices of the chosen options: several = a tie
            ("correct", pa.bool_()),  # null: gold unknown, or nothing was predicted; a tie with a wrong option is false
            ("tie", pa.bool_()),
            ("values", pa.map_(pa.string(), pa.float64())),  # every per-item metric, by its name
            ("flag", pa.string()),  # null where all went well
        ]
    ),
    key=("item_id",),
    required=("prompt", "options", "gold", "values"),
    place=3,
)

# results/{model}/metrics.parquet: the long table, one model's rows
METRICS = Kind(
    "metrics",
    pa.schema(
        [
            ("model", pa.string()),
            ("adapter", pa.string()),  # where it comes from; null for a model of its own
            ("base", pa.string()),  # the model an adapter belongs to, by its name here; null for a model of its own
            ("evaluation", pa.string()),
            ("task", pa.string()),
            ("language", pa.string()),
            ("protocol", pa.string()),
            ("shots", pa.int32()),
            ("seed", pa.int64()),
            ("style", pa.string()),
            ("category", pa.string()),  # "" = all items
            ("metric", pa.string()),
            ("value", pa.float64()),  # unrounded; null where no item could be scored
            ("ci_low", pa.float64()),
            ("ci_high", pa.float64()),
            ("n", pa.int64()),  # items the value is made of
            ("n_flagged", pa.int64()),  # items with a flag
            ("n_ties", pa.int64()),
            ("chance", pa.float64()),
            ("majority", pa.float64()),  # share right for whoever always chooses the commonest gold; null where no such
            ("unit", pa.string()),  # "share", "nats", "bits", "percent", "cosine", …
            ("family", pa.string()),  # "similarity" or "surprisal": the spreadsheet it stands in
            ("headline", pa.bool_()),  # stands in the leaderboard and in overviews
            ("higher_is_better", pa.bool_()),  # null: neither
            ("signature", pa.string()),  # metric, encoder and layer, versions
            ("model_revision", pa.string()),
            ("dataset_revision", pa.string()),
        ]
    ),
    key=("model", "evaluation", "category", "metric"),
    required=("n", "n_flagged"),
    place=2,
)


def as_table(rows) -> pa.Table:
    """TASK_RESULTS rows, from a table or a list of dicts."""
    return rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(rows, schema=TASK_RESULTS.schema)


# results/summary/results.parquet: the rows of all models' metrics.parquet
RESULTS = Kind("results", METRICS.schema, key=(), required=METRICS.required)  # `tables.collect` checks identity


def same_item(one: dict, other: dict) -> bool:
    """Both sides were asked the same, and the same was right."""
    return all(one[name] == other[name] for name in ("prompt", "options", "gold"))
