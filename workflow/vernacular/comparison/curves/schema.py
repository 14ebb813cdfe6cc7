"""Schemas of training curves: points, statistics per curve, trust in tasks, and pairs of curves.

A *curve* is a series, or a phase of one (`olmo/stage1`). `x` is the position on the axis named in `axis`: "step",
"tokens" or "words". Only headline metrics have rows.
"""

import pyarrow as pa

from vernacular.core.artifacts import Kind
from vernacular.metrics.schema import EVALUATION_COLUMNS, float_columns, text_columns

_EVALUATION = [
    *EVALUATION_COLUMNS,
    ("category", pa.string()),  # "" = all items
    *text_columns("metric", "unit"),
    ("higher_is_better", pa.bool_()),
]
_POSITION = [("step", pa.int64()), ("tokens", pa.int64()), ("words", pa.int64())]
REFERENCES = ("previous", "best", "last")
DIFFERENCE = ("difference", "difference_low", "difference_high", "p_value", "p_holm")


def _interval(name: str) -> list:
    return float_columns(name, f"{name}_low", f"{name}_high")


# results/summary/curves.parquet: a row per checkpoint, evaluation, category and metric
CURVES = Kind(
    "curves",
    [
        *text_columns("series", "curve", "model"),
        ("checkpoint", pa.string()),  # its directory or revision
        *_POSITION,
        *_EVALUATION,
        ("value", pa.float64()),  # as in the results; null: a gap in the curve
        ("ci_low", pa.float64()),  # of the level; too wide for differences between checkpoints
        ("ci_high", pa.float64()),
        ("n", pa.int64()),
        ("chance_level", pa.float64()),
        # this checkpoint minus the reference, over the items both have; p_holm over the checkpoints of the curve
        *float_columns(*(f"{reference}_{name}" for reference in REFERENCES for name in DIFFERENCE)),
        ("note", pa.string()),  # why the value is missing
    ],
    key=("model", "evaluation", "category", "metric"),
    required=("curve",),
)

# results/summary/curve_statistics.parquet: a row per curve, evaluation, category and metric
CURVE_STATISTICS = Kind(
    "curve statistics",
    [
        *text_columns("series", "curve"),
        *_EVALUATION,
        ("axis", pa.string()),
        ("n_checkpoints", pa.int64()),  # with a value
        ("n_missing", pa.int64()),
        *float_columns("chance_level", "first"),
        *_interval("last"),
        ("last_x", pa.int64()),
        ("best", pa.float64()),  # chosen on the same items: optimistic by about best_optimism
        ("best_x", pa.int64()),
        ("best_optimism", pa.float64()),  # bootstrap estimate of what choosing adds
        ("forgetting", pa.float64()),  # how much worse the last checkpoint is than the best
        *_interval("slope"),  # of the last third of the checkpoints, per 1,000 steps or 10^9 tokens or words
        *_interval("monotonicity"),  # Spearman's correlation of x and value
        ("rises", pa.int64()),
        ("falls", pa.int64()),
        ("noise", pa.float64()),  # standard deviation of the last five checkpoints, in the metric's unit
        ("residual_noise", pa.float64()),  # the same around a line in ln x
        ("above_chance_since", pa.int64()),  # x from which on every interval is above chance
        ("as_good_as_last_since", pa.int64()),  # x from which on no checkpoint is significantly worse than the last
        ("learned_50", pa.int64()),  # x of the first checkpoint halfway from chance to the last value
        ("learned_90", pa.int64()),
        ("learned_90_stay", pa.int64()),  # x from which on all checkpoints are at 90 %
        *_interval("learned_90_interpolated"),  # low null: before the first; high null: not by the end
        ("note", pa.string()),  # why statistics are missing
    ],
    key=("curve", "evaluation", "category", "metric"),
    required=("n_checkpoints", "n_missing"),
)

