"""Items that hold the prompt's own marks, and sets too small for what is asked of them."""

import pytest
from support.asking import ask, item
from vernacular.core.errors import ConfigError

MARKS = ["{question}", "{context}", "{option}", "{{ x }}", "{% raw %}", "{0} {} %s", "Resposta:", "A) x\nB) y", "A. x",
         "Opcións:\n- x", "$1 \\1 \\g<0>", "RESPOST", "<|im_start|>user", "__", "[MASK]"]  # fmt: skip
ASKED = [("generation", "passage"), ("generation", "multi_answer"), ("letters", "passage"), ("options", "passage")]


@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize(("protocol", "layout"), ASKED)
def test_marks_of_a_prompt_within_an_item_are_text_and_stand_once(mark, protocol, layout):
    items = [
        item(
            f"i{k}",
            context=f"C{k} {mark}",
            question=f"Q{k} {mark}",
            choices=[f"{mark} a", mark, f"{mark} ab"],
            gold=[1],
        )
        for k in range(2)
    ]
    rows, metadata = ask(items, layout, protocol, shots=1)
    (shown,) = metadata["few_shot_examples"]
    asked = next(one for one in items if one["item_id"] != shown)
    for row in rows:
        assert row["item_id"] == asked["item_id"]
        if row["role"].startswith("uncond"):
            continue
        whole = row["prefix"] + row["text"]
        for text in (asked["context"], asked["question"]):
            assert whole.count(text) == 1
            assert row["prefix"].count(text) == 0
        if protocol == "options":
            option = asked["choices"][int(row["role"].removeprefix("choice:"))]
            assert whole[row["span_start"] : row["span_end"]] == f" {option}"


@pytest.mark.parametrize(
    ("shots", "rows", "aside", "said"),
    [
        (1, 1, 0, "at least 1 row with a known answer .* and at least one item to evaluate, got 1"),
        (50, 50, 0, "at least 50 rows .* and at least one item to evaluate, got 50"),
        (3, 9, 2, r"at least 3 rows with a known answer as few-shot examples, got 2\. Set a smaller value of shots"),
        (1, 0, 0, "at least 1 row .* as few-shot examples, got 0"),
    ],
)
def test_set_too_small_for_its_demonstrations_says_how_small(shots, rows, aside, said):
    items = [item(f"i{k}", question=f"{k}?", choices=["a", "b"], gold=[0]) for k in range(rows)]
    items += [item(f"d{k}", question=f"{k}?", choices=["a", "b"], gold=[0], few_shot=True) for k in range(aside)]
    with pytest.raises(ConfigError, match=said):
        ask(items, "question", "letters", shots=shots)


def test_set_of_one_item_is_asked_with_examples_set_aside():
    items = [item("i", question="?", choices=["a", "b"], gold=[0])]
    items += [item("d", question="¿?", choices=["c", "d"], gold=[1], few_shot=True)]
    rows, metadata = ask(items, "question", "letters", shots=1)
    assert ([row["role"] for row in rows], metadata["few_shot_examples"]) == (["choice:0", "choice:1"], ["d"])


def test_few_shot_block_is_held_once_however_many_rows_have_it():
    """Hundreds of thousands of rows each with a block of their own fill the memory."""
    items = [item(f"i{k}", question=f"{k}?", choices=["a", "b"], gold=[0]) for k in range(9)]
    rows, _ = ask(items, "question", "options", shots=3)
    assert len({id(row["prefix"]) for row in rows if row["prefix"]}) == 1
