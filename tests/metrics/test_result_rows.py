"""All columns of the result row of one item per protocol, with values computed by hand."""

import math
import warnings

import numpy as np
import pytest
from support import observed
from support.scoring import build_requests, item, results_of, score, score_rows, without_bits
from vernacular.metrics import aggregate, corpus
from vernacular.metrics.metric import Metric
from vernacular.metrics.spans import Span, by_item, correct_options, extra, flags, logliks, result
from vernacular.protocols.last_word.metrics import perplexity
from vernacular.protocols.target_word import metrics as target_word
from vernacular.statistics.intervals import cluster_bootstrap

ITEM_COLUMNS = {"item_id": "i1", "cluster_id": "p7", "category": "syntax"}
ITEM_FIELDS = {"cluster_id": "p7", "category": "syntax"}
LN = math.log

NO_CHOICE = {"choices": [], "gold": []} | dict.fromkeys(
    ("option_scores", "prediction", "predicted_indices", "correct", "tie")
)


def check_row(row, values, prompt, choice=NO_CHOICE, flag=None):
    """Check that the row has exactly these columns and values."""
    assert without_bits(row["metrics"]) == pytest.approx(values)
    columns = ITEM_COLUMNS | {"prompt": prompt, "flags": flag} | choice
    assert {name: value for name, value in row.items() if name != "metrics"} == columns


def no_choice_columns(options, gold):
    """Return the choice columns of an item whose options could not be scored."""
    return choice_columns(options, gold, None, None, [], correct=None, tie=None)


def choice_columns(options, gold, scores, prediction, predicted_indices, *, correct, tie=False):
    """Return the columns of the options and the choice."""
    return {
        "choices": options,
        "gold": gold,
        "option_scores": scores,
        "prediction": prediction,
        "predicted_indices": predicted_indices,
        "correct": correct,
        "tie": tie,
    }


def test_options():
    test_item = item(question="?", choices=["a", "bbb"], gold=[1], **ITEM_FIELDS)
    requests = build_requests([test_item], "question", "options")
    uncond = {"uncond:0": -1.0, "uncond:1": -5.0}
    row = results_of(
        "options", [test_item], requests, score_rows(requests, {"choice:0": -2.0, "choice:1": [-2.0, -1.0]} | uncond)
    )[0]
    probability = math.exp(-3) / (math.exp(-2) + math.exp(-3))
    values = {"accuracy": 0, "accuracy_token": 1, "accuracy_char": 1, "accuracy_byte": 1, "accuracy_pmi": 1}
    values["accuracy_uncond"] = 0
    choice = choice_columns(["a", "bbb"], [1], [-2.0, -3.0], "a", [0], correct=False)
    check_row(
        row,
        values | {"probability": probability, "surprisal_correct": 3.0, "margin": -1.0},
        "Pregunta: ?\nResposta:",
        choice,
    )


def test_options_of_unscored_item():
    test_item = item(question="?", choices=["a", "b"], gold=[1], **ITEM_FIELDS)
    requests = build_requests([test_item], "question", "options")
    row = results_of("options", [test_item], requests, [score(requests[0], -1.0)])[0]
    check_row(row, {}, "Pregunta: ?\nResposta:", no_choice_columns(["a", "b"], [1]), flag="error: not scored")


def test_letters():
    test_item = item(question="?", choices=["a", "b"], gold=[1], **ITEM_FIELDS)
    requests = build_requests([test_item], "question", "letters", option_rotations=2)
    row = results_of(
        "letters", [test_item], requests, score_rows(requests, {"choice:1": -10 + LN(3), "choice:1@1": -10 + LN(3)})
    )[0]
    values = {"accuracy": 1, "confidence": 0.75, "probability": 0.75, "brier": 2 / 16, "margin": LN(3)}
    values |= {"chosen_position": 1, "gold_position": 1}
    values |= {"same_in_every_order": 1, "accuracy_orders": 1, "correct_in_every_order": 1}
    choice = choice_columns(["a", "b"], [1], [-10.0, -10 + LN(3)], "B", [1], correct=True)
    check_row(row, values, "?\n\nA. a\nB. b\nResposta:", choice)


