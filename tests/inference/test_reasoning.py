"""Reasoning split from answers: states, markers, budgets and stop strings, on transformers and vLLM."""

import sys
from types import SimpleNamespace

import pytest
import torch
from support import observed, reasoning
from support.engines import generate, outputs
from vernacular.core.errors import ModelError
from vernacular.inference.generation import generate as generation
from vernacular.inference.generation.prepare import prepare_prompt
from vernacular.inference.generation.reasoning import Markers, split_text
from vernacular.inference.model.tokenization import decode_continuation

PAIR = ("<think>", "</think>")
FINAL = ("<|channel|>", "final", "<|message|>")
ANALYSIS = ("<|channel|>", "analysis", "<|message|>")
NEXT = ("<|end|>", "<|start|>", "assistant")
# family, generated parts, answer, reasoning, state
CASES = [
    # a pair
    ("qwen3", ["<think>", "\nUn felino.\n", "</think>", "\n\no gato"], "o gato", "Un felino.", "closed"),
    ("qwen3", ["\n", "<think>", "\nUn\n\nfelino.\n", "</think>", "\n\no gato"], "o gato", "Un\n\nfelino.", "closed"),
    ("qwen3", ["<think>", "\n\n", "</think>", "\n\no gato"], "o gato", None, "closed"),
    ("qwen3", ["<think>", "</think>", "o gato"], "o gato", None, "closed"),
    ("qwen3", ["<think>", "a", "</think>"], "", "a", "closed"),
    ("qwen3", ["o gato"], "o gato", None, "none"),
    ("qwen3", [""], "", None, "none"),
    ("qwen3", ["<think>", "\nUn felino"], "", "Un felino", "unclosed"),
    ("qwen3", ["<think>"], "", None, "unclosed"),
    (
        "qwen3",
        ["<think>", "a", "</think>", "o can", "<think>", "b", "</think>", "o gato"],
        "o gato",
        "a\n\nb",
        "reopened",
    ),
    ("qwen3", ["<think>", "a", "</think>", "o can", "<think>", "b"], "", "a\n\nb", "unclosed"),
    ("qwen3", ["<think>", "a", "</think>", "b", "</think>", "o gato"], "o gato", "a\n\nb", "reopened"),
    ("qwen3", ["a", "</think>", "o gato"], "o gato", "a", "closed"),
    ("qwen3", ["<think>", "quoted:</think>", "a", "</think>", "o gato"], "o gato", "</think>a", "closed"),
    ("qwen3", ["<think>", "a", "</think>", "quoted:<think>", "o gato"], "<think>o gato", "a", "closed"),
    ("qwen3", ["quoted:<think>", "o gato"], "<think>o gato", None, "none"),
    # opened by the prompt
    ("qwen3.5", ["Un felino.\n", "</think>", "\n\no gato"], "o gato", "Un felino.", "closed"),
    ("qwen3.5", ["</think>", "o gato"], "o gato", None, "closed"),
    ("qwen3.5", ["Un felino. E"], "", "Un felino. E", "unclosed"),
    ("qwen3.5", ["<think>", "a", "</think>", "o gato"], "o gato", "a", "closed"),
    ("qwen3.5", ["a", "</think>", "o can", "<think>", "b", "</think>", "o gato"], "o gato", "a\n\nb", "reopened"),
    ("qwen3.5", [""], "", None, "unclosed"),
    ("r1", ["a\n\nb\n", "</think>", "\n\no gato"], "o gato", "a\n\nb", "closed"),
    ("r1", ["a", "</think>", "b", "</think>", "o gato"], "o gato", "a\n\nb", "reopened"),
    ("r1", ["o gato"], "", "o gato", "unclosed"),
    # channels
    ("harmony", [*ANALYSIS, "Un felino.", *NEXT, *FINAL, "o gato"], "o gato", "Un felino.", "closed"),
    ("harmony", [*FINAL, "o gato"], "o gato", None, "none"),
    ("harmony", ["o gato"], "o gato", None, "none"),
    ("harmony", [*ANALYSIS, "Un felino."], "", "Un felino.", "unclosed"),
    ("harmony", [*ANALYSIS, "a", *NEXT, *ANALYSIS, "b", *NEXT, *FINAL, "o gato"], "o gato", "a\n\nb", "closed"),
    ("harmony", [*ANALYSIS, "a", *NEXT, "<|channel|>", "fin"], "", "a", "unclosed"),
    ("harmony", [*ANALYSIS, "a", *NEXT, *FINAL, "o gato", "<|end|>", "x"], "o gato", "a", "closed"),
    # special tokens
    ("magistral", ["[THINK]", "Un felino.", "[/THINK]", "o gato"], "o gato", "Un felino.", "closed"),
    ("magistral", ["o gato"], "o gato", None, "none"),
    ("magistral", ["[THINK]", "Un felino."], "", "Un felino.", "unclosed"),
    ("magistral", ["[THINK]", "a", "[/THINK]", "b", "[THINK]", "c", "[/THINK]", "d"], "d", "a\n\nc", "reopened"),
    # a label
    ("gemma4", ["<|channel>", "thought\n", "Un felino.", "<channel|>", "o gato"], "o gato", "Un felino.", "closed"),
    ("gemma4", ["<|channel>", "thought\n", "<channel|>", "o gato"], "o gato", None, "closed"),
    ("gemma4", ["<|channel>", "thought\n", "Un"], "", "Un", "unclosed"),
    ("gemma4", ["o gato"], "o gato", None, "none"),
]
ON = {"qwen3": {}, "qwen3.5": {}, "r1": {}, "harmony": {}, "magistral": {}, "gemma4": {"enable_thinking": True}}


