import random

import pytest
from support.asking import ask, item
from vernacular.core.errors import ConfigError
from vernacular.data.items import sample


def questions(n, *, few_shot=False, name="q"):
    return [
        item(f"{name}{i}", question=f"{name} {i}?", choices=["si", "non"], gold=[i % 2], few_shot=few_shot)
        for i in range(n)
    ]


def test_the_block_does_not_change_with_item_order_limit_or_language():
    train, test = questions(20, few_shot=True, name="train"), questions(30)
    _, whole = ask(train + test, "question", "generation", shots=3)
    shuffled = train + test
    random.Random(1).shuffle(shuffled)
    _, other_order = ask(shuffled, "question", "generation", shots=3)
    _, limited = ask(train + test[:4], "question", "generation", shots=3)
    assert whole["prefix"] == other_order["prefix"] == limited["prefix"]
    assert whole["held_out"] == []
    ids = {
        language: ask(train + test, "question", "generation", shots=3, language=language)[1]
        for language in ["gl", "es"]
    }
    assert ids["gl"]["few_shot_examples"] == whole["few_shot_examples"]  # asking es as well changes nothing in gl
    assert ids["es"]["few_shot_examples"] != ids["gl"]["few_shot_examples"]


def test_another_seed_draws_others_and_more_shots_keep_the_first():
    train = questions(20, few_shot=True, name="train")
    draws = [
        ask(train + questions(2), "question", "letters", shots=3, seed=seed)[1]["few_shot_examples"] for seed in (0, 1)
    ]
    assert draws[0] != draws[1]
    five = ask(train + questions(2), "question", "letters", shots=5, seed=0)[1]["few_shot_examples"]
    assert five[:3] == draws[0]


def test_protocols_share_their_demonstrations():
    train = questions(20, few_shot=True, name="train")
    drawn = [
        ask(train + questions(2), "question", protocol, shots=4)[1]["few_shot_examples"]
        for protocol in ("generation", "letters", "options")
    ]
    assert drawn[0] == drawn[1] == drawn[2]


def test_without_rows_set_aside_demonstrations_are_held_out_of_the_evaluation():
    items = questions(30)
    rows, metadata = ask(items, "question", "letters", shots=3)
    assert set(metadata["few_shot_examples"]) == set(metadata["held_out"])
    assert {r["item_id"] for r in rows} == {i["item_id"] for i in items} - set(metadata["held_out"])
    assert len(metadata["held_out"]) == 3


@pytest.mark.parametrize("clustered", [False, True])
def test_a_limit_does_not_change_held_out_demonstrations(clustered):
    items = [i | {"cluster_id": f"p{n // 2}" if clustered else None} for n, i in enumerate(questions(200))]
    sets = [sample(items, limit, 0) for limit in (None, 120, 34)] + [items[::-1]]
    assert len({ask(each, "question", "letters", shots=3)[1]["prefix"] for each in sets}) == 1


def test_the_block_is_the_demonstrations_joined_and_every_request_has_it():
    train = [item("d", question="Fría?", choices=["si", "non"], gold=[1], few_shot=True)]
    rows, metadata = ask(train + questions(2), "question", "letters", shots=1)
    assert metadata["prefix"] == "Fría?\n\nA. si\nB. non\nResposta: B\n\n"
    assert {r["prefix"] for r in rows} == {metadata["prefix"]}
    assert rows[0]["few_shot_examples"] == [metadata["prefix"]]
    assert rows[0]["messages"] == [
        {"role": "user", "content": "Fría?\n\nA. si\nB. non\nResposta:"},
        {"role": "assistant", "content": "B"},
        {"role": "user", "content": "q 0?\n\nA. si\nB. non\nResposta:"},
    ]
    whole = rows[0]["prefix"] + rows[0]["text"]
    assert whole[rows[0]["span_start"] : rows[0]["span_end"]] == " A"


def test_a_demonstration_shows_the_best_answer_of_a_truth_item():
    train = [item("d", question="?", choices=["a", "b", "c"], gold=[0, 1], target="b", few_shot=True)]
    _, metadata = ask(train + questions(1), "multi_answer", "generation", shots=1, style="open")
    assert metadata["prefix"] == "Pregunta: ?\nResposta: b\n\n"


def test_items_without_a_known_answer_are_never_demonstrations():
    blind = [item(f"b{i}", question="?", choices=["a", "b"]) for i in range(5)]
    with pytest.raises(ConfigError, match=r"expected at least .* with a known answer .*, got 1"):
        ask([*blind, *questions(1)], "question", "letters", shots=1)