def test_letters_of_unscored_item():
    test_item = item(question="?", choices=["a", "b"], gold=[1], **ITEM_FIELDS)
    requests = build_requests([test_item], "question", "letters")
    scores = [score(requests[0], -1.0), score(requests[1], [], flags="error: x")]
    row = results_of("letters", [test_item], requests, scores)[0]
    check_row(row, {}, "?\n\nA. a\nB. b\nResposta:", no_choice_columns(["a", "b"], [1]), flag="error: x")


def test_cloze():
    test_item = item(context="Ana __ x.", question="Que?", choices=["aa", "b"], gold=[1], **ITEM_FIELDS)
    requests = build_requests([test_item], "cloze", "cloze", score_unfilled_gap=True)
    row = results_of(
        "cloze",
        [test_item],
        requests,
        score_rows(requests, {"filled:1": -4.0, "fill:0": -2.0, "fill:1": -3.0, "unfilled:0": -1.0}),
    )[0]
    sentence_values = dict.fromkeys(("accuracy", "accuracy_token", "accuracy_char", "accuracy_byte"), 1)
    # fill: " aa x." and " b x.": -2 and -3 by token, -2/5 and -3/4 by character
    fill_values = dict.fromkeys(("accuracy_fill", "accuracy_fill_token", "accuracy_fill_char", "accuracy_fill_byte"), 0)
    unfilled_values = {"accuracy_unfilled": 0, "loglik_unfilled:0": -1.0, "loglik_unfilled:1": -10.0}
    choice = choice_columns(["aa", "b"], [1], [-10.0, -4.0], "b", [1], correct=True)
    check_row(
        row,
        sentence_values | fill_values | unfilled_values | {"gold_position": 1, "baseline_shortest": 1},
        "Ana __ x.",
        choice,
    )


def test_minimal_pair():
    test_item = item(context="Se chove, ", choices=["bo", "malo"], gold=[0], **ITEM_FIELDS)
    requests = build_requests([test_item], "pair", "minimal_pair")
    by_role = {"choice:0": -4.0, "choice:1": -5.0, "bare:0": -6.0, "bare:1": -3.0}
    row = results_of("minimal_pair", [test_item], requests, score_rows(requests, by_role))[0]
    # per character and byte -4/2 against -5/4
    values = {"accuracy": 1, "accuracy_token": 1, "accuracy_char": 0, "accuracy_byte": 0, "accuracy_bare": 0}
    values |= {"surprisal_good": 4, "surprisal_bad": 5, "difference": 1, "difsur_item": 20}
    choice = choice_columns(["bo", "malo"], [0], [-4.0, -5.0], "bo", [0], correct=True)
    check_row(row, values | {"surprisal_good_bare": 6, "surprisal_bad_bare": 3}, "Se chove,", choice)


def test_target_word():
    test_item = item(context="O [MASK] x.", question="Que?", choices=["can", "gato", "pan"], gold=[0, 2], **ITEM_FIELDS)
    requests = build_requests([test_item], "target_word", "target_word")
    by_role = {"token:0": -2.0, "token:1": -4.0, "token:2": -3.0, "sentence:0": -9.0, "sentence:1": -7.0}
    entropies = {"entropy": [1.5], "topk_entropy": [LN(10)]}
    scores = [
        score(request, by_role.get(request["role"], -20.0), **(entropies if request["role"] == "token:0" else {}))
        for request in requests
    ]
    row = results_of("target_word", [test_item], requests, scores)[0]
    values = {f"loglik_{role}": by_role.get(role, -20.0) for role in [*by_role, "sentence:2"]}
    values |= {
        "accuracy": 1,
        "surprisal_correct": 2,
        "surprisal_incorrect": 4,
        "margin": 2,
        "probability": math.exp(-2),
    }
    values |= {"accuracy_sentence": 0, "surprisal_correct_sentence": 9, "surprisal_incorrect_sentence": 7}
    choice = choice_columns(["can", "gato", "pan"], [0, 2], [-2.0, -4.0, -3.0], "can", [0], correct=True)
    check_row(
        row,
        values | {"margin_sentence": -2, "entropy": 1.5, "topk_entropy": LN(10), "certainty": 0.5},
        "O [MASK] x.",
        choice,
    )


