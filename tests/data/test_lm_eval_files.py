"""lm-eval's files: what is read, what is refused and with which words, and what never runs skipped."""

import re
import textwrap

import pytest
from support.lm_eval_files import settings, write
from vernacular.core.errors import ConfigError
from vernacular.data.lm_eval import task_file
from vernacular.data.lm_eval.settings import translate
from vernacular.data.tasks import load_task

SMALL = """
    task: small
    dataset_path: owner/set
    output_type: multiple_choice
    test_split: test
    doc_to_text: question
    doc_to_target: right
    doc_to_choice: [no, yes]
"""


def complaint(folder, text, **source) -> str:
    with pytest.raises(ConfigError) as error:
        settings(folder, text, **source)
    return str(error.value)


def test_local_keys_win_over_included_ones_and_includes_may_nest(tmp_path):
    write(tmp_path, "base/_common_yaml", "dataset_path: owner/base\ntest_split: test\ndoc_to_text: a\n")
    write(tmp_path, "_middle_yaml", "include: base/_common_yaml\ndoc_to_text: b\n")
    write(tmp_path, "leaf.yaml", "include: [_middle_yaml]\ntask: leaf\ntest_split: dev\n")
    content, _ = task_file.read("leaf.yaml", tmp_path)
    assert content == {"dataset_path": "owner/base", "test_split": "dev", "doc_to_text": "b", "task": "leaf"}


def test_a_file_that_includes_itself_is_named(tmp_path):
    write(tmp_path, "a.yaml", "include: b.yaml\n")
    write(tmp_path, "b.yaml", "include: a.yaml\n")
    with pytest.raises(ConfigError, match=r"a\.yaml: includes itself, through .*b\.yaml"):
        task_file.read("a.yaml", tmp_path)


def test_a_missing_include_is_named(tmp_path):
    write(tmp_path, "a.yaml", "include: _gone_yaml\n")
    with pytest.raises(ConfigError, match=r"a\.yaml: include: file not found: .*_gone_yaml"):
        task_file.read("a.yaml", tmp_path)


def test_a_group_is_refused_with_its_tasks(tmp_path):
    write(tmp_path, "g.yaml", "group: bench\ntask: [one, two]\n")
    with pytest.raises(ConfigError, match=r"is a group of tasks; .* Tasks: one, two"):
        task_file.read("g.yaml", tmp_path)


def test_an_installed_task_is_found_by_its_name_and_a_wrong_name_gets_the_closest(tmp_path, monkeypatch):
    monkeypatch.setattr(task_file, "installed", lambda: tmp_path)
    write(tmp_path, "family/one.yaml", "tag: many\ntask: family_gl\n")
    write(tmp_path, "family/group.yaml", "group: family\ntask:\n  - family_gl\n")
    assert task_file.find("family_gl", tmp_path / "elsewhere").name == "one.yaml"
    with pytest.raises(ConfigError, match=r'not found .*\. Did you mean "family_gl"\?'):
        task_file.find("family_g", tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match=r"is a tag of several tasks; .* Tasks: family_gl"):
        task_file.find("many", tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match=r"is a group of tasks; .* Tasks: family_gl"):
        task_file.find("family", tmp_path / "elsewhere")


def test_without_lm_eval_a_name_needs_a_path(tmp_path, monkeypatch):
    monkeypatch.setattr(task_file, "installed", lambda: None)
    with pytest.raises(ConfigError, match="lm_eval is not installed"):
        task_file.find("belebele_glg_Latn", tmp_path)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("use_prompt: promptsource", "use_prompt is not supported"),
        ("doc_to_image: picture", "doc_to_image is not supported"),
        ("output_type: loglikelihood_rolling", "output_type: loglikelihood_rolling is not supported"),
        ("repeats: 3", "repeats is not supported"),
        ("unsafe_code: true", "unsafe_code is not supported"),
        ("fewshot_config: {fewshot_indices: [1]}", r"fewshot_config\.fewshot_indices is not supported"),
        ("fewshot_config: {sampler: balanced}", r"fewshot_config\.sampler is not supported"),
        ("dataset_kwargs: {data_dir: here}", r"dataset_kwargs\.data_dir is not supported"),
        ("doc_to_text: '{{question'", "doc_to_text is not a valid Jinja template"),
        ("doc_to_choice: null", 'the key "doc_to_choice" is missing'),
        ("test_split: null", '"test_split" or "validation_split" is missing'),
        ("dataset_path: null", 'the key "dataset_path" is missing'),
        ("dataset_path: ./data", "list its files in data_files"),
    ],
)
def test_what_is_not_supported_is_said_by_file_and_key(tmp_path, line, words):
    key = line.split(":")[0]
    text = "\n".join(part for part in textwrap.dedent(SMALL).split("\n") if not part.startswith(f"{key}:"))
    assert re.search(rf"theirs\.yaml: .*{words}", complaint(tmp_path, f"{text}\n{line}\n"))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("generation_kwargs: {do_sample: true}", "do_sample"),
        ("generation_kwargs: {temperature: 0.7}", "do_sample"),
        ("generation_kwargs: {top_p: 0.9}", r"generation_kwargs\.top_p"),
        ("filter_list: [{name: f, filter: [{function: regex, regex_pattern: x}]}]", "the filter regex"),
    ],
)
def test_a_way_of_generating_that_would_differ_is_refused(tmp_path, line, words):
    text = textwrap.dedent(SMALL).replace("multiple_choice", "generate_until").replace("doc_to_choice: [no, yes]", line)
    with pytest.raises(ConfigError, match=words):
        settings(tmp_path, text)


