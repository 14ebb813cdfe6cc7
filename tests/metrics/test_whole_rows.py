"""One item of each protocol, worked out by hand, and every column of its row."""

import math
import warnings

import numpy as np
import pytest
from support.scoring import ask, item, score, scored
from vernacular.metrics import aggregate, corpus
from vernacular.metrics.choice import correct_options
from vernacular.metrics.metric import Metric
from vernacular.metrics.spans import Span, by_item, extra, flags, logliks, result
from vernacular.protocols.acceptability import metrics as acceptability
from vernacular.protocols.cloze import metrics as cloze
from vernacular.protocols.generation import metrics as generation
from vernacular.protocols.last_word.metrics import per_item as last_word
from vernacular.protocols.last_word.metrics import perplexity
from vernacular.protocols.letters import metrics as letters
from vernacular.protocols.minimal_pair import metrics as minimal_pair
from vernacular.protocols.options import metrics as options
from vernacular.protocols.target_word import metrics as target_word

OF_ITEM = {"item_id": "i1", "cluster_id": "p7", "category": "syntax"}
HERE = {"cluster_id": "p7", "category": "syntax"}
LN = math.log

NO_CHOICE = {"choices": [], "gold": []} | dict.fromkeys(
    ("option_scores", "prediction", "predicted_indices", "correct", "tie")
)


def told(row, values, prompt, choice=NO_CHOICE, flag=None):
    """The row has these columns, these values and no others."""
    assert row["metrics"] == pytest.approx(values)
    columns = OF_ITEM | {"prompt": prompt, "flags": flag} | choice
    assert {name: value for name, value in row.items() if name != "metrics"} == columns


def unchosen(options, gold):
    """Those of an item whose options could not be scored."""
    return chose(options, gold, None, None, [], correct=None, tie=None)


def chose(options, gold, scores, prediction, predicted, *, correct, tie=False):
    """The columns about options and the choice among them."""
    return {
        "choices": options,
        "gold": gold,
        "option_scores": scores,
        "prediction": prediction,
        "predicted_indices": predicted,
        "correct": correct,
        "tie": tie,
    }


def test_options():
    one = item(question="?", choices=["a", "bbb"], gold=[1], **HERE)
    requests = ask([one], "question", "options")
    uncond = {"uncond:0": -1.0, "uncond:1": -5.0}
    row = options.per_item([one], requests, scored(requests, {"choice:0": -2.0, "choice:1": [-2.0, -1.0]} | uncond))[0]
    share = math.exp(-3) / (math.exp(-2) + math.exp(-3))
    values = {"accuracy": 0, "accuracy_token": 1, "accuracy_char": 1, "accuracy_byte": 1, "accuracy_pmi": 1}
    choice = chose(["a", "bbb"], [1], [-2.0, -3.0], "a", [0], correct=False)
    told(
        row, values | {"probability": share, "surprisal_correct": 3.0, "margin": -1.0}, "Pregunta: ?\nResposta:", choice
    )


def test_options_of_an_item_that_was_not_scored():
    one = item(question="?", choices=["a", "b"], gold=[1], **HERE)
    requests = ask([one], "question", "options")
    row = options.per_item([one], requests, [score(requests[0], -1.0)])[0]
    told(row, {}, "Pregunta: ?\nResposta:", unchosen(["a", "b"], [1]), flag="error: not scored")


def test_letters():
    one = item(question="?", choices=["a", "b"], gold=[1], **HERE)
    requests = ask([one], "question", "letters", option_rotations=2)
    row = letters.per_item([one], requests, scored(requests, {"choice:1": -10 + LN(3), "choice:1@1": -10 + LN(3)}))[0]
    values = {"accuracy": 1, "confidence": 0.75, "probability": 0.75, "brier": 2 / 16, "margin": LN(3)}
    values |= {"chosen_position": 1, "gold_position": 1}
    values |= {"same_in_every_order": 1, "accuracy_orders": 1, "right_in_every_order": 1}
    choice = chose(["a", "b"], [1], [-10.0, -10 + LN(3)], "B", [1], correct=True)
    told(row, values, "?\n\nA. a\nB. b\nResposta:", choice)