def test_target_word_uses_sentence_scores_without_form_scores():
    test_item = item(context="O [MASK] x.", choices=["can", "gato"], gold=[0], **ITEM_FIELDS)
    requests = [
        request
        for request in build_requests([test_item], "target_word", "target_word")
        if request["role"].startswith("sentence")
    ]
    row = results_of("target_word", [test_item], requests, score_rows(requests, {"sentence:0": -1.0}))[0]
    assert (row["option_scores"], row["predicted_indices"], row["correct"]) == ([-1.0, -10.0], [0], True)
    assert "accuracy" not in row["metrics"]
    assert "probability" not in row["metrics"]


def test_acceptability():
    test_item = item(context=" É así. ", question="Que?", extra=[("label", "0")], **ITEM_FIELDS)
    requests = build_requests([test_item], "sentence", "acceptability")
    row = results_of("acceptability", [test_item], requests, score_rows(requests, {"sentence": [-3.0, -1.0]}))[0]
    check_row(
        row,
        {"fold": 3, "surprisal": 4, "surprisal_token": 2, "surprisal_char": 4 / 6, "surprisal_byte": 4 / 8, "label": 0},
        " É así. ",
    )


SKIPPED_ITEMS = {
    "options": ("question", item(question="?", choices=["a"], gold=[0], **ITEM_FIELDS)),
    "letters": ("question", item(choices=["a", "b"], gold=[1], **ITEM_FIELDS)),
    "minimal_pair": ("pair", item(context="Se ", choices=["a"], gold=[0], **ITEM_FIELDS)),
    "cloze": ("cloze", item(context="Sen oco.", choices=["a", "bb"], gold=[1], **ITEM_FIELDS)),
    "target_word": (
        "target_word",
        item(context="A.", choices=["a", "b"], gold=[0], **ITEM_FIELDS),
    ),
    "last_word": ("continuation", item(context="Fun á", **ITEM_FIELDS)),
    "acceptability": ("sentence", item(extra={"label": "1"}, **ITEM_FIELDS)),
}


@pytest.mark.parametrize("protocol", SKIPPED_ITEMS)
def test_skipped_item(protocol):
    item_type, test_item = SKIPPED_ITEMS[protocol]
    requests = build_requests([test_item], item_type, protocol)
    (row,) = results_of(protocol, [test_item], requests, [])
    expected_values = {"last_word": {"coverage": 0}, "cloze": {"gold_position": 1, "baseline_shortest": 0}}.get(
        protocol, {}
    )
    if protocol == "acceptability":
        expected_values = {"label": 1, "fold": row["metrics"]["fold"]}
    choice = no_choice_columns(test_item["choices"], test_item["gold"]) if test_item["choices"] else NO_CHOICE
    reason = requests[0]["role"].removeprefix("skipped: ")
    check_row(
        row, expected_values, "?" if test_item["question"] else test_item["context"], choice, flag=f"error: {reason}"
    )


def test_sentences_have_ten_folds():
    items = [item(f"s{n}", context="A.", extra={"label": "1"}) for n in range(80)]
    requests = build_requests(items, "sentence", "acceptability")
    rows = results_of("acceptability", items, requests, score_rows(requests, {}))
    assert {row["metrics"]["fold"] for row in rows} == set(range(10))


def test_generation():
    test_item = item(question="?", choices=["a b", "c"], gold=[1], **ITEM_FIELDS)
    requests = build_requests([test_item], "question", "generation")
    generations = [
        {"item_id": "i1", "role": "response", "raw_output": " c d\n", "output": "c d", "flags": "truncated: 1 left out"}
    ]
    similarities = [{"item_id": "i1", "metric": "cosine", "similarities": [0.25, 0.75]}]
    row = results_of("generation", [test_item], requests, generations, similarities)[0]
    values = {"cosine_accuracy": 1, "cosine_mean": 0.5, "cosine_correct": 0.75, "cosine_incorrect": 0.25}
    values |= {"cosine_margin": 0.5, "exact_match": 0, "token_f1": 2 / 3, "chrf": row["metrics"]["chrf"]}
    choice = choice_columns(["a b", "c"], [1], [0.25, 0.75], "c d", [1], correct=True)
    check_row(row, values, requests[0]["text"], choice, flag="truncated: 1 left out")


