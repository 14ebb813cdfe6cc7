import json
import math

from support.result_rows import row
from vernacular.comparison.changes import changes as changes_of
from vernacular.comparison.changes import lay_out, worst_first
from vernacular.comparison.schema import CHANGES
from vernacular.core import artifacts
from vernacular.interop import serbian_cloze as result_lines
from vernacular.interop.serbian_cloze import serbian_json

WAS = [
    row("a", True, scores=[-1.0, -2.0]),  # lost, margin 1 -> -3
    row("b", True, scores=[-1.0, -1.5]),  # lost, margin 0.5 -> -0.5
    row("c", False, scores=[-3.0, -1.0]),  # won, margin -2 -> 1
    row("d", True, scores=[-1.0, -2.0]),  # stays right
    row("e", False),  # won, scores unknown
    row("f"),  # not known whether it was right
]
NOW = [
    row("a", False, scores=[-4.0, -1.0]),
    row("b", False, scores=[-1.5, -1.0]),
    row("c", True, scores=[-1.0, -2.0]),
    row("d", True, scores=[-1.0, -5.0]),
    row("e", True),
    row("f", True),
]


def changes(was, now, evaluation):
    sides = lay_out({"was": was, "now": now})
    return worst_first(changes_of(sides["was"], sides["now"], evaluation)).to_pylist()


def test_lost_items_come_first_the_greatest_fall_on_top():
    found = changes(WAS, NOW, "t.gl.options.0shot")
    assert [(each["item_id"], each["change"], each["margin_change"]) for each in found] == [
        ("a", "regressed", 4.0), ("b", "regressed", 1.0), ("c", "improved", 3.0), ("e", "improved", None),
    ]  # fmt: skip
    assert found[0]["baseline_prediction"] == "yes"
    assert found[0]["candidate_prediction"] == "no"
    assert found[0]["candidate_scores"] == [-4.0, -1.0]


def test_changes_fit_the_schema(tmp_path):
    artifacts.write(tmp_path / "c.parquet", CHANGES, changes(WAS, NOW, "e"), {})
    assert artifacts.read(tmp_path / "c.parquet", CHANGES).num_rows == 4


def test_an_item_asked_otherwise_did_not_change():
    assert changes([row("a", True)], [row("a", False, prompt="else?")], "e") == []
    assert changes([row("a", True)], [row("b", False)], "e") == []


def test_serbian_comparison_in_the_keys_and_spelling_of_the_tool():
    was = [row("a", True, prompt="Vidim __."), row("b", False, prompt="Čitam __."), row("c", True)]
    now = [row("a", False, prompt="Vidim __."), row("b", True, prompt="Čitam __."), row("c", True)]
    text = serbian_json(was, now, {"a": 7, "b": 2, "c": 1})
    assert "Čitam" in text
    assert text.startswith('{\n  "summary": {\n    "total": 3,')
    found = json.loads(text)
    assert found == {
        "summary": {
            "total": 3, "base_correct": 2, "adapter_correct": 2, "both_correct": 1, "both_wrong": 0,
            "adapter_only": 1, "base_only": 1, "net_gain": 0,
        },
        "examples": [
            {"prompt": "Čitam __.", "base_predicted": "no", "adapter_predicted": "yes", "correct": "yes",
             "change": "adapter_fixed"},
            {"prompt": "Vidim __.", "base_predicted": "yes", "adapter_predicted": "no", "correct": "yes",
             "change": "adapter_wrong"},
        ],
    }  # fmt: skip
    assert list(found["summary"])[-1] == "net_gain"


def test_serbian_comparison_lists_all_changes():
    was = [row(f"i{i}", False) for i in range(25)]
    now = [row(f"i{i}", True) for i in range(25)]
    assert len(json.loads(serbian_json(was, now))["examples"]) == 25


def test_serbian_comparison_counts_as_the_result_lines_of_each_side_do():
    """What the tool would count from `compat`'s lines: a tie and an item without scores are not correct."""
    sides = [
        [row("a", True, scores=[-1.0, -2.0]), row("b", False, scores=[-1.0, -1.0]), row("c")],
        [
            row("a", False, scores=[-2.0, -1.0]),
            row("b", True, scores=[-1.0, -2.0]),
            row("c", True, scores=[-1.0, -2.0]),
        ],
    ]
    lines = []
    for side in sides:
        pairs = [({"context": r["prompt"], "choices": r["choices"], "gold": r["gold"]}, r) for r in side]
        lines.append([json.loads(line) for line in result_lines.files(pairs)["results.jsonl"].splitlines()])
    found = json.loads(serbian_json(*sides))
    assert found["summary"]["base_correct"] == sum(line["is_correct"] for line in lines[0])
    assert found["summary"]["adapter_correct"] == sum(line["is_correct"] for line in lines[1])
    flips = [(b, a) for b, a in zip(*lines, strict=True) if b["is_correct"] != a["is_correct"]]
    assert [(e["base_predicted"], e["adapter_predicted"]) for e in found["examples"]] == [
        (b["predicted"], a["predicted"]) for b, a in flips
    ]


