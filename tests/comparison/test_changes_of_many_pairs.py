"""Changed items of many pairs: equal to a reference implementation per pair; each results file is read once."""

import math
import multiprocessing
from collections import Counter
from itertools import combinations
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import observed, stages
from support.result_rows import EVALUATION, row
from support.soak import examples
from vernacular.comparison.schema import CHANGES
from vernacular.core import artifacts
from vernacular.core.errors import UserError
from vernacular.metrics.schema import METRICS, TASK_RESULTS
from vernacular.metrics.spans import margin
from vernacular.stages import changes, compare
from vernacular.stages.changes import align_outcomes, find_changes, sort_changes
from vernacular.types import SETTING

scores = st.none() | st.lists(st.none() | st.sampled_from([-2.0, -0.5, 0.0, -math.inf]), min_size=2, max_size=2)
outcomes = st.builds(
    lambda correct, scores, prompt, options: {
        "correct": correct,
        "scores": scores,
        "prompt": prompt,
        "choices": options,
    },
    st.none() | st.booleans(),
    scores,
    st.sampled_from(["?", "!"]),
    st.sampled_from([("yes", "no"), ("yes", "yes ")]),
)
sides = st.dictionaries(st.sampled_from("abcdé😀"), outcomes)


def build_rows(item_outcomes):
    rows = []
    for item_id, outcome in item_outcomes.items():
        item_row = row(item_id, outcome["correct"], prompt=outcome["prompt"], choices=outcome["choices"])
        rows.append(item_row | {"option_scores": outcome["scores"]})
    return rows


def expected_changes(baseline, candidate):
    """Return sorted (item ID, change, margin change) of two lists of rows, computed item by item."""
    baseline_by_id, records = {item_row["item_id"]: item_row for item_row in baseline}, []
    for candidate_row in candidate:
        baseline_row = baseline_by_id.get(candidate_row["item_id"])
        if (
            baseline_row is None
            or None in (baseline_row["correct"], candidate_row["correct"])
            or baseline_row["correct"] == candidate_row["correct"]
        ):
            continue
        if any(baseline_row[name] != candidate_row[name] for name in ("prompt", "choices", "gold")):
            continue
        correct_indices = [i for i, option in enumerate(candidate_row["choices"]) if option.strip() == "yes"]
        margins = [
            None if None in (item_scores or [None]) else margin(item_scores, correct_indices)
            for item_scores in (baseline_row["option_scores"], candidate_row["option_scores"])
        ]
        margin_change = None if None in margins else margins[1] - margins[0]
        if margin_change is None or not math.isfinite(margin_change):
            margin_change = None
        elif not candidate_row["correct"]:
            margin_change = -margin_change
        change = "improved" if candidate_row["correct"] else "regressed"
        records.append((candidate_row["item_id"], change, margin_change))
    return sorted(
        records, key=lambda record: (record[1] != "regressed", record[2] is None, -(record[2] or 0.0), record[0])
    )


@settings(deadline=None, max_examples=examples(60))
@given(sides, sides, sides)
def test_changes_of_aligned_pairs_match_reference_implementation(first, second, third):
    tables = {"one": build_rows(first), "two": build_rows(second), "three": build_rows(third)}
    aligned = align_outcomes(tables.items())
    for baseline, candidate in combinations(tables, 2):
        records = sort_changes(find_changes(aligned[baseline], aligned[candidate], "e")).to_pylist()
        assert [
            (record["item_id"], record["change"], record["margin_change"]) for record in records
        ] == expected_changes(tables[baseline], tables[candidate])
        baseline_rows, candidate_rows = (
            {record["item_id"]: record for record in tables[side]} for side in (baseline, candidate)
        )
        for record in records:
            assert record["baseline_scores"] == baseline_rows[record["item_id"]]["option_scores"]
            assert record["candidate_prediction"] == candidate_rows[record["item_id"]]["prediction"]
            assert record["prompt"] == candidate_rows[record["item_id"]]["prompt"]


