"""lm-eval task files: supported keys, errors for unsupported ones, and functions that require trust."""

import textwrap

import pytest
from support.lm_eval_files import settings, write
from support.messages import assert_states
from vernacular.core.errors import ConfigError
from vernacular.data.lm_eval import task_file
from vernacular.data.lm_eval.settings import translate
from vernacular.data.tasks import load_task

TASK_FILE = """
    task: small
    dataset_path: owner/set
    output_type: multiple_choice
    test_split: test
    doc_to_text: question
    doc_to_target: right
    doc_to_choice: [no, yes]
"""


def error_message(directory, text, **source) -> str:
    with pytest.raises(ConfigError) as error:
        settings(directory, text, **source)
    return str(error.value)


def test_local_keys_override_nested_includes(tmp_path):
    write(tmp_path, "base/_common_yaml", "dataset_path: owner/base\ntest_split: test\ndoc_to_text: a\n")
    write(tmp_path, "_middle_yaml", "include: base/_common_yaml\ndoc_to_text: b\n")
    write(tmp_path, "leaf.yaml", "include: [_middle_yaml]\ntask: leaf\ntest_split: dev\n")
    content, _ = task_file.read("leaf.yaml", tmp_path)
    assert content == {"dataset_path": "owner/base", "test_split": "dev", "doc_to_text": "b", "task": "leaf"}


def test_circular_include_raises_config_error(tmp_path):
    write(tmp_path, "a.yaml", "include: b.yaml\n")
    write(tmp_path, "b.yaml", "include: a.yaml\n")
    with pytest.raises(ConfigError) as raised:
        task_file.read("a.yaml", tmp_path)
    assert_states(raised.value, "a.yaml", "itself", "b.yaml")


def test_missing_include_raises_config_error(tmp_path):
    write(tmp_path, "a.yaml", "include: _gone_yaml\n")
    with pytest.raises(ConfigError) as raised:
        task_file.read("a.yaml", tmp_path)
    assert_states(raised.value, "a.yaml", "include", "not found", "_gone_yaml")


def test_group_raises_config_error_with_its_tasks(tmp_path):
    write(tmp_path, "g.yaml", "group: bench\ntask: [one, two]\n")
    with pytest.raises(ConfigError) as raised:
        task_file.read("g.yaml", tmp_path)
    assert_states(raised.value, "g.yaml", "group", "one, two")


def test_installed_task_is_found_by_name_with_suggestions(tmp_path, monkeypatch):
    monkeypatch.setattr(task_file, "installed", lambda: tmp_path)
    write(tmp_path, "family/one.yaml", "tag: many\ntask: family_gl\n")
    write(tmp_path, "family/group.yaml", "group: family\ntask:\n  - family_gl\n")
    assert task_file.find("family_gl", tmp_path / "elsewhere").name == "one.yaml"
    for name, parts in {
        "family_g": ("not found", '"family_gl"'),
        "many": ("tag", "family_gl"),
        "family": ("group", "family_gl"),
    }.items():
        with pytest.raises(ConfigError) as raised:
            task_file.find(name, tmp_path / "elsewhere")
        assert_states(raised.value, f'"{name}"', *parts)


def test_task_name_requires_installed_lm_eval(tmp_path, monkeypatch):
    monkeypatch.setattr(task_file, "installed", lambda: None)
    with pytest.raises(ConfigError) as raised:
        task_file.find("belebele_glg_Latn", tmp_path)
    assert_states(raised.value, '"belebele_glg_Latn"', "lm_eval", "not installed")


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("use_prompt: promptsource", ("use_prompt", "not supported")),
        ("doc_to_image: picture", ("doc_to_image", "not supported")),
        ("output_type: loglikelihood_rolling", ("output_type", "loglikelihood_rolling", "not supported")),
        ("repeats: 3", ("repeats", "not supported")),
        ("unsafe_code: true", ("unsafe_code", "not supported")),
        ("fewshot_config: {fewshot_indices: [1]}", ("fewshot_config.fewshot_indices", "not supported")),
        ("fewshot_config: {sampler: balanced}", ("fewshot_config.sampler", "not supported")),
        ("dataset_kwargs: {data_dir: here}", ("dataset_kwargs.data_dir", "not supported")),
        ("doc_to_text: '{{question'", ("doc_to_text", "Jinja")),
        ("doc_to_choice: null", ('"doc_to_choice"', "missing")),
        ("test_split: null", ('"test_split"', '"validation_split"', "missing")),
        ("dataset_path: null", ('"dataset_path"', "missing")),
        ("dataset_path: ./data", ("dataset_path", "./data", "directory", "data_files")),
    ],
)
def test_unsupported_key_raises_config_error_with_file_and_key(tmp_path, line, parts):
    key = line.split(":")[0]
    text = "\n".join(setting for setting in textwrap.dedent(TASK_FILE).split("\n") if not setting.startswith(f"{key}:"))
    assert_states(error_message(tmp_path, f"{text}\n{line}\n"), "theirs.yaml", *parts)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("generation_kwargs: {do_sample: true}", "do_sample"),
        ("generation_kwargs: {temperature: 0.7}", "do_sample"),
        ("generation_kwargs: {top_p: 0.9}", r"generation_kwargs\.top_p"),
        ("filter_list: [{name: f, filter: [{function: regex, regex_pattern: x}]}]", "the filter regex"),
    ],
)
def test_unsupported_generation_settings_raise_config_error(tmp_path, line, message):
    text = (
        textwrap.dedent(TASK_FILE)
        .replace("multiple_choice", "generate_until")
        .replace("doc_to_choice: [no, yes]", line)
    )
    with pytest.raises(ConfigError, match=message):
        settings(tmp_path, text)


