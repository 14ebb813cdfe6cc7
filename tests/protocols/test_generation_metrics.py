import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import sample_items
from support.result_rows import stored
from support.scoring import results_of
from support.soak import examples
from vernacular.metrics.aggregate import aggregate
from vernacular.metrics.schema import TASK_RESULTS
from vernacular.protocols.generation import metrics as generation

CHOICES = ["unha mazá", "a casa", "o gato", "a cadela"]


def item(name="a", choices=tuple(CHOICES), gold=(0,), target=None):
    return sample_items.item(name, question="Que?", choices=choices, gold=gold, target=target, cluster_id=name)


def request(name="a", text="Pregunta: Que?\nResposta:"):
    return {"item_id": name, "role": "response", "kind": "generate", "prefix": "", "text": text, "decoding": None}


def generation_row(output, name="a", flag=None, raw_output=None):
    return {
        "item_id": name,
        "role": "response",
        "raw_output": output if raw_output is None else raw_output,
        "output": output,
        "rendered": None,
        "flags": flag,
    }


def similarity_row(scores, metric="cosine", name="a"):
    return {"item_id": name, "metric": metric, "similarities": list(scores)}


def row_of(output, *similarities, flag=None, raw_output=None, **item_fields):
    rows = results_of(
        "generation",
        [item(**item_fields)],
        [request()],
        [generation_row(output, flag=flag, raw_output=raw_output)],
        list(similarities),
    )
    stored(rows, TASK_RESULTS)
    return rows[0]


def test_most_similar_option_is_chosen():
    row = row_of("mazá", similarity_row([0.75, 0.5, 0.25, 0.0]))
    assert row["predicted_indices"] == [0]
    assert (row["correct"], row["tie"], row["prediction"]) == (True, False, "mazá")
    expected = {"mean": 0.375, "correct": 0.75, "incorrect": 0.5, "margin": 0.25, "accuracy": 1.0}
    assert {name: row["metrics"][f"cosine_{name}"] for name in expected} == expected


def test_any_correct_option_counts():
    row = row_of("a casa", similarity_row([0.25, 1.0, 0.5, 0.0]), gold=(0, 1))
    assert row["metrics"]["cosine_accuracy"] == 1.0
    assert row["metrics"]["cosine_correct"] == 1.0
    assert row["metrics"]["cosine_margin"] == 0.5
    assert "exact_match" in row["metrics"]


def test_tie_with_incorrect_option_is_incorrect_and_reported():
    row = row_of("x", similarity_row([0.5, 0.5, 0.1, 0.1]))
    assert (row["predicted_indices"], row["tie"], row["correct"]) == ([0, 1], True, False)
    assert row["metrics"]["cosine_accuracy"] == 0.0
    assert row["metrics"]["tie:cosine_accuracy"] == 1.0


def test_tie_of_correct_options_is_correct():
    row = row_of("x", similarity_row([0.5, 0.5, 0.1, 0.1]), gold=(0, 1))
    assert (row["tie"], row["correct"], row["metrics"]["cosine_accuracy"]) == (True, True, 1.0)


def test_empty_output_is_flagged_and_incorrect_without_similarities():
    row = row_of("", similarity_row([None] * 4), similarity_row([None] * 4, "bertscore"))
    assert row["flags"] == row_of(" ", similarity_row([None] * 4))["flags"] == "empty answer"
    assert (row["predicted_indices"], row["correct"], row["tie"]) == ([], False, None)
    assert row["metrics"] == {
        "cosine_accuracy": 0.0,
        "bertscore_accuracy": 0.0,
        "exact_match": 0.0,
        "token_f1": 0.0,
        "chrf": 0.0,
    }


def test_failed_generation_has_no_values():
    row = row_of(None, similarity_row([None] * 4), flag="error: out of memory, even alone")
    assert (row["metrics"], row["correct"], row["prediction"]) == ({}, None, None)
    assert row["flags"] == "error: out of memory, even alone"


def test_partial_text_of_failed_generation_is_ignored():
    partial = generation_row(None, flag="error: out of memory", raw_output="unha mazá")
    (row,) = results_of("generation", [item()], [request()], [partial], [])
    assert row["metrics"] == {}
    (row,) = results_of("generation", [item()], [request()], [generation_row("unha mazá")], [])
    assert "exact_match" in row["metrics"]


