"""Published values: the table is complete, its configs are valid, and differences are measured in standard errors."""

import doctest
import json
import math

import pytest
import yaml
from replicate import published
from vernacular.config.load import load
from vernacular.lm_eval.catalog import FORMAT, index_path, read_index

ROWS = published.read()
GROUPS = sorted({row.group for row in ROWS})


def of(group: str) -> list[published.Published]:
    return [row for row in ROWS if row.group == group]


def result(row, name: str, value, n: int, **fields) -> dict:
    return {"model": row.model, "task": name, "metric": row.metric, "value": value, "n": n, "category": "",
            "prompt": "default"} | fields  # fmt: skip


def test_table_lists_all_three_sources():
    assert {row.citation for row in ROWS} == set(published.CITATIONS.values())
    assert all(0 < row.value < 1 and 0 < row.stderr < 0.05 and row.note for row in ROWS)
    assert all(len(row.n) == len(row.evaluations) for row in ROWS)


@pytest.mark.parametrize("group", GROUPS)
def test_config_of_a_group_has_its_models_and_evaluations(group, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    python = tmp_path / "env" / "bin" / "python"
    python.parent.mkdir(parents=True)
    names = {name.partition(":")[2] for row in of(group) for name in row.evaluations if name.startswith("lm_eval:")}
    task = {"file": "a.yaml", "config": {"output_type": "multiple_choice"}, "reason": None}
    index = {"format": FORMAT, "versions": {"lm_eval": "0.4.13"}, "python": "3.11", "directory": "/nowhere/tasks",
             "metrics": ["acc"], "tasks": dict.fromkeys(names, task), "groups": {}, "tags": {}}  # fmt: skip
    index_path(python).write_text(json.dumps(index))
    read_index.cache_clear()
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(published.config(of(group), str(python))))
    config = load([tmp_path / "config.yaml"])
    assert {evaluation.task for evaluation in config.evaluations.values()} == {
        name.partition(":")[2] for row in of(group) for name in row.evaluations
    }
    assert set(config.models) == {row.model for row in of(group)}


def test_standard_error_is_that_of_lm_eval():
    pythia = next(row for row in of("pythia") if row.evaluations == ("lm_eval:sciq",))
    assert published.standard_error([pythia.value], pythia.n) == pytest.approx(pythia.stderr, abs=1e-4)


def test_examples():
    assert doctest.testmod(published).failed == 0


def test_mean_of_two_sets_is_compared():
    row = next(row for row in of("smollm2") if len(row.evaluations) == 2)
    values = [result(row, "arc_easy", 0.6, 2376), result(row, "arc_challenge", 0.3, 1172)]
    [found] = published.replicate([row], values)
    assert found.value == pytest.approx(0.45)
    expected = math.sqrt(0.6 * 0.4 / 2375 + 0.3 * 0.7 / 1171) / 2
    assert found.stderr == pytest.approx(expected)
    assert found.explanation == "within two standard errors"
    assert found.distance == pytest.approx((0.45 - row.value) / math.hypot(expected, row.stderr))


def test_distant_value_is_explained_by_the_note():
    [row] = of("gpt2")
    [found] = published.replicate([row], [result(row, "blimp", 0.7, 67000)])
    assert found.distance < -2
    assert found.explanation.endswith(row.note)


@pytest.mark.parametrize("fields", [{"value": None}, {"category": "anaphor"}, {"model": "other"}, {"prompt": "all"}])
def test_absent_value_is_named(fields):
    [row] = of("gpt2")
    [found] = published.replicate([row], [result(row, "blimp", 0.8, 67000) | fields])
    assert (found.value, found.explanation) == (None, "no value of blimp")
