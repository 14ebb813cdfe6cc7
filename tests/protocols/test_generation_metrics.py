import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.soak import examples
from vernacular.core.artifacts import _as_table
from vernacular.metrics.schema import TASK_RESULTS
from vernacular.protocols.generation import metrics as generation

CHOICES = ["unha mazá", "a casa", "o gato", "a cadela"]


def item(name="a", choices=tuple(CHOICES), gold=(0,), target=None):
    return {
        "item_id": name,
        "few_shot": False,
        "context": "",
        "question": "Que?",
        "choices": list(choices),
        "gold": list(gold),
        "target": target,
        "cluster_id": name,
        "category": None,
    }


def request(name="a", text="Pregunta: Que?\nResposta:"):
    return {"item_id": name, "role": "response", "kind": "generate", "prefix": "", "text": text, "decoding": None}


def generated(answer, name="a", flag=None, raw=None):
    return {
        "item_id": name,
        "role": "response",
        "raw_output": answer if raw is None else raw,
        "output": answer,
        "rendered": None,
        "flags": flag,
    }


def similar(scores, metric="cosine", name="a"):
    return {"item_id": name, "metric": metric, "similarities": list(scores)}


def one(answer, *similarities, flag=None, raw=None, **of_item):
    rows = generation.per_item(
        [item(**of_item)], [request()], [generated(answer, flag=flag, raw=raw)], list(similarities)
    )
    _as_table(rows, TASK_RESULTS)
    return rows[0]


def test_the_most_similar_option_is_the_choice():
    row = one("mazá", similar([0.75, 0.5, 0.25, 0.0]))
    assert row["predicted_indices"] == [0]
    assert (row["correct"], row["tie"], row["prediction"]) == (True, False, "mazá")
    expected = {"mean": 0.375, "correct": 0.75, "incorrect": 0.5, "margin": 0.25, "accuracy": 1.0}
    assert {name: row["metrics"][f"cosine_{name}"] for name in expected} == expected


def test_the_second_right_answer_counts_as_much_as_the_first():
    row = one("a casa", similar([0.25, 1.0, 0.5, 0.0]), gold=(0, 1))
    assert row["metrics"]["cosine_accuracy"] == 1.0
    assert row["metrics"]["cosine_correct"] == 1.0
    assert row["metrics"]["cosine_margin"] == 0.5
    assert row["metrics"]["exact_match"] == 1.0


def test_a_tie_with_a_wrong_option_is_not_right_and_is_reported():
    row = one("x", similar([0.5, 0.5, 0.1, 0.1]))
    assert (row["predicted_indices"], row["tie"], row["correct"]) == ([0, 1], True, False)
    assert row["metrics"]["cosine_accuracy"] == 0.0
    assert row["metrics"]["tie:cosine_accuracy"] == 1.0


def test_a_tie_of_correct_options_is_right():
    row = one("x", similar([0.5, 0.5, 0.1, 0.1]), gold=(0, 1))
    assert (row["tie"], row["correct"], row["metrics"]["cosine_accuracy"]) == (True, True, 1.0)


def test_an_empty_answer_is_flagged_wrong_and_similar_to_nothing():
    row = one("", similar([None] * 4), similar([None] * 4, "bertscore"))
    assert row["flags"] == one(" ", similar([None] * 4))["flags"] == "empty answer"
    assert (row["predicted_indices"], row["correct"], row["tie"]) == ([], False, None)
    assert row["metrics"] == {
        "cosine_accuracy": 0.0,
        "bertscore_accuracy": 0.0,
        "exact_match": 0.0,
        "token_f1": 0.0,
        "chrf": 0.0,
    }


def test_a_failed_generation_has_no_value_at_all():
    row = one(None, similar([None] * 4), flag="error: out of memory, even alone")
    assert (row["metrics"], row["correct"], row["prediction"]) == ({}, None, None)
    assert row["flags"] == "error: out of memory, even alone"


