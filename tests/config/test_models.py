"""Bases, adapters and comparisons in a config: expansion and error messages."""

import pytest
from vernacular.config import load as config
from vernacular.core.errors import ConfigError

REST = "evaluations:\n  - {task: cola, languages: [gl], data: samples}\n"
MODELS = """\
models:
  base: {source: ./base, dtype: float32, shards: 2}
  tuned: {base: base, adapter: ./tuned}
  other: {source: owner/other@main}
"""


def load(tmp_path, text: str) -> config.Config:
    (tmp_path / "config.yaml").write_text(text + REST, "utf-8")
    return config.load([tmp_path / "config.yaml"])


def test_adapter_inherits_base_settings_and_job(tmp_path):
    cfg = load(tmp_path, MODELS)
    assert cfg.bases == {"base": ["base", "tuned"], "other": ["other"]}
    assert cfg.models["tuned"]["dtype"] == "float32"
    assert "source" not in cfg.models["tuned"]


def test_default_comparisons_are_base_and_adapter_pairs(tmp_path):
    assert load(tmp_path, MODELS).comparisons == [("base", "tuned")]
    assert load(tmp_path, MODELS + "comparisons: []\n").comparisons == []


@pytest.mark.parametrize(
    ("models", "pairs"),
    [
        ("{one: {source: a/b}, two: {source: c/d}}", [("one", "two")]),
        ("{tuned: {base: base, adapter: ./tuned}, base: {source: ./base}}", [("base", "tuned")]),
        ("{one: {source: a/b}}", []),
        ("{one: {source: a/b}, two: {source: c/d}, three: {source: e/f}}", []),
    ],
)
def test_two_models_are_compared_by_default(tmp_path, models, pairs):
    assert load(tmp_path, f"models: {models}\n").comparisons == pairs


@pytest.mark.parametrize(
    ("comparison", "pairs"),
    [
        ("{baseline: other, candidate: base}", [("other", "base")]),
        ("{baseline: other, candidate: [base, tuned]}", [("other", "base"), ("other", "tuned")]),
        ("{baseline: tuned, candidate: all}", [("tuned", "base"), ("tuned", "other")]),
        ("all_pairs", [("base", "tuned"), ("base", "other"), ("tuned", "other")]),
    ],
)
def test_comparisons_expand_to_pairs(tmp_path, comparison, pairs):
    assert load(tmp_path, MODELS + f"comparisons:\n  - {comparison}\n").comparisons == pairs


def test_external_results_can_be_compared(tmp_path):
    (tmp_path / "old.csv").touch()
    external_results = f"external_results:\n  old: {{path: {tmp_path / 'old.csv'}}}\n"
    assert load(tmp_path, MODELS + external_results).comparisons[-3:] == [
        ("old", "base"),
        ("old", "tuned"),
        ("old", "other"),
    ]
    comparison = external_results + "comparisons:\n  - {baseline: old, candidate: tuned}\n"
    assert load(tmp_path, MODELS + comparison).comparisons == [("old", "tuned")]


@pytest.mark.parametrize(
    ("good", "bad", "expected_parts"),
    [
        ("base: base, adapter", "base: bsae, adapter", ["line 3: models.tuned.base:", '"bsae"', 'Did you mean "base"?']),
        ("base: base, adapter", "base: tuned, adapter", ["models.tuned.base:", '"tuned"', "adapter", "Allowed: base, other."]),
        ("base: base, adapter: ./tuned", "base: base", ["models.tuned:", '"adapter" is missing', '"base"']),
        ("base: base, adapter: ./tuned", "adapter: ./tuned", ["models.tuned:", '"base" is missing', '"adapter"']),
        ("adapter: ./tuned", "adapter: ./tuned, dtype: float16", ["models.tuned.dtype:", "adapter", "base", "set it there"]),
        ("shards: 2", "generation_engine: vllm",
         ["models.tuned.base:", "generation_engine: vllm", "generation_engine: transformers"]),
        ("shards: 2", "engine_class: 'json:Mine'", ["models.tuned.base:", "engine_class: json:Mine", "no adapters"]),
        ("owner/other@main", "./m, engine_class: 'nowhere.engines:Mine'", ["models.other.engine_class:", "MODULE:CLASS", "no module nowhere"]),
        ("owner/other@main", "./m, generation_engine: vllm, quantization: 8bit",
         ["models.other.generation_engine:", "weights in 8bit", "remove one of the two"]),
        ("shards: 2", "engine_class: vllm", ["models.base.engine_class:", "MODULE:CLASS", "my_module:MyEngine"]),
        ("shards: 2", "shards: 0", ["models.base.shards:", "at least 1,", "0"]),
        ("  other:", "  Base:", ["models.Base:", '"base"', "case"]),
        ("  other:", "  inference_status:", ["models.inference_status:", '"inference_status"', "choose another name"]),
        ("evaluations:", "comparisons: [{baseline: bass, candidate: all}]\nevaluations:", ["comparisons[0].baseline:", '"bass"', 'Did you mean "base"?']),
        ("evaluations:", "comparisons: [{baseline: base, candidate: base}]\nevaluations:", ["comparisons[0].candidate:", '"base"', "itself"]),
        ("evaluations:", "comparisons: [all_pears]\nevaluations:",
         ["comparisons[0]:", "all_pairs", "{baseline: NAME, candidate: NAME}", '"all_pears"']),
        ("evaluations:", "comparisons: [{baseline: base}]\nevaluations:", ["comparisons[0]:", '"candidate" is missing']),
        ("evaluations:", "external_results: {old: {path: ./nowhere.csv}}\nevaluations:", ["external_results.old.path:", "not found", "./nowhere.csv"]),
        ("evaluations:", "external_results: {tuned: {path: .}}\nevaluations:", ["external_results.tuned:", '"tuned"', "choose another name"]),
    ],
)  # fmt: skip
def test_invalid_models_raise_one_line_error(tmp_path, good, bad, expected_parts):
    text = MODELS + REST
    assert good in text
    (tmp_path / "config.yaml").write_text(text.replace(good, bad, 1), "utf-8")
    with pytest.raises(ConfigError) as error:
        config.load([tmp_path / "config.yaml"])
    message = str(error.value).removeprefix(str(tmp_path))
    assert [part for part in expected_parts if part not in message] == []
    assert "\n" not in message
