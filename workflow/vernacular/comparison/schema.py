"""Schemas of the comparison stage: paired differences, changed items, rankings and aggregates over tasks.

A *side* of a comparison is a model, or external results, by name. Both sides of a row belong to the same evaluation.
"""

from dataclasses import replace

import pyarrow as pa

from vernacular.core.artifacts import Kind
from vernacular.metrics.metric import display_name
from vernacular.metrics.schema import EVALUATION_COLUMNS, TASK_RESULTS, float_columns, text_columns

# results/summary/comparisons.parquet: a row per pair, evaluation, category and metric; of models only in
# results/compared/pairs.parquet, with external results in results/compared/external.parquet
COMPARISONS = Kind(
    "comparisons",
    [
        *text_columns("baseline", "candidate"),
        *EVALUATION_COLUMNS,
        ("category", pa.string()),  # "" = all items
        *text_columns("metric", "unit"),
        ("higher_is_better", pa.bool_()),
        ("headline", pa.bool_()),
        ("n", pa.int64()),  # items that both sides have a value for: all values of this row are over these
        ("n_baseline", pa.int64()),  # items that the baseline has a value for
        ("n_candidate", pa.int64()),
        *float_columns("baseline_value", "candidate_value"),
        ("difference", pa.float64()),  # candidate - baseline
        ("ci_low", pa.float64()),  # paired bootstrap of the difference, by cluster
        ("ci_high", pa.float64()),
        ("p_value", pa.float64()),
        ("test", pa.string()),  # "exact McNemar, mid-p", "paired bootstrap", …
        # Holm over the family, and against the best model also over the models (`significance`); null outside it
        ("p_holm", pa.float64()),
        ("n_tests", pa.int64()),  # number of tests in the family; null outside it
        ("significant", pa.bool_()),  # p_holm below 0.05; null outside the family
        ("better", pa.string()),  # "candidate", "baseline" or null: no significant difference, or no direction
        ("minimum_detectable_difference", pa.float64()),  # minimum detectable difference at a power of 0.8
        ("both_correct", pa.int64()),  # binary metrics only
        ("both_incorrect", pa.int64()),
        ("baseline_only_correct", pa.int64()),
        ("candidate_only_correct", pa.int64()),
        ("net_gain", pa.int64()),  # candidate_only_correct - baseline_only_correct
        ("note", pa.string()),  # null, or remarks: items that only one side has, …
        ("signature", pa.string()),
    ],
    key=("baseline", "candidate", "evaluation", "category", "metric"),
    required=("n", "n_baseline", "n_candidate"),
    is_public=True,
)

# results/compared/external/{name}.parquet: external results as results per item, of the evaluations that they match
MATCHED = Kind(
    "matched external results",
    [("evaluation", pa.string()), *TASK_RESULTS.columns],
    key=("evaluation", *TASK_RESULTS.key),
    required=TASK_RESULTS.required,
)

IMPROVED, REGRESSED = "improved", "regressed"
MARGIN_SIGNS = {IMPROVED: 1, REGRESSED: -1}  # by which `margin_change` differs from candidate minus baseline

# results/comparisons/{pair}/changes.parquet: a row per improved or regressed item, worst regression first
CHANGES = Kind(
    "changes",
    [
        *text_columns("evaluation", "item_id"),
        ("change", pa.string()),  # "improved": only the candidate is correct; "regressed": only the baseline is
        # how far the correct option fell (regressed) or rose (improved) against the best incorrect one
        ("margin_change", pa.float64()),
        *text_columns("cluster_id", "category", "prompt"),
        ("choices", pa.list_(pa.string())),
        ("gold", pa.list_(pa.int32())),
        *text_columns("baseline_prediction", "candidate_prediction"),
        ("baseline_scores", pa.list_(pa.float64())),
        ("candidate_scores", pa.list_(pa.float64())),
    ],
    key=("evaluation", "item_id"),
    required=("change", "prompt", "choices", "gold"),
    path_depth=2,
    is_public=True,
)