def test_letters_of_an_item_that_was_not_scored():
    one = item(question="?", choices=["a", "b"], gold=[1], **HERE)
    requests = ask([one], "question", "letters")
    row = letters.per_item([one], requests, [score(requests[0], -1.0), score(requests[1], [], flags="error: x")])[0]
    told(row, {}, "?\n\nA. a\nB. b\nResposta:", unchosen(["a", "b"], [1]), flag="error: x")


def test_cloze():
    one = item(context="Ana __ x.", question="Que?", choices=["aa", "b"], gold=[1], **HERE)
    requests = ask([one], "cloze", "cloze", score_unfilled_gap=True)
    row = cloze.per_item(
        [one], requests, scored(requests, {"whole:1": -4.0, "fill:0": -2.0, "fill:1": -3.0, "unfilled:0": -1.0})
    )[0]
    whole = dict.fromkeys(("accuracy", "accuracy_token", "accuracy_char", "accuracy_byte"), 1)
    # fill: " aa x." and " b x.": -2 and -3 by token, -2/5 and -3/4 by character
    fill = dict.fromkeys(("accuracy_fill", "accuracy_fill_token", "accuracy_fill_char", "accuracy_fill_byte"), 0)
    legacy = {"accuracy_unfilled": 0, "loglik_unfilled:0": -1.0, "loglik_unfilled:1": -10.0}
    choice = chose(["aa", "b"], [1], [-10.0, -4.0], "b", [1], correct=True)
    told(row, whole | fill | legacy | {"gold_position": 1, "baseline_shortest": 1}, "Ana __ x.", choice)


def test_minimal_pair():
    one = item(context="Se chove, ", choices=["bo", "malo"], gold=[0], **HERE)
    requests = ask([one], "pair", "minimal_pair")
    by_role = {"choice:0": -4.0, "choice:1": -5.0, "bare:0": -6.0, "bare:1": -3.0}
    row = minimal_pair.per_item([one], requests, scored(requests, by_role))[0]
    # per character and byte -4/2 against -5/4
    values = {"accuracy": 1, "accuracy_token": 1, "accuracy_char": 0, "accuracy_byte": 0, "accuracy_bare": 0}
    values |= {"surprisal_good": 4, "surprisal_bad": 5, "difference": 1, "difsur_item": 20}
    choice = chose(["bo", "malo"], [0], [-4.0, -5.0], "bo", [0], correct=True)
    told(row, values | {"surprisal_good_bare": 6, "surprisal_bad_bare": 3}, "Se chove,", choice)


def test_target_word():
    one = item(context="O [MASK] x.", question="Que?", choices=["can", "gato", "pan"], gold=[0, 2], **HERE)
    requests = ask([one], "target_word", "target_word")
    by_role = {"token:0": -2.0, "token:1": -4.0, "token:2": -3.0, "sentence:0": -9.0, "sentence:1": -7.0}
    entropies = {"entropy": [1.5], "topk_entropy": [LN(10)]}
    scores = [
        score(r, by_role.get(r["role"], -20.0), **(entropies if r["role"] == "token:0" else {})) for r in requests
    ]
    row = target_word.per_item([one], requests, scores)[0]
    values = {f"loglik_{role}": by_role.get(role, -20.0) for role in [*by_role, "sentence:2"]}
    values |= {
        "accuracy": 1,
        "surprisal_correct": 2,
        "surprisal_incorrect": 4,
        "margin": 2,
        "probability": math.exp(-2),
    }
    values |= {"accuracy_sentence": 0, "surprisal_correct_sentence": 9, "surprisal_incorrect_sentence": 7}
    choice = chose(["can", "gato", "pan"], [0, 2], [-2.0, -4.0, -3.0], "can", [0], correct=True)
    told(
        row,
        values | {"margin_sentence": -2, "entropy": 1.5, "topk_entropy": LN(10), "certainty": 0.5},
        "O [MASK] x.",
        choice,
    )


