"""Borrowing: a second interval for a model on some items, and when there is none."""

import numpy as np
import pytest
from support.result_rows import row
from vernacular.comparison.borrowing import borrow
from vernacular.data.load import sample
from vernacular.metrics.metric import Metric
from vernacular.metrics.schema import as_table

ACCURACY = Metric("accuracy", "share", True, "surprisal", proportion=True, headline=True)
N, LIMIT = 1_000, 200


@pytest.fixture(scope="module")
def rows():
    """Return rows of TASK_RESULTS of three models, of which the first is close to the second, as an adapter to its base."""
    rng = np.random.default_rng(1)
    common = rng.standard_normal(N)
    base = 0.6 * common + 0.8 * rng.standard_normal(N)
    margins = {
        "tuned": 0.9 * base + 0.4 * rng.standard_normal(N),
        "base": base,
        "other": 0.6 * common + 0.8 * rng.standard_normal(N),
    }
    return {
        name: [row(f"q{i:04}", bool(margin > -0.3), scores=[float(margin), 0.0]) for i, margin in enumerate(own)]
        for name, own in margins.items()
    }


def limited(rows, limit=LIMIT):
    drawn = {each["item_id"] for each in sample([{**each, "few_shot": False} for each in rows], limit, 0)}
    return [each for each in rows if each["item_id"] in drawn]


def run(rows, own, limit=LIMIT):
    lenders = {name: as_table(rows[name]) for name in ("base", "other")}
    return borrow("t.gl.options.0shot", "tuned", as_table(own), lenders, [ACCURACY], limit)


def test_other_models_answers_narrow_the_interval(rows):
    found = run(rows, limited(rows["tuned"]))
    [borrowed] = found.rows
    truth = np.mean([each["metrics"]["accuracy"] for each in rows["tuned"]])
    assert borrowed["metric"] == "accuracy_borrowed"
    assert (borrowed["n_labels"], borrowed["n"], borrowed["score"]) == (LIMIT, N, "base, other")
    assert borrowed["ratio"] < 0.75  # of an adapter: .73 to .75 at 300 of 2,000
    assert borrowed["ci_low"] < truth < borrowed["ci_high"]
    assert borrowed["ci_high"] - borrowed["ci_low"] < borrowed["labels_only_high"] - borrowed["labels_only_low"]
    assert not borrowed["headline"]  # never ranked beside full runs
    assert (
        "Estimated from 200 of 1,000 items and the answers of base, other to the others; run all items"
        in found.notes[0]
    )


def test_items_that_no_limit_draws_are_refused(rows):
    [note] = run(rows, rows["tuned"][:LIMIT]).notes
    assert "the items are not those that limit: 200 draws from all" in note


def test_other_reasons_for_nothing(rows):
    own = limited(rows["tuned"])
    changed = [each | {"gold": [1]} if number == 3 else each for number, each in enumerate(own)]
    assert "1 item (" in (note := run(rows, changed).notes[0])
    assert "with other options or another gold there" in note
    assert "1 item (gone) not among those" in run(rows, [*own[1:], own[0] | {"item_id": "gone"}]).notes[0]
    assert "it has 1,000 of 1,000 items" in run(rows, rows["tuned"], N).notes[0]
    assert "it has 20 of 1,000 items, expected 50 or more" in run(rows, limited(rows["tuned"], 20), 20).notes[0]
    assert "20 of the 200 items of the limit have no result" in run(rows, own[20:]).notes[0]
    assert run(rows, []).rows == []
