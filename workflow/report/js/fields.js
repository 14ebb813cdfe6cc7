"use strict";
// The fields of everything in the data files, the only place that names them: the package that writes the files reads
// this object as JSON (report/data_files.py), and the views read what pieces.js makes of it. A row is an array on disk,
// in the order of its fields, and an object in the views; a record is an object in both. Fields with "?" may be absent.
// Models, evaluations, metrics and categories are numbers: positions in the lists of their names.
// biome-ignore format: fields of a kind share lines, and JSON has quotes and no comma at the end
const fields = /** @type {const} */ ({
  "rows": {
    // index: headline values (Cell is the same in the file of an evaluation); marks are 2 best, 1 not significantly
    // different from the best, 0 others; worse: significantly, than the best; scope is "all" or a language; what has no
    // values, and why; choices that float noise can change
    "IndexCell": [
      "evaluation", "model", "metric", "value", "low", "high", "n", "flagged", "ties", "chance", "majority"
    ],
    "Mark": ["model", "evaluation", "metric", "mark", "worse"],
    "Overall": [
      "model", "scope", "mean", "low", "high", "n_languages", "mean_over_languages", "languages_low", "languages_high",
      "rank", "rank_worst", "win_rate", "n", "excluded"
    ],
    "Missing": ["model", "evaluation", "kind", "note"],
    "Spoken": ["evaluation", "model", "answered", "gold", "undecided"],
    "LanguageCount": ["language", "n"],
    "Symptom": ["evaluation", "model", "code", "severity", "share"],
    "Noise": ["evaluation", "model", "n"],
    "TaskTitle": ["name", "title", "note", "short"],
    "Pair": ["baseline", "candidate", "summary"],
    // e{i}/task: values over all items and by category; items by code of their outcome; histograms, one list of counts
    // per outcome; calibration by bin of confidence; mean surprisal by word or by range of length
    // diagnoses of each model, worst first, and how it answers: labels with counts, items by correct (row) and predicted
    // label (the last: without one), and mean lengths in characters of the
    // chosen, the correct and all options
    "Diagnosis": ["model", "code", "severity", "sentence", "threshold", "count", "n", "examples"],
    "Example": ["item", "text"],
    "Answers": ["model", "labels", "without", "confusion", "mass", "tokens", "lengths"],
    "Label": ["label", "predicted", "gold"],
    "TopToken": ["token", "items"],
    "Cell": ["model", "metric", "value", "low", "high", "n", "flagged", "ties", "chance", "majority"],
    "CategoryValue": ["model", "metric", "category", "value", "low", "high", "n", "chance"],
    "Outcomes": ["model", "counts", "flagged"],
    "Histogram": ["model", "measure", "edges", "counts"],
    "OutcomeBins": ["outcome", "bins"],
    "Calibration": ["model", "error", "bins", "expected", "signed"],
    "ConfidenceBin": ["confidence", "accuracy", "n"],
    "Profile": ["model", "points"],
    "WordMean": ["word", "nats", "n"],
    "LengthMean": ["low", "high", "nats", "n"],
    // e{i}/i{b}: what is sent is null if it equals the prompt; `prefix` is a number of e{i}/shots; `message` is the
    // last turn of a chat, null if it equals what is sent; spans are the scored texts
    "Item": ["id", "category", "prompt", "options", "gold", "sent", "prefix", "message", "spans"],
    "Span": ["role", "text"],
    // e{i}/m{j}: a higher severity is worse; `value` is that of the measure; the prediction is a list of options or a
    // text
    "Result": ["position", "outcome", "severity", "value", "flagged", "prediction"],
    // e{i}/m{j}b{b}: `values` are of the metrics that the file names; `wrapper` is a number of its wrappers, the texts
    // of a chat template around the item; lengths of tokens are in characters, surprisals in hundredths of nats, and
    // `skip` is the number of characters before the first token, or the text itself if a template changed it
    "Detail": ["position", "scores", "values", "flags", "prediction", "output", "tokens", "wrapper"],
    // of several samples, the first, and the texts of the others; `state` of the reasoning before it, null without any
    "Output": ["text", "complete", "reason", "n_tokens", "reasoning", "state", "n_reasoning", "others"],
    "Tokens": ["role", "skip", "lengths", "hundredths"],
    "Wrapper": ["before", "after"],
    // p{i} and p{i}/e{k}: counts of changed items; a change has an item if the evaluation's files lack it; the difference
    // of margins is candidate minus baseline
    "ChangeCounts": ["evaluation", "improved", "regressed"],
    "Change": [
      "position", "change", "margin_difference", "baseline_prediction", "candidate_prediction", "baseline_scores",
      "candidate_scores", "item"
    ],
    // curves and e{i}/curves: category 0 is all items; a point has differences to three references, null without one
    "CurveValues": ["curve", "metric", "category", "statistics", "note", "points"],
    "CurvePoint": ["value", "low", "high", "n", "previous", "best", "last"],
    "Difference": ["value", "low", "high", "p"],
    "CurvePair": ["baseline", "candidate", "metric", "category", "axis", "points"],
    "PairPoint": ["x", "value", "low", "high", "p"],
    "Chance": ["metric", "category", "value"],
    "Axis": ["name", "positions"],
    "Area": [
      "baseline", "candidate", "evaluation", "metric", "axis", "from_x", "to_x", "value", "low", "high", "p", "better"
    ],
    // provenance
    "FlagCount": ["flag", "count"]
  },
  "records": {
    "Index": [
      "title", "version", "models", "n_models", "names", "evaluations", "metrics", "tasks", "cells", "missing",
      "symptoms", "spoken", "noise", "rankings", "overall", "pairs", "curves", "languages", "beside",
      "n_prompt_groups?", "n_audit_lists?", "between_languages?"
    ],
    // `representative` is the metric that stands for an evaluation; a mean over prompts has `runs`, each of these
    // `group`
    "Evaluation": [
      "id", "items", "representative", "note?", "runs?", "group?", "task", "language", "protocol", "shots", "seed",
      "style", "prompt?", "samples?"
    ],
    "Metric": ["name", "title", "protocol", "unit", "higher", "headline", "about", "order"],
    "Summary": ["tests", "candidate", "baseline", "identical", "items", "improved", "regressed", "repeated?"],
    "Task": [
      "items", "block", "models", "letters", "generates", "cells", "categories", "signatures", "outcomes",
      "distributions", "calibration", "surprisal", "dataset", "diagnoses", "answers", "estimates?"
    ],
    // the columns of summary/labels.csv, of one evaluation
    "Estimate": [
      "baseline", "model", "metric", "score", "unit", "value", "ci_low", "ci_high", "labels_only", "labels_only_low",
      "labels_only_high", "score_only", "rho", "ratio", "n_labels", "n", "alpha", "alpha_low", "alpha_high",
      "n_agreement", "sentence"
    ],
    "Categories": ["names", "rows"],
    "Surprisal": ["position", "length"],
    "Results": ["measure", "higher", "rows"],
    "Details": ["values", "wrappers", "rows"],
    "PairDifferences": ["rows", "changes", "in_categories"],
    // a difference under one prompt, for which the mean over prompts stands, is `single`
    "Comparison": [
      "evaluation", "metric", "category", "headline", "baseline_value", "candidate_value", "difference", "ci_low",
      "ci_high", "p_value", "p_holm", "minimum_detectable_difference", "n", "n_baseline", "n_candidate",
      "both_correct", "both_incorrect", "baseline_only_correct", "candidate_only_correct", "n_tests", "test",
      "significant", "better", "note", "single?"
    ],
    "Deciding": [
      "evaluation", "title", "headline", "is_chosen", "decision_accuracy", "held_out_accuracy", "better_below", "signal",
      "noise", "axis", "n_curves", "n_common", "note"
    ],
    "Unpaired": [
      "tool", "version", "outside_model", "outside_task", "title", "unit", "outside_value", "outside_low",
      "outside_high", "outside_n", "shots", "dataset_revision", "items", "note", "model", "evaluation", "value",
      "difference", "difference_low", "difference_high", "p_value"
    ],
    "Beside": ["deciding", "unpaired"],
    "Prompts": ["groups"],
    "PromptGroup": ["evaluation", "seeds", "prompts", "rows"],
    "Prompt": ["name", "evaluation", "text", "differs?", "reviewed?"],
    "PromptMean": [
      "metric", "model", "baseline", "n", "values", "ranks", "shares", "value", "ci_low", "ci_high", "se", "se_items",
      "se_prompts", "sd_prompts", "lowest", "highest", "best_corrected", "agreement", "rank_best", "rank_worst",
      "rank_mean", "p_value", "probability_better", "question", "lowest_prompt", "highest_prompt", "best_prompt",
      "note"
    ],
    "Curves": ["curves", "sentence", "trust", "areas"],
    "Curve": ["name", "models", "checkpoints", "axis", "positions"],
    "EvaluationCurves": ["rows", "categories", "chance", "pairs"],
    "Statistics": [
      "last", "last_low", "last_high", "last_x", "best", "best_x", "best_optimism", "slope", "slope_low",
      "slope_high", "monotonicity", "monotonicity_low", "monotonicity_high", "noise", "above_chance_since",
      "as_good_as_last_since", "learned_50", "learned_90", "learned_90_stay", "n_checkpoints", "n_missing"
    ],
    "Trust": [
      "evaluation", "metric", "verdict", "reason", "n_curves", "monotonicity", "monotonicity_low",
      "monotonicity_high", "signal_to_noise", "signal_to_noise_low", "signal_to_noise_high", "rank_consistency",
      "decision_accuracy", "decision_accuracy_low", "decision_accuracy_high"
    ],
    // the columns of summary/tokenizers.csv
    "Tokenizer": [
      "model", "tokenizer", "language", "task", "evaluation", "items", "texts", "tokens", "bytes", "characters",
      "words", "tokens_per_byte", "tokens_per_character", "tokens_per_word", "split_share", "byte_share",
      "unknown_share", "prompt_tokens", "parallel_items", "premium", "premium_low", "premium_high", "prompt_premium",
      "prompt_premium_low", "prompt_premium_high", "bits_ratio", "bits_ratio_low", "bits_ratio_high", "byte_premium",
      "character_premium", "parallel_bits", "parallel_bits_en"
    ],
    // the columns of summary/audit_lists.csv and audit.csv, with the texts in another language
    "AuditList": [
      "evaluation", "task", "language", "evaluations", "reason", "items", "listed", "models", "families",
      "lowest_accuracy", "highest_accuracy", "reliability", "reach_favorite", "reach_any", "sentences"
    ],
    "ItemToRead": [
      "evaluation", "task", "language", "rank", "drop_rank", "item_id", "content", "cluster_id", "category", "score",
      "level", "slope", "families", "families_wrong", "favorite", "favorite_share", "reason", "checks", "drop", "q",
      "accuracy_here", "accuracy_elsewhere", "prompt", "choices", "gold", "reference_language", "reference",
      "decision", "annotator", "date"
    ],
    // the columns of summary/between_languages.csv and language_items.csv; lists: the evaluations that have one
    "Languages": ["rows", "lists", "notes"],
    "BetweenLanguages": [
      "model", "baseline", "evaluation", "reference", "metric", "title", "value", "low", "high", "p", "n", "excluded",
      "chance"
    ],
    "LanguageItem": [
      "reference", "item_id", "models", "predictions", "n_models", "text", "choices", "gold", "reference_text",
      "reference_choices"
    ],
    "Provenance": ["version", "models", "datasets", "runs", "notes", "jobs"],
    "ModelSource": [
      "name", "source", "revision", "architecture", "kind", "bytes", "fingerprint", "base", "unavailable",
      "adapter_source", "adapter_revision"
    ],
    "Dataset": [
      "task", "language", "limit", "from", "kind", "config", "split", "revision", "sha256", "license", "citation",
      "read", "items", "dropped", "repaired"
    ],
    // one without results has a reason, all others the rest
    "Run": [
      "model", "evaluation", "reason?", "strategy?", "fallback?", "engine?", "dtype?", "device?", "quantization?",
      "code?", "torch?", "transformers?", "items?", "requests?", "tokens?", "generated?", "seconds?", "flags?",
      "skipped?"
    ],
    "Note": ["kind", "note", "count", "models", "evaluations"],
    "Job": ["stage", "job", "seconds", "memory", "cpu"]
  }
});