def test_sentences_stand_in_for_forms_that_were_not_asked():
    one = item(context="O [MASK] x.", choices=["can", "gato"], gold=[0], **HERE)
    requests = [r for r in ask([one], "target_word", "target_word") if r["role"].startswith("sentence")]
    row = target_word.per_item([one], requests, scored(requests, {"sentence:0": -1.0}))[0]
    assert (row["option_scores"], row["predicted_indices"], row["correct"]) == ([-1.0, -10.0], [0], True)
    assert "accuracy" not in row["metrics"]
    assert "probability" not in row["metrics"]


def test_acceptability():
    one = item(context=" É así. ", question="Que?", extra=[("label", "0")], **HERE)
    requests = ask([one], "sentence", "acceptability")
    row = acceptability.per_item([one], requests, scored(requests, {"sentence": [-3.0, -1.0]}))[0]
    told(
        row,
        {"fold": 3, "surprisal": 4, "surprisal_token": 2, "surprisal_char": 4 / 6, "surprisal_byte": 4 / 8, "label": 0},
        " É así. ",
    )


UNASKED = {
    "options": (options.per_item, "question", item(question="?", choices=["a"], gold=[0], **HERE)),
    "letters": (letters.per_item, "question", item(choices=["a", "b"], gold=[1], **HERE)),
    "minimal_pair": (minimal_pair.per_item, "pair", item(context="Se ", choices=["a"], gold=[0], **HERE)),
    "cloze": (cloze.per_item, "cloze", item(context="Sen oco.", choices=["a", "bb"], gold=[1], **HERE)),
    "target_word": (target_word.per_item, "target_word", item(context="A.", choices=["a", "b"], gold=[0], **HERE)),
    "last_word": (last_word, "continuation", item(context="Fun á", **HERE)),
    "acceptability": (acceptability.per_item, "sentence", item(extra={"label": "1"}, **HERE)),
}


@pytest.mark.parametrize("protocol", UNASKED)
def test_an_item_that_could_not_be_asked(protocol):
    per_item, layout, one = UNASKED[protocol]
    requests = ask([one], layout, protocol)
    (row,) = per_item([one], requests, [])
    known = {"last_word": {"coverage": 0}, "cloze": {"gold_position": 1, "baseline_shortest": 0}}.get(protocol, {})
    if protocol == "acceptability":
        known = {"label": 1, "fold": row["metrics"]["fold"]}
    choice = unchosen(one["choices"], one["gold"]) if one["choices"] else NO_CHOICE
    reason = requests[0]["role"].removeprefix("skipped: ")
    told(row, known, "?" if one["question"] else one["context"], choice, flag=f"error: {reason}")


def test_folds_of_many_sentences_are_ten():
    many = [item(f"s{n}", context="A.", extra={"label": "1"}) for n in range(80)]
    requests = ask(many, "sentence", "acceptability")
    rows = acceptability.per_item(many, requests, scored(requests, {}))
    assert {row["metrics"]["fold"] for row in rows} == set(range(10))


def test_generation():
    one = item(question="?", choices=["a b", "c"], gold=[1], **HERE)
    requests = ask([one], "question", "generation")
    answers = [
        {"item_id": "i1", "role": "response", "raw_output": " c d\n", "output": "c d", "flags": "truncated: 1 left out"}
    ]
    similar = [{"item_id": "i1", "metric": "cosine", "similarities": [0.25, 0.75]}]
    row = generation.per_item([one], requests, answers, similar)[0]
    values = {"cosine_accuracy": 1, "cosine_mean": 0.5, "cosine_correct": 0.75, "cosine_incorrect": 0.25}
    values |= {"cosine_margin": 0.5, "exact_match": 0, "token_f1": 2 / 3, "chrf": row["metrics"]["chrf"]}
    choice = chose(["a b", "c"], [1], [0.25, 0.75], "c d", [1], correct=True)
    told(row, values, requests[0]["text"], choice, flag="truncated: 1 left out")


