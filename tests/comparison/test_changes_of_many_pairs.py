"""Won and lost items of many pairs at once: the rows that a plain reading of each pair gives, each file read once."""

import math
import multiprocessing
from collections import Counter
from itertools import combinations
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.result_rows import FACTS, row
from support.soak import examples
from vernacular.commands import compare as comparing
from vernacular.comparison.changes import changes, lay_out, worst_first
from vernacular.core import artifacts
from vernacular.metrics.choice import margin
from vernacular.metrics.schema import METRICS, TASK_RESULTS

scores = st.none() | st.lists(st.none() | st.sampled_from([-2.0, -0.5, 0.0, -math.inf]), min_size=2, max_size=2)
answers = st.builds(
    lambda right, found, prompt, options: {"right": right, "scores": found, "prompt": prompt, "choices": options},
    st.none() | st.booleans(),
    scores,
    st.sampled_from(["?", "!"]),
    st.sampled_from([("yes", "no"), ("yes", "yes ")]),
)
sides = st.dictionaries(st.sampled_from("abcdé😀"), answers)


def made(of_items):
    found = []
    for item_id, answer in of_items.items():
        one = row(item_id, answer["right"], prompt=answer["prompt"], choices=answer["choices"])
        found.append(one | {"option_scores": answer["scores"]})
    return found


def plain(was, now):
    """(item, change, by) of two lists of rows, item by item, as the columns of CHANGES are described."""
    before, found = {each["item_id"]: each for each in was}, []
    for after in now:
        one = before.get(after["item_id"])
        if one is None or None in (one["correct"], after["correct"]) or one["correct"] == after["correct"]:
            continue
        if any(one[name] != after[name] for name in ("prompt", "choices", "gold")):
            continue
        right = [i for i, option in enumerate(after["choices"]) if option.strip() == "yes"]
        margins = [
            None if None in (each["option_scores"] or [None]) else margin(each["option_scores"], right)
            for each in (one, after)
        ]
        by = None if None in margins else margins[1] - margins[0]
        by = None if by is None or not math.isfinite(by) else by if after["correct"] else -by
        found.append((after["item_id"], "improved" if after["correct"] else "regressed", by))
    return sorted(found, key=lambda each: (each[1] != "regressed", each[2] is None, -(each[2] or 0.0), each[0]))


@settings(deadline=None, max_examples=examples(60))
@given(sides, sides, sides)
def test_pairs_laid_out_together_change_as_each_would_alone(one, two, three):
    tables = {"one": made(one), "two": made(two), "three": made(three)}
    laid = lay_out(tables)
    for was, now in combinations(tables, 2):
        found = worst_first(changes(laid[was], laid[now], "e")).to_pylist()
        assert [(each["item_id"], each["change"], each["margin_change"]) for each in found] == plain(
            tables[was], tables[now]
        )
        before, after = ({each["item_id"]: each for each in tables[side]} for side in (was, now))
        for each in found:
            assert each["baseline_scores"] == before[each["item_id"]]["option_scores"]
            assert each["candidate_prediction"] == after[each["item_id"]]["prediction"]
            assert each["prompt"] == after[each["item_id"]]["prompt"]


def run(folder, models, threads=1):
    """`compare` of all pairs of `models` on one evaluation; what it says, and the files of won and lost items."""
    for number, model in enumerate(models):
        rows = [row(f"i{i}", (i + number) % 3 > 0, scores=[-1.0 - number, -2.0]) for i in range(6)]
        place, note = folder / "r" / model, {"fingerprint": model}
        artifacts.write(place / "tasks" / f"{FACTS['evaluation']}.parquet", TASK_RESULTS, rows, note)
        artifacts.write(place / "metrics.parquet", METRICS, [], note)
    spec = {"models": models, "pairs": [*combinations(models, 2)], "external_results": {}}
    spec["evaluations"] = {FACTS["evaluation"]: FACTS | {"items": "t.gl"}}
    folders = {name: folder / name for name in ("out", "changes", "items_dir")}
    said = comparing.compare(SimpleNamespace(spec=spec, results=folder / "r", threads=threads, **folders))
    files = sorted(path for path in folders["changes"].rglob("*") if path.is_file())
    return said, {path.relative_to(folder): path.read_bytes() for path in files}


def test_a_results_file_is_read_twice_however_many_pairs_it_is_in(tmp_path, monkeypatch):
    opened, read = Counter(), artifacts.read

    def counted(path, kind, **given):
        opened[path] += kind is TASK_RESULTS
        return read(path, kind, **given)

    monkeypatch.setattr(artifacts, "read", counted)
    said, files = run(tmp_path, ["a", "b", "c", "d", "e"])
    assert said.startswith("compare: 10 pairs, ")
    assert {count for path, count in opened.items() if path.parent.name == "tasks"} == {2}  # the numbers, the items
    assert len(files) == 20


def test_pairs_written_side_by_side_are_the_same_files(tmp_path, monkeypatch):
    alone = run(tmp_path / "alone", ["a", "b", "c"])
    monkeypatch.setattr(comparing, "_WORTH_PROCESSES", 1)
    assert run(tmp_path / "together", ["a", "b", "c"], threads=2) == alone
    assert multiprocessing.active_children() == []


def test_a_disk_that_fails_one_pair_leaves_no_process_and_no_temporary_file(tmp_path, monkeypatch):
    monkeypatch.setattr(comparing, "_WORTH_PROCESSES", 1)
    (tmp_path / "changes" / "a--b" / "changes.csv").mkdir(parents=True)  # where a file shall come to stand
    with pytest.raises(OSError, match=r"changes\.csv"):
        run(tmp_path, ["a", "b", "c"], threads=2)
    assert multiprocessing.active_children() == []
    assert [path.name for path in (tmp_path / "changes").rglob("*.tmp")] == []