# results/summary/task_trust.parquet: a row per evaluation and metric, over all curves
TASK_TRUST = Kind(
    "task trust",
    [
        *_EVALUATION,
        *((name, pa.int64()) for name in ("n_curves", "n_checkpoints", "n_items")),  # of the shortest; clusters
        ("axis", pa.string()),
        ("n_common", pa.int64()),  # checkpoints at the same x in all curves
        ("n_above_chance", pa.int64()),  # curves whose last checkpoint is above chance, by its interval
        ("n_improved", pa.int64()),  # curves whose last checkpoint is significantly better than the first
        *_interval("monotonicity"),  # mean over curves
        *_interval("signal"),  # largest difference of two curves' last values over their mean
        *_interval("noise"),  # mean over curves: standard deviation of the last five checkpoints over their mean
        ("noise_in_units", pa.float64()),
        ("residual_noise", pa.float64()),  # as noise, around a line in ln x
        *_interval("signal_to_noise"),
        ("signal_to_residual_noise", pa.float64()),
        *_interval("rank_consistency"),  # mean Kendall's tau-a of neighboring checkpoints
        *_interval("decision_accuracy"),  # pairs of curves in the order of the end, mean over earlier checkpoints
        ("seed_signal_to_noise", pa.float64()),  # FineTasks' ratio, over curves that differ in their seed
        ("verdict", pa.string()),  # "useful", "uncertain", "noise" or "not judged"
        ("reason", pa.string()),
    ],
    key=("evaluation", "category", "metric"),
    required=("n_curves", "verdict"),
)

_PAIR = [*text_columns("baseline", "candidate"), *_EVALUATION, ("axis", pa.string())]

# results/summary/curve_pairs.parquet: area between two curves
CURVE_PAIRS = Kind(
    "curve pairs",
    [
        *_PAIR,
        ("n_common", pa.int64()),  # checkpoints at the same x
        ("from_x", pa.int64()),
        ("to_x", pa.int64()),
        *_interval("area"),  # candidate - baseline, divided by the length of the axis: a mean difference
        ("p_value", pa.float64()),
        ("p_holm", pa.float64()),  # over all evaluations and metrics of the pair
        ("n_tests", pa.int64()),
        ("better", pa.string()),  # the significantly better curve
    ],
    key=("baseline", "candidate", "evaluation", "category", "metric"),
    required=("n_common",),
)

# results/summary/curve_pair_points.parquet: differences at equal x
CURVE_PAIR_POINTS = Kind(
    "curve pair points",
    [
        *_PAIR,
        ("x", pa.int64()),
        *float_columns("baseline_value", "candidate_value"),
        *float_columns(*DIFFERENCE),  # p_holm over the points of this pair of curves
    ],
    key=("baseline", "candidate", "evaluation", "category", "metric", "x"),
)

# results/summary/deciding_metrics.parquet: a row per evaluation and stored metric, over all items
DECIDING_METRICS = Kind(
    "deciding metrics",
    [
        *EVALUATION_COLUMNS,
        *text_columns("metric", "unit"),
        ("higher_is_better", pa.bool_()),
        ("headline", pa.bool_()),
        ("axis", pa.string()),
        *((name, pa.int64()) for name in ("n_curves", "n_common")),  # series; checkpoints at the same x
        *float_columns("signal", "noise", "signal_to_noise"),  # as in task trust, without intervals
        # pairs of series in their final order, mean over earlier checkpoints
        ("decision_accuracy", pa.float64()),
        ("is_chosen", pa.bool_()),  # the metric to look at
        ("held_out_accuracy", pa.float64()),  # of metrics chosen on one half of the series, on the other half
        ("better_below", pa.int64()),  # x below which it decides better than the headline metric; null: no such x
        ("note", pa.string()),  # why it is not applicable, or what limits the choice
    ],
    key=("evaluation", "metric"),
    required=("n_curves", "n_common"),
)
_KINDS = (CURVES, CURVE_STATISTICS, TASK_TRUST, CURVE_PAIRS, CURVE_PAIR_POINTS, DECIDING_METRICS)
ALL = {kind.name.replace(" ", "_"): kind for kind in _KINDS}  # by the stem of their files