# results/summary/rankings.parquet: each model's rank by a headline metric of one evaluation
RANKINGS = Kind(
    "rankings",
    [
        ("model", pa.string()),
        *EVALUATION_COLUMNS,
        ("metric", pa.string()),
        ("best", pa.string()),  # the model with the best value of this metric
        ("difference", pa.float64()),  # this model's value - the best model's, over the items both have
        ("p_value", pa.float64()),  # paired test against the best; null for the best itself
        ("p_holm", pa.float64()),  # corrected as in COMPARISONS
        ("in_best_group", pa.bool_()),  # the best, or not significantly different from it
        # 1 + number of significantly better models (Holm over all pairs); null for earlier checkpoints of a series
        ("rank", pa.int32()),
        ("compared_with", pa.list_(pa.string())),  # models with which it was tested
        ("worse_than", pa.list_(pa.string())),  # of these, the significantly better ones
    ],
    key=("model", "evaluation", "metric"),
    required=("in_best_group",),
    is_public=True,
)

# results/summary/overall.parquet: aggregates per language, per task and overall; one headline metric represents an
# evaluation
OVERALL = Kind(
    "overall",
    [
        ("model", pa.string()),
        ("scope", pa.string()),  # a language code, "all", or "task:" and the name of a task
        ("n_evaluations", pa.int64()),  # available for every model of the scope: the mean is over these
        ("n_excluded", pa.int64()),  # excluded evaluations: some model lacks them, or they have no chance level
        ("mean", pa.float64()),  # of (value - chance) / (1 - chance)
        ("ci_low", pa.float64()),  # bootstrap of items within each evaluation
        ("ci_high", pa.float64()),
        ("n_languages", pa.int64()),
        *float_columns("mean_over_languages", "languages_low", "languages_high"),  # mean of the mean of each
        ("rank", pa.int32()),  # 1 + number of significantly better models: the best possible rank
        ("rank_worst", pa.int32()),  # models of the scope - number of significantly worse ones: the worst possible
        ("win_rate", pa.float64()),  # share of (other model, evaluation) pairs led, ties half
    ],
    key=("model", "scope"),
    required=("n_evaluations",),
    is_public=True,
)

# results/summary/prompts.parquet: means over the prompts of a group; of a model, or of a difference (with a baseline)
PROMPTS = Kind(
    "prompts",
    [
        ("model", pa.string()),  # the candidate of a difference
        ("baseline", pa.string()),  # null for the values of one model
        *EVALUATION_COLUMNS,  # of the group: prompt is "all", seed null if the runs have several
        *text_columns("metric", "unit"),
        ("higher_is_better", pa.bool_()),
        ("headline", pa.bool_()),
        ("n", pa.int64()),  # items with a value under all prompts
        *((name, pa.int64()) for name in ("n_baseline", "n_candidate", "n_clusters", "n_prompts")),
        ("n_seeds", pa.int64()),  # seeds that are crossed with the prompts; 1 if they are paired
        ("prompts", pa.list_(pa.string())),
        ("evaluations", pa.list_(pa.string())),  # the runs, prompt by prompt
        ("prompt_values", pa.list_(pa.float64())),  # value (or difference) under each prompt
        ("value", pa.float64()),  # mean over prompts
        *float_columns("ci_low", "ci_high"),
        ("question", pa.string()),  # "prompts like these", or "these prompts": items alone are a sample
        *float_columns("se", "df", "se_items", "se_prompts"),
        ("sd_prompts", pa.float64()),  # standard deviation between the prompts' values
        ("lowest", pa.float64()),
        ("lowest_prompt", pa.string()),
        ("highest", pa.float64()),
        ("highest_prompt", pa.string()),
        ("best_prompt", pa.string()),
        ("best_corrected", pa.float64()),  # the best prompt's value, without the bias of having chosen it
        ("agreement", pa.float64()),  # share of items with the same outcome under two prompts
        # components, of clusters of items, and shares of the variance of one run
        *float_columns("variance_items", "variance_prompts", "variance_items_prompts"),
        *float_columns("share_items", "share_prompts", "share_seeds", "share_items_prompts", "share_rest"),
        ("rank_best", pa.int32()),  # ranks of the model over the prompts
        ("rank_worst", pa.int32()),
        ("rank_mean", pa.float64()),
        ("ranks", pa.list_(pa.int32())),
        *float_columns("baseline_value", "candidate_value", "p_value"),
        ("probability_better", pa.float64()),  # of the candidate, under a prompt drawn at random
        ("chance_level", pa.float64()),
        ("note", pa.string()),
    ],
    key=(),  # model, baseline (which may be null), evaluation and metric
    required=("n", "n_prompts"),
    is_public=True,
)