def test_no_right_answers_no_serbian_comparison():
    assert serbian_json([row("a", gold=())], [row("a", gold=())]) is None


def test_items_are_found_by_their_ids_whatever_their_order_and_whoever_else_is_there():
    others = [row("x", False), row("y", True, scores=[-9.0, -1.0]), row("z", False)]
    assert changes(WAS, NOW, "e") == changes([*others[:2], *WAS[::-1]], [NOW[2], others[2], *NOW[3:], *NOW[:2]], "e")
    assert changes(WAS, [], "e") == changes([], NOW, "e") == changes([], [], "e") == []


def test_whether_an_item_changed_is_known_without_its_scores_and_by_how_much_is_not():
    was = [
        row("a", True, scores=[-1.0, -2.0]),
        row("b", True, choices=("si", "si "), scores=[-1.0, -1.0]),
        row("c", True),
    ]
    now = [
        row("a", False),
        row("b", False, choices=("si", "si "), scores=[-2.0, -3.0]),
        row("c", False, scores=[-2.0, -1.0]),
    ]
    was.append(row("d", False) | {"option_scores": [-math.inf, -1.0]})
    now.append(row("d", True, scores=[-1.0, -2.0]))
    assert [(each["item_id"], each["change"], each["margin_change"]) for each in changes(was, now, "e")] == [
        ("a", "regressed", None), ("b", "regressed", None), ("c", "regressed", None), ("d", "improved", None),
    ]  # fmt: skip


def test_a_row_of_changes_to_the_letter():
    was = [row("a", True, scores=[-1.0, -2.0], cluster="c0", category="k0", gold=(0,))]
    now = [row("a", False, scores=[-1.5, -1.0], cluster="c1", category="k1", gold=(0,))]
    assert changes(was, now, "t.gl.options.0shot") == [
        {
            "evaluation": "t.gl.options.0shot", "item_id": "a", "change": "regressed", "margin_change": 1.5, "cluster_id": "c1",
            "category": "k1", "prompt": "is it a?", "choices": ["yes", "no"], "gold": [0],
            "baseline_prediction": "yes", "candidate_prediction": "no", "baseline_scores": [-1.0, -2.0],
            "candidate_scores": [-1.5, -1.0],
        }
    ]  # fmt: skip


def test_serbian_comparison_of_ties_and_failures_and_of_other_items():
    was = [
        row("a", scores=None),
        row("b", False, scores=[-1.0, -1.0]),
        row("c", True),
        row("d", True),
        row("e", False, gold=()),
    ]
    now = [
        row("a", True),
        row("b", True, scores=[-1.0, -3.0]),
        row("c", False, prompt="?"),
        row("x", True),
        row("e", gold=()),
    ]
    twins = {"choices": ("yes", "yes"), "gold": (0,)}
    was.append(row("f", True, scores=[-1.0, -1.0], **twins) | {"correct": False})
    now.append(row("f", True, scores=[-1.0, -1.0], **twins))
    found = json.loads(serbian_json(was, now))
    assert found["summary"] == {
        "total": 3, "base_correct": 0, "adapter_correct": 3, "both_correct": 0, "both_wrong": 0, "adapter_only": 3,
        "base_only": 0, "net_gain": 3,
    }  # fmt: skip
    assert [(each["prompt"], each["base_predicted"], each["adapter_predicted"]) for each in found["examples"]] == [
        ("is it a?", None, "yes"), ("is it b?", None, "yes"), ("is it f?", "yes", "yes"),
    ]  # fmt: skip
    joined = [row("a", True) | {"predicted_indices": None, "prediction": "as it was said"}]
    assert json.loads(serbian_json([row("a", False)], joined))["examples"][0]["adapter_predicted"] == "as it was said"
    order = {"a": 2, "b": 0, "f": 1}
    assert [each["prompt"] for each in json.loads(serbian_json(was, now, order))["examples"]] == [
        "is it b?", "is it f?", "is it a?"
    ]  # fmt: skip
    partly = {"b": 0, "f": -1}  # as if one item's place were not known
    assert [each["prompt"] for each in json.loads(serbian_json(was, now, partly))["examples"]] == [
        "is it f?", "is it a?", "is it b?"
    ]  # fmt: skip
    assert serbian_json([row("a", True)], [row("b", True)]) is None
    assert serbian_json([row("a", True, prompt="?")], [row("a", True)]) is None


def test_serbian_comparison_counts_each_of_the_four_outcomes():
    outcomes = [(True, True)] * 4 + [(False, False)] * 3 + [(False, True)] * 2 + [(True, False)]
    was, now = ([row(f"i{k}", pair[side]) for k, pair in enumerate(outcomes)] for side in (0, 1))
    assert json.loads(serbian_json(was, now))["summary"] == {
        "total": 10, "base_correct": 5, "adapter_correct": 6, "both_correct": 4, "both_wrong": 3, "adapter_only": 2,
        "base_only": 1, "net_gain": 1,
    }  # fmt: skip
