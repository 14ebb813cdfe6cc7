"""Chat templates of reasoning models with settings: prompts equal those of transformers, and errors of settings."""

import itertools

import pytest
from support import reasoning, stages, tiny
from vernacular.core.errors import ModelError
from vernacular.core.metadata import RequestsMetadata
from vernacular.core.model_record import read_model
from vernacular.inference.generation.prepare import prepare_prompt
from vernacular.inference.generation.reasoning import thinks
from vernacular.inference.job.work import not_answerable
from vernacular.inference.model.rendering import check_settings, render
from vernacular.protocols.build import build, inference_metadata
from vernacular.stages.fetch import model

TURNS = [
    {"role": "user", "content": "Que animal durme?"},
    {"role": "assistant", "content": "o gato"},
    {"role": "user", "content": "E cal ladra?"},
]
# what `enable_thinking` passes to the template
PASSED = {
    "qwen3": "enable_thinking", "qwen3.5": "enable_thinking", "deepseek": "thinking", "gemma4": "enable_thinking",
}  # fmt: skip
SYSTEM = "Responde en galego."


def expected_prompt(loaded, turns, family, thinking, system):
    arguments = {} if thinking is None else {PASSED[family]: thinking}
    if system and family == "gemma2":
        turns = [turns[0] | {"content": f"{SYSTEM}\n\n{turns[0]['content']}"}, *turns[1:]]
    elif system:
        turns = [{"role": "system", "content": SYSTEM}, *turns]
    options = {"tokenize": False, "add_generation_prompt": True, "date_string": ""}
    return loaded.tokenizer.apply_chat_template(turns, **options, **arguments)


def test_prompts_equal_those_of_transformers():
    """Families × thinking unset, on, off × system yes, no × 0, 1 examples."""
    n = 0
    for family, thinking, system, shots in itertools.product(
        reasoning.TEMPLATES, (None, True, False), (False, True), (0, 1)
    ):
        if thinking is not None and family not in PASSED:
            continue
        settings = {"enable_thinking": thinking, "system_instruction": SYSTEM if system else None}
        loaded = reasoning.load(family, **settings)
        check_settings(loaded)
        turns = TURNS[2 - 2 * shots :]
        rendered = render(loaded, turns)
        assert rendered == expected_prompt(loaded, turns, family, thinking, system)
        assert (SYSTEM in rendered) == system
        prompt = prepare_prompt(loaded, reasoning.request(messages=turns))
        assert prompt.ids == loaded.tokenizer(rendered, add_special_tokens=False)["input_ids"]
        n += 1
    assert n == 68


@pytest.mark.parametrize(
    ("family", "by_default", "if_off"),
    [("qwen3", True, False), ("qwen3.5", True, False), ("r1", True, None), ("deepseek", False, False),
     ("gemma4", False, False), ("harmony", True, None), ("magistral", True, None), ("gemma2", False, None),
     ("llama3", False, None)],
)  # fmt: skip
def test_whether_a_template_asks_for_reasoning(family, by_default, if_off):
    assert thinks(reasoning.load(family)) == by_default
    if if_off is None:
        with pytest.raises(ModelError, match="renders the same prompt for true and false"):
            thinks(reasoning.load(family, enable_thinking=False))
    else:
        assert thinks(reasoning.load(family, enable_thinking=False)) is False
        assert thinks(reasoning.load(family, enable_thinking=True)) is True


def test_effort_is_an_argument_that_cannot_turn_reasoning_off():
    loaded = reasoning.load("harmony", chat_template_args={"reasoning_effort": "low"})
    check_settings(loaded)
    assert "Reasoning: low" in render(loaded, TURNS[:1])
    assert "Reasoning: high" in render(reasoning.load("harmony", enable_thinking=True), TURNS[:1])
    with pytest.raises(ModelError, match=r"set chat_template_args: \{reasoning_effort: low\} instead"):
        check_settings(reasoning.load("harmony", enable_thinking=False))


DROPPING = "{% for m in messages %}{% if m['role'] != 'system' %}{{ m['content'] }}{% endif %}{% endfor %}"


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"enable_thinking": True}, "enable_thinking: its chat template renders the same prompt"),
        (
            {"chat_template_args": {"enable_thinkin": False}},
            "chat_template_args.enable_thinkin: the chat template has no",
        ),
        ({"chat_template_args": {"tags": ["a"]}}, "chat_template_args.tags: the chat template has no"),
        ({"chat_template_args": {"limits": {"a": 1}}}, "chat_template_args.limits: the chat template has no"),
        ({"system_instruction": SYSTEM}, "system_instruction: the chat template drops system turns"),
        ({"chat_template": DROPPING}, "chat_template: it renders the same prompts as the model's own"),
        ({"chat_template": "tool_use"}, 'expected a file or a template of its tokenizer, got "tool_use"'),
    ],
)
def test_setting_without_effect_is_an_error(settings, problem):
    loaded = reasoning.load("llama3", **settings)
    loaded.tokenizer.chat_template = DROPPING
    with pytest.raises(ModelError, match=problem):
        check_settings(loaded)


