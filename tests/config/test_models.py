"""Bases, adapters and comparisons in a config: what they become, and what is said of mistakes."""

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


def test_an_adapter_has_the_settings_of_its_base_and_shares_its_job(tmp_path):
    found = load(tmp_path, MODELS)
    assert found.bases == {"base": ["base", "tuned"], "other": ["other"]}
    assert found.models["tuned"]["dtype"] == "float32"
    assert "source" not in found.models["tuned"]


def test_without_comparisons_every_adapter_is_compared_with_its_base(tmp_path):
    assert load(tmp_path, MODELS).comparisons == [("base", "tuned")]
    assert load(tmp_path, MODELS + "comparisons: []\n").comparisons == []


@pytest.mark.parametrize(
    ("asked", "pairs"),
    [
        ("{baseline: other, candidate: base}", [("other", "base")]),
        ("{baseline: other, candidate: [base, tuned]}", [("other", "base"), ("other", "tuned")]),
        ("{baseline: tuned, candidate: all}", [("tuned", "base"), ("tuned", "other")]),
        ("all_pairs", [("base", "tuned"), ("base", "other"), ("tuned", "other")]),
    ],
)
def test_comparisons_are_spelt_out(tmp_path, asked, pairs):
    assert load(tmp_path, MODELS + f"comparisons:\n  - {asked}\n").comparisons == pairs


def test_results_made_elsewhere_are_a_side_of_comparisons(tmp_path):
    (tmp_path / "old.csv").touch()
    external_results = f"external_results:\n  old: {{path: {tmp_path / 'old.csv'}}}\n"
    assert load(tmp_path, MODELS + external_results).comparisons[-3:] == [
        ("old", "base"),
        ("old", "tuned"),
        ("old", "other"),
    ]
    asked = external_results + "comparisons:\n  - {baseline: old, candidate: tuned}\n"
    assert load(tmp_path, MODELS + asked).comparisons == [("old", "tuned")]


@pytest.mark.parametrize(
    ("good", "bad", "said"),
    [
        ("base: base, adapter", "base: bsae, adapter", ["line 3: models.tuned.base:", '"bsae"', 'Did you mean "base"?']),
        ("base: base, adapter", "base: tuned, adapter", ["models.tuned.base:", '"tuned"', "adapter", "Allowed: base, other."]),
        ("base: base, adapter: ./tuned", "base: base", ["models.tuned:", '"adapter" is missing', '"base"']),
        ("base: base, adapter: ./tuned", "adapter: ./tuned", ["models.tuned:", '"base" is missing', '"adapter"']),
        ("adapter: ./tuned", "adapter: ./tuned, dtype: float16", ["models.tuned.dtype:", "adapter", "base", "set it there"]),
        ("shards: 2", "generation_engine: vllm", ["models.tuned.base:", "generation_engine: vllm", "use generation_engine: transformers"]),
        ("shards: 2", "shards: 0", ["models.base.shards:", "at least 1,", "0"]),
        ("  other:", "  Base:", ["models.Base:", '"base"', "case"]),
        ("  other:", "  inference_status:", ["models.inference_status:", '"inference_status"', "choose another name"]),
        ("evaluations:", "comparisons: [{baseline: bass, candidate: all}]\nevaluations:", ["comparisons[0].baseline:", '"bass"', 'Did you mean "base"?']),
        ("evaluations:", "comparisons: [{baseline: base, candidate: base}]\nevaluations:", ["comparisons[0].candidate:", '"base"', "itself"]),
        ("evaluations:", "comparisons: [all_pears]\nevaluations:", ["comparisons[0]:", "all_pairs or {baseline: NAME, candidate: NAME}", '"all_pears"']),
        ("evaluations:", "comparisons: [{baseline: base}]\nevaluations:", ["comparisons[0]:", '"candidate" is missing']),
        ("evaluations:", "external_results: {old: {path: ./nowhere.csv}}\nevaluations:", ["external_results.old.path:", "not found", "./nowhere.csv"]),
        ("evaluations:", "external_results: {tuned: {path: .}}\nevaluations:", ["external_results.tuned:", '"tuned"', "choose another name"]),
    ],
)  # fmt: skip
def test_a_mistake_is_explained_in_one_line(tmp_path, good, bad, said):
    text = MODELS + REST
    assert good in text
    (tmp_path / "config.yaml").write_text(text.replace(good, bad, 1), "utf-8")
    with pytest.raises(ConfigError) as raised:
        config.load([tmp_path / "config.yaml"])
    message = str(raised.value).removeprefix(str(tmp_path))
    assert [part for part in said if part not in message] == []
    assert "\n" not in message
