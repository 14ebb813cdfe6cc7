"""Degenerate scores: values are finite or null, and null values have a flag with the reason."""

import itertools
import math
import warnings

import pytest
from support.result_rows import stored
from support.scoring import build_requests, item, metric_rows, score
from vernacular.exchange.source_tools import palmx_files
from vernacular.metrics.schema import METRICS, TASK_RESULTS
from vernacular.metrics.spans import best_indices, choose_option
from vernacular.protocols.evaluate import evaluate

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
    "text": ("text", {"context": "a b"}, {}),
}
# name: (log-probabilities of a span, flag of its item or None)
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
METADATA = dict.fromkeys(
    ("model", "evaluation", "task", "language", "style", "model_revision", "dataset_revision"), "x"
)
METADATA |= {"adapter": None, "base": None, "shots": 0, "seed": 0, "majority_baseline": None}


def results(protocol, first, second, *, n=3, cluster=None):
    """Return (per-item rows, metric rows): spans of the first option have the scores `first`, all others and item i1 `second`."""
    item_type, fields, options = PROTOCOLS[protocol]
    labels = [{"extra": [("label", str(k % 2))]} if protocol == "acceptability" else {} for k in range(n)]
    items = [item(f"i{k}", **fields, **labels[k], cluster_id=cluster) for k in range(n)]
    requests = build_requests(items, item_type, protocol, **options)
    uses_first = [
        request["role"].endswith((":0", "word", "sentence", "text")) and request["item_id"] != "i1"
        for request in requests
    ]
    scores = [
        score(request, list(first if is_first else second))
        for request, is_first in zip(requests, uses_first, strict=True)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rows, metrics = evaluate(protocol, items, requests, scores, [])
        table = metric_rows(rows, metrics, METADATA | {"protocol": protocol}, {})
    stored(rows, TASK_RESULTS)
    stored(table, METRICS)
    return rows, table


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_values_are_finite_or_null_for_any_scores(protocol):
    second_names = ("minus infinity among others", "not a number", "zero")
    for first, second in {*zip(SCORES, SCORES, strict=True), *itertools.product(SCORES, second_names)}:
        rows, table = results(protocol, SCORES[first][0], SCORES[second][0])
        for value in table:
            columns = ("value", "ci_low", "ci_high", "chance_level")
            numbers = [value[name] for name in columns if value[name] is not None]
            assert all(map(math.isfinite, numbers)), (first, second, value["metric"])
            has_value = value["value"] is not None or value["n"] == 0
            assert has_value or value["n_flagged"] or "huge" in (first, second) or value["metric"] != "surprisal"
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
def test_few_items_or_one_cluster_have_valid_intervals(protocol, n, cluster):
    rows, table = results(protocol, [-1.0], [-2.0], n=n, cluster=cluster)
    assert len(rows) == n
    assert all(value["n"] <= n for value in table)
    if n == 0:
        assert {value["value"] for value in table} == {None}
        assert all(value["ci_low"] is None and value["ci_high"] is None for value in table)


def test_nan_scores_choose_no_option():
    for scores in ([NAN, -1.0], [-1.0, NAN], [NAN, NAN]):
        assert best_indices(scores) == []
        assert choose_option(scores, [0]).correct is None
    assert best_indices([-INF, -INF]) == [0, 1]  # equal scores: a tie
    assert best_indices([-INF, -1.0]) == [1]


def test_palmx_export_of_minus_infinite_scores_has_no_nan():
    rows, _ = results("letters", [-INF], [-INF], n=1)
    fields = PROTOCOLS["letters"][1]
    log = palmx_files([(item("i0", **fields), rows[0])])["outputs_log.csv"]
    assert "nan" not in log
    assert "i0,?,a,bb,,,A,,False,-inf,,-inf,," in log
