"""Item IDs and sampling, which must not depend on other rows of the dataset or on row order."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.soak import examples
from vernacular.data.load import make_items, mark_repeats, sample

COLUMNS = {"id": "id|", "question": "q", "choices": ["a", "b"], "gold": "g", "gold_format": "index", "cluster": "c|"}


def row(question="q", **changes) -> dict:
    return {"q": question, "a": "x", "b": "y", "g": 0} | changes


def ids(rows, item_type="question", **options) -> list[str]:
    return [item["item_id"] for item in make_items(rows, item_type, COLUMNS, **options)[0]]


def test_upstream_id_is_used_and_content_hash_if_it_is_missing():
    first, second = ids([row(id=7), row("other")])
    assert first == "7"
    assert len(second) == 16
    assert ids([row("other"), row(id=7)]) == [second, "7"]


def test_duplicate_id_is_extended_with_content_hash():
    rows = [row("one", id="x"), row("two", id="x")]
    item_ids = ids(rows)
    assert all(name.startswith("x-") for name in item_ids)
    assert ids(rows[::-1]) == item_ids[::-1]


def test_exact_duplicates_are_numbered_and_counted():
    items, counts = make_items([row(id=1), row(id=1), row(id=1)], "question", COLUMNS)
    assert [item["item_id"] for item in items] == ["1", "1~2", "1~3"]
    assert counts["duplicates"] == 2


def test_few_shot_examples_have_an_id_prefix():
    assert ids([row(id=1)], few_shot=True) == ["shot/1"]


def test_items_of_one_passage_share_a_cluster():
    columns = COLUMNS | {"context": "text"}
    items, _ = make_items([row("1", text="T"), row("2", text="T"), row("3", text="U")], "passage", columns)
    first, second, third = (item["cluster_id"] for item in items)
    assert first == second != third


def test_answers_to_questions_on_one_passage_share_a_cluster_and_questions_without_one_do_not():
    columns = {"context": "text|", "question": "q", "targets": "a"}
    rows = [row("1", text="T"), row("2", text="T"), row("3", text="U"), row("4", text=""), row("5", text=None)]
    first, second, third, *others = (item["cluster_id"] for item in make_items(rows, "open_question", columns)[0])
    assert first == second != third
    assert others == [None, None]


def test_rows_with_the_same_content_are_marked_whatever_their_order_and_answer():
    evaluated = make_items([row("1"), row("2", id="twin"), row("3")], "question", COLUMNS)[0]
    reserved = [row("2", a="y", b="x", g=1), row("2 \u200b", id="a"), row("2", b="z"), row("4"), row("4")]
    examples = make_items(reserved, "question", COLUMNS, few_shot=True)[0]
    mark_repeats(evaluated + examples)
    assert [item["repeats"] for item in evaluated] == [None, "twin", None]
    assert [item["repeats"] for item in examples] == ["twin", "twin", None, None, None]
    copies = make_items([row("1", id=2), row("1", id=1), row("5")], "question", COLUMNS)[0]
    mark_repeats(copies)
    assert [item["repeats"] for item in copies] == ["1", "1", None]


def items_of(sizes: list[int]) -> list[dict]:
    rows = [row(f"{c}.{i}", c=f"c{c}") for c, size in enumerate(sizes) for i in range(size)]
    return make_items(rows, "question", COLUMNS)[0]


def test_limit_selects_complete_clusters():
    selected = sample(items_of([2, 2, 2, 2]), 5, seed=0)
    assert len(selected) == 4
    assert len({item["cluster_id"] for item in selected}) == 2


def test_cluster_larger_than_the_limit_is_selected_completely():
    assert len(sample(items_of([5, 5]), 3, seed=0)) == 5


def test_sample_depends_on_seed():
    items = items_of([1] * 50)
    samples = [{item["item_id"] for item in sample(items, 10, seed)} for seed in (0, 1)]
    assert samples[0] != samples[1]


def test_few_shot_examples_are_not_sampled():
    examples = make_items([row(id=i) for i in range(4)], "question", COLUMNS, few_shot=True)[0]
    selected = sample(items_of([1] * 9) + examples, 3, seed=0)
    assert (len(selected), sum(item["few_shot"] for item in selected)) == (7, 4)


@settings(max_examples=examples(50))
@given(st.lists(st.integers(1, 4), min_size=1, max_size=12), st.integers(1, 20), st.randoms())
def test_sample_does_not_depend_on_row_order(sizes, limit, random):
    items = items_of(sizes)
    shuffled = random.sample(items, len(items))
    selected_ids = {item["item_id"] for item in sample(items, limit, 3)}
    assert {item["item_id"] for item in sample(shuffled, limit, 3)} == selected_ids
    for cluster in {item["cluster_id"] for item in items}:
        ids_in_cluster = {item["item_id"] for item in items if item["cluster_id"] == cluster}
        assert ids_in_cluster <= selected_ids or not ids_in_cluster & selected_ids


@pytest.mark.parametrize("limit", [None, 4, 100])
def test_limit_not_below_the_number_of_items_has_no_effect(limit):
    items = items_of([1, 1, 1, 1])
    assert sample(items, limit, 0) == items