@pytest.fixture(autouse=True)
def single_thread():
    torch.set_num_threads(1)


def on_transformers(loaded, request, ids):
    reasoning.write(loaded, ids, prompt_length=len(prepare_prompt(loaded, request).ids))
    return generate(loaded, reasoning.table(request))


def on_vllm(loaded, request, ids, monkeypatch):
    def answer(prompts, parameters, **_):
        [limit] = [setting.max_tokens for setting in parameters]
        reason = "length" if len(ids) >= limit else "stop"
        return [SimpleNamespace(outputs=[SimpleNamespace(token_ids=ids[:limit], finish_reason=reason)])]

    fake = SimpleNamespace(SamplingParams=lambda **settings: SimpleNamespace(**settings))
    monkeypatch.setitem(sys.modules, "vllm", fake)
    monkeypatch.setattr(generation, "_engine", lambda _: (SimpleNamespace(generate=answer), "9"))
    return outputs(generation.VLLMGeneration(loaded, reasoning.table(request)))


def test_forty_sequences_of_tokens():
    assert len(CASES) == 40


@pytest.mark.parametrize("engine", ["transformers", "vllm"])
@pytest.mark.parametrize("has_ids", [True, False], ids=["ids", "text"])
@pytest.mark.parametrize(("family", "parts", "answer", "trace", "state"), CASES)
def test_sequences_are_split(family, parts, answer, trace, state, has_ids, engine, monkeypatch):
    if not has_ids and any(part.startswith("quoted:") for part in parts):
        pytest.skip("as a text, a quoted marker cannot be told from a marker")
    loaded = reasoning.load(family, has_ids=has_ids, **ON[family])
    request = reasoning.request(stop=["\n"])
    ids = reasoning.ids_of(loaded, *parts)
    run = (
        on_transformers(loaded, request, ids)
        if engine == "transformers"
        else on_vllm(loaded, request, ids, monkeypatch)
    )
    [row], metadata = run[0].to_pylist(), run[1]
    assert (row["output"], row["reasoning"], row["think_state"]) == (answer, trace, state)
    assert row["flags"] == ("unclosed reasoning" if state == "unclosed" else None)
    assert row["think_budget"] > 100
    n_reasoning = len(ids) if state == "unclosed" else 0 if state == "none" else None
    assert n_reasoning is None or row["n_reasoning_tokens"] == n_reasoning
    assert (row["n_reasoning_tokens"] > 0) == (state != "none" and ids != [])
    if any(parts):
        assert metadata["tokenizer"]["reasoning"]["split_by"] == ["ids" if has_ids else "text"]