@pytest.mark.parametrize(
    ("word_end_logprobs", "corrected"),
    [
        ([-0.5, -0.25], 2.75),
        ([-0.5, None, -0.25], 2.75),
        ([None, -0.25], None),
        ([-0.5, -0.25, None], None),
        ([], None),
    ],
)
def test_last_word(word_end_logprobs, corrected):
    test_item = item(context="Fun á ", target="praia", **ITEM_FIELDS)
    requests = build_requests([test_item], "continuation", "last_word")
    row = results_of(
        "last_word",
        [test_item],
        requests,
        [score(requests[0], [-2.0, -1.0], is_greedy=[True, True], word_end_logprobs=word_end_logprobs)],
    )[0]
    values = {"surprisal": 3, "surprisal_max": 2, "greedy": 1, "coverage": 1}
    check_row(row, values | ({} if corrected is None else {"surprisal_corrected": corrected}), "Fun á")


def test_default_prompt_is_context_and_question():
    test_item = item(context="C", question="Q", choices=["a"])
    assert result(test_item, {}, values={"x": None, "y": math.nan, "z": 1})["metrics"] == {"z": 1.0}
    assert result(test_item, {}, values={})["prompt"] == "C\nQ"
    assert result(test_item | {"context": ""}, {}, values={})["prompt"] == "Q"


def test_missing_extra_columns_are_empty():
    assert extra({}) == extra({"extra": None}) == extra({"extra": []}) == {}
    assert extra({"extra": [("label", "1")]}) == extra({"extra": {"label": "1"}}) == {"label": "1"}


def test_flags_are_distinct_and_in_order():
    spans = {name: Span("", "", None, (), flag, {}) for name, flag in enumerate(["b ; a", None, "a", "c;  b"])}
    assert flags(spans) == "b; a; c"
    assert flags({}) is None
    assert result(item(), spans, values={}, flag="mine")["flags"] == "b; a; c; mine"


def test_minus_infinite_logprob_yields_infinite_surprisal():
    request = build_requests([item(context="Fun á", target="praia")], "continuation", "last_word")[0]
    span = by_item([request], [score(request, [-math.inf, -1.0])])["i1"]["word"]
    assert (span.loglik, span.normalized_loglik("char"), span.flag) == (-math.inf, -math.inf, "infinite surprisal")
    assert (span.text, span.context) == ("praia", "Fun á")


def test_logliks_are_none_if_one_role_is_missing():
    spans = {f"choice:{i}": Span("ab", "", -float(i), (-float(i),), None, {}) for i in range(3)}
    assert logliks(spans, "choice", 3) == [0.0, -1.0, -2.0]
    assert logliks(spans, "choice", 2, "char") == [0.0, -0.5]
    assert logliks(spans, "choice", 4) is None
    assert logliks(spans | {"choice:1": Span("", "", -1.0, (-1.0,), None, {})}, "choice", 3, "char") is None


def test_correct_options_ignores_indices_out_of_range():
    assert correct_options(["a", "b"], [2, -1]) == []


METRIC = Metric("x_accuracy", "share", True, "similarity", proportion=True, headline=True)


def row(values, tie=False, **columns):
    return ITEM_COLUMNS | {"choices": ["a", "b"], "gold": [0], "metrics": values, "tie": tie, "flags": None} | columns