def test_setting_without_a_template_is_an_error():
    with pytest.raises(ModelError, match="system_instruction: its tokenizer has no chat template; remove it"):
        check_settings(tiny.load_model("gpt2", chat="auto", system_instruction="x"))


def test_value_of_an_argument_may_be_the_default():
    check_settings(reasoning.load("qwen3", chat_template_args={"enable_thinking": True}))
    check_settings(reasoning.load("harmony", chat_template_args={"reasoning_effort": "medium"}))
    check_settings(reasoning.load("qwen3", enable_thinking=True))


def test_named_and_own_templates_take_effect():
    loaded = reasoning.load("llama3", chat_template="rag")
    loaded.tokenizer.chat_template = {"default": DROPPING, "rag": DROPPING + "!"}
    check_settings(loaded)
    assert render(loaded, TURNS[:1]) == "Que animal durme?!"
    own = reasoning.load("llama3", chat_template="{{ messages[-1]['content'] }}?")
    check_settings(own)
    assert render(own, TURNS) == "E cal ladra??"


def save(family, directory, **settings):
    loaded = reasoning.load(family)
    loaded.tokenizer.save_pretrained(directory)
    return loaded.record | {"directory": str(directory), "fingerprint": str(directory), **settings}


@pytest.mark.parametrize("protocol", ["letters", "options"])
def test_scores_after_an_open_turn_of_a_reasoning_model_are_not_applicable(protocol, tmp_path):
    metadata = RequestsMetadata(protocol=protocol, has_turns=True, **inference_metadata(protocol))
    record = save("qwen3", tmp_path, chat=True)
    reason = not_answerable(record, metadata)
    assert "reasons; set enable_thinking: false, or chat: auto for plain text" in reason
    assert not_answerable(record | {"enable_thinking": False}, metadata) is None
    assert not_answerable(record | {"chat": "auto"}, metadata) is None
    assert not_answerable(save("llama3", tmp_path / "llama", chat=True), metadata) is None
    plain = RequestsMetadata(protocol="acceptability", **inference_metadata("acceptability"))
    assert not_answerable(record, plain) is None


def test_examples_as_plain_text_in_the_turn_of_the_user():
    items = [
        {"item_id": str(i), "few_shot": i == 0, "context": "", "question": f"q{i}", "choices": ["a", "b"], "gold": [0],
         "target": None, "cluster_id": None, "category": None, "source_row": i, "repeats": None, "extra": None}
        for i in range(2)
    ]  # fmt: skip
    task = {"task": "t", "item_type": "question", "protocols": ["letters", "generation"]}
    settings = {"language": "gl", "shots": 1, "seed": 0, "style": "default"}
    for protocol in ("letters", "generation"):
        turns = {}
        for value in (True, False):
            options = {"fewshot_as_multiturn": value}
            [row, *_], metadata = build(items, task, protocol=protocol, options=options, **settings)
            turns[value] = row["messages"]
            assert metadata["has_turns"]
        assert [turn["role"] for turn in turns[True]] == ["user", "assistant", "user"]
        assert turns[False] == [{"role": "user", "content": row["prefix"] + turns[True][-1]["content"]}]
        default = build(items, task, protocol=protocol, options={}, **settings)[0][0]
        assert default["messages"] == turns[True]


@pytest.mark.parametrize("family", reasoning.TEMPLATES)
def test_record_states_whether_a_template_asks_for_reasoning_by_default(family, tmp_path):
    loaded = reasoning.load(family)
    for part in (loaded.model, loaded.tokenizer):
        part.save_pretrained(tmp_path / "mine")
    spec = {"name": "mine", "source": str(tmp_path / "mine"), "kind": "auto", "allow_pickle": False, "files": "key"}
    model(stages.arguments(model, spec=spec, out=tmp_path / "mine.json"))
    expected = {"gemma2": None, "llama3": None, "deepseek": False, "gemma4": False}
    assert read_model(tmp_path / "mine.json").reasons is expected.get(family, True)


def test_template_that_fails_makes_no_model_unavailable(tmp_path):
    loaded = reasoning.load("llama3")
    for part in (loaded.model, loaded.tokenizer):
        part.save_pretrained(tmp_path / "mine")
    (tmp_path / "mine" / "chat_template.jinja").write_text("{% think")
    spec = {"name": "mine", "source": str(tmp_path / "mine"), "kind": "auto", "allow_pickle": False, "files": "key"}
    model(stages.arguments(model, spec=spec, out=tmp_path / "mine.json"))
    record = read_model(tmp_path / "mine.json")
    assert (record.unavailable, record.reasons) == (None, None)
