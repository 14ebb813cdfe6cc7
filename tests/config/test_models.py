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
    joined = f"joined:\n  old: {{results: {tmp_path / 'old.csv'}}}\n"
    assert load(tmp_path, MODELS + joined).comparisons[-3:] == [("old", "base"), ("old", "tuned"), ("old", "other")]
    asked = joined + "comparisons:\n  - {baseline: old, candidate: tuned}\n"
    assert load(tmp_path, MODELS + asked).comparisons == [("old", "tuned")]


@pytest.mark.parametrize(
    ("good", "bad", "said"),
    [
        ("base: base, adapter", "base: bsae, adapter", 'line 3: models.tuned.base: "bsae" is no model of this config. Did you mean "base"?'),
        ("base: base, adapter", "base: tuned, adapter", 'models.tuned.base: "tuned" is an adapter itself.'),
        ("base: base, adapter: ./tuned", "base: base", 'models.tuned: "base" needs the key "adapter" beside it.'),
        ("base: base, adapter: ./tuned", "adapter: ./tuned", 'models.tuned: "adapter" needs the key "base" beside it.'),
        ("adapter: ./tuned", "adapter: ./tuned, dtype: float16", "models.tuned.dtype: an adapter takes its dtype from its base; set it there."),
        ("shards: 2", "engine: vllm", "takes no adapters here"),
        ("shards: 2", "shards: 0", "models.base.shards: found 0, expected at least 1."),
        ("  other:", "  Base:", '"Base" and "base" differ only in case'),
        ("  other:", "  asked:", '"asked" is a folder of the workflow\'s own'),
        ("evaluations:", "comparisons: [{baseline: bass, candidate: all}]\nevaluations:", 'comparisons[0].baseline: "bass" is no model of this config. Did you mean "base"?'),
        ("evaluations:", "comparisons: [{baseline: base, candidate: base}]\nevaluations:", '"base" is compared with itself'),
        ("evaluations:", "comparisons: [all_pears]\nevaluations:", 'found "all_pears", expected all_pairs or'),
        ("evaluations:", "comparisons: [{baseline: base}]\nevaluations:", 'the key "candidate" is missing'),
        ("evaluations:", "joined: {old: {results: ./nowhere.csv}}\nevaluations:", "joined.old.results: there is no ./nowhere.csv."),
        ("evaluations:", "joined: {tuned: {results: .}}\nevaluations:", '"tuned" is a model of this config; choose another name.'),
    ],
)  # fmt: skip
def test_a_mistake_is_explained_in_one_line(tmp_path, good, bad, said):
    text = MODELS + REST
    assert good in text
    (tmp_path / "config.yaml").write_text(text.replace(good, bad, 1), "utf-8")
    with pytest.raises(ConfigError) as raised:
        config.load([tmp_path / "config.yaml"])
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)
