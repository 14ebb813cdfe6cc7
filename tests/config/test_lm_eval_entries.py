"""Entries of `evaluations:` with `lm_eval:`."""

import json
from dataclasses import replace

import pytest
import yaml
from support import specs
from vernacular.config.load import load
from vernacular.config.references import check_references
from vernacular.core.errors import ConfigError
from vernacular.core.fingerprint import content_hash
from vernacular.core.validate import Problems
from vernacular.lm_eval.catalog import FORMAT, index_path, package_digests, read_index

CHOICE = {"output_type": "multiple_choice"}
INDEX = {
    "format": FORMAT,
    "versions": {"lm_eval": "0.4.13"},
    "python": "3.11",
    "directory": "/nowhere/lm_eval/tasks",
    "metrics": ["acc"],
    "tasks": {
        "galcola": {"file": "a.yaml", "config": CHOICE | {"dataset_path": "org/galcola"}, "reason": None},
        "fixed": {"file": "b.yaml", "config": CHOICE | {"num_fewshot": 0}, "reason": None},
        "pictures": {"file": "c.yaml", "config": CHOICE, "reason": "needs images"},
        "flores": {"file": "d.yaml", "config": {"num_fewshot": 5}, "reason": None},
        **{f"qa_yor_prompt_{number}": {"file": "q.yaml", "config": CHOICE, "reason": None} for number in (1, 2, 3)},
        "half_p1": {"file": "h.yaml", "config": CHOICE, "reason": None},
        "half_p2": {"file": "h.yaml", "config": {}, "reason": None},
    },
    "groups": {"bench": {"file": "g.yaml", "config": {"task": ["galcola", "flores", "pictures"]}}},
    "tags": {},
}


@pytest.fixture
def config(tmp_path):
    """A function that writes a config with the given entries, and loads it."""
    python = tmp_path / "env" / "bin" / "python"
    python.parent.mkdir(parents=True)
    index_path(python).write_text(json.dumps(INDEX))
    read_index.cache_clear()

    def load_config(*entries, **keys):
        content = {"models": {"m": {"source": "./m"}}, "evaluations": list(entries)}
        content |= {"lm_eval": {"python": str(python)}} | keys
        (tmp_path / "config.yaml").write_text(yaml.safe_dump(content))
        return load([tmp_path / "config.yaml"])

    return load_config


def test_group_becomes_one_evaluation_per_task_with_its_protocol(config):
    loaded = config({"lm_eval": "bench", "languages": "gl"})
    assert list(loaded.evaluations) == [
        "galcola.gl.lm_eval.0shot",
        "flores.gl.lm_eval_generation.5shot",
        "pictures.gl.lm_eval.0shot",
    ]
    assert loaded.encoders == {}, "no similarity is computed"
    assert loaded.evaluations["galcola.gl.lm_eval.0shot"].items_stem == "galcola.gl.lm_eval"


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"lm_eval": "galcola", "shots": [0, 5]}, ["galcola.und.lm_eval.0shot", "galcola.und.lm_eval.5shot"]),
        ({"lm_eval": "fixed", "shots": [0, 5]}, ["fixed.und.lm_eval.0shot"]),
        ({"lm_eval": "flores"}, ["flores.und.lm_eval_generation.5shot"]),
        ({"lm_eval": "flores", "shots": 0}, ["flores.und.lm_eval_generation.0shot"]),
        ({"lm_eval": "galcola", "shots": 2, "seeds": [0, 1]}, ["galcola.und.lm_eval.2shot", "galcola.und.lm_eval.2shot.seed1"]),
    ],
)  # fmt: skip
def test_shots_and_seeds_are_those_of_lm_eval(config, entry, expected):
    assert list(config(entry).evaluations) == expected


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"prompts": "all"}, ["0shot.p1", "0shot.p2", "0shot.p3"]),
        ({"prompts": ["p3", "p1"]}, ["0shot.p1", "0shot.p3"]),
        ({"prompts": "p2", "shots": 5, "seeds": 2}, ["5shot.seed2.p2"]),
        ({"prompts": ["p1", "p3"], "shots": 5, "seeds": "paired"}, ["5shot.p1", "5shot.seed2.p3"]),
        ({"prompts": "all", "seeds": "paired"}, ["0shot.p1", "0shot.p2", "0shot.p3"]),
    ],
)
def test_prompts_of_lm_eval_are_prompts_of_one_task(config, entry, expected):
    loaded = config({"lm_eval": "qa_yor", "languages": "yo"} | entry)
    assert list(loaded.evaluations) == [f"qa_yor.yo.lm_eval.{name}" for name in expected]
    evaluation = list(loaded.evaluations.values())[-1]
    assert evaluation.items_stem == f"qa_yor.yo.lm_eval.{evaluation.prompt}", "texts of the prompt are in the items"
    assert evaluation.dataset == "qa_yor.yo.lm_eval"
    spec = list(specs.lm_eval_spec(loaded)["evaluations"].values())[-1]
    assert spec["unit"] == f"qa_yor_prompt_{evaluation.prompt[1:]}"
    assert specs.report_spec(loaded)["prompts"][evaluation.id] == {"differs": f"{spec['unit']} of lm-eval"}