def test_untrusted_function_raises_config_error_with_name_and_key(tmp_path):
    write(tmp_path, "tools.py", "raise SystemExit('run!')\n")
    text = textwrap.dedent(TASK_FILE) + "process_docs: !function tools.tidy\n"
    message = error_message(tmp_path, text)
    assert_states(message, "theirs.yaml", "process_docs", "tools.tidy", "trust_functions: true")
    _, lm_eval_settings = settings(
        tmp_path, text, trust_functions=True
    )  # not run: only its name and the hash of its module
    assert (lm_eval_settings["process_docs"]["function"], lm_eval_settings["process_docs"]["file"]) == (
        "tools.tidy",
        "tools.py",
    )
    assert len(lm_eval_settings["process_docs"]["sha256"]) == 64


def test_functions_without_effect_on_prompts_are_noted(tmp_path):
    text = (
        textwrap.dedent(TASK_FILE).replace("multiple_choice", "generate_until").replace("doc_to_choice: [no, yes]", "")
    )
    text += "process_results: !function tools.f1\nmetric_list: [{metric: bleu}, {metric: !function tools.rouge}]\n"
    _, lm_eval_settings = settings(tmp_path, text)
    assert_states(lm_eval_settings["notes"][0], "theirs.yaml", "bleu, tools.rouge", "not computed")
    assert_states(lm_eval_settings["notes"][1], "theirs.yaml", "process_results", "tools.f1", "not run")


def test_splits_are_selected_as_in_lm_eval(tmp_path):
    source, lm_eval_settings = settings(
        tmp_path, textwrap.dedent(TASK_FILE) + "training_split: train\ndataset_name: gl\n"
    )
    assert source == {"hub": "owner/set", "config": "gl", "split": "test", "few_shot": "train"}
    assert lm_eval_settings["exclude"] is False
    # neither a few-shot split nor a test split: lm-eval compares the two names and excludes a row from its own examples
    source, lm_eval_settings = settings(tmp_path, TASK_FILE.replace("test_split: test", "validation_split: dev"))
    assert source == {"hub": "owner/set", "split": "dev", "few_shot": "dev"}
    assert lm_eval_settings["exclude"] is True


def test_data_files_of_one_repository_become_a_hub_source(tmp_path):
    data_files = "{train: hf://datasets/o/n/train.csv, test: hf://datasets/o/n/in/test.csv}"
    text = (
        TASK_FILE.replace("owner/set", "csv")
        + f"    training_split: train\n    dataset_kwargs: {{data_files: {data_files}}}"
    )
    source, _ = settings(tmp_path, text)
    assert source == {
        "hub": "o/n", "files": {"test": "in/test.csv", "train": "train.csv"}, "split": "test", "few_shot": "train"
    }  # fmt: skip


def test_data_files_are_relative_to_the_lm_eval_file(tmp_path):
    write(
        tmp_path,
        "there/theirs.yaml",
        TASK_FILE.replace("owner/set", "json") + "    dataset_kwargs: {data_files: {test: a.json}}",
    )
    source, _ = translate({"lm-eval": "there/theirs.yaml"}, tmp_path)
    assert source["file"] == "there/a.json"


VERNACULAR_TASK = """
    task: ours
    title: t
    citation: c
    protocols: [{protocol}]
    item_type: {item_type}
    languages: {{gl: {{source: {{{source}}}}}}}
"""


@pytest.mark.parametrize(
    ("protocol", "item_type", "source", "parts"),
    [
        ("letters", "lm_eval", "lm-eval: theirs.yaml", ("protocols", "[options]", "[letters]")),
        ("options", "pair", "lm-eval: theirs.yaml", ("item_type: lm_eval", "lm-eval", "each other")),
        ("options", "lm_eval", "hub: a/b", ("item_type: lm_eval", "lm-eval", "each other")),
        ("options", "lm_eval", "lm-eval: theirs.yaml, split: dev", ("split", "not supported", "lm-eval")),
    ],
)
def test_incompatible_protocol_or_item_type_raises_config_error(tmp_path, protocol, item_type, source, parts):
    write(tmp_path, "theirs.yaml", TASK_FILE)
    path = write(tmp_path, "ours.yaml", VERNACULAR_TASK.format(protocol=protocol, item_type=item_type, source=source))
    with pytest.raises(ConfigError) as raised:
        load_task(path)
    assert_states(raised.value, "ours.yaml, line 6", "languages.gl.source", *parts)


def test_task_with_lm_eval_source_requires_no_columns(tmp_path):
    write(tmp_path, "theirs.yaml", TASK_FILE)
    task = load_task(
        write(
            tmp_path,
            "ours.yaml",
            VERNACULAR_TASK.format(protocol="options", item_type="lm_eval", source="lm-eval: theirs.yaml"),
        )
    )
    language = task["languages"]["gl"]
    assert language["source"] == [{"hub": "owner/set", "split": "test", "few_shot": "test"}]
    assert language["lm_eval"]["doc_to_choice"] == [False, True]  # YAML 1.1, as in lm-eval
