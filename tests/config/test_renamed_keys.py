"""Earlier names of keys and values: the error message names the current one."""

from pathlib import Path

import pytest
from vernacular.config import load as config
from vernacular.core.errors import ConfigError
from vernacular.core.validate import schema
from vernacular.data.tasks import load_task

SCHEMAS = Path(__file__).parents[2] / "workflow" / "schemas"
CONFIG = """\
models: {mine: {source: ./mine, MODEL}}
evaluations: [{task: cola, data: samples, EVALUATION}]
"""
TASK = """\
task: rivers
protocols: [letters]
item_type: question
columns: {question: q, choices: [a, b], gold: g, gold_format: letter}
languages: {gl: {source: {file: rivers.csv}}}
"""


def mappings(schema_node):
    """Yield all mappings of a schema that have earlier names."""
    if isinstance(schema_node, dict):
        if "x-renamed" in schema_node:
            yield schema_node
        for value in schema_node.values():
            yield from mappings(value)


@pytest.mark.parametrize("name", ["config", "task"])
def test_renamed_keys_map_to_current_names_of_same_mapping(name):
    renamed_mappings = list(mappings(schema(SCHEMAS / f"{name}.schema.yaml")))
    assert len(renamed_mappings) >= 3
    for mapping in renamed_mappings:
        current = set(mapping.get("properties", mapping.get("enum", ())))
        assert set(mapping["x-renamed"].values()) <= current
        assert not set(mapping["x-renamed"]) & current


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("batch_tokens: 64", "max_batch_tokens"),
        ("engine: vllm", "generation_engine"),
        ("allow_other_base: true", "allow_base_mismatch"),
        ("permutations: 2", "option_rotations"),
        ("legacy: true", "score_unfilled_gap"),
        ("pll: original", "pll_variant"),
        ("evaluation_type: token-level", "scored_span"),
        ("scored_span: token-level", "token"),
        ("num_fewshot: 5", "shots"),
        ("language: gl", "languages"),
        ("pretrained: me/one", "source"),
        ("batch_size: 8", "max_batch_tokens"),
        ("model_args: pretrained=me/one", "source"),
    ],
)
def test_renamed_config_key_error_suggests_current_name(tmp_path, old, new):
    model_keys = ("max_batch_tokens", "generation_engine", "allow_base_mismatch", "source")
    placeholder = "MODEL" if new in model_keys else "EVALUATION"
    substitutions = {"MODEL": "dtype: auto", "EVALUATION": "limit: 5"} | {placeholder: old}
    text = CONFIG.replace("MODEL", substitutions["MODEL"]).replace("EVALUATION", substitutions["EVALUATION"])
    (tmp_path / "config.yaml").write_text(text, "utf-8")
    with pytest.raises(ConfigError) as error:
        config.load([tmp_path / "config.yaml"])
    assert str(error.value).endswith(f'Did you mean "{new}"?')


@pytest.mark.parametrize(
    ("current", "old", "new"),
    [
        ("item_type: question", "prompt: question", "item_type"),
        ("item_type: question", "item_type: truth", "multi_answer"),
        ("gold_format: letter", "gold_is: letter", "gold_format"),
        ("question: q,", "right: q,", "correct_answers"),
        ("question: q,", "wrong: q,", "incorrect_answers"),
        ("task: rivers", "task: rivers\nlicence: MIT", "license"),
        ("{file: rivers.csv}}", "{file: rivers.csv}, licence: MIT}", "license"),
    ],
)
def test_renamed_task_key_error_suggests_current_name(tmp_path, current, old, new):
    assert current in TASK
    path = tmp_path / "rivers.yaml"
    path.write_text(TASK.replace(current, old, 1), "utf-8")
    with pytest.raises(ConfigError) as error:
        load_task(path)
    assert str(error.value).endswith(f'Did you mean "{new}"?')


@pytest.mark.parametrize("item_type", ["lm_eval", "verbatim"])
def test_item_type_of_lm_eval_error_names_the_entry_that_replaces_it(tmp_path, item_type):
    path = tmp_path / "rivers.yaml"
    path.write_text(TASK.replace("item_type: question", f"item_type: {item_type}", 1), "utf-8")
    with pytest.raises(ConfigError, match="lm_eval: NAME"):
        load_task(path)


@pytest.mark.parametrize(
    ("key", "place"),
    [
        ("num_fewshot: 5", "shots in an entry of evaluations"),
        ("batch_size: 8", "max_batch_tokens of a model"),
        ("apply_chat_template: true", "chat of a model"),
    ],
)
def test_key_of_the_entire_run_in_lm_eval_error_names_its_place(tmp_path, key, place):
    text = CONFIG.replace("MODEL", "dtype: auto").replace("EVALUATION", "limit: 5") + key
    (tmp_path / "config.yaml").write_text(text, "utf-8")
    with pytest.raises(ConfigError) as error:
        config.load([tmp_path / "config.yaml"])
    assert str(error.value).endswith(f"unknown key. Did you mean {place}?")