def test_a_function_is_not_run_unless_trusted_and_the_message_names_it_and_the_key(tmp_path):
    write(tmp_path, "tools.py", "raise SystemExit('run!')\n")
    text = textwrap.dedent(SMALL) + "process_docs: !function tools.tidy\n"
    told = complaint(tmp_path, text)
    assert "process_docs is the Python function tools.tidy" in told
    assert "trust_functions: true" in told
    _, found = settings(tmp_path, text, trust_functions=True)  # still only named, with the hash of its module
    assert (found["process_docs"]["function"], found["process_docs"]["file"]) == ("tools.tidy", "tools.py")
    assert len(found["process_docs"]["sha256"]) == 64


def test_functions_that_decide_no_prompt_need_no_trust_but_a_note(tmp_path):
    text = textwrap.dedent(SMALL).replace("multiple_choice", "generate_until").replace("doc_to_choice: [no, yes]", "")
    text += "process_results: !function tools.f1\nmetric_list: [{metric: bleu}, {metric: !function tools.rouge}]\n"
    _, found = settings(tmp_path, text)
    assert found["notes"][0].endswith("its metrics bleu, tools.rouge are not computed as in lm-eval.")
    assert "process_results (tools.f1) is not run" in found["notes"][1]


def test_splits_become_those_of_a_source_as_lm_eval_chooses_them(tmp_path):
    data, found = settings(tmp_path, textwrap.dedent(SMALL) + "training_split: train\ndataset_name: gl\n")
    assert data == {"hub": "owner/set", "config": "gl", "split": "test", "few_shot": "train"}
    assert found["exclude"] is False
    # no split for examples and none to test: theirs compares the two names and keeps a row from itself
    data, found = settings(tmp_path, SMALL.replace("test_split: test", "validation_split: dev"))
    assert data == {"hub": "owner/set", "split": "dev", "few_shot": "dev"}
    assert found["exclude"] is True


def test_data_files_of_one_repository_are_read_from_it(tmp_path):
    files_ = "{train: hf://datasets/o/n/train.csv, test: hf://datasets/o/n/in/test.csv}"
    text = (
        SMALL.replace("owner/set", "csv") + f"    training_split: train\n    dataset_kwargs: {{data_files: {files_}}}"
    )
    data, _ = settings(tmp_path, text)
    assert data == {
        "hub": "o/n", "files": {"test": "in/test.csv", "train": "train.csv"}, "split": "test", "few_shot": "train"
    }  # fmt: skip


def test_data_files_lie_beside_their_file(tmp_path):
    write(
        tmp_path,
        "there/theirs.yaml",
        SMALL.replace("owner/set", "json") + "    dataset_kwargs: {data_files: {test: a.json}}",
    )
    data, _ = translate({"lm-eval": "there/theirs.yaml"}, tmp_path)
    assert data["file"] == "there/a.json"


OURS = """
    task: ours
    title: t
    citation: c
    protocols: [{protocol}]
    item_type: {item_type}
    languages: {{gl: {{source: {{{source}}}}}}}
"""


@pytest.mark.parametrize(
    ("protocol", "item_type", "source", "words"),
    [
        ("letters", "lm_eval", "lm-eval: theirs.yaml", r"expected protocols: \[options\], got \[letters\]"),
        ("options", "pair", "lm-eval: theirs.yaml", "item_type: lm_eval and source lm-eval require each other"),
        ("options", "lm_eval", "hub: a/b", "item_type: lm_eval and source lm-eval require each other"),
        ("options", "lm_eval", "lm-eval: theirs.yaml, split: dev", "split is not supported with lm-eval"),
    ],
)
def test_our_task_file_says_the_protocol_and_the_prompt_that_fit(tmp_path, protocol, item_type, source, words):
    write(tmp_path, "theirs.yaml", SMALL)
    path = write(tmp_path, "ours.yaml", OURS.format(protocol=protocol, item_type=item_type, source=source))
    with pytest.raises(ConfigError, match=words):
        load_task(path)


def test_a_task_needs_no_columns_and_keeps_all_that_their_file_decides(tmp_path):
    write(tmp_path, "theirs.yaml", SMALL)
    task = load_task(
        write(
            tmp_path, "ours.yaml", OURS.format(protocol="options", item_type="lm_eval", source="lm-eval: theirs.yaml")
        )
    )
    language = task["languages"]["gl"]
    assert language["source"] == [{"hub": "owner/set", "split": "test", "few_shot": "test"}]
    assert language["lm_eval"]["doc_to_choice"] == [False, True]  # YAML 1.1, as they read it