def test_user_text_with_markers_opens_nothing():
    loaded = reasoning.load("qwen3")
    request = reasoning.request(text="Que fai <think>?")
    [row] = on_transformers(loaded, request, reasoning.ids_of(loaded, "o gato"))[0].to_pylist()
    assert (row["output"], row["think_state"]) == ("o gato", "none")


def test_prompt_of_a_template_that_changes_texts_opens_reasoning_too():
    loaded = reasoning.load("r1")
    loaded.tokenizer.chat_template = "{% for m in messages %}{{ m['content'] | replace('\n', ' ') }}{% endfor %}<think>"
    request = reasoning.request(text="Que animal\ndurme?")
    assert prepare_prompt(loaded, request).opened
    [row] = on_transformers(loaded, request, reasoning.ids_of(loaded, "Un felino"))[0].to_pylist()
    assert (row["output"], row["think_state"]) == ("", "unclosed")


def test_stop_strings_end_answers_and_no_reasoning():
    """A hundred traces with line ends everywhere, after which the answer ends at its own."""
    loaded = reasoning.load("qwen3")
    for number in range(100):
        lines = "\n" * (1 + number % 3)
        parts = ["<think>", f"a{lines}{number}{lines}b", "</think>", f"\n\no gato {number}\nPregunta: x"]
        stop = ["\n\n"] if number % 2 else ["\n"]
        parts[-1] = parts[-1].replace("\nP", f"{stop[0]}P")
        [row] = on_transformers(loaded, reasoning.request(stop=stop), reasoning.ids_of(loaded, *parts))[0].to_pylist()
        assert (row["output"], row["finish_reason"]) == (f"o gato {number}", "stop")
        assert row["reasoning"] == f"a{lines}{number}{lines}b"


@pytest.mark.parametrize("engine", ["transformers", "vllm"])
def test_budgets_of_reasoning_and_answer_are_separate(engine, monkeypatch):
    loaded = reasoning.load("qwen3", gen_kwargs={"think_max_toks": 10, "max_gen_toks": 3})
    run = on_transformers if engine == "transformers" else lambda *args: on_vllm(*args, monkeypatch)
    think, end = reasoning.ids_of(loaded, *PAIR)
    [filler] = reasoning.ids_of(loaded, "a")
    for n_trace, state in ((7, "closed"), (8, "closed"), (9, "unclosed"), (30, "unclosed")):
        ids = [think, *[filler] * n_trace, end, *[filler] * 9]
        [row] = run(loaded, reasoning.request(), ids)[0].to_pylist()
        assert (row["think_state"], row["finish_reason"]) == (state, "length")
        assert row["n_tokens"] == (3 if state == "closed" else 0)
        assert row["n_reasoning_tokens"] == (n_trace + 2 if state == "closed" else 10)
        assert row["raw_output"] == ("aaa" if state == "closed" else "")
        assert row["think_budget"] == 10


def test_budget_is_what_the_context_leaves_and_noted():
    loaded = reasoning.load("qwen3")  # 512 positions
    prompt = prepare_prompt(loaded, reasoning.request())
    assert prompt.think_tokens == 512 - len(prompt.ids) - 24
    assert prompt.answer_tokens == 24
    _, metadata = on_transformers(loaded, reasoning.request(), reasoning.ids_of(loaded, "o gato"))
    notes = metadata["tokenizer"]["reasoning"]["notes"]
    assert any(f"leave room for {prompt.think_tokens} tokens only" in note for note in notes)


@pytest.mark.parametrize(
    ("family", "settings", "expected"),
    [
        ("qwen3", {}, True),
        ("qwen3", {"enable_thinking": True}, False),
        ("qwen3", {"chat_template_args": {"enable_thinking": True}}, False),
        ("r1", {}, False),  # it cannot be asked for none
        ("deepseek", {}, False),  # off by default
    ],
)
def test_metadata_state_whether_reasoning_is_the_default_of_the_template(family, settings, expected):
    loaded = reasoning.load(family, **settings)
    ids = reasoning.ids_of(loaded, "<think>", "a", "</think>", "o gato")
    _, metadata = on_transformers(loaded, reasoning.request(), ids)
    assert metadata["tokenizer"]["reasoning"]["by_default"] is expected