@pytest.mark.parametrize(
    ("ends", "corrected"),
    [
        ([-0.5, -0.25], 2.75),
        ([-0.5, None, -0.25], 2.75),
        ([None, -0.25], None),
        ([-0.5, -0.25, None], None),
        ([], None),
    ],
)
def test_last_word(ends, corrected):
    one = item(context="Fun á ", target="praia", **HERE)
    requests = ask([one], "continuation", "last_word")
    row = last_word(
        [one], requests, [score(requests[0], [-2.0, -1.0], is_greedy=[True, True], word_end_logprobs=ends)]
    )[0]
    values = {"surprisal": 3, "surprisal_max": 2, "greedy": 1, "coverage": 1}
    told(row, values | ({} if corrected is None else {"surprisal_corrected": corrected}), "Fun á")


def test_a_row_without_a_prompt_of_its_own_shows_context_and_question():
    one = item(context="C", question="Q", choices=["a"])
    assert result(one, {}, values={"x": None, "y": math.nan, "z": 1})["metrics"] == {"z": 1.0}
    assert result(one, {}, values={})["prompt"] == "C\nQ"
    assert result(one | {"context": ""}, {}, values={})["prompt"] == "Q"


def test_an_item_of_a_set_without_extra_columns_has_none():
    assert extra({}) == extra({"extra": None}) == extra({"extra": []}) == {}
    assert extra({"extra": [("label", "1")]}) == extra({"extra": {"label": "1"}}) == {"label": "1"}


def test_flags_of_spans_and_of_the_row_are_told_once_each_in_their_order():
    spans = {name: Span("", "", None, (), flag, {}) for name, flag in enumerate(["b ; a", None, "a", "c;  b"])}
    assert flags(spans) == "b; a; c"
    assert flags({}) is None
    assert result(item(), spans, values={}, flag="mine")["flags"] == "b; a; c; mine"


def test_infinitely_unlikely_texts_are_infinitely_surprising():
    request = ask([item(context="Fun á", target="praia")], "continuation", "last_word")[0]
    span = by_item([request], [score(request, [-math.inf, -1.0])])["i1"]["word"]
    assert (span.loglik, span.per("char"), span.flag) == (-math.inf, -math.inf, "infinite surprisal")
    assert (span.text, span.before) == ("praia", "Fun á")


def test_loglikelihoods_of_roles_are_all_there_or_missing():
    spans = {f"choice:{i}": Span("ab", "", -float(i), (-float(i),), None, {}) for i in range(3)}
    assert logliks(spans, "choice", 3) == [0.0, -1.0, -2.0]
    assert logliks(spans, "choice", 2, "char") == [0.0, -0.5]
    assert logliks(spans, "choice", 4) is None
    assert logliks(spans | {"choice:1": Span("", "", -1.0, (-1.0,), None, {})}, "choice", 3, "char") is None


def test_a_right_option_that_is_not_there_is_not_right():
    assert correct_options(["a", "b"], [2, -1]) == []


METRIC = Metric("x_accuracy", "share", True, "similarity", proportion=True, headline=True)


def row(values, tie=False, **rest):
    return OF_ITEM | {"choices": ["a", "b"], "gold": [0], "metrics": values, "tie": tie, "flags": None} | rest


