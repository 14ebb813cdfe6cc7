"""Alignment of several models' rows of one evaluation: items, labels, values and text IDs."""

import math

import numpy as np
import pytest
from support.result_rows import row
from vernacular.comparison.align import align, as_table
from vernacular.metrics.metric import Metric

MEAN = Metric("accuracy", "share", True, "similarity", proportion=True)
CORPUS = Metric("auc", "share", True, "surprisal", corpus=lambda a, b: a, needs=("surprisal", "label"))


def test_align_takes_the_union_of_items_and_the_first_known_labels():
    first_rows = [row("b", True, cluster="c1", category="k1"), row("a", None, category="k2")]
    second_rows = [
        row("a", False, cluster="c2", category="k9"),
        row("b", 1, cluster="c9"),
        row("é", 1, choices="xyz", gold=(0, 2)),
    ]
    second_rows.append(row("f", None, choices="xyz", gold=()))
    items, sides = align({"one": first_rows, "two": second_rows, "three": [row("d", None, choices=(), gold=())]})
    assert items.ids == ["a", "b", "d", "f", "é"]
    assert items.clusters.tolist() == ["c2", "c1", None, None, None]
    assert items.categories.tolist() == ["k2", "k1", None, None, None]
    np.testing.assert_array_equal(items.chance, [1 / 2, 1 / 2, np.nan, np.nan, 2 / 3])
    assert sides["one"].present.tolist() == [True, True, False, False, False]
    assert sides["two"].present.tolist() == [True, True, False, True, True]
    np.testing.assert_array_equal(sides["two"].value("accuracy"), [0, 1, np.nan, np.nan, 1])
    np.testing.assert_array_equal(sides["two"].value("chrf"), [np.nan] * 5)
    assert (sides["one"].text_id == sides["two"].text_id).tolist() == [True, True, True, False, False]


def test_align_reads_one_table_at_a_time_and_returns_the_named_values():
    tables = {"one": [row("b", True), row("a", None)], "two": [row("a", 1), row("c", 0)]}
    items, sides = align(tables)
    same_items, named = align(((model, rows) for model, rows in tables.items()), {"accuracy"})
    assert items.ids == same_items.ids
    for model, side in sides.items():
        assert set(named[model].values) == {"accuracy"} & set(side.values)
        np.testing.assert_array_equal(named[model].value("accuracy"), side.value("accuracy"))
        np.testing.assert_array_equal(named[model].text_id, side.text_id)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [({}, True), ({"prompt": "?"}, False), ({"choices": ("no", "yes")}, False), ({"gold": (0, 1)}, False)],
)
def test_text_id_depends_on_prompt_options_and_gold(changes, expected):
    _, sides = align({"one": [row("a", None)], "two": [row("a", None, **changes)]})
    assert (sides["one"].text_id == sides["two"].text_id).tolist() == [expected]


def test_item_has_a_value_only_if_all_inputs_are_known():
    rows = [
        row("a", True),
        row("b", surprisal=1.0, label=0.0),
        row("c", label=1.0),
        row("d", surprisal=math.nan, label=1.0),
    ]
    _, sides = align({"one": rows})
    assert sides["one"].value_mask(MEAN).tolist() == [True, False, False, False]
    assert sides["one"].value_mask(CORPUS).tolist() == [False, True, False, False]
    surprisal, label = sides["one"].inputs(CORPUS)
    np.testing.assert_array_equal(surprisal, [np.nan, 1, np.nan, np.nan])
    np.testing.assert_array_equal(label, [np.nan, 0, 1, 1])


def test_align_reads_chunked_and_empty_tables():
    table = as_table([row("a", True), row("b", False, chrf=5.0)])
    chunked = type(table).from_batches([*table.slice(1).to_batches(), *table.slice(0, 1).to_batches()])
    _, sides = align({"one": chunked, "none": table.slice(0, 0), "some": as_table([row("a")])})
    np.testing.assert_array_equal(sides["one"].value("accuracy"), [1, 0])
    np.testing.assert_array_equal(sides["one"].value("chrf"), [np.nan, 5])
    assert sides["none"].values == sides["some"].values == {}
    assert not sides["none"].present.any()