def test_skipped_item_has_flagged_row():
    skipped = {**request(), "role": "skipped: no question", "kind": "score"}
    failed = {**generation_row(None, flag="error: skipped: no question"), "role": "skipped: no question"}
    (row,) = results_of("generation", [item()], [skipped], [failed], [])
    assert (row["flags"], row["metrics"]) == ("error: skipped: no question", {})


def test_missing_generation_is_flagged():
    (row,) = results_of("generation", [item()], [request()], [], [])
    assert row["flags"] == "error: no generation"


def test_items_without_request_have_no_row():
    assert results_of("generation", [item("held out")], [], [], []) == []


def test_punctuation_only_output_is_flagged_without_moverscore():
    row = row_of("...", similarity_row([None] * 4, "moverscore"), similarity_row([0.5, 0.1, 0.1, 0.1]))
    assert row["flags"] == "no moverscore"
    assert row["metrics"]["moverscore_accuracy"] == 0.0
    assert "moverscore_correct" not in row["metrics"]
    assert row["metrics"]["cosine_accuracy"] == 1.0


def test_option_without_similarity_is_not_chosen():
    row = row_of("x", similarity_row([None, 0.5, 0.25, None]))
    assert row["flags"] is None
    assert row["predicted_indices"] == [1]
    assert row["metrics"]["cosine_mean"] == 0.375
    assert row["metrics"]["cosine_incorrect"] == 0.5
    assert "cosine_correct" not in row["metrics"]
    assert "cosine_margin" not in row["metrics"]


def test_unknown_gold_yields_means_without_correctness():
    row = row_of("x", similarity_row([0.5, 0.25, 0.25, 0.0]), gold=())
    assert row["correct"] is None
    assert row["metrics"] == {"cosine_mean": 0.25}
    row = row_of("...", similarity_row([None] * 4), similarity_row([None] * 4, "moverscore"), gold=())
    assert (row["metrics"], row["correct"], row["flags"]) == ({}, None, "no cosine; no moverscore")


def test_items_without_options_have_similarity_to_target_only():
    row = row_of("un resumo breve", similarity_row([0.625]), choices=(), gold=(), target="un resumo longo")
    assert row["metrics"].keys() == {"cosine_correct", "exact_match", "token_f1", "chrf"}
    assert row["metrics"]["cosine_correct"] == 0.625
    assert (row["option_scores"], row["predicted_indices"], row["correct"]) == (None, None, False)


@pytest.mark.parametrize(
    ("response", "correct"),
    [("tempo", True), ("Tempo. E despois", True), ("«TEMPO»!", True), ("... tempo", True), ("templo", False), ("", False),
     ("o tempo", False)],
)  # fmt: skip
def test_last_word_comparison_ignores_case_and_punctuation(response, correct):
    row = row_of(response, choices=(), gold=(), target="tempo")
    assert row["metrics"]["exact_match"] == float(correct)
    assert row["correct"] is correct


def test_missing_similarity_to_target_is_omitted():
    row = row_of("", similarity_row([None]), choices=(), gold=(), target="un resumo longo")
    assert row["metrics"] == {"exact_match": 0.0, "token_f1": 0.0, "chrf": 0.0}
    assert (row["flags"], row["correct"]) == ("empty answer", False)


def test_item_without_options_and_target_has_no_correctness():
    row = row_of("x", choices=(), gold=(), target=None)
    assert (row["metrics"], row["correct"], row["prediction"], row["flags"]) == ({}, None, "x", None)
    assert row_of("x", similarity_row([]), choices=(), gold=(), target=None)["metrics"] == {}


def test_no_option_is_chosen_without_similarities():
    row = row_of("unha mazá")
    assert (row["metrics"]["exact_match"], row["correct"], row["predicted_indices"]) == (1.0, None, None)


def test_scored_part_is_empty_without_words():
    assert generation.scored_part(item(choices=(), target="tempo"), " ... !") == ""


def test_target_of_several_words_is_compared_with_full_response():
    row = row_of("un resumo  longo", choices=(), gold=(), target="Un resumo longo.")
    assert (row["metrics"]["exact_match"], row["correct"]) == (1.0, True)


