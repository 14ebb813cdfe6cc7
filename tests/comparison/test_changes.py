import json
import math

from support.result_rows import row
from vernacular.comparison.schema import CHANGES
from vernacular.core import artifacts
from vernacular.exchange.source_tools import serbian_files, serbian_json
from vernacular.stages.changes import align_outcomes, find_changes, sort_changes

BASELINE = [
    row("a", True, scores=[-1.0, -2.0]),  # regressed, margin 1 -> -3
    row("b", True, scores=[-1.0, -1.5]),  # regressed, margin 0.5 -> -0.5
    row("c", False, scores=[-3.0, -1.0]),  # improved, margin -2 -> 1
    row("d", True, scores=[-1.0, -2.0]),  # unchanged
    row("e", False),  # improved, scores unknown
    row("f"),  # baseline unknown
]
CANDIDATE = [
    row("a", False, scores=[-4.0, -1.0]),
    row("b", False, scores=[-1.5, -1.0]),
    row("c", True, scores=[-1.0, -2.0]),
    row("d", True, scores=[-1.0, -5.0]),
    row("e", True),
    row("f", True),
]


def changes(baseline, candidate, evaluation):
    sides = align_outcomes([("baseline", baseline), ("candidate", candidate)])
    return sort_changes(find_changes(sides["baseline"], sides["candidate"], evaluation)).to_pylist()


def test_regressed_items_come_first_by_margin_change():
    records = changes(BASELINE, CANDIDATE, "t.gl.options.0shot")
    assert [(record["item_id"], record["change"], record["margin_change"]) for record in records] == [
        ("a", "regressed", 4.0), ("b", "regressed", 1.0), ("c", "improved", 3.0), ("e", "improved", None),
    ]  # fmt: skip
    assert records[0]["baseline_prediction"] == "yes"
    assert records[0]["candidate_prediction"] == "no"
    assert records[0]["candidate_scores"] == [-4.0, -1.0]


def test_changes_match_the_schema(tmp_path):
    artifacts.write(tmp_path / "c.parquet", CHANGES, changes(BASELINE, CANDIDATE, "e"), {})
    assert artifacts.read(tmp_path / "c.parquet", CHANGES).num_rows == 4


def test_items_with_other_prompt_or_id_are_not_changes():
    assert changes([row("a", True)], [row("a", False, prompt="else?")], "e") == []
    assert changes([row("a", True)], [row("b", False)], "e") == []