def run(directory, models, threads=1, evaluations=("t.gl.options.0shot",), prompt="?"):
    """Run `compare` and `changes` on all pairs of `models`; return its message and the files of changed items."""
    for number, model in enumerate(models):
        model_dir, metadata = directory / "r" / model, {"fingerprint": model}
        for name in evaluations:
            outcomes = [(i + number) % 3 > 0 for i in range(6)]
            texts = [f"{name} {i} {prompt}" for i in range(6)]
            scores = [-1.0 - number, -2.0]
            rows = [row(f"i{i}", outcomes[i], scores=scores, prompt=texts[i]) for i in range(6)]
            artifacts.write(model_dir / "tasks" / f"{name}.parquet", TASK_RESULTS, rows, metadata)
        artifacts.write(model_dir / "metrics.parquet", METRICS, [], metadata)
    spec = {
        "models": models,
        "pairs": [*combinations(models, 2)],
    }
    setting = {name: EVALUATION[name] for name in SETTING} | {"items_stem": "t.gl"}
    spec["evaluations"] = {name: setting | {"task": name.partition(".")[0]} for name in evaluations}
    fields = {"spec": spec, "results": directory / "r", "threads": threads}
    tables = {"out": directory / "out", "pairs": directory / "out" / "pairs.parquet"}
    compare.compare(stages.arguments(compare.compare, **fields, **tables))
    fields |= {"items_dir": directory / "items_dir", "out": directory / "changes"}
    message = changes.changes(stages.arguments(changes.changes, **fields))
    files = sorted(path for path in fields["out"].rglob("*") if path.is_file())
    return message, {path.relative_to(directory): path.read_bytes() for path in files}


def test_results_files_are_read_twice_for_any_number_of_pairs(tmp_path):
    with observed.calls(artifacts.read, lambda arguments: arguments["path"]) as paths:
        message, files = run(tmp_path, ["a", "b", "c", "d", "e"])
    reads = Counter(paths)
    assert message.endswith(" of 10 pairs improved or regressed")
    # for the statistics and for the changed items
    assert {count for path, count in reads.items() if path.parent.name == "tasks"} == {2}
    assert len([path for path in files if not path.name.startswith(".vernacular")]) == 20


def test_changed_items_of_all_evaluations_are_not_in_memory_together(tmp_path):
    """Until a pair is written, its texts are in a file: 8 pairs have 16 items each with 20 KB, 2.5 MB."""
    names, before = [f"{task}.gl.options.0shot" for task in "zabc"], pa.total_allocated_bytes()
    with observed.calls(changes._write_pair, lambda arguments: pa.total_allocated_bytes()) as in_memory:
        _, files = run(tmp_path, ["m1", "m2", "m3", "m4", "m5"], evaluations=names, prompt="text " * 4_000)
    assert len(in_memory) == 10
    assert max(in_memory) - before < 700_000  # the tables of the last evaluation
    table = artifacts.read(tmp_path / "changes" / "m1--m3" / "changes.parquet", CHANGES)
    rows = table.to_pylist()
    assert [(row["evaluation"], row["change"]) for row in rows] == [
        (name, change) for change in ("regressed", "improved") for name in sorted(names) for _ in range(2)
    ]
    assert all(row["prompt"].startswith(f"{row['evaluation']} {row['item_id'][1:]} ") for row in rows)
    assert len(files[Path("changes/m1--m3/changes.csv")]) > 16 * 20_000


@pytest.mark.slow
def test_parallel_processes_write_identical_files(tmp_path, low_limits):
    expected = run(tmp_path / "alone", ["a", "b", "c"])
    low_limits("stages.changes", MIN_ITEMS_FOR_POOL=1)
    assert run(tmp_path / "together", ["a", "b", "c"], threads=2) == expected
    assert multiprocessing.active_children() == []


def test_write_error_leaves_no_process_and_no_temporary_file(tmp_path, low_limits):
    low_limits("stages.changes", MIN_ITEMS_FOR_POOL=1)
    (tmp_path / "changes" / "a--b" / "changes.csv").mkdir(parents=True)  # a directory at the path of an output file
    with pytest.raises(UserError, match=r"changes\.csv: expected a file that a run wrote"):
        run(tmp_path, ["a", "b", "c"], threads=2)
    assert multiprocessing.active_children() == []
    assert [path.name for path in (tmp_path / "changes").rglob("*.tmp")] == []