def test_one_prompt_alone_is_a_task_of_its_own(config):
    assert list(config({"lm_eval": "qa_yor_prompt_2"}).evaluations) == ["qa_yor_prompt_2.und.lm_eval.0shot"]
    (spec,) = specs.lm_eval_spec(config({"lm_eval": "qa_yor_prompt_2"}))["evaluations"].values()
    assert "prompt" not in spec


def test_task_of_vernacular_with_the_same_name_is_a_different_evaluation(config):
    loaded = config({"lm_eval": "galcola", "languages": "gl"}, {"task": "cola", "languages": ["gl"], "data": "samples"})
    assert set(specs.items_spec(loaded)["items"]) == {"cola.gl"}
    assert set(specs.lm_eval_spec(loaded)["evaluations"]) == {"galcola.gl.lm_eval.0shot"}
    assert specs.summary_spec(loaded)["tasks"]["galcola"] == {}, "no title and note"


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"lm_eval": "galcol"}, 'Did you mean "galcola"?'),
        ({"lm_eval": "pictures"}, "pictures: needs images"),
        (
            {"lm_eval": "galcola", "protocols": ["options"]},
            'evaluations[0].lm_eval: the key "protocols" is not supported',
        ),
        ({"lm_eval": "galcola", "languages": ["gl", "ca"]}, "expected one code"),
        ({"lm_eval": "qa_yor"}, 'qa_yor" has several prompts in lm_eval; set prompts'),
        ({"lm_eval": "galcola", "prompts": "all"}, "galcola has one prompt in lm_eval; remove prompts"),
        ({"lm_eval": "qa_yor", "prompts": ["p1", "p4"]}, 'prompt "p4" not found in qa_yor. Allowed: p1, p2, p3.'),
        ({"lm_eval": "qa_xx", "prompts": "all"}, '"qa_xx" is not a task, group or tag of lm_eval.'),
        ({"lm_eval": "galcola", "seeds": "paired"}, "paired needs several prompts"),
        ({"lm_eval": "half", "prompts": "all"}, "half: some prompts score texts and others generate"),
        ({"task": "cola", "data": "samples", "trust_functions": True}, "only supported with lm_eval"),
        ({"task": "cola", "data": "samples", "chat": True}, "only supported with lm_eval"),
        ({"lm_eval": "galcola", "gen_kwargs": {"top_k": 5}}, "no effect on galcola, which generates no texts"),
        ({"lm_eval": "galcola", "fewshot_as_multiturn": False}, "no effect in plain text; set chat: true"),
        ({"lm_eval": "galcola", "apply_chat_template": True}, "chat"),
    ],
)
def test_invalid_entry_is_an_error_before_anything_runs(config, entry, message):
    with pytest.raises(ConfigError) as error:
        config(entry)
    assert message in str(error.value)


def test_chat_is_another_evaluation_with_its_options(config):
    kwargs = {"temperature": 0.5, "do_sample": True}
    entries = {"lm_eval": "bench", "languages": "gl", "chat": True, "fewshot_as_multiturn": False, "gen_kwargs": kwargs}
    loaded = config(entries, {"lm_eval": "galcola", "languages": "gl"})
    units = specs.lm_eval_spec(loaded)["evaluations"]
    assert units["galcola.gl.lm_eval.0shot.chat"]["options"] == {"fewshot_as_multiturn": False}
    assert units["flores.gl.lm_eval_generation.5shot.chat"]["options"] == {
        "fewshot_as_multiturn": False, "gen_kwargs": kwargs,
    }  # fmt: skip
    assert "galcola.gl.lm_eval.0shot" in units


def test_check_notes_that_a_model_with_chat_true_gets_plain_text(config):
    models = {"m": {"source": "./m", "chat": True}, "n": {"source": "./n"}}
    entries = {"lm_eval": "galcola", "languages": "gl"}, {"lm_eval": "fixed", "languages": "gl", "chat": True}
    notes = check_references(config(*entries, models=models), Problems()).notes
    assert any("1 evaluation with lm_eval are in plain text, also for m with chat: true" in note for note in notes)


def test_mistakes_of_all_entries_are_reported_at_once(config):
    entries = [{"lm_eval": "galcol", "languages": ["gl", "ca"]}, {"lm_eval": "pictures"}, {"task": "colla"}]
    with pytest.raises(ConfigError) as error:
        config(*entries)
    keys = ["evaluations[0].languages", "evaluations[0].lm_eval", "evaluations[1].lm_eval", "evaluations[2].task"]
    lines = str(error.value).splitlines()
    assert [next(key for key in keys if key in line) for line in lines] == keys


def test_missing_environment_is_reported_once(config):
    with pytest.raises(ConfigError) as error:
        config({"lm_eval": "galcola"}, {"lm_eval": "flores"}, lm_eval={"python": "/nowhere/bin/python"})
    assert str(error.value).count("lm-eval-index") == 1


def test_smaller_of_two_limits_applies(config):
    loaded = config({"lm_eval": "galcola", "limit": 5}, {"lm_eval": "flores"}, limit=9)
    assert [evaluation.limit for evaluation in loaded.evaluations.values()] == [5, 9]