def test_all_columns_of_a_metric_row():
    rows = [
        row({"x_accuracy": 1.0}, True, cluster_id=None),
        row({"x_accuracy": 0.0}, cluster_id=None, flags="boundary"),
    ]
    (metric_row,) = aggregate.aggregate(rows, [METRIC], seed=0, categories=False)
    assert (metric_row.pop("ci_low"), metric_row.pop("ci_high")) == pytest.approx((0.094531, 0.905469), abs=1e-6)
    assert metric_row == {
        "metric": "x_accuracy",
        "value": 0.5,
        "n": 2,
        "n_flagged": 1,
        "n_ties": 1,
        "chance_level": 0.5,
        "unit": "share",
        "metric_group": "similarity",
        "higher_is_better": True,
        "headline": True,
        "category": "",
    }


@pytest.mark.parametrize(
    ("name", "chance_level"),
    [("accuracy", 0.5), ("accuracy_char", 0.5), ("cosine_accuracy", 0.5), ("inaccuracy", None), ("auc", 0.5),
     ("mcc_token", 0.0), ("difsur_auc", None)],
)  # fmt: skip
def test_chance_level_depends_on_metric_name(name, chance_level):
    metric = Metric(name, "share", True, "surprisal")
    (metric_row,) = aggregate.aggregate([row({name: 1.0})], [metric], seed=0, categories=False)
    assert (metric_row["chance_level"], metric_row["n_ties"]) == (chance_level, None)


@pytest.mark.parametrize(
    ("n", "mean_resamples", "corpus_resamples"),
    [(4, 10_000, 2_000), (20, 2_500, 2_000), (30, 1_666, 1_666), (80, 1_000, 1_000)],
)
def test_large_datasets_have_fewer_resamples(low_limits, n, mean_resamples, corpus_resamples):
    low_limits("metrics.aggregate", DRAWS=50_000)
    names = ("clusters", "resamples", "seed")
    mean = Metric("x", "nats", None, "surprisal")
    corpus_metric = Metric("y", "nats", None, "surprisal", corpus=lambda x: x.mean(-1), needs=("x",))
    with observed.calls(cluster_bootstrap, lambda arguments: {name: arguments[name] for name in names}) as calls:
        aggregate.aggregate([row({"x": 1.0})] * n, [mean, corpus_metric], seed=3, categories=False)
    assert calls == [
        {"clusters": ["p7"] * n, "resamples": mean_resamples, "seed": 3},
        {"clusters": ["p7"] * n, "resamples": corpus_resamples, "seed": 3},
    ]


def test_matthews_of_counts():
    assert corpus.matthews(6, 2, 1, 3) == pytest.approx(16 / math.sqrt(8 * 7 * 5 * 4))
    assert corpus.matthews(1, 0, 0, 1) == 1.0
    assert corpus.matthews(600_000, 200_000, 200_000, 600_000) == 0.5  # the product of the margins exceeds int64
    for margin in ((0, 0, 2, 3), (0, 2, 0, 3), (2, 0, 3, 0), (2, 3, 0, 0)):
        assert corpus.matthews(*margin) == 0.0


def test_calibration_bins_include_upper_edge_and_zero():
    error = corpus.expected_calibration_error
    assert error(np.array([0.25, 0.5]), np.array([1.0, 0.0]), bins=4) == (0.75 + 0.5) / 2
    assert error(np.array([0.0, 0.25]), np.array([1.0, 0.0]), bins=4) == 0.75 / 2
    assert error(np.array([0.75, 1.0]), np.array([0.0, 1.0]), bins=4) == 0.75 / 2
    # ten bins by default; both values are in the same one
    assert error(np.array([0.31, 0.39]), np.array([1.0, 0.0])) == pytest.approx(0.3 / 2)


def test_undefined_values_are_nan_without_warning():
    surprisal, labels = np.array([1.0, 2.0]), np.array([0, 0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isnan(corpus.good_mean(surprisal, labels))
        assert np.isnan(corpus.auc(surprisal, labels))
        assert corpus.difsur(np.array([0, 0, 5]), np.array([0, 5, 0])).tolist() == [0.0, 100.0, -100.0]
        assert np.isnan(target_word.normalized_difference(np.zeros(2), np.zeros(2)))
        assert np.isinf(target_word.normalized_difference(np.zeros(2), np.ones(2)))
        assert np.isinf(perplexity(np.array([710.0])))