def test_what_a_failed_generation_left_behind_is_no_answer():
    wording = {"ask": '{"until": [], "filters": [], "exact": {}}', "targets": '["unha mazá"]'}
    left = generated(None, flag="error: out of memory", raw="unha mazá")
    (row,) = generation.per_item([item() | {"extra": wording}], [request()], [left], [])
    assert row["metrics"] == {}
    (row,) = generation.per_item([item() | {"extra": wording}], [request()], [generated("unha mazá")], [])
    assert row["metrics"]["verbatim_match"] == 1.0


def test_an_item_that_could_not_be_asked_is_kept_and_flagged():
    asked = {**request(), "role": "skipped: no question", "kind": "score"}
    failed = {**generated(None, flag="error: skipped: no question"), "role": "skipped: no question"}
    (row,) = generation.per_item([item()], [asked], [failed], [])
    assert (row["flags"], row["metrics"]) == ("error: skipped: no question", {})


def test_a_missing_generation_is_flagged():
    (row,) = generation.per_item([item()], [request()], [], [])
    assert row["flags"] == "error: no generation"


def test_items_that_were_not_asked_have_no_row():
    assert generation.per_item([item("held out")], [], [], []) == []


def test_an_answer_of_punctuation_has_no_moverscore_and_says_so():
    row = one("...", similar([None] * 4, "moverscore"), similar([0.5, 0.1, 0.1, 0.1]))
    assert row["flags"] == "no moverscore"
    assert row["metrics"]["moverscore_accuracy"] == 0.0
    assert "moverscore_correct" not in row["metrics"]
    assert row["metrics"]["cosine_accuracy"] == 1.0


def test_an_option_without_similarity_is_not_the_choice():
    row = one("x", similar([None, 0.5, 0.25, None]))
    assert row["flags"] is None
    assert row["predicted_indices"] == [1]
    assert row["metrics"]["cosine_mean"] == 0.375
    assert row["metrics"]["cosine_incorrect"] == 0.5
    assert "cosine_correct" not in row["metrics"]
    assert "cosine_margin" not in row["metrics"]


def test_unknown_gold_gives_means_and_no_verdict():
    row = one("x", similar([0.5, 0.25, 0.25, 0.0]), gold=())
    assert row["correct"] is None
    assert row["metrics"] == {"cosine_mean": 0.25}
    row = one("...", similar([None] * 4), similar([None] * 4, "moverscore"), gold=())
    assert (row["metrics"], row["correct"], row["flags"]) == ({}, None, "no cosine; no moverscore")


def test_items_without_options_have_the_similarity_to_their_target_alone():
    row = one("un resumo breve", similar([0.625]), choices=(), gold=(), target="un resumo longo")
    assert row["metrics"].keys() == {"cosine_correct", "exact_match", "token_f1", "chrf"}
    assert row["metrics"]["cosine_correct"] == 0.625
    assert (row["option_scores"], row["predicted_indices"], row["correct"]) == (None, None, False)


@pytest.mark.parametrize(
    ("answer", "right"),
    [("tempo", True), ("Tempo. E despois", True), ("«TEMPO»!", True), ("... tempo", True), ("templo", False), ("", False),
     ("o tempo", False)],
)  # fmt: skip
def test_the_last_word_is_compared_without_case_and_punctuation(answer, right):
    row = one(answer, choices=(), gold=(), target="tempo")
    assert row["metrics"]["exact_match"] == float(right)
    assert row["correct"] is right


def test_a_target_to_which_an_answer_has_no_similarity_has_none():
    row = one("", similar([None]), choices=(), gold=(), target="un resumo longo")
    assert row["metrics"] == {"exact_match": 0.0, "token_f1": 0.0, "chrf": 0.0}
    assert (row["flags"], row["correct"]) == ("empty answer", False)


def test_an_item_without_options_and_target_has_no_verdict():
    row = one("x", choices=(), gold=(), target=None)
    assert (row["metrics"], row["correct"], row["prediction"], row["flags"]) == ({}, None, "x", None)
    assert one("x", similar([]), choices=(), gold=(), target=None)["metrics"] == {}


def test_text_alone_chooses_no_option():
    row = one("unha mazá")
    assert (row["metrics"]["exact_match"], row["correct"], row["predicted_indices"]) == (1.0, None, None)


def test_an_answer_without_a_word_has_no_first_one():
    assert generation.compared_part(item(choices=(), target="tempo"), " ... !") == ""