def test_check_names_what_cannot_run_and_missing_rows_and_what_it_does_not_check(config, tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    text = "output_type: multiple_choice\ndataset_path: json\ndataset_kwargs: {data_files: {test: %s}}\n"
    (tmp_path / "rows.jsonl").write_text("{}\n")
    (own / "here.yaml").write_text("task: here\n" + text % (tmp_path / "rows.jsonl"))
    (own / "gone.yaml").write_text("task: gone\n" + text % "gone.jsonl")
    python = tmp_path / "env" / "bin" / "python"
    python.touch(mode=0o755)
    (own / "fixed.yaml").write_text("task: fixed\n" + text % (tmp_path / "rows.jsonl"))
    keys = {"lm_eval": {"python": str(python), "tasks": [str(own)]}}
    loaded = config(*({"lm_eval": name} for name in ("bench", "here", "gone", "fixed")), **keys)
    references = check_references(replace(loaded, models={}), Problems())
    with pytest.raises(ConfigError) as error:
        references.problems.raise_all()
    assert str(error.value) == "gone.und.lm_eval.0shot: file not found: gone.jsonl."
    assert any("pictures" in note and "needs images" in note for note in references.notes)
    assert any("6 evaluations" in note for note in references.notes)
    assert "fixed.und.lm_eval.0shot: fixed of the custom task files replaces that of lm_eval." in references.notes


def test_missing_environment_error_names_the_command(config):
    with pytest.raises(ConfigError, match="lm-eval-index"):
        config({"lm_eval": "galcola"}, lm_eval={"python": "/nowhere/bin/python"})


def test_state_of_the_environment_is_in_the_key_and_changed_task_files_must_be_listed_again(config, tmp_path):
    package = tmp_path / "env" / "lib" / "lm_eval"
    (package / "tasks").mkdir(parents=True)
    for name in ("metrics.py", "tasks/utils.py", "tasks/a.yaml"):
        (package / name).write_text("x: 1\n")
    info = tmp_path / "env" / "lib" / "lm_eval-0.4.13.dist-info" / "METADATA"
    info.parent.mkdir()
    info.write_text("Name: lm_eval\nVersion: 0.4.13\n")
    listing = package_digests(package / "tasks")[0]
    index = INDEX | {"directory": "lib/lm_eval/tasks", "path": ["lib"], "listing": listing}
    index_path(tmp_path / "env" / "bin" / "python").write_text(json.dumps(index))

    def state():
        read_index.cache_clear()
        (spec,) = specs.lm_eval_spec(config({"lm_eval": "galcola"}))["evaluations"].values()
        return spec["package"], spec["versions"]["lm_eval"]

    states = [state()]
    for path, content in (
        (package / "metrics.py", "x: 2\n"),
        (package / "tasks/utils.py", "x: 2\n"),
        (info, "Name: lm_eval\nVersion: 0.4.14\n"),
    ):
        path.write_text(content)
        states.append(state())
    assert len({package for package, _ in states}) == 3
    assert [version for _, version in states] == ["0.4.13"] * 3 + ["0.4.14"]
    (package / "tasks/a.yaml").write_text("x: 2\n")
    with pytest.raises(ConfigError, match=r"task files changed after this list. Run: .*lm-eval-index"):
        state()


def test_rows_in_a_directory_named_like_the_dataset_are_in_the_key_of_the_package_task(config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def files():
        content_hash.cache_clear()
        (spec,) = specs.lm_eval_spec(config({"lm_eval": "galcola"}))["evaluations"].values()
        return spec["files"]

    assert files() == {}
    (tmp_path / "org" / "galcola").mkdir(parents=True)
    (tmp_path / "org" / "galcola" / "test.jsonl").write_text("{}\n")
    before = files()
    (tmp_path / "org" / "galcola" / "test.jsonl").write_text("{} \n")
    assert list(before) == ["org/galcola/test.jsonl"]
    assert files() != before


def test_edit_of_rows_or_of_a_module_changes_the_key_of_the_own_task_only(config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    own = tmp_path / "own"
    own.mkdir()
    text = "task: mine\noutput_type: multiple_choice\ndataset_path: json\ndataset_kwargs: {data_files: {test: rows.jsonl}}\n"
    (own / "mine.yaml").write_text(text)
    (own / "helper.py").write_text("x = 1\n")
    (tmp_path / "rows.jsonl").write_text("{}\n")

    def keys():
        content_hash.cache_clear()
        keys = {"lm_eval": {"python": str(tmp_path / "env" / "bin" / "python"), "tasks": [str(own)]}}
        evaluations = specs.lm_eval_spec(config({"lm_eval": "mine"}, {"lm_eval": "galcola"}, **keys))["evaluations"]
        return evaluations["mine.und.lm_eval.0shot"], evaluations["galcola.und.lm_eval.0shot"]

    before = keys()
    for path, content in ((tmp_path / "rows.jsonl", "{} \n"), (own / "helper.py", "x = 2\n")):
        path.write_text(content)
        after = keys()
        assert before[0] != after[0]
        assert before[1] == after[1]
        before = after