@pytest.mark.parametrize("family", ["gemma2", "llama3"])
def test_models_without_reasoning_have_no_state_and_no_budget(family):
    loaded = reasoning.load(family, has_ids=False)
    run, metadata = on_transformers(loaded, reasoning.request(stop=["\n"]), reasoning.ids_of(loaded, "o gato\nx"))
    [row] = run.to_pylist()
    assert row["output"] == "o gato"
    assert [row[name] for name in ("reasoning", "think_state", "n_reasoning_tokens", "think_budget")] == [None] * 4
    assert "reasoning" not in metadata["tokenizer"]


@pytest.mark.parametrize(
    ("family", "settings"), [("qwen3", {"enable_thinking": False}), ("gemma4", {}), ("deepseek", {})]
)
def test_reasoning_turned_off_leaves_the_answer_as_it_is(family, settings):
    loaded = reasoning.load(family, **settings)
    request = reasoning.request(stop=["\n"])
    assert prepare_prompt(loaded, request).think_tokens == 0
    [row] = on_transformers(loaded, request, reasoning.ids_of(loaded, "o gato"))[0].to_pylist()
    assert (row["output"], row["think_state"], row["think_budget"]) == ("o gato", None, None)


def test_no_answer_is_a_marker():
    """The default protocol, with a template that reasons by default and with one that opens the block."""
    for family in ("qwen3", "qwen3.5"):
        loaded = reasoning.load(family)
        parts = ["<think>"] * (family == "qwen3") + ["\nVexamos.\n\nO gato dorme.\n", "</think>", "\n\no gato"]
        [row] = on_transformers(loaded, reasoning.request(stop=["\n"]), reasoning.ids_of(loaded, *parts))[0].to_pylist()
        assert row["output"] == "o gato"


def test_end_token_by_text_and_by_id():
    loaded = reasoning.load("llama3", think_end_token="</think>")
    [end] = loaded.tokenizer("</think>", add_special_tokens=False)["input_ids"]
    ids = reasoning.ids_of(loaded, "a", "</think>", "o gato")
    for setting in ("</think>", end):
        loaded.record |= {"think_end_token": setting}
        [row] = on_transformers(loaded, reasoning.request(), ids)[0].to_pylist()
        assert (row["output"], row["reasoning"], row["think_state"]) == ("o gato", "a", "closed")
    loaded.record |= {"think_end_token": "none"}
    [row] = on_transformers(loaded, reasoning.request(), ids)[0].to_pylist()
    assert (row["output"], row["think_state"]) == ("a</think>o gato", None)
    loaded.record |= {"think_end_token": 10**6}
    with pytest.raises(ModelError, match="the vocabulary has no token 1000000"):
        prepare_prompt(loaded, reasoning.request())


@pytest.mark.parametrize(
    ("text", "opened", "answer", "state"),
    [
        ("a</think>b", True, "b", "closed"),
        ("a", True, "", "unclosed"),
        ("b", False, "b", "none"),
        ("<think>a", False, "", "unclosed"),
    ],
)
def test_texts_of_servers_are_split_by_markers(text, opened, answer, state):
    split = split_text(text, Markers(*PAIR), opened=opened, asks=True)
    assert (split.answer, split.state) == (answer, state)


def test_reasoning_is_not_decoded_token_by_token():
    """The cost of a trace is linear: nothing is decoded before its end."""
    loaded = reasoning.load("qwen3")
    ids = reasoning.ids_of(loaded, "<think>", "a " * 100, "</think>", "o gato")
    with observed.calls(decode_continuation, lambda given: len(given["new_ids"])) as lengths:
        on_transformers(loaded, reasoning.request(), ids)
    assert lengths
    assert len([length for length in lengths if length > 50]) <= 2