HUMAN, BORROWED = "human", "borrowed"  # `human_by_chrf`, `accuracy_borrowed`

# results/summary/labels.parquet: a row per model or pair of models, and score
ESTIMATES = Kind(
    "estimates from labels",
    [
        ("baseline", pa.string()),  # of a paired difference; null: a value of one model
        *text_columns("model", "evaluation"),
        ("metric", pa.string()),  # "human": labels alone; "human_by_chrf": with a score; "accuracy_borrowed"
        ("score", pa.string()),  # the automatic score, or the models that are borrowed from
        ("unit", pa.string()),
        ("headline", pa.bool_()),  # is shown in overviews: the labels alone, and with the leading score
        *float_columns("value", "ci_low", "ci_high"),
        ("p_value", pa.float64()),  # of a paired difference
        ("labels_only", pa.float64()),  # of the labels alone, or of the model's own items
        *float_columns("labels_only_low", "labels_only_high"),
        ("score_only", pa.float64()),  # mean of the score over all items
        ("rho", pa.float64()),  # correlation of label and score over the labeled items
        ("weight", pa.float64()),  # lambda, mean over the folds
        ("ratio", pa.float64()),  # standard error with the score over that of the labels alone
        ("n_labels", pa.int64()),  # labeled items
        ("n_clusters", pa.int64()),  # of these
        ("n_missing", pa.int64()),  # items before the last label without one
        ("n_scored", pa.int64()),  # items with the score
        ("n", pa.int64()),  # items
        ("annotators", pa.int64()),
        ("alpha", pa.float64()),  # Krippendorff's, of all labels of the evaluation
        *float_columns("alpha_low", "alpha_high"),
        ("n_agreement", pa.int64()),  # responses with several labels
        ("sentence", pa.string()),
    ],
    key=(),  # baseline, which may be null, model, evaluation and metric
)

VERDICT_COLUMNS = ("decision", "annotator", "date")  # empty in a list

# results/summary/audit.parquet: a row per item of a list, most suspicious first
AUDIT_LIST = Kind(
    "audit list",
    [
        ("evaluation", pa.string()),  # the first of those whose scores are averaged
        *text_columns("task", "language"),
        ("rank", pa.int32()),  # by score; null: listed for its drop alone
        ("drop_rank", pa.int32()),  # by drop; null: not among the first
        ("item_id", pa.string()),
        ("content", pa.string()),  # hash of the item's texts and gold, to which a verdict refers
        *text_columns("cluster_id", "category"),
        ("score", pa.float64()),  # S, in standard deviations
        ("level", pa.float64()),  # lead of the gold over the models' favorite, in units of a usual margin
        ("slope", pa.float64()),  # of the margin over the models' ability
        ("families", pa.int32()),  # with scores of this item
        ("families_wrong", pa.int32()),  # most of whose models do not choose the gold
        ("favorite", pa.string()),  # the incorrect option that the models prefer
        ("favorite_share", pa.float64()),  # ability weight of the models that choose it
        ("reason", pa.string()),  # why it is listed
        ("checks", pa.string()),  # what is suspicious about its text (`data/audit.py`)
        ("drop", pa.float64()),  # below the other languages of a parallel task
        ("q", pa.float64()),  # false discovery rate of the items up to this drop
        ("accuracy_here", pa.float64()),  # share of models that choose the gold in this language
        ("accuracy_elsewhere", pa.float64()),  # mean over the other languages
        ("prompt", pa.string()),  # context and question
        ("choices", pa.list_(pa.string())),
        ("gold", pa.list_(pa.int32())),
        ("reference_language", pa.string()),  # of a parallel task: English, or another language
        ("reference", pa.string()),  # the item's texts in that language
        *text_columns(*VERDICT_COLUMNS),
    ],
    key=("evaluation", "item_id"),
    required=("score", "choices", "gold", "content"),
)

