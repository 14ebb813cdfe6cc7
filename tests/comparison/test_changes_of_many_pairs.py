"""Won and lost items of many pairs at once: the rows that a plain reading of each pair gives, each file read once."""

import math
from collections import Counter
from itertools import combinations
from types import SimpleNamespace

from hypothesis import given, settings
from hypothesis import strategies as st
from result_rows import FACTS, row
from vernacular import artifacts, comparing
from vernacular.comparison.changes import changes, lay_out, worst_first
from vernacular.metrics.choosing import margin
from vernacular.metrics.schema import METRICS, TASK_RESULTS

scores = st.none() | st.lists(st.none() | st.sampled_from([-2.0, -0.5, 0.0, -math.inf]), min_size=2, max_size=2)
answers = st.builds(
    lambda right, found, prompt, options: {"right": right, "scores": found, "prompt": prompt, "options": options},
    st.none() | st.booleans(),
    scores,
    st.sampled_from(["?", "!"]),
    st.sampled_from([("yes", "no"), ("yes", "yes ")]),
)
sides = st.dictionaries(st.sampled_from("abcdé😀"), answers)


def made(of_items):
    found = []
    for item_id, answer in of_items.items():
        one = row(item_id, answer["right"], prompt=answer["prompt"], options=answer["options"])
        found.append(one | {"option_scores": answer["scores"]})
    return found


def plain(was, now):
    """(item, change, by) of two lists of rows, item by item, as the columns of CHANGES are described."""
    before, found = {each["item_id"]: each for each in was}, []
    for after in now:
        one = before.get(after["item_id"])
        if one is None or None in (one["correct"], after["correct"]) or one["correct"] == after["correct"]:
            continue
        if any(one[name] != after[name] for name in ("prompt", "options", "gold")):
            continue
        right = [i for i, option in enumerate(after["options"]) if option.strip() == "yes"]
        margins = [
            None if None in (each["option_scores"] or [None]) else margin(each["option_scores"], right)
            for each in (one, after)
        ]
        by = None if None in margins else margins[1] - margins[0]
        by = None if by is None or not math.isfinite(by) else by if after["correct"] else -by
        found.append((after["item_id"], "won" if after["correct"] else "lost", by))
    return sorted(found, key=lambda each: (each[1] != "lost", each[2] is None, -(each[2] or 0.0), each[0]))


@settings(deadline=None, max_examples=60)
@given(sides, sides, sides)
def test_pairs_laid_out_together_change_as_each_would_alone(one, two, three):
    tables = {"one": made(one), "two": made(two), "three": made(three)}
    laid = lay_out(tables)
    for was, now in combinations(tables, 2):
        found = worst_first(changes(laid[was], laid[now], "e")).to_pylist()
        assert [(each["item_id"], each["change"], each["by"]) for each in found] == plain(tables[was], tables[now])
        before, after = ({each["item_id"]: each for each in tables[side]} for side in (was, now))
        for each in found:
            assert each["baseline_scores"] == before[each["item_id"]]["option_scores"]
            assert each["candidate_prediction"] == after[each["item_id"]]["prediction"]
            assert each["prompt"] == after[each["item_id"]]["prompt"]


def test_a_results_file_is_read_twice_however_many_pairs_it_is_in(tmp_path, monkeypatch):
    models, evaluation = ["a", "b", "c", "d", "e"], FACTS["evaluation"]
    for number, model in enumerate(models):
        rows = [row(f"i{i}", (i + number) % 3 > 0) for i in range(6)]
        note = {"fingerprint": model}
        artifacts.write(tmp_path / "r" / model / "tasks" / f"{evaluation}.parquet", TASK_RESULTS, rows, note)
        artifacts.write(tmp_path / "r" / model / "metrics.parquet", METRICS, [], note)
    opened, read = Counter(), artifacts.read

    def counted(path, kind, **given):
        opened[path] += kind is TASK_RESULTS
        return read(path, kind, **given)

    monkeypatch.setattr(artifacts, "read", counted)
    spec = {"models": models, "pairs": [*combinations(models, 2)], "joined": {}}
    spec["evaluations"] = {evaluation: FACTS | {"items": "t.gl"}}
    folders = {name: tmp_path / name for name in ("out", "changes", "items_folder")}
    said = comparing.compare(SimpleNamespace(spec=spec, results=tmp_path / "r", threads=2, **folders))
    assert said.startswith("compare: 10 pairs, ")
    assert {count for path, count in opened.items() if path.parent.name == "tasks"} == {2}  # the numbers, the items
    assert {path.parent.name for path in folders["changes"].rglob("*.csv")} == {"--".join(p) for p in spec["pairs"]}
