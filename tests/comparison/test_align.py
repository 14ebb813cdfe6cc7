"""Several models' rows of one evaluation laid out over the same items, by hand."""

import math

import numpy as np
import pytest
from support.result_rows import row
from vernacular.comparison.align import align, as_table
from vernacular.metrics.metric import Metric

MEAN = Metric("accuracy", "share", True, "similarity", proportion=True)
CORPUS = Metric("auc", "share", True, "surprisal", corpus=lambda a, b: a, needs=("surprisal", "label"))


def test_items_are_those_of_any_side_by_id_and_labels_are_the_first_sides_that_has():
    one = [row("b", True, cluster="c1", category="k1"), row("a", None, category="k2")]
    two = [
        row("a", False, cluster="c2", category="k9"),
        row("b", 1, cluster="c9"),
        row("é", 1, choices="xyz", gold=(0, 2)),
    ]
    two.append(row("f", None, choices="xyz", gold=()))
    items, sides = align({"one": one, "two": two, "three": [row("d", None, choices=(), gold=())]})
    assert items.ids == ["a", "b", "d", "f", "é"]
    assert items.clusters.tolist() == ["c2", "c1", None, None, None]
    assert items.categories.tolist() == ["k2", "k1", None, None, None]
    np.testing.assert_array_equal(items.chance, [1 / 2, 1 / 2, np.nan, np.nan, 2 / 3])
    assert sides["one"].has.tolist() == [True, True, False, False, False]
    assert sides["two"].has.tolist() == [True, True, False, True, True]
    np.testing.assert_array_equal(sides["two"].value("accuracy"), [0, 1, np.nan, np.nan, 1])
    np.testing.assert_array_equal(sides["two"].value("chrf"), [np.nan] * 5)
    assert (sides["one"].text == sides["two"].text).tolist() == [True, True, True, False, False]


@pytest.mark.parametrize(
    ("other", "same"),
    [({}, True), ({"prompt": "?"}, False), ({"choices": ("no", "yes")}, False), ({"gold": (0, 1)}, False)],
)
def test_what_was_asked_is_the_prompt_the_options_in_their_order_and_the_right_ones(other, same):
    _, sides = align({"one": [row("a", None)], "two": [row("a", None, **other)]})
    assert (sides["one"].text == sides["two"].text).tolist() == [same]


def test_an_item_enters_a_metric_where_all_is_known_that_the_metric_is_made_of():
    rows = [
        row("a", True),
        row("b", surprisal=1.0, label=0.0),
        row("c", label=1.0),
        row("d", surprisal=math.nan, label=1.0),
    ]
    _, sides = align({"one": rows})
    assert sides["one"].known(MEAN).tolist() == [True, False, False, False]
    assert sides["one"].known(CORPUS).tolist() == [False, True, False, False]
    surprisal, label = sides["one"].needed(CORPUS)
    np.testing.assert_array_equal(surprisal, [np.nan, 1, np.nan, np.nan])
    np.testing.assert_array_equal(label, [np.nan, 0, 1, 1])


def test_a_column_of_maps_in_parts_is_read_whole():
    table = as_table([row("a", True), row("b", False, chrf=5.0)])
    parts = type(table).from_batches([*table.slice(1).to_batches(), *table.slice(0, 1).to_batches()])
    _, sides = align({"one": parts, "none": table.slice(0, 0), "some": as_table([row("a")])})
    np.testing.assert_array_equal(sides["one"].value("accuracy"), [1, 0])
    np.testing.assert_array_equal(sides["one"].value("chrf"), [np.nan, 5])
    assert sides["none"].values == sides["some"].values == {}
    assert not sides["none"].has.any()