# results/summary/between_languages.parquet: a row per model, language, reference language and metric; with a baseline,
# the difference of two models
BETWEEN_LANGUAGES = Kind(
    "between languages",
    [
        *text_columns("model", "baseline"),  # baseline "": a value; else model minus baseline
        *EVALUATION_COLUMNS,
        *text_columns("reference", "metric"),  # the other language; one of METRICS
        *float_columns("value", "ci_low", "ci_high"),
        ("p_value", pa.float64()),  # of a difference; exploratory, in no family
        ("n", pa.int64()),  # items that enter: of a difference, of the model with fewer
        ("n_compared", pa.int64()),  # items of both languages with comparable options and gold
        ("n_excluded", pa.int64()),  # other items of both languages
        ("chance", pa.float64()),  # the value of unrelated answers
    ],
    key=("model", "baseline", "evaluation", "reference", "metric"),
    required=("n", "n_compared", "n_excluded"),
)

# results/summary/language_items.parquet: items that a model answers in the reference language and not in this one
LANGUAGE_ITEMS = Kind(
    "language items",
    [
        *EVALUATION_COLUMNS,
        *text_columns("reference", "item_id"),
        ("models", pa.list_(pa.string())),  # correct in the reference language, incorrect here
        ("predictions", pa.list_(pa.string())),  # of these models, here
        ("n_models", pa.int64()),  # correct in the reference language, with an answer here
        ("text", pa.string()),
        ("choices", pa.list_(pa.string())),
        ("gold", pa.list_(pa.int32())),
        ("reference_text", pa.string()),
        ("reference_choices", pa.list_(pa.string())),
    ],
    key=("evaluation", "item_id"),
    required=("models", "n_models"),
)


# results/summary/without_faults.parquet: a row per value of an evaluation with confirmed faults
WITHOUT_FAULTS = Kind(
    "values without confirmed faults",
    [
        *text_columns("model", "evaluation", "category", "metric"),
        *float_columns("value", "ci_low", "ci_high"),
        ("n", pa.int64()),
    ],
    key=("model", "evaluation", "category", "metric"),
)
# results/summary/comparisons_without_faults.parquet: of evaluations with confirmed faults, over the other items
COMPARISONS_WITHOUT_FAULTS = replace(COMPARISONS, name="comparisons without confirmed faults")


def is_estimate(metric: str) -> bool:
    """Return whether a value is estimated from labels or from other models' answers: no other tool has it."""
    return metric == HUMAN or metric.startswith(f"{HUMAN}_by_") or metric.endswith(f"_{BORROWED}")


def about(metric: str) -> str | None:
    """Return what a value by labels is, for readers; None for another metric.

    >>> about("human_by_chrf")
    'value by the labels of speakers for all items, from the labels and this score: chrF'
    """
    if metric == HUMAN:
        return "value by the labels of speakers, alone"
    if metric.startswith(f"{HUMAN}_by_"):
        score = display_name(metric.removeprefix(f"{HUMAN}_by_"))
        return f"value by the labels of speakers for all items, from the labels and this score: {score}"
    if metric.endswith(f"_{BORROWED}"):
        return "estimated from some items and the answers of other models to all: no value for publication"
    return None