def test_every_column_of_a_value():
    rows = [
        row({"x_accuracy": 1.0}, True, cluster_id=None),
        row({"x_accuracy": 0.0}, cluster_id=None, flags="boundary"),
    ]
    (found,) = aggregate.aggregate(rows, [METRIC], seed=0, categories=False)
    assert (found.pop("ci_low"), found.pop("ci_high")) == pytest.approx((0.094531, 0.905469), abs=1e-6)
    assert found == {
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
    ("name", "chance"),
    [("accuracy", 0.5), ("accuracy_char", 0.5), ("cosine_accuracy", 0.5), ("inaccuracy", None), ("auc", 0.5),
     ("mcc_token", 0.0), ("difsur_auc", None)],
)  # fmt: skip
def test_chance_goes_by_the_metrics_name(name, chance):
    metric = Metric(name, "share", True, "surprisal")
    (found,) = aggregate.aggregate([row({name: 1.0})], [metric], seed=0, categories=False)
    assert (found["chance_level"], found["n_ties"]) == (chance, None)


@pytest.mark.parametrize(
    ("n", "of_mean", "of_corpus"), [(4, 10_000, 2_000), (20, 2_500, 2_000), (30, 1_666, 1_666), (80, 1_000, 1_000)]
)
def test_large_sets_are_resampled_less_often(monkeypatch, n, of_mean, of_corpus):
    asked = []
    monkeypatch.setattr(aggregate, "DRAWS", 50_000)
    monkeypatch.setattr(
        aggregate, "cluster_bootstrap", lambda *to, **how: asked.append((to[2], how)) or (0.0, math.inf)
    )
    mean = Metric("x", "nats", None, "surprisal")
    whole = Metric("y", "nats", None, "surprisal", corpus=lambda x: x.mean(-1), needs=("x",), vectorised=True)
    table = aggregate.aggregate([row({"x": 1.0})] * n, [mean, whole], seed=3, categories=False)
    assert asked == [
        (["p7"] * n, {"resamples": of_mean, "seed": 3, "vectorised": False}),
        (["p7"] * n, {"resamples": of_corpus, "seed": 3, "vectorised": True}),
    ]
    assert [(found["ci_low"], found["ci_high"]) for found in table] == [(0.0, None)] * 2


def test_matthews_by_hand():
    assert corpus.matthews(6, 2, 1, 3) == pytest.approx(16 / math.sqrt(8 * 7 * 5 * 4))
    assert corpus.matthews(1, 0, 0, 1) == 1.0
    assert corpus.matthews(600_000, 200_000, 200_000, 600_000) == 0.5  # the product of its margins is no int64
    for margin in ((0, 0, 2, 3), (0, 2, 0, 3), (2, 0, 3, 0), (2, 3, 0, 0)):
        assert corpus.matthews(*margin) == 0.0


def test_a_bin_of_calibration_holds_its_upper_end_and_the_first_one_zero():
    error = corpus.expected_calibration_error
    assert error(np.array([0.25, 0.5]), np.array([1.0, 0.0]), bins=4) == (0.75 + 0.5) / 2
    assert error(np.array([0.0, 0.25]), np.array([1.0, 0.0]), bins=4) == 0.75 / 2
    assert error(np.array([0.75, 1.0]), np.array([0.0, 1.0]), bins=4) == 0.75 / 2
    assert error(np.array([0.31, 0.39]), np.array([1.0, 0.0])) == pytest.approx(0.3 / 2)  # ten, and one of them theirs


def test_undefined_numbers_are_nan_without_a_warning():
    surprisal, none = np.array([1.0, 2.0]), np.array([0, 0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isnan(corpus.good_mean(surprisal, none))
        assert np.isnan(corpus.auc(surprisal, none))
        assert corpus.difsur(np.array([0, 0, 5]), np.array([0, 5, 0])).tolist() == [0.0, 100.0, -100.0]
        assert np.isnan(target_word.normalised_difference(np.zeros(2), np.zeros(2)))
        assert np.isinf(target_word.normalised_difference(np.zeros(2), np.ones(2)))
        assert np.isinf(perplexity(np.array([710.0])))
