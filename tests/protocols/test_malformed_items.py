"""Items that contain markers of the prompt, and datasets with too few rows for few-shot examples."""

import pytest
from support.messages import assert_states
from support.request_builder import build_requests, item
from vernacular.core.errors import ConfigError

MARKERS = ["{question}", "{context}", "{option}", "{{ x }}", "{% raw %}", "{0} {} %s", "Resposta:", "A) x\nB) y", "A. x",
         "Opcións:\n- x", "$1 \\1 \\g<0>", "RESPOST", "<|im_start|>user", "__", "[MASK]"]  # fmt: skip
PROTOCOL_ITEM_TYPES = [
    ("generation", "passage"),
    ("generation", "multi_answer"),
    ("letters", "passage"),
    ("options", "passage"),
]


@pytest.mark.parametrize("marker", MARKERS)
@pytest.mark.parametrize(("protocol", "item_type"), PROTOCOL_ITEM_TYPES)
def test_prompt_markers_in_item_are_literal_text(marker, protocol, item_type):
    items = [
        item(
            f"i{k}",
            context=f"C{k} {marker}",
            question=f"Q{k} {marker}",
            choices=[f"{marker} a", marker, f"{marker} ab"],
            gold=[1],
        )
        for k in range(2)
    ]
    rows, metadata = build_requests(items, item_type, protocol, shots=1)
    (example_id,) = metadata["few_shot_examples"]
    evaluated = next(row for row in items if row["item_id"] != example_id)
    for row in rows:
        assert row["item_id"] == evaluated["item_id"]
        if row["role"].startswith("uncond"):
            continue
        full_text = row["prefix"] + row["text"]
        for text in (evaluated["context"], evaluated["question"]):
            assert full_text.count(text) == 1
            assert row["prefix"].count(text) == 0
        if protocol == "options":
            option = evaluated["choices"][int(row["role"].removeprefix("choice:"))]
            assert full_text[row["span_start"] : row["span_end"]] == f" {option}"


@pytest.mark.parametrize(
    ("shots", "n_rows", "n_reserved", "parts"),
    [
        (1, 1, 0, ("at least 1 row ", "known answer", "one item", "got 1.")),
        (50, 50, 0, ("at least 50 rows ", "known answer", "one item", "got 50.")),
        (3, 9, 2, ("at least 3 rows ", "known answer", "few-shot examples, got 2.", "shots")),
        (1, 0, 0, ("at least 1 row ", "few-shot examples, got 0.")),
    ],
)
def test_too_few_rows_for_few_shot_raise_config_error(shots, n_rows, n_reserved, parts):
    items = [item(f"i{k}", question=f"{k}?", choices=["a", "b"], gold=[0]) for k in range(n_rows)]
    items += [item(f"d{k}", question=f"{k}?", choices=["a", "b"], gold=[0], few_shot=True) for k in range(n_reserved)]
    with pytest.raises(ConfigError) as raised:
        build_requests(items, "question", "letters", shots=shots)
    assert_states(raised.value, "t.gl: ", *parts)


def test_single_item_is_evaluated_with_reserved_examples():
    items = [item("i", question="?", choices=["a", "b"], gold=[0])]
    items += [item("d", question="¿?", choices=["c", "d"], gold=[1], few_shot=True)]
    rows, metadata = build_requests(items, "question", "letters", shots=1)
    assert ([row["role"] for row in rows], metadata["few_shot_examples"]) == (["choice:0", "choice:1"], ["d"])


def test_few_shot_prefix_is_one_object_shared_by_rows():
    """Separate prefixes for hundreds of thousands of rows would exhaust the memory."""
    items = [item(f"i{k}", question=f"{k}?", choices=["a", "b"], gold=[0]) for k in range(9)]
    rows, _ = build_requests(items, "question", "options", shots=3)
    assert len({id(row["prefix"]) for row in rows if row["prefix"]}) == 1