def test_text_metrics_use_most_similar_reference():
    values = generation.text_metrics("a mazá vermella", ["o gato", "unha mazá"])
    assert (values["token_f1"], values["exact_match"]) == (0.4, 0.0)  # one shared word, of three and of two


def test_choice_is_by_cosine_if_available():
    row = row_of("x", similarity_row([0.0, 1.0, 0.0, 0.0], "bertscore"), similarity_row([1.0, 0.0, 0.0, 0.0]))
    assert (row["predicted_indices"], row["option_scores"]) == ([0], [1.0, 0.0, 0.0, 0.0])
    row = row_of("x", similarity_row([0.0, 1.0, 0.0, 0.0], "bertscore"))
    assert row["predicted_indices"] == [1]


def test_repeated_label_in_output_is_not_an_exact_match():
    row = row_of("Resposta: unha mazá Resposta:")
    assert row["prediction"] == "Resposta: unha mazá Resposta:"
    assert row["metrics"]["exact_match"] == 0.0


def test_repetitive_output_is_not_an_exact_match():
    row = row_of("unha mazá " * 200)
    assert row["metrics"]["exact_match"] == 0.0
    assert row["metrics"]["token_f1"] == pytest.approx(2 * 2 / (400 + 2))
    assert row["metrics"]["chrf"] < 50


def test_chrf_matches_sacrebleu():
    from sacrebleu import sentence_chrf

    assert (
        generation.text_metrics("a mazá vermella", CHOICES)["chrf"] == sentence_chrf("a mazá vermella", CHOICES).score
    )


@pytest.mark.parametrize(
    ("response", "reference", "expected"),
    [("A Coruña", "a coruña.", True), ("ﬁn", "fin", True), ("3:1", "31", True), ("... ", " ...", True), (" ...", "... ", True), ("...", "!", False),
     ("mazá", "maza", False), ("🐈", "🐈", True), ("مرحبا", "مرحبا؟", True), ("STRASSE", "Straße", True), ("istanbul", "İstanbul", True),
     ("\u2067مرحبا\u2069", "مرحبا", True), ("می\u200cخواهم", "می\u200cخواهم\u200f", True), ("می\u200cخواهم", "میخواهم", False)],
)  # fmt: skip
def test_exact_match_ignores_case_punctuation_and_whitespace(response, reference, expected):
    assert generation.matches(response, reference) is expected


def test_every_value_has_a_metric():
    row = row_of("x", *(similarity_row([0.5, 0.25, 0.0, 0.0], name) for name in generation.SIMILARITIES))
    reasoned = reasoned_rows(("unha mazá", "closed", 9), ("x", "closed", 9), ("", "unclosed", 20))["metrics"]
    corpus = {metric.name for metric in generation.METRICS if metric.corpus}
    internal = {"samples"}
    assert set(row["metrics"]) | set(reasoned) - internal == {metric.name for metric in generation.METRICS} - corpus
    headline = {metric.name for metric in generation.METRICS if metric.headline}
    assert headline == {"cosine_accuracy", "moverscore_accuracy", "bertscore_accuracy", "exact_match"}
    shares = ("accuracy", "match", "match_closed", "unclosed", "no_reasoning", "answer_cut")
    assert all(metric.proportion == metric.name.endswith(shares) for metric in generation.METRICS)


def reasoned_rows(*samples, pass_at=2, **item_fields):
    """Return the result of an item with some samples: output, state, tokens of reasoning."""
    roles = ["response", *(f"response:0@{number}" for number in range(1, len(samples)))]
    rows = [
        generation_row(output, flag="unclosed reasoning" if state == "unclosed" else None)
        | {"role": role, "think_state": state, "n_reasoning_tokens": n, "finish_reason": "eos"}
        for role, (output, state, n) in zip(roles, samples, strict=True)
    ]
    requests = [request() | {"role": role} for role in roles]
    [row] = results_of("generation", [item(**item_fields)], requests, rows, [], pass_at=pass_at)
    stored([row], TASK_RESULTS)
    return row


def test_unclosed_reasoning_is_incorrect_and_no_empty_answer():
    row = reasoned_rows(("", "unclosed", 20), choices=(), target="mazá")
    assert (row["flags"], row["correct"], row["prediction"]) == ("unclosed reasoning", False, "")
    values = {"exact_match": 0.0, "token_f1": 0.0, "chrf": 0.0, "unclosed": 1.0, "no_reasoning": 0.0}
    assert row["metrics"] == values | {"answer_cut": 0.0, "reasoning_tokens": 20.0}


