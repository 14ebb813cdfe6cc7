import random

import pytest
from support.request_builder import build_requests, item
from vernacular.core.errors import ConfigError
from vernacular.data.load import sample


def questions(n, *, few_shot=False, name="q"):
    return [
        item(f"{name}{i}", question=f"{name} {i}?", choices=["si", "non"], gold=[i % 2], few_shot=few_shot)
        for i in range(n)
    ]


def test_prefix_is_independent_of_item_order_limit_and_other_languages():
    train, test = questions(20, few_shot=True, name="train"), questions(30)
    _, full = build_requests(train + test, "question", "generation", shots=3)
    shuffled = train + test
    random.Random(1).shuffle(shuffled)
    _, reordered = build_requests(shuffled, "question", "generation", shots=3)
    _, limited = build_requests(train + test[:4], "question", "generation", shots=3)
    assert full["prefix"] == reordered["prefix"] == limited["prefix"]
    assert full["held_out"] == []
    ids = {
        language: build_requests(train + test, "question", "generation", shots=3, language=language)[1]
        for language in ["gl", "es"]
    }
    assert ids["gl"]["few_shot_examples"] == full["few_shot_examples"]  # building es does not change gl
    assert ids["es"]["few_shot_examples"] != ids["gl"]["few_shot_examples"]


def test_seed_changes_examples_and_more_shots_extend_them():
    train = questions(20, few_shot=True, name="train")
    samples = [
        build_requests(train + questions(2), "question", "letters", shots=3, seed=seed)[1]["few_shot_examples"]
        for seed in (0, 1)
    ]
    assert samples[0] != samples[1]
    five_shots = build_requests(train + questions(2), "question", "letters", shots=5, seed=0)[1]["few_shot_examples"]
    assert five_shots[:3] == samples[0]


def test_protocols_share_few_shot_examples():
    train = questions(20, few_shot=True, name="train")
    samples = [
        build_requests(train + questions(2), "question", protocol, shots=4)[1]["few_shot_examples"]
        for protocol in ("generation", "letters", "options")
    ]
    assert samples[0] == samples[1] == samples[2]


def test_examples_are_held_out_without_reserved_rows():
    items = questions(30)
    rows, metadata = build_requests(items, "question", "letters", shots=3)
    assert set(metadata["few_shot_examples"]) == set(metadata["held_out"])
    assert {row["item_id"] for row in rows} == {question["item_id"] for question in items} - set(metadata["held_out"])
    assert len(metadata["held_out"]) == 3


def test_reserved_rows_that_are_evaluated_are_not_sampled():
    train = [
        question | {"repeats": "q0" if n < 17 else None} for n, question in enumerate(questions(20, few_shot=True))
    ]
    test = [question | {"item_id": f"e{n}"} for n, question in enumerate(questions(4))]
    rows, metadata = build_requests(train + test, "question", "letters", shots=3)
    assert set(metadata["few_shot_examples"]) == {"q17", "q18", "q19"}
    assert (metadata["held_out"], len({row["item_id"] for row in rows})) == ([], 4)
    with pytest.raises(ConfigError, match=r"expected at least 4 rows .*, got 3 \(17 more are evaluated items\)"):
        build_requests(train + test, "question", "letters", shots=4)


def test_no_evaluated_item_repeats_an_example():
    items = [question | {"repeats": f"q{n % 6}"} for n, question in enumerate(questions(12))]
    rows, metadata = build_requests(items, "question", "letters", shots=3)
    contents = [int(name[1:]) % 6 for name in metadata["few_shot_examples"]]
    assert len(set(contents)) == 3
    assert {int(row["item_id"][1:]) % 6 for row in rows} == set(range(6)) - set(contents)
    assert len(metadata["held_out"]) == 6
    assert list(metadata["skipped"].values()) == ["repeats a few-shot example"] * 3
    with pytest.raises(ConfigError, match="at least one item to evaluate, got 6"):
        build_requests(items, "question", "letters", shots=6)


@pytest.mark.parametrize("clustered", [False, True])
def test_limit_does_not_change_held_out_examples(clustered):
    items = [
        question | {"cluster_id": f"p{n // 2}" if clustered else None} for n, question in enumerate(questions(200))
    ]
    item_lists = [sample(items, limit, 0) for limit in (None, 120, 34)] + [items[::-1]]
    assert (
        len({build_requests(item_list, "question", "letters", shots=3)[1]["prefix"] for item_list in item_lists}) == 1
    )


def test_prefix_is_joined_examples_in_every_request():
    train = [item("d", question="Fría?", choices=["si", "non"], gold=[1], few_shot=True)]
    rows, metadata = build_requests(train + questions(2), "question", "letters", shots=1)
    assert metadata["prefix"] == "Fría?\n\nA. si\nB. non\nResposta: B\n\n"
    assert {row["prefix"] for row in rows} == {metadata["prefix"]}
    assert rows[0]["few_shot_examples"] == [metadata["prefix"]]
    assert rows[0]["messages"] == [
        {"role": "user", "content": "Fría?\n\nA. si\nB. non\nResposta:"},
        {"role": "assistant", "content": "B"},
        {"role": "user", "content": "q 0?\n\nA. si\nB. non\nResposta:"},
    ]
    full_text = rows[0]["prefix"] + rows[0]["text"]
    assert full_text[rows[0]["span_start"] : rows[0]["span_end"]] == " A"


def test_example_contains_best_answer_of_multi_answer_item():
    train = [item("d", question="?", choices=["a", "b", "c"], gold=[0, 1], target="b", few_shot=True)]
    _, metadata = build_requests(train + questions(1), "multi_answer", "generation", shots=1, style="open")
    assert metadata["prefix"] == "Pregunta: ?\nResposta: b\n\n"


def test_items_without_gold_are_not_used_as_examples():
    unlabeled = [item(f"b{i}", question="?", choices=["a", "b"]) for i in range(5)]
    with pytest.raises(ConfigError, match=r"expected at least .* with a known answer .*, got 1"):
        build_requests([*unlabeled, *questions(1)], "question", "letters", shots=1)
