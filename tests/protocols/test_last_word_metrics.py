import pytest
from support.scoring import build_requests, item, results_of, score, without_bits
from vernacular.metrics.aggregate import aggregate
from vernacular.protocols.last_word.metrics import METRICS


def row_of(logprobs, **score_fields):
    last_word_item = item(context="Fun á", target="estación")
    requests = build_requests([last_word_item], "continuation", "last_word")
    return results_of("last_word", [last_word_item], requests, [score(requests[0], logprobs, **score_fields)])[0]


def test_surprisal_sum_and_maximum_over_subword_tokens():
    values = row_of([-2.0, -0.5, -1.0], is_greedy=[True, True, False])["metrics"]
    assert (values["surprisal"], values["surprisal_max"]) == (3.5, 2.0)
    assert (values["greedy"], values["coverage"]) == (0.0, 1.0)
    assert "surprisal_corrected" not in values


def test_greedy_is_omitted_without_is_greedy():
    values = without_bits(row_of([-2.0], is_greedy=None)["metrics"])
    assert values.keys() == {"surprisal", "surprisal_max", "coverage"}


def test_beginning_of_word_correction():
    # ln P(a word begins): -0.1 after the context, -0.3 inside the word, -0.25 after it
    values = row_of([-2.0, -0.5], word_end_logprobs=[-0.1, -0.3, -0.25])["metrics"]
    # surprisal of the complete word, 2.5 + 0.25, minus the part of the preceding word, 0.1
    assert values["surprisal_corrected"] == pytest.approx(2.65)


def test_skipped_item_lowers_coverage_and_has_no_surprisal():
    items = [item(context="Fun á", target="praia"), item("i2", context="Fun á", target="")]
    requests = build_requests(items, "continuation", "last_word")
    rows = results_of("last_word", items, requests, [score(requests[0], -1.0)])
    table = {row["metric"]: row for row in aggregate(rows, METRICS, seed=0, categories=False)}
    assert (table["coverage"]["value"], table["coverage"]["n"]) == (0.5, 2)
    assert (table["surprisal"]["value"], table["surprisal"]["n"], table["surprisal"]["n_flagged"]) == (1.0, 1, 1)
