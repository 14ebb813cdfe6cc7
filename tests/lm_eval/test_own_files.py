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


@pytest.mark.parametrize("key", ["dataset_kwargs", "metric_list", "generation_kwargs", "tag"])
def test_malformed_value_in_a_group_has_no_files_and_no_code(write, key):
    own = write({"all.yaml": f"group: all\ntask: [{{task: x, dataset_path: json, {key}: 5}}]\n"})
    check_untrusted("all", own, METRICS)
    assert data_files(own.configs["all"]["task"][0]) == []


def test_function_of_the_package_is_trusted_also_if_included(write, tmp_path):
    files = {"package/base.yaml": "process_docs: !function utils.f\n"}
    own = write(files | {"mine.yaml": f"include: {tmp_path}/package/base.yaml\n{TASK}"})
    check_untrusted("mine", own, METRICS)


@pytest.mark.parametrize(
    "text",
    [
        "!!python/object/apply:os.system [ls]",
        "task: [",
        "include: no.yaml",
        "include: /dev/zero",
        "include: mine.yaml",
        "- a",
        "[" * 10**5,
    ],
)
def test_invalid_file_is_an_error_that_names_it(write, text):
    with pytest.raises(ConfigError, match=r"mine\.yaml"):
        write({"mine.yaml": text})


@pytest.mark.parametrize("name", ["b.yaml", ".yaml", "sub/.hidden.yaml"])
def test_two_files_with_one_name_are_an_error_that_names_both(write, name):
    with pytest.raises(ConfigError, match=r'"mine" is also defined in .*; rename one') as error:
        write({"a.yaml": TASK, name: f"{TASK}process_docs: !function functions.f\n"})
    assert "a.yaml" in str(error.value)
    assert name in str(error.value)


def test_two_directories_with_one_name_are_an_error_unless_it_is_one_file(write, tmp_path):
    write({"a.yaml": TASK, "other/a.yaml": "include: ../a.yaml\ntask: another\n"})
    both = [str(tmp_path / "own" / "other"), str(tmp_path / "own")]
    assert read_directories(both, tmp_path / "package").configs.keys() == {"mine", "another"}
    (tmp_path / "second").mkdir()
    (tmp_path / "second" / "link.yaml").symlink_to(tmp_path / "own" / "a.yaml")
    assert read_directories([*both, str(tmp_path / "second")], tmp_path / "package").configs.keys() == {
        "mine",
        "another",
    }
    (tmp_path / "second" / "link.yaml").unlink()
    (tmp_path / "second" / "b.yaml").write_text(TASK)
    with pytest.raises(ConfigError, match="second"):
        read_directories([*both, str(tmp_path / "second")], tmp_path / "package")


def test_name_of_a_task_that_is_also_a_tag_is_an_error(write):
    with pytest.raises(ConfigError, match=r'a.yaml: "mine" is also a tag'):
        write({"a.yaml": TASK, "b.yaml": "include: a.yaml\ntask: b\ntag: mine\n"})


@pytest.mark.parametrize(
    "text",
    [
        f"process_docs: !function functions.f\nprocess_docs: null\n{TASK}",  # PyYAML constructs both, lm-eval imports both
        f"? !function functions.f\n: 1\n{TASK}",
        f"include: base\nprocess_docs: null\n{TASK}",
        f"include: sub/base\nprocess_docs: null\n{TASK}",
    ],
)
def test_function_whose_value_is_replaced_needs_trust(write, text):
    base = "process_docs: !function functions.f\n"
    own = write({"mine.yaml": text, "base": base, "sub/base": "include: ../base\n", "functions.py": "f = 1\n"})
    with pytest.raises(ConfigError, match=r"mine\.yaml: !function: functions\.f runs Python"):
        check_untrusted("mine", own, METRICS)


def test_modules_beside_an_included_file_are_sources(write, tmp_path):
    (tmp_path / "elsewhere" / "inner").mkdir(parents=True)
    for name in ("functions.py", "helper.py", "inner/deep.py"):
        (tmp_path / "elsewhere" / name).touch()
    (tmp_path / "elsewhere" / "base").write_text(
        "process_docs: !function functions.f\ndoc_to_text: !function inner.deep.g\n"
    )
    own = write({"mine.yaml": f"include: ../elsewhere/base\n{TASK}"})
    expected = {"mine.yaml", "base", "functions.py", "helper.py", "deep.py"}
    assert {path.name for path in own.sources} == expected


@pytest.mark.parametrize("line", ["tag: 5", "dataset_kwargs: [a]", "metric_list: acc", "generation_kwargs: 1"])
def test_value_of_another_kind_is_an_error_that_names_its_key(write, line):
    key = line.partition(":")[0]
    with pytest.raises(ConfigError, match=rf"mine\.yaml: {key}: expected a "):
        write({"mine.yaml": f"{TASK}{line}\n"})


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ("file:///data/a.jsonl", ["/data/a.jsonl"]),
        ({"test": "zip://a.jsonl::z.zip", "train": ["local:///b.csv", "gzip://c::c.gz"]}, ["/b.csv", "c.gz", "z.zip"]),
        ([{"split": "test", "path": ["file:a.csv", "zip://x::file://y.zip"]}], ["a.csv", "y.zip"]),
        (["hf://datasets/x/a.csv", "https://x.org/c.csv", "zip://a::https://x.org/z.zip"], []),
    ],
)
def test_local_files_in_urls_are_data_files(files, expected):
    assert data_files({"dataset_path": "json", "dataset_kwargs": {"data_files": files}}) == expected


def test_data_files_are_relative_to_the_data_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "set" / "rows").mkdir(parents=True)
    for name in ("rows/a.csv", "README.md"):
        (tmp_path / "set" / name).touch()
    options = {"data_dir": "set/rows", "data_files": {"test": "a*.csv"}}
    assert data_files({"dataset_path": "csv", "dataset_kwargs": options}) == ["set/rows/a.csv"]
    assert data_files({"dataset_path": "set"}) == ["set/README.md", "set/rows/a.csv"]


def test_data_files_are_listed_from_texts_lists_and_patterns(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a1.csv", "a2.csv"):
        (tmp_path / name).touch()
    files = {"train": "a*.csv", "test": ["b.csv", "https://x.org/c.csv"]}
    assert data_files({"dataset_kwargs": {"data_files": files}}) == ["a1.csv", "a2.csv", "b.csv"]
    assert data_files({"dataset_kwargs": None}) == []