def test_answers_are_scored_over_all_items_and_over_closed_ones():
    closed, empty = reasoned_rows(("unha mazá", "closed", 5)), reasoned_rows(("", "closed", 5))
    assert closed["metrics"]["exact_match_closed"] == closed["metrics"]["exact_match"] == 1.0
    assert (empty["flags"], empty["metrics"]["exact_match_closed"]) == ("empty answer", 0.0)
    without = reasoned_rows(("unha mazá", "none", 0))["metrics"]
    assert (without["no_reasoning"], without["reasoning_tokens"], without["exact_match_closed"]) == (1.0, 0.0, 1.0)


def test_values_of_several_samples_are_means():
    row = reasoned_rows(
        ("unha mazá", "closed", 4), ("x", "closed", 8), ("", "unclosed", 12), ("unha mazá", "closed", 4)
    )
    metrics = row["metrics"]
    assert (metrics["exact_match"], metrics["unclosed"], metrics["reasoning_tokens"]) == (0.5, 0.25, 7.0)
    assert metrics["exact_match_closed"] == pytest.approx(2 / 3)
    assert metrics["sample_sd"] == pytest.approx((1 / 3) ** 0.5)
    assert metrics["pass_at_k"] == pytest.approx(1 - 1 / 6)  # of six pairs, one has no match
    assert (metrics["samples"], row["prediction"]) == (4.0, "unha mazá")
    assert row["flags"] == "unclosed reasoning: 1 of 4 samples"


def test_tokens_of_reasoning_are_a_mean_and_a_percentile():
    rows = [reasoned_rows(("x", "closed", n)) | {"item_id": str(n), "cluster_id": str(n)} for n in range(101)]
    names = ("reasoning_tokens", "reasoning_tokens_p95")
    metrics = [metric for metric in generation.METRICS if metric.name in names]
    mean, percentile = aggregate(rows, metrics, seed=0, categories=False)
    assert (mean["value"], percentile["value"]) == (50.0, 95.0)
    assert percentile["ci_low"] < 95 < percentile["ci_high"] <= 100


def test_pass_at_k_needs_as_many_samples():
    assert "pass_at_k" not in reasoned_rows(("x", "closed", 4), ("x", "closed", 8), pass_at=3)["metrics"]


def test_similarities_of_samples_are_their_own():
    requests = [request(), request() | {"role": "response:0@1"}]
    rows = [generation_row("a"), generation_row("b") | {"role": "response:0@1"}]
    similarities = [similarity_row([0.5, 0.25, 0.0, 0.0]), similarity_row([0.0, 0.75, 0.0, 0.0], "cosine@1")]
    [row] = results_of("generation", [item()], requests, rows, similarities)
    assert row["metrics"]["cosine_accuracy"] == 0.5
    assert row["metrics"]["cosine_incorrect"] == 0.5


SCORES = st.lists(st.none() | st.floats(-1, 1), min_size=4, max_size=4)


@settings(max_examples=examples(100), deadline=None)
@given(SCORES, st.permutations(range(4)), st.sets(st.integers(0, 3)))
def test_values_are_independent_of_option_order(scores, order, gold):
    original = row_of("x", similarity_row(scores), gold=sorted(gold))
    permuted = row_of(
        "x",
        similarity_row([scores[i] for i in order]),
        choices=[CHOICES[i] for i in order],
        gold=[k for k, i in enumerate(order) if i in gold],
    )
    assert permuted["metrics"] == pytest.approx(original["metrics"])
    assert permuted["correct"] == original["correct"]


@settings(max_examples=examples(100), deadline=None)
@given(st.text(max_size=40), st.text(max_size=40))
def test_text_metrics_of_arbitrary_texts_are_within_range(response, reference):
    values = generation.text_metrics(response, [reference])
    assert values["exact_match"] in (0.0, 1.0)
    assert 0 <= values["token_f1"] <= 1
    assert 0 <= values["chrf"] <= 100 + 1e-9
    assert generation.text_metrics(reference, [reference])["exact_match"] == 1.0
