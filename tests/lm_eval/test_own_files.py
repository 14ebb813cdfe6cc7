"""Custom task files: what they define, and that nothing in them runs without permission."""

import textwrap

import pytest
from vernacular.core.errors import ConfigError
from vernacular.lm_eval.own_files import check_untrusted, data_files, read_directories

METRICS = ("acc", "exact_match")
TASK = """
task: mine
dataset_path: json
dataset_kwargs: {data_files: {test: rows.jsonl}}
output_type: multiple_choice
metric_list: [{metric: acc}]
"""


@pytest.fixture
def write(tmp_path):
    """A function that writes files of the directory `own`, or of `package`, and reads `own`."""

    def read(files: dict[str, str]):
        (tmp_path / "own").mkdir(exist_ok=True)
        for name, text in files.items():
            path = tmp_path / ("" if name.startswith("package/") else "own") / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text), "utf-8")
        return read_directories([str(tmp_path / "own")], tmp_path / "package")

    return read


def test_tasks_groups_and_tags_are_found(write):
    own = write(
        {"mine.yaml": TASK + "tag: [labeled]\n", "all.yaml": "group: all\ntask: [mine]\n", "_default_yaml": "task: no"}
    )
    assert {name: entry.kind for name, entry in own.registry.items()} == {
        "mine": "task",
        "all": "group",
        "labeled": "tag",
    }
    assert own.registry["labeled"].members == ("mine",)
    check_untrusted("mine", own, METRICS)


def test_included_file_is_merged_and_part_of_the_sources(write):
    own = write({"sub/mine.yaml": "include: ../base\ntask: mine\n", "base": "output_type: loglikelihood\n"})
    assert own.configs["mine"]["output_type"] == "loglikelihood"
    assert {"mine.yaml", "base"} == {path.name for path in own.sources}


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("process_docs: !function functions.f", "process_docs"),
        ("metric_list: [{metric: !function functions.f}]", "metric_list.metric"),
        ("fewshot_config: {samples: !function functions.f}", "fewshot_config.samples"),
        (
            "filter_list: [{name: x, filter: [{function: custom, filter_fn: !function functions.f}]}]",
            "filter_list.filter.filter_fn",
        ),
        ("class: !function functions.Task", "class"),
        ("custom_dataset: functions.f", "custom_dataset"),
        ("use_prompt: 'promptsource:x'", "use_prompt"),
        ("unsafe_code: true", "unsafe_code"),
        ("metric_list: [{metric: code_eval}]", "metric_list"),
        ("metric_list: [{metric: acc, hf_evaluate: true}]", "metric_list"),
        ("dataset_path: pandas", "dataset_path"),
        ("dataset_kwargs: {storage_options: {x: 1}}", "dataset_kwargs.storage_options"),
    ],
)
def test_file_that_runs_code_is_rejected_with_its_key(write, line, key):
    name = line.partition(":")[0]
    kept = "".join(row + "\n" for row in TASK.splitlines() if not row.startswith(f"{name}:"))
    own = write({"mine.yaml": f"{kept}{line}\n"})
    with pytest.raises(ConfigError) as error:
        check_untrusted("mine", own, METRICS)
    assert f"mine.yaml: {key}: " in str(error.value)
    assert "trust_functions: true" in str(error.value)


def test_code_in_a_task_inside_a_group_is_rejected(write):
    own = write({"all.yaml": "group: all\ntask: [{task: x, dataset_path: json, process_docs: !function f.g}]\n"})
    with pytest.raises(ConfigError, match="process_docs"):
        check_untrusted("all", own, METRICS)


def test_function_of_the_package_is_trusted_also_if_included(write, tmp_path):
    files = {"package/base.yaml": "process_docs: !function utils.f\n"}
    own = write(files | {"mine.yaml": f"include: {tmp_path}/package/base.yaml\n{TASK}"})
    check_untrusted("mine", own, METRICS)


@pytest.mark.parametrize(
    "text", ["!!python/object/apply:os.system [ls]", "task: [", "include: no.yaml", "include: mine.yaml", "- a"]
)
def test_invalid_file_is_an_error_that_names_it(write, text):
    with pytest.raises(ConfigError, match=r"mine\.yaml"):
        write({"mine.yaml": text})


def test_data_files_are_listed_from_texts_lists_and_patterns(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a1.csv", "a2.csv"):
        (tmp_path / name).touch()
    files = {"train": "a*.csv", "test": ["b.csv", "https://x.org/c.csv"]}
    assert data_files({"dataset_kwargs": {"data_files": files}}) == ["a1.csv", "a2.csv", "b.csv"]
    assert data_files({"dataset_kwargs": None}) == []
