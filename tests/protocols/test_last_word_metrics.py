import pytest
from support.scoring import ask, item, score
from vernacular.metrics.aggregate import aggregate
from vernacular.protocols.last_word.metrics import METRICS, per_item


def row_of(logprobs, **extra):
    one = item(context="Fun á", target="estación")
    requests = ask([one], "continuation", "last_word")
    return per_item([one], requests, [score(requests[0], logprobs, **extra)])[0]


def test_surprisal_is_the_sum_over_sub_tokens_and_the_maximum_beside_it():
    values = row_of([-2.0, -0.5, -1.0], is_greedy=[True, True, False])["metrics"]
    assert (values["surprisal"], values["surprisal_max"]) == (3.5, 2.0)
    assert (values["greedy"], values["coverage"]) == (0.0, 1.0)
    assert "surprisal_corrected" not in values


def test_a_model_that_writes_nothing_is_not_greedy_either_way():
    assert row_of([-2.0], is_greedy=None)["metrics"].keys() == {"surprisal", "surprisal_max", "coverage"}


def test_beginning_of_word_correction_by_hand():
    # ln P(a word begins): -0.1 after the context, -0.3 inside the word, -0.25 after it
    values = row_of([-2.0, -0.5], word_end_logprobs=[-0.1, -0.3, -0.25])["metrics"]
    # surprisal of the ended word 2.5 + 0.25, less what belongs to the word before it, 0.1
    assert values["surprisal_corrected"] == pytest.approx(2.65)


def test_what_is_not_covered_has_no_surprisal_and_lowers_coverage():
    items = [item(context="Fun á", target="praia"), item("i2", context="Fun á", target="")]
    requests = ask(items, "continuation", "last_word")
    rows = per_item(items, requests, [score(requests[0], -1.0)])
    table = {row["metric"]: row for row in aggregate(rows, METRICS, seed=0, categories=False)}
    assert (table["coverage"]["value"], table["coverage"]["n"]) == (0.5, 2)
    assert (table["surprisal"]["value"], table["surprisal"]["n"], table["surprisal"]["n_flagged"]) == (1.0, 1, 1)
