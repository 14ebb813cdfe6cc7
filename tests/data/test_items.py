"""Items' ids and samples, which must not depend on what else is in the set or in which order."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.soak import examples
from vernacular.data.items import make_items, sample

COLUMNS = {"id": "id|", "question": "q", "choices": ["a", "b"], "gold": "g", "gold_format": "index", "cluster": "c|"}


def row(question="q", **changes) -> dict:
    return {"q": question, "a": "x", "b": "y", "g": 0} | changes


def ids(rows, item_type="question", **options) -> list[str]:
    return [item["item_id"] for item in make_items(rows, item_type, COLUMNS, **options)[0]]


def test_upstream_id_is_kept_and_a_row_without_one_is_known_by_its_content():
    first, second = ids([row(id=7), row("other")])
    assert first == "7"
    assert len(second) == 16
    assert ids([row("other"), row(id=7)]) == [second, "7"]


def test_id_that_stands_for_two_rows_gets_their_content_behind_it():
    rows = [row("one", id="x"), row("two", id="x")]
    found = ids(rows)
    assert all(name.startswith("x-") for name in found)
    assert ids(rows[::-1]) == found[::-1]


def test_exact_repeats_are_numbered_and_counted():
    items, counts = make_items([row(id=1), row(id=1), row(id=1)], "question", COLUMNS)
    assert [item["item_id"] for item in items] == ["1", "1~2", "1~3"]
    assert counts["duplicates"] == 2


def test_demonstrations_never_share_an_id_with_items():
    assert ids([row(id=1)], few_shot=True) == ["shot/1"]


def test_passage_is_its_own_cluster():
    columns = COLUMNS | {"context": "text"}
    items, _ = make_items([row("1", text="T"), row("2", text="T"), row("3", text="U")], "passage", columns)
    first, second, third = (item["cluster_id"] for item in items)
    assert first == second != third


def items_of(sizes: list[int]) -> list[dict]:
    rows = [row(f"{c}.{i}", c=f"c{c}") for c, size in enumerate(sizes) for i in range(size)]
    return make_items(rows, "question", COLUMNS)[0]


def test_limit_takes_whole_clusters():
    kept = sample(items_of([2, 2, 2, 2]), 5, seed=0)
    assert len(kept) == 4
    assert len({item["cluster_id"] for item in kept}) == 2


def test_cluster_larger_than_the_limit_is_taken_whole():
    assert len(sample(items_of([5, 5]), 3, seed=0)) == 5


def test_other_seed_draws_another_sample():
    items = items_of([1] * 50)
    drawn = [{item["item_id"] for item in sample(items, 10, seed)} for seed in (0, 1)]
    assert drawn[0] != drawn[1]


def test_demonstrations_are_not_counted_or_drawn():
    shown = make_items([row(id=i) for i in range(4)], "question", COLUMNS, few_shot=True)[0]
    kept = sample(items_of([1] * 9) + shown, 3, seed=0)
    assert (len(kept), sum(item["few_shot"] for item in kept)) == (7, 4)


@settings(max_examples=examples(50))
@given(st.lists(st.integers(1, 4), min_size=1, max_size=12), st.integers(1, 20), st.randoms())
def test_sample_does_not_depend_on_row_order(sizes, limit, random):
    items = items_of(sizes)
    shuffled = random.sample(items, len(items))
    chosen = {item["item_id"] for item in sample(items, limit, 3)}
    assert {item["item_id"] for item in sample(shuffled, limit, 3)} == chosen
    for cluster in {item["cluster_id"] for item in items}:
        whole = {item["item_id"] for item in items if item["cluster_id"] == cluster}
        assert whole <= chosen or not whole & chosen


@pytest.mark.parametrize("limit", [None, 4, 100])
def test_limit_that_is_no_limit_keeps_everything(limit):
    items = items_of([1, 1, 1, 1])
    assert sample(items, limit, 0) == items
