"""Values of other tools without items: files that these tools wrote (stated/), their versions, mistakes and damage."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from vernacular.core.errors import DataError
from vernacular.exchange.aggregates import is_aggregates, read_aggregates
from vernacular.exchange.external_results import result_files
from vernacular.exchange.unpaired import OTHER, SAME, independent, unpaired_rows

STATED = Path(__file__).parent / "stated"
COMMIT = "a" * 40
OWN = dict(
    model="mine",
    evaluation="rivers.gl.letters.0shot",
    metric="accuracy",
    unit="share",
    higher_is_better=True,
    value=0.64,
    ci_low=0.64 - 1.96 * 0.02,
    ci_high=0.64 + 1.96 * 0.02,
    n=5,
    shots=0,
    dataset="org/rivers",
    configuration="gl",
    split="test",
    revision=COMMIT,
)


def read(name: str):
    found, _ = read_aggregates(STATED / name)
    return {(row.task, row.metric): row for row in found}


def write(path: Path, content) -> Path:
    path.write_text(json.dumps(content))
    return path


def changed(tmp_path, name: str, change) -> tuple[list, list[str]]:
    """Read a stated file after a change of its content."""
    content = json.loads((STATED / name).read_text())
    change(content)
    return read_aggregates(write(tmp_path / name, content))


def olmo(**source) -> dict:
    content = json.loads((STATED / "olmo_eval-2026.json").read_text())
    content["tasks"][0]["config"]["data_source"] |= source
    return content


def test_lm_eval():
    row = read("lm_eval-0.4.13.json")["rivers_gl", "accuracy"]
    assert (row.value, row.se, row.n, row.shots, row.version) == (0.2, pytest.approx(0.2), 5, 0, "0.4.13")
    assert (row.model, row.dataset, row.split, row.revision) == ("acme/tiny", "json", "test", None)
    assert row.higher_is_better is True


def test_every_eval_ever_repeats_lm_eval():
    own, record = read("lm_eval-0.4.13.json"), read("every_eval_ever-0.3.0-lm_eval.json")
    assert own.keys() == record.keys()
    for key, row in own.items():
        for name in ("value", "se", "n", "model", "higher_is_better"):
            assert getattr(record[key], name) == getattr(row, name), (key, name)


def test_every_eval_ever_of_inspect():
    rows = read("every_eval_ever-0.3.0-inspect.json")
    row = rows[next(key for key in rows if key[1] == "accuracy")]
    assert (row.value, row.tool, row.n) == (0.6, "inspect", 5)
    assert row.se == pytest.approx(math.sqrt(0.6 * 0.4 / 4))


def test_every_eval_ever_of_helm():
    rows, _ = read_aggregates(STATED / "every_eval_ever-0.3.0-helm.json")
    plain, changed, validation = rows
    assert {(row.task, row.metric, row.tool, row.model) for row in rows} == {
        ("rivers", "exact_match", "helm", "simple/model1")
    }
    assert [(row.split, row.n, row.value, row.se) for row in rows] == [
        ("test", 5, 0, None),
        ("test", 5, 0, None),
        ("valid", 1, 0, None),
    ]
    assert (plain.version, plain.dataset, plain.other_items, validation.other_items) == (None,) * 4
    assert changed.other_items == "HELM's items, changed: lowercase"


def test_euroeval():
    rows = read("euroeval-18.3.0.jsonl")
    row = rows["belebele-gl", "accuracy"]
    assert (row.value, row.ci_low, row.ci_high) == pytest.approx((0.64, 0.62, 0.66))
    assert row.se == pytest.approx(0.02 / 1.96, rel=1e-4)
    assert row.n is None  # 10 is the number of iterations
    assert row.other_items
    bits = rows["bpc-gl", "answer_bits_per_character"]
    assert (bits.value, bits.higher_is_better) == (1.2, False)  # stated as better if higher, and of 0 to 100


def test_euroeval_and_every_eval_ever_give_the_same_row(tmp_path):
    line = (STATED / "euroeval-18.3.0.jsonl").read_text().splitlines()[1]
    record = read_aggregates(write(tmp_path / "record.json", json.loads(line)))[0]
    lines = [row for row in read_aggregates(STATED / "euroeval-18.3.0.jsonl")[0] if row.task == "belebele-gl"]
    assert [replace(row, file="") for row in record] == [replace(row, file="") for row in lines]


def test_euroeval_before_its_records_of_every_eval_ever(tmp_path):
    old = {"dataset": "belebele-gl", "model": "org/model", "few_shot": False, "scandeval_version": "14.0"}
    total = {"test_accuracy": 64.0, "test_accuracy_se": 2.0, "test_speed": 900.0}
    path = tmp_path / "scandeval_benchmark_results.jsonl"
    path.write_text(json.dumps(old | {"results": {"raw": [], "total": total}}) + "\n")
    assert is_aggregates(path)
    [row] = read_aggregates(path)[0]
    new = read("euroeval-18.3.0.jsonl")["belebele-gl", "accuracy"]
    assert (row.value, row.se, row.metric) == (new.value, new.se, new.metric)
    assert (row.shots, row.version) == (0, "14.0")


def test_olmo_eval():
    row = read("olmo_eval-2026.json")["rivers:mc", "accuracy"]
    assert (row.value, row.n, row.shots, row.dataset, row.configuration) == (0.6, 5, 0, "org/rivers", "gl")
    assert (row.split, row.revision, row.se) == ("test", COMMIT, None)


def test_olmo_eval_before_scorers(tmp_path):
    def flat(content):
        content["tasks"][0]["metrics"] = {"accuracy": 0.6, "bits_per_byte": float("nan")}

    rows, notes = changed(tmp_path, "olmo_eval-2026.json", flat)
    assert [(row.metric, row.value) for row in rows] == [("accuracy", 0.6)]
    assert "1 value not used" in notes[0]


LIGHTEVAL = {
    "config_general": {"lighteval_sha": "?", "model_name": "org/model"},
    "results": {"rivers:gl|0": {"acc": 0.6, "acc_stderr": 0.2}, "all": {"acc": 0.6, "acc_stderr": 0.2}},
    "config_tasks": {
        "rivers:gl|0": {
            "hf_repo": "org/rivers",
            "hf_subset": "gl",
            "hf_revision": COMMIT,
            "evaluation_splits": ["test"],
            "effective_num_docs": 5,
            "num_fewshots": 0,
        }
    },
}


def test_lighteval_states_no_number_of_items():
    [row] = read_aggregates(STATED / "lighteval-0.13.0.json")[0]
    assert (row.task, row.metric, row.value, row.model) == ("rivers:gl|0", "accuracy", 0.4, "org/dummy")
    assert (row.se, row.shots, row.split, row.configuration) == (pytest.approx(0.06**0.5), 0, "test", "default")
    assert (row.n, row.version, row.revision, row.higher_is_better) == (None, None, None, True)  # -1 items


@pytest.mark.parametrize("version", ["0.13", "0.8"])
def test_lighteval(tmp_path, version):
    text = json.dumps(LIGHTEVAL)
    if version == "0.8":
        text = text.replace('"results": {"rivers:gl|0"', '"results": {"lighteval|rivers:gl|0|0"')
        text = text.replace('"config_tasks": {"rivers:gl|0"', '"config_tasks": {"lighteval|rivers:gl|0|0"')
    [row] = read_aggregates(write(tmp_path / "results_2026.json", json.loads(text)))[0]
    assert (row.value, row.se, row.n, row.shots, row.split) == (0.6, 0.2, 5, 0, "test")
    assert (row.dataset, row.configuration, row.revision) == ("org/rivers", "gl", COMMIT)


def test_lm_eval_before_filters(tmp_path):
    def old(content):
        content["results"]["rivers_gl"] = {"acc": 0.2, "acc_stderr": 0.2, "ppl": "N/A"}
        del content["n-samples"], content["n-shot"], content["configs"], content["higher_is_better"]
        content["config"] |= {"num_fewshot": 3, "model_args": "pretrained=acme/tiny,dtype=float32"}

    rows, notes = changed(tmp_path, "lm_eval-0.4.13.json", old)
    assert [(row.metric, row.value, row.se, row.shots, row.n, row.model) for row in rows] == [
        ("accuracy", 0.2, 0.2, 3, None, "acme/tiny")
    ]
    assert "1 value not used" in notes[0]


def test_filters_are_metrics_of_their_own(tmp_path):
    def filtered(content):
        values = {"exact_match,strict-match": 0.2, "exact_match_stderr,strict-match": 0.1, "exact_match,flexible": 0.4}
        content["results"]["rivers_gl"] = values

    rows, _ = changed(tmp_path, "lm_eval-0.4.13.json", filtered)
    found = [(row.metric, row.value, row.se) for row in rows]
    assert found == [("exact_match,strict-match", 0.2, 0.1), ("exact_match,flexible", 0.4, None)]


@pytest.mark.parametrize("name", [path.name for path in sorted(STATED.glob("*.json"))])
def test_missing_renamed_and_impossible_fields(tmp_path, name):
    """Each field alone is removed, renamed or made NaN: no other error than one that names the file."""

    def paths(value, path=()):
        items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, each in items:
            yield (*path, key)
            yield from paths(each, (*path, key))

    content = json.loads((STATED / name).read_text())
    for path in list(paths(content)):
        for change in ("missing", "renamed", math.nan, None, "text", [1], {"a": {}}, -5, 1e308):
            damaged = json.loads((STATED / name).read_text())
            *above, key = path
            parent = damaged
            for step in above:
                parent = parent[step]
            if change in ("missing", "renamed") and isinstance(parent, dict):
                value = parent.pop(key)
                parent |= {f"{key}_new": value} if change == "renamed" else {}
            elif change not in ("missing", "renamed"):
                parent[key] = change
            try:
                rows, _ = read_aggregates(write(tmp_path / "damaged.json", damaged))
            except DataError:  # no known format any more
                continue
            assert all(math.isfinite(row.value) for row in rows), path
            for row in unpaired_rows("them", rows, [OWN]):
                assert row["items"] == OTHER or name.startswith("olmo"), path


def record(low, high, level) -> dict:
    interval = {"confidence_interval": {"lower": low, "upper": high, "confidence_level": level}}
    result = {"metric_config": {"metric_name": "accuracy"}, "score_details": {"score": 0.5, "uncertainty": interval}}
    return {"model_info": {"name": "m"}, "evaluation_results": [result | {"evaluation_name": "t"}]}


def euroeval(value, radius) -> dict:
    return {"dataset": "d", "model": "m", "results": {"test_mcc": value, "test_mcc_se": radius}}


@pytest.mark.parametrize(
    "content",
    [
        record(-(10**400), 10**400, 0.95),
        record(0.4, 0.6, 1e-300),
        record(0.4, 0.6, 1 - 1e-16),
        euroeval(50, 10**400),
        euroeval(50, True),
    ],
)
def test_impossible_intervals_are_not_stated(tmp_path, content):
    [row] = read_aggregates(write(tmp_path / "x.json", content))[0]
    assert (row.value, row.se, row.ci_low) == (0.5, None, None)


def test_values_not_used_are_named(tmp_path):
    _, [note] = read_aggregates(write(tmp_path / "x.json", euroeval("50 %", None)))
    assert 'x.json: 1 value not used (d, mcc: "50 %")' in note


def test_groups_without_their_subtasks(tmp_path):
    content = {"config": {}, "versions": {}, "results": {"g": {"acc,none": 0.5}, "a": {"acc,none": 0.4}}}
    rows, _ = read_aggregates(write(tmp_path / "x.json", content | {"groups": {"g": {"acc,none": 0.5}}}))
    assert [row.task for row in rows] == ["a"]


def test_repeated_task_is_an_error(tmp_path):
    (tmp_path / "x.json").write_text(
        '{"config": {}, "versions": {}, "results": {"a": {"acc": 0.4}, "a": {"acc": 0.9}}}'
    )
    with pytest.raises(DataError, match=r'x\.json: not valid JSON \(duplicate key "a"\)'):
        read_aggregates(tmp_path / "x.json")


def test_blank_lines_come_first(tmp_path):
    (tmp_path / "x.jsonl").write_text("\n" + json.dumps(euroeval(50, 1)))
    assert is_aggregates(tmp_path / "x.jsonl")


def test_unknown_format_is_named(tmp_path):
    with pytest.raises(DataError, match=r"x\.json: not a file of results of Every Eval Ever.*keys: hello"):
        read_aggregates(write(tmp_path / "x.json", {"hello": 1}))


def test_two_independent_values():
    found = independent(0.60, 0.02, 0.64, 0.02)
    assert (round(found["z"], 2), round(found["p_value"], 3)) == (1.41, 0.157)
    assert found["difference"] == pytest.approx(0.04)
    assert found["difference_high"] - found["difference"] == pytest.approx(1.96 * math.hypot(0.02, 0.02), rel=1e-4)


def rows_of(tmp_path, **source) -> list[dict]:
    found, _ = read_aggregates(write(tmp_path / "metrics.json", olmo(**source)))
    return unpaired_rows("them", [replace(row, se=0.02) for row in found], [OWN])


def test_the_same_items_are_compared(tmp_path):
    [row] = rows_of(tmp_path)
    assert (row["items"], row["model"], row["value"], row["outside_value"]) == (SAME, "mine", 0.64, 0.6)
    assert (round(row["z"], 2), round(row["p_value"], 3)) == (1.41, 0.157)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ({"revision": "b" * 40}, "dataset revision: b"),
        ({"revision": None}, "dataset revision not stated"),
        ({"subset": "pt"}, "configuration: pt, here gl"),
        ({"split": "dev"}, "split: dev, here test"),
        ({"path": "other/rivers"}, "dataset: other/rivers"),
    ],
)
def test_a_name_alone_identifies_nothing(tmp_path, source, reason):
    [row] = rows_of(tmp_path, **source)
    assert row["items"] == OTHER
    assert row["note"].startswith(reason)
    assert row["model"] is row["value"] is row["difference"] is None


def test_a_share_has_its_unit_without_a_value_beside_it(tmp_path):
    path = write(tmp_path / "metrics.json", {"tasks": [{"task": "rivers", "metrics": {"acc": 0.5, "f1": 0.5}}]})
    found = unpaired_rows("them", read_aggregates(path)[0], [OWN])
    assert [(row["items"], row["metric"], row["unit"]) for row in found] == [
        (OTHER, "accuracy", "share"),
        (OTHER, "f1", None),
    ]


def test_euroeval_is_beside_no_value():
    rows, _ = read_aggregates(STATED / "euroeval-18.3.0.jsonl")
    own = OWN | {"dataset": "belebele-gl"}
    assert {row["items"] for row in unpaired_rows("them", rows, [own])} == {OTHER}


def test_samples_of_a_record_are_not_results(tmp_path):
    for name in ("a.json", "a_samples.jsonl"):
        (tmp_path / name).write_text((STATED / "every_eval_ever-0.3.0-lm_eval.json").read_text())
    assert [file.name for file in result_files(tmp_path)] == ["a.json"]


def test_files_above_a_limit_are_refused(low_limits):
    file = STATED / "lm_eval-0.4.13.json"
    assert is_aggregates(file)
    low_limits("exchange.aggregates", MAX_ROWS=0)
    with pytest.raises(DataError, match="more than 0 values"):
        read_aggregates(file)
    low_limits("exchange.aggregates", MAX_BYTES=100)
    assert not is_aggregates(file)