def test_a_target_of_several_words_is_compared_with_the_whole_answer():
    row = one("un resumo  longo", choices=(), gold=(), target="Un resumo longo.")
    assert (row["metrics"]["exact_match"], row["correct"]) == (1.0, True)


def test_each_text_metric_takes_the_reference_that_is_nearest_by_it():
    found = generation.textual("a mazá vermella", ["o gato", "unha mazá"])
    assert (found["token_f1"], found["exact_match"]) == (0.4, 0.0)  # one word of three, and of two


def test_the_choice_shown_is_cosines_where_there_is_one():
    row = one("x", similar([0.0, 1.0, 0.0, 0.0], "bertscore"), similar([1.0, 0.0, 0.0, 0.0]))
    assert (row["predicted_indices"], row["option_scores"]) == ([0], [1.0, 0.0, 0.0, 0.0])
    row = one("x", similar([0.0, 1.0, 0.0, 0.0], "bertscore"))
    assert row["predicted_indices"] == [1]


def test_a_hostile_answer_that_repeats_the_label_gains_nothing():
    row = one("Resposta: unha mazá Resposta:")
    assert row["prediction"] == "Resposta: unha mazá Resposta:"
    assert row["metrics"]["exact_match"] == 0.0


def test_a_runaway_answer_is_not_an_exact_match():
    row = one("unha mazá " * 200)
    assert row["metrics"]["exact_match"] == 0.0
    assert row["metrics"]["token_f1"] == pytest.approx(2 * 2 / (400 + 2))
    assert row["metrics"]["chrf"] < 50


def test_chrf_is_sacrebleus():
    from sacrebleu import sentence_chrf

    assert generation.textual("a mazá vermella", CHOICES)["chrf"] == sentence_chrf("a mazá vermella", CHOICES).score


@pytest.mark.parametrize(
    ("one_text", "other", "same"),
    [("A Coruña", "a coruña.", True), ("ﬁn", "fin", True), ("3:1", "31", True), ("... ", " ...", True), (" ...", "... ", True), ("...", "!", False),
     ("mazá", "maza", False), ("🐈", "🐈", True), ("مرحبا", "مرحبا؟", True), ("STRASSE", "Straße", True)],
)  # fmt: skip
def test_exact_match_ignores_case_punctuation_and_blanks(one_text, other, same):
    assert generation.matches(one_text, other) is same


def test_every_value_has_its_metric():
    row = one("x", *(similar([0.5, 0.25, 0.0, 0.0], name) for name in generation.SIMILARITIES))
    names = {metric.name for metric in generation.METRICS} - {"verbatim_match"}  # of items with a wording of their own
    assert set(row["metrics"]) == names
    headline = {metric.name for metric in generation.METRICS if metric.headline}
    assert headline == {"cosine_accuracy", "moverscore_accuracy", "bertscore_accuracy", "exact_match"}
    assert all(metric.proportion == metric.name.endswith(("accuracy", "match")) for metric in generation.METRICS)


SCORES = st.lists(st.none() | st.floats(-1, 1), min_size=4, max_size=4)


@settings(max_examples=examples(100), deadline=None)
@given(SCORES, st.permutations(range(4)), st.sets(st.integers(0, 3)))
def test_the_order_of_options_changes_no_number(scores, order, gold):
    before = one("x", similar(scores), gold=sorted(gold))
    after = one(
        "x",
        similar([scores[i] for i in order]),
        choices=[CHOICES[i] for i in order],
        gold=[k for k, i in enumerate(order) if i in gold],
    )
    assert after["metrics"] == pytest.approx(before["metrics"])
    assert after["correct"] == before["correct"]


@settings(max_examples=examples(100), deadline=None)
@given(st.text(max_size=40), st.text(max_size=40))
def test_any_text_is_compared(answer, reference):
    found = generation.textual(answer, [reference])
    assert found["exact_match"] in (0.0, 1.0)
    assert 0 <= found["token_f1"] <= 1
    assert 0 <= found["chrf"] <= 100 + 1e-9
    assert generation.textual(reference, [reference])["exact_match"] == 1.0
