"""Scores that are no use: a value is a number or nothing, and where it is nothing a flag says why."""

import itertools
import math
import warnings

import pytest
from support.scoring import ask, item, score
from vernacular.core.artifacts import _as_table
from vernacular.interop import palmx
from vernacular.metrics.choice import best, choose
from vernacular.metrics.schema import METRICS, TASK_RESULTS
from vernacular.protocols.evaluate import evaluate, values

pytestmark = pytest.mark.usefixtures("few_resamples")
INF, NAN = math.inf, math.nan
PAIR = {"choices": ["a", "bb"], "gold": [0]}
PROTOCOLS = {
    "options": ("question", {"question": "?", **PAIR}, {}),
    "letters": ("question", {"question": "?", **PAIR}, {"option_rotations": 2}),
    "minimal_pair": ("pair", {"context": "Se", **PAIR}, {}),
    "cloze": ("cloze", {"context": "a __ b", **PAIR}, {"score_unfilled_gap": True}),
    "target_word": ("target_word", {"context": "a [MASK] b", **PAIR}, {}),
    "acceptability": ("sentence", {"context": "a b"}, {}),
    "last_word": ("continuation", {"context": "a", "target": "b"}, {"bow_correction": True}),
}
# log-probabilities of a span -> the flag of its item, where any
SCORES = {
    "zero": ([0.0], None),
    "tiny": ([-1e-40], None),
    "huge": ([-3.4e38, -3.4e38], None),
    "minus infinity": ([-INF], "infinite surprisal"),
    "minus infinity among others": ([-1.0, -INF], "infinite surprisal"),
    "infinity": ([INF], "error: log-probability is not a number"),
    "both infinities": ([INF, -INF], "error: log-probability is not a number"),
    "not a number": ([NAN], "error: log-probability is not a number"),
    "nothing before": ([None], "error: no token was scored"),
    "no token": ([], "error: no token was scored"),
}
FACTS = dict.fromkeys(("model", "evaluation", "task", "language", "style", "model_revision", "dataset_revision"), "x")
FACTS |= {"adapter": None, "base": None, "shots": 0, "seed": 0, "majority_baseline": None}


def results(protocol, first, second, *, n=3, cluster=None):
    """(per-item rows, values): the first option's spans score `first`, all others, and item i1 whole, `second`."""
    layout, fields, options = PROTOCOLS[protocol]
    rest = [{"extra": [("label", str(k % 2))]} if protocol == "acceptability" else {} for k in range(n)]
    items = [item(f"i{k}", **fields, **rest[k], cluster_id=cluster) for k in range(n)]
    requests = ask(items, layout, protocol, **options)
    own = [r["role"].endswith((":0", "word", "sentence")) and r["item_id"] != "i1" for r in requests]
    scores = [score(r, list(first if mine else second)) for r, mine in zip(requests, own, strict=True)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rows, metrics = evaluate(protocol, items, requests, scores, [])
        table = values(rows, metrics, FACTS | {"protocol": protocol}, {})
    _as_table(rows, TASK_RESULTS)
    _as_table(table, METRICS)
    return rows, table


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_value_is_finite_or_nothing_whatever_the_scores(protocol):
    second_ones = ("minus infinity among others", "not a number", "zero")
    for first, second in {*zip(SCORES, SCORES, strict=True), *itertools.product(SCORES, second_ones)}:
        rows, table = results(protocol, SCORES[first][0], SCORES[second][0])
        for value in table:
            found = [value[name] for name in ("value", "ci_low", "ci_high", "chance_level") if value[name] is not None]
            assert all(map(math.isfinite, found)), (first, second, value["metric"])
            finite = value["value"] is not None or value["n"] == 0
            assert finite or value["n_flagged"] or "huge" in (first, second) or value["metric"] != "surprisal"
        for row in rows:
            assert not any(math.isnan(number) for number in (*row["metrics"].values(), *(row["option_scores"] or ())))
        if (flag := SCORES[second][1]) is not None:
            assert flag in rows[1]["flags"]
        if first == second and flag and flag.startswith("error"):
            assert all(
                row["metrics"].keys() <= {"coverage", "fold", "label", "gold_position", "baseline_shortest"}
                for row in rows
            )
            assert {row["correct"] for row in rows} == {None}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(("n", "cluster"), [(0, None), (1, None), (1, "c"), (4, "c")])
def test_no_item_one_item_and_one_passage_have_no_interval_of_nothing(protocol, n, cluster):
    rows, table = results(protocol, [-1.0], [-2.0], n=n, cluster=cluster)
    assert len(rows) == n
    assert all(value["n"] <= n for value in table)
    if n == 0:
        assert {value["value"] for value in table} == {None}
        assert all(value["ci_low"] is None and value["ci_high"] is None for value in table)


def test_scores_that_are_no_numbers_choose_nothing_in_any_order():
    for scores in ([NAN, -1.0], [-1.0, NAN], [NAN, NAN]):
        assert best(scores) == []
        assert choose(scores, [0]).correct is None
    assert best([-INF, -INF]) == [0, 1]  # equally unlikely: a tie
    assert best([-INF, -1.0]) == [1]


def test_infinitely_unlikely_letters_have_no_share_in_palmx_files():
    rows, _ = results("letters", [-INF], [-INF], n=1)
    fields = PROTOCOLS["letters"][1]
    log = palmx.files([(item("i0", **fields), rows[0])])["outputs_log.csv"]
    assert "nan" not in log
    assert "i0,?,a,bb,,,A,,False,-inf,,-inf,," in log
