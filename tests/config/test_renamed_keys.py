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


def mappings(inside):
    """All mappings of a schema that have earlier names."""
    if isinstance(inside, dict):
        if "x-renamed" in inside:
            yield inside
        for value in inside.values():
            yield from mappings(value)


@pytest.mark.parametrize("name", ["config", "task"])
def test_each_earlier_name_leads_to_a_key_or_value_of_the_same_mapping(name):
    found = list(mappings(schema(SCHEMAS / f"{name}.schema.yaml")))
    assert len(found) >= 3
    for mapping in found:
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
    ],
)
def test_an_earlier_name_in_a_config_leads_to_the_current_one(tmp_path, old, new):
    where = "MODEL" if new in ("max_batch_tokens", "generation_engine", "allow_base_mismatch") else "EVALUATION"
    rest = {"MODEL": "dtype: auto", "EVALUATION": "limit: 5"} | {where: old}
    text = CONFIG.replace("MODEL", rest["MODEL"]).replace("EVALUATION", rest["EVALUATION"])
    (tmp_path / "config.yaml").write_text(text, "utf-8")
    with pytest.raises(ConfigError) as raised:
        config.load([tmp_path / "config.yaml"])
    assert str(raised.value).endswith(f'Did you mean "{new}"?')


@pytest.mark.parametrize(
    ("current", "old", "new"),
    [
        ("item_type: question", "prompt: question", "item_type"),
        ("item_type: question", "item_type: truth", "multi_answer"),
        ("item_type: question", "item_type: verbatim", "lm_eval"),
        ("gold_format: letter", "gold_is: letter", "gold_format"),
        ("question: q,", "right: q,", "correct_answers"),
        ("question: q,", "wrong: q,", "incorrect_answers"),
        ("task: rivers", "task: rivers\nlicence: MIT", "license"),
        ("{file: rivers.csv}}", "{file: rivers.csv}, licence: MIT}", "license"),
    ],
)
def test_an_earlier_name_in_a_task_file_leads_to_the_current_one(tmp_path, current, old, new):
    assert current in TASK
    path = tmp_path / "rivers.yaml"
    path.write_text(TASK.replace(current, old, 1), "utf-8")
    with pytest.raises(ConfigError) as raised:
        load_task(path)
    assert str(raised.value).endswith(f'Did you mean "{new}"?')
