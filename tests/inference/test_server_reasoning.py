"""Reasoning of served models: by the IDs of tokens, by a field of the message, or by markers in the text; the probe."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import copy
from dataclasses import replace

import pyarrow as pa
import pytest
from support import reasoning, served
from support.engines import generate, score
from support.scoring import build_requests, item
from vernacular.core.errors import ModelError
from vernacular.core.model_record import read_model
from vernacular.inference.server.served import open_server
from vernacular.protocols.schema import REQUESTS


@pytest.fixture(autouse=True)
def short_waits(low_limits):
    low_limits("inference.server.client", FIRST_WAIT=0.001)


@pytest.fixture(scope="module")
def model():
    return served.trained_model()


def with_template(model, family):
    """Return a served model whose tokenizer has the template and markers of a family; its weights are the same."""
    loaded = reasoning.load(family)
    tokenizer = copy.deepcopy(model.tokenizer)
    known = tokenizer.get_vocab().keys()
    added = [entry for entry in loaded.tokenizer.added_tokens_decoder.values() if entry.content not in known]
    tokenizer.add_tokens(added)
    tokenizer.chat_template = reasoning.TEMPLATES[family]
    model.model.resize_token_embeddings(max(len(tokenizer), model.n_embeddings), mean_resizing=False)
    return replace(model, tokenizer=tokenizer, n_embeddings=len(tokenizer))


SEQUENCES = {
    "qwen3": [
        (["<think>", "\nUn felino.\n", "</think>", "\n\no gato"], "o gato", "Un felino.", "closed"),
        (["<think>", "\nUn felino"], "", "Un felino", "unclosed"),
        (["o gato"], "o gato", None, "none"),
        (["<think>", "a", "</think>", "o can", "<think>", "b", "</think>", "o gato"], "o gato", "a\n\nb", "reopened"),
    ],
    "qwen3.5": [
        (["Un\n\nfelino.\n", "</think>", "\n\no gato"], "o gato", "Un\n\nfelino.", "closed"),
        (["Un felino"], "", "Un felino", "unclosed"),
    ],
    "magistral": [
        (["[THINK]", "Un felino.", "[/THINK]", "o gato"], "o gato", "Un felino.", "closed"),
        (["[THINK]", "Un felino."], "", "Un felino.", "unclosed"),
    ],
    "harmony": [
        (
            ["<|channel|>", "analysis", "<|message|>", "Un.", "<|end|>", "<|start|>", "assistant", "<|channel|>", "final",
             "<|message|>", "o gato"], "o gato", "Un.", "closed",
        ),
        (["<|channel|>", "analysis", "<|message|>", "Un."], "", "Un.", "unclosed"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("returns_ids", [True, False], ids=["ids", "text"])
@pytest.mark.parametrize("family", SEQUENCES)
def test_prompts_of_token_ids_are_split_as_by_a_local_model(model, family, returns_ids, tmp_path):
    loaded = with_template(copy.deepcopy(model), family)
    scripts = {f"Que animal durme? {i}": case for i, case in enumerate(SEQUENCES[family])}

    def write(server, original, ids, n, temperature, seed, stop):
        text = server.loaded.tokenizer.decode(ids)
        for name, (parts, *_) in scripts.items():
            if name in text:
                new = [*reasoning.ids_of(server.loaded, *parts), server.loaded.eos_id][:n]
                return new, [0.0] * len(new), "stop"
        return original(ids, n, temperature, seed, stop)

    def complete(server, original, body):
        content = original({**body, "return_token_ids": body.get("return_token_ids") and returns_ids})
        if body.get("skip_special_tokens") is False and not returns_ids:
            new = write(server, None, server.prompt_ids(body["prompt"]), body["max_tokens"], 0, 0, [])[0]
            content["choices"][0]["text"] = server.loaded.tokenizer.decode(new[:-1])
        return content

    with served.Server(loaded, "vllm", lie={"generate": write, "completions": complete}) as server:
        record = served.record(server, tmp_path, tokenizer=loaded)
        rows = [reasoning.request(name, name, stop=["\n"]) for name in scripts]
        results, metadata = generate(open_server(record), reasoning.table(*rows))
    actual = [(row["output"], row["reasoning"], row["think_state"]) for row in results.to_pylist()]
    assert actual == [tuple(case[1:]) for case in SEQUENCES[family]]
    assert metadata["tokenizer"]["reasoning"]["split_by"] == ["ids" if returns_ids else "text"]


class Chat(served.Server):
    """A server that chats only, whose template has an argument, and whose parser has a field for reasoning.

    Args:
        field: Name of the field; None: reasoning stays in the text.
        argument: That turns reasoning off; None: the template has none.
    """

    def __init__(self, loaded, *, field="reasoning_content", argument="enable_thinking", **options):
        self.field, self.argument, self.bodies = field, argument, []
        super().__init__(loaded, "chat", **options)

    def chat(self, body):
        self.bodies.append(body)
        thinks = (body.get("chat_template_kwargs") or {}).get(self.argument, True)
        question = body["messages"][-1]["content"]
        content = super().chat(body)
        message, limit = content["choices"][0]["message"], body["max_tokens"]
        trace = "Vexamos: un felino." * (20 if "moito" in question else 1)
        if not thinks:
            message["content"], content["usage"]["prompt_tokens"] = "o gato", content["usage"]["prompt_tokens"] + 4
            return content
        whole = f"<think>\n{trace}\n</think>\n\no gato"
        n_tokens = len(self.encode(trace))
        is_cut = n_tokens > limit
        content["choices"][0]["finish_reason"] = "length" if is_cut else "stop"
        if self.field is None:
            message["content"] = whole[:60] if is_cut else whole
            return content
        message |= {"content": None if is_cut else "o gato", self.field: trace}
        content["usage"]["completion_tokens_details"] = {"reasoning_tokens": n_tokens}
        return content


ROWS = [reasoning.request("a", "Que animal durme?", stop=["\n"]), reasoning.request("b", "Pensa moito.", stop=["\n"])]


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content", None])
def test_reasoning_of_chats_is_read_from_both_fields_or_the_text(model, field, tmp_path):
    """A truncated trace has `content: null`: it is unclosed, and not an empty answer."""
    with Chat(model, field=field) as server:
        record = served.record(server, tmp_path) | {"gen_kwargs": {"think_max_toks": 60}}
        assert record.server.reasons_by_default
        results, metadata = generate(open_server(record), reasoning.table(*ROWS))
        asked = [body for body in server.bodies if body["messages"][-1]["content"] == "Pensa moito."]
    closed, unclosed = results.to_pylist()
    assert (closed["output"], closed["reasoning"], closed["think_state"]) == ("o gato", "Vexamos: un felino.", "closed")
    assert (closed["flags"], closed["finish_reason"]) == (None, "eos")
    assert (unclosed["output"], unclosed["raw_output"], unclosed["think_state"]) == ("", "", "unclosed")
    assert unclosed["flags"] == "unclosed reasoning"
    assert unclosed["reasoning"].startswith("Vexamos: un felino.")
    assert [row["think_budget"] for row in (closed, unclosed)] == [60, 60]
    assert (closed["n_reasoning_tokens"] is not None) == (field is not None)
    assert metadata["tokenizer"]["reasoning"]["split_by"] == [field or "text"]
    assert [body["max_tokens"] for body in asked] == [84]
    assert not any("stop" in body for body in asked)


def test_budget_of_reasoning_is_what_the_context_of_the_server_leaves(model, tmp_path):
    with Chat(model, length=400) as server:
        record = served.record(server, tmp_path)
        results, _ = generate(open_server(record), reasoning.table(*ROWS))
        asked = [body["max_tokens"] for body in server.bodies[-2:]]
    budgets = [row["think_budget"] for row in results.to_pylist()]
    assert sorted(asked) == sorted(24 + budget for budget in budgets)
    assert budgets == [400 - 256 - 24 - len(row["text"]) for row in ROWS]


def test_settings_are_sent_with_chats(model, tmp_path):
    with Chat(model) as server:
        settings = {"enable_thinking": False, "system_instruction": "Responde en galego."}
        record = served.record(server, tmp_path, **settings) | settings
        assert not record.server.reasons_by_default
        results, metadata = generate(open_server(record), reasoning.table(ROWS[0]))
        body = server.bodies[-1]
    [row] = results.to_pylist()
    assert (row["output"], row["reasoning"], row["think_state"], row["think_budget"]) == ("o gato", None, None, None)
    assert body["chat_template_kwargs"] == {"enable_thinking": False, "thinking": False}
    assert [turn["role"] for turn in body["messages"]] == ["system", "user"]
    assert metadata["tokenizer"]["reasoning"]["arguments"] == body["chat_template_kwargs"]


def test_settings_are_sent_with_letters_in_chats(model, tmp_path):
    """A server that reasons by default would list the beginning of its reasoning instead of the letters."""
    question = item(context="Choveu.", question="Que pasou?", choices=["choveu", "nevou"], gold=[0])
    rows = build_requests([question], "passage", "letters")
    settings = {"enable_thinking": False, "system_instruction": "Responde en galego."}
    with Chat(model) as server:
        record = served.record(server, tmp_path, chat=True, **settings) | settings
        assert record.server.forms.labels == "top 20 texts of a chat"
        score(open_server(record), pa.Table.from_pylist(rows, schema=REQUESTS.schema))
        body = server.bodies[-1]
    assert body["chat_template_kwargs"] == {"enable_thinking": False, "thinking": False}
    assert [turn["content"] for turn in body["messages"]] == ["Responde en galego.", rows[0]["messages"][0]["content"]]


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"enable_thinking": False}, "enable_thinking"),
        ({"enable_thinking": True}, "enable_thinking"),
        ({"chat_template_args": {"thinking_mode": "low"}}, "chat_template_args.thinking_mode"),
    ],
)
def test_probe_notices_a_server_that_ignores_a_setting(model, settings, name, tmp_path):
    with Chat(model, argument=None) as server:
        served.record(server, tmp_path, **settings)
    reason = read_model(tmp_path / "resources" / "models" / "big.json").unavailable
    assert reason.startswith(f"model big: {name}: the server ignores it: a chat has ")


def test_probe_notices_that_a_template_ignores_a_setting(model, tmp_path):
    loaded = with_template(copy.deepcopy(model), "llama3")
    with served.Server(loaded, "vllm") as server:
        served.record(server, tmp_path, tokenizer=loaded, enable_thinking=False)
    reason = read_model(tmp_path / "resources" / "models" / "big.json").unavailable
    assert "enable_thinking: its chat template renders the same prompt for true and false; remove it" in reason


def test_recommended_decoding_of_a_server_is_an_error(model, tmp_path):
    with Chat(model) as server:
        record = served.record(server, tmp_path) | {"gen_kwargs": "recommended"}
        with pytest.raises(ModelError, match="gen_kwargs: recommended"):
            generate(open_server(record), reasoning.table(ROWS[0]))