def test_serbian_json_format():
    baseline = [row("a", True, prompt="Vidim __."), row("b", False, prompt="Čitam __."), row("c", True)]
    candidate = [row("a", False, prompt="Vidim __."), row("b", True, prompt="Čitam __."), row("c", True)]
    text = serbian_json(baseline, candidate, {"a": 7, "b": 2, "c": 1})
    assert "Čitam" in text
    assert text.startswith('{\n  "summary": {\n    "total": 3,')
    result = json.loads(text)
    assert result == {
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
    assert list(result["summary"])[-1] == "net_gain"


def test_serbian_json_lists_all_changes():
    baseline = [row(f"i{i}", False) for i in range(25)]
    candidate = [row(f"i{i}", True) for i in range(25)]
    assert len(json.loads(serbian_json(baseline, candidate))["examples"]) == 25


def test_serbian_json_counts_agree_with_result_lines():
    """The counts are those of the exported result lines: a tie and an item without scores are not correct."""
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
        lines.append([json.loads(line) for line in serbian_files(pairs)["results.jsonl"].splitlines()])
    result = json.loads(serbian_json(*sides))
    assert result["summary"]["base_correct"] == sum(line["is_correct"] for line in lines[0])
    assert result["summary"]["adapter_correct"] == sum(line["is_correct"] for line in lines[1])
    changed = [(b, a) for b, a in zip(*lines, strict=True) if b["is_correct"] != a["is_correct"]]
    assert [(example["base_predicted"], example["adapter_predicted"]) for example in result["examples"]] == [
        (b["predicted"], a["predicted"]) for b, a in changed
    ]


def test_serbian_json_without_gold_is_none():
    assert serbian_json([row("a", gold=())], [row("a", gold=())]) is None


def test_changes_do_not_depend_on_row_order_or_unmatched_items():
    extra_rows = [row("x", False), row("y", True, scores=[-9.0, -1.0]), row("z", False)]
    assert changes(BASELINE, CANDIDATE, "e") == changes(
        [*extra_rows[:2], *BASELINE[::-1]], [CANDIDATE[2], extra_rows[2], *CANDIDATE[3:], *CANDIDATE[:2]], "e"
    )
    assert changes(BASELINE, [], "e") == changes([], CANDIDATE, "e") == changes([], [], "e") == []


def test_margin_change_without_scores_is_none():
    baseline = [
        row("a", True, scores=[-1.0, -2.0]),
        row("b", True, choices=("si", "si "), scores=[-1.0, -1.0]),
        row("c", True),
    ]
    candidate = [
        row("a", False),
        row("b", False, choices=("si", "si "), scores=[-2.0, -3.0]),
        row("c", False, scores=[-2.0, -1.0]),
    ]
    baseline.append(row("d", False) | {"option_scores": [-math.inf, -1.0]})
    candidate.append(row("d", True, scores=[-1.0, -2.0]))
    records = changes(baseline, candidate, "e")
    assert [(record["item_id"], record["change"], record["margin_change"]) for record in records] == [
        ("a", "regressed", None), ("b", "regressed", None), ("c", "regressed", None), ("d", "improved", None),
    ]  # fmt: skip


def test_changes_row():
    baseline = [row("a", True, scores=[-1.0, -2.0], cluster="c0", category="k0", gold=(0,))]
    candidate = [row("a", False, scores=[-1.5, -1.0], cluster="c1", category="k1", gold=(0,))]
    assert changes(baseline, candidate, "t.gl.options.0shot") == [
        {
            "evaluation": "t.gl.options.0shot", "item_id": "a", "change": "regressed", "margin_change": 1.5, "cluster_id": "c1",
            "category": "k1", "prompt": "is it a?", "choices": ["yes", "no"], "gold": [0],
            "baseline_prediction": "yes", "candidate_prediction": "no", "baseline_scores": [-1.0, -2.0],
            "candidate_scores": [-1.5, -1.0],
        }
    ]  # fmt: skip


def test_serbian_json_with_ties_failures_and_unmatched_items():
    baseline = [
        row("a", scores=None),
        row("b", False, scores=[-1.0, -1.0]),
        row("c", True),
        row("d", True),
        row("e", False, gold=()),
    ]
    candidate = [
        row("a", True),
        row("b", True, scores=[-1.0, -3.0]),
        row("c", False, prompt="?"),
        row("x", True),
        row("e", gold=()),
    ]
    duplicates = {"choices": ("yes", "yes"), "gold": (0,)}
    baseline.append(row("f", True, scores=[-1.0, -1.0], **duplicates) | {"correct": False})
    candidate.append(row("f", True, scores=[-1.0, -1.0], **duplicates))
    result = json.loads(serbian_json(baseline, candidate))
    assert result["summary"] == {
        "total": 3, "base_correct": 0, "adapter_correct": 3, "both_correct": 0, "both_wrong": 0, "adapter_only": 3,
        "base_only": 0, "net_gain": 3,
    }  # fmt: skip
    names = ("prompt", "base_predicted", "adapter_predicted")
    assert [tuple(example[name] for name in names) for example in result["examples"]] == [
        ("is it a?", None, "yes"), ("is it b?", None, "yes"), ("is it f?", "yes", "yes"),
    ]  # fmt: skip
    external = [row("a", True) | {"predicted_indices": None, "prediction": "as it was said"}]
    assert json.loads(serbian_json([row("a", False)], external))["examples"][0]["adapter_predicted"] == "as it was said"
    order = {"a": 2, "b": 0, "f": 1}
    result = json.loads(serbian_json(baseline, candidate, order))
    assert [example["prompt"] for example in result["examples"]] == [
        "is it b?", "is it f?", "is it a?"
    ]  # fmt: skip
    partial_order = {"b": 0, "f": -1}  # the position of one item is unknown
    result = json.loads(serbian_json(baseline, candidate, partial_order))
    assert [example["prompt"] for example in result["examples"]] == [
        "is it f?", "is it a?", "is it b?"
    ]  # fmt: skip
    assert serbian_json([row("a", True)], [row("b", True)]) is None
    assert serbian_json([row("a", True, prompt="?")], [row("a", True)]) is None


def test_serbian_json_summary_counts():
    outcomes = [(True, True)] * 4 + [(False, False)] * 3 + [(False, True)] * 2 + [(True, False)]
    baseline, candidate = ([row(f"i{k}", outcome[side]) for k, outcome in enumerate(outcomes)] for side in (0, 1))
    assert json.loads(serbian_json(baseline, candidate))["summary"] == {
        "total": 10, "base_correct": 5, "adapter_correct": 6, "both_correct": 4, "both_wrong": 3, "adapter_only": 2,
        "base_only": 1, "net_gain": 1,
    }  # fmt: skip
