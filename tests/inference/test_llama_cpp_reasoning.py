"""A tiny model that has learned to reason, with a template that opens the block, by a llama.cpp server and in process."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import copy
import functools
from dataclasses import replace

import pytest
import torch

pytest.importorskip("xllamacpp", exc_type=ImportError)

from support import llama, reasoning, served
from support.engines import generate
from vernacular.checkpoints.resolve import resolve
from vernacular.core.model_record import Forms, read_model
from vernacular.inference.engine import LlamaCpp
from vernacular.inference.model.rendering import render
from vernacular.inference.schema import GENERATIONS, MemoryJournal
from vernacular.inference.server.served import open_server

pytestmark = pytest.mark.slow

QUESTION, ANSWER = "Que animal durme?", "o gato"
TRACE = "Vexamos.\n\nUn felino."
COMPARED = ("output", "reasoning", "think_state", "n_reasoning_tokens", "n_prompt_tokens", "flags")


@pytest.fixture(scope="module")
def model():
    """A tiny model that writes TRACE and ANSWER after the prompt, or ANSWER alone after a closed block."""
    trained = served.trained_model()
    loaded = replace(trained, model=copy.deepcopy(trained.model), tokenizer=copy.deepcopy(trained.tokenizer))
    loaded.tokenizer.add_tokens(["<think>", "</think>"])
    loaded.tokenizer.chat_template = reasoning.TEMPLATES["qwen3.5"]
    torch.manual_seed(0)  # of the new embeddings
    loaded.model.resize_token_embeddings(len(loaded.tokenizer), mean_resizing=False)
    loaded = replace(loaded, n_embeddings=len(loaded.tokenizer), record=loaded.record | {"chat": "auto"})
    sequences = []
    for is_on, text in ((True, f"{TRACE}\n</think>\n\n{ANSWER}"), (False, ANSWER)):
        loaded.record |= {"enable_thinking": is_on}
        prompt = render(loaded, [{"role": "user", "content": QUESTION}])
        parts = [reasoning.ids_of(loaded, part) for part in (prompt, text + loaded.tokenizer.eos_token)]
        labels = [-100] * len(parts[0]) + parts[1]
        sequences.append((torch.tensor([parts[0] + parts[1]]), torch.tensor([labels])))
    loaded.record |= {"enable_thinking": None}
    loaded.model.requires_grad_(True)
    optimizer = torch.optim.Adam(loaded.model.parameters(), lr=3e-3)
    for step in range(120):
        ids, labels = sequences[step % 2]
        optimizer.zero_grad()
        loaded.model(input_ids=ids, labels=labels).loss.backward()
        optimizer.step()
    loaded.model.requires_grad_(False)
    return loaded


@pytest.fixture(scope="module")
def file(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    llama.write_gguf(model, path)
    return path


@pytest.fixture(scope="module")
def server(file):
    with llama.LlamaServer(file, float32=True) as server:
        yield server


@pytest.fixture(scope="module")
def record_of(model, server, tmp_path_factory):
    """Return the record of the server with the local tokenizer or the server's, and settings; probed once for each."""

    @functools.cache
    def record(tokenizer, **settings):
        local = model if tokenizer == "local" else None
        return served.record(server, tmp_path_factory.mktemp("model"), tokenizer=local, concurrency=1, **settings)

    return record


TABLE = reasoning.table(reasoning.request(text=QUESTION, stop=["\n"], max_new_tokens=12))


@pytest.mark.parametrize("enable_thinking", [None, True, False])
@pytest.mark.parametrize("tokenizer", ["local", "server"])
def test_reasoning_is_split_by_ids_as_by_the_local_model(model, record_of, tokenizer, enable_thinking):
    settings = {} if enable_thinking is None else {"enable_thinking": enable_thinking}
    if tokenizer == "server" and enable_thinking is None:
        enable_thinking = False  # the default of this server, which passes it to the template
    model.record |= {"enable_thinking": enable_thinking}
    [expected] = generate(model, TABLE)[0].to_pylist()
    record = record_of(tokenizer, **settings) | settings
    found = (record.unavailable, record.server)
    assert (record.server.tokenizer, record.server.forms.generation) == (tokenizer, "native"), found
    assert record.server.reasons_by_default == (enable_thinking is not False)
    results, metadata = generate(open_server(record), TABLE)
    [row] = results.to_pylist()
    assert [row[name] for name in COMPARED] == [expected[name] for name in COMPARED]
    assert (row["output"], row["think_state"]) == (ANSWER, None if enable_thinking is False else "closed")
    if enable_thinking is not False:
        assert row["reasoning"] == TRACE
        assert metadata["tokenizer"]["reasoning"]["split_by"] == ["ids"]


@pytest.mark.parametrize("enable_thinking", [None, True, False])
@pytest.mark.parametrize("budget", [None, 5])
def test_reasoning_of_the_file_in_process_is_split_as_by_the_local_model(model, file, enable_thinking, budget):
    pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed (pip install llama-cpp-python)")
    settings = {"enable_thinking": enable_thinking, "gen_kwargs": {"think_max_toks": budget} if budget else None}
    table, described = generate(replace(model, record=model.record | settings), TABLE)
    engine = LlamaCpp(resolve("tiny", str(file), file.parent, as_is=True) | {"chat": "auto"} | settings, threads=1)
    with engine.model(engine.record):
        prepared = engine.prepare(GENERATIONS, TABLE)
        engine.compute(prepared, MemoryJournal())
        rows, metadata = engine.finish(prepared)
    [row], [expected] = rows.slice().to_pylist(), table.to_pylist()
    assert [row[name] for name in COMPARED] == [expected[name] for name in COMPARED]
    state = None if enable_thinking is False else "unclosed" if budget else "closed"
    assert (row["output"], row["think_state"]) == ("" if state == "unclosed" else ANSWER, state)
    assert metadata["tokenizer"]["reasoning"] == described["tokenizer"]["reasoning"]


def test_truncated_reasoning_is_unclosed(record_of):
    record = record_of("local") | {"gen_kwargs": {"think_max_toks": 5}}
    [row] = generate(open_server(record), TABLE)[0].to_pylist()
    assert (row["output"], row["think_state"], row["n_reasoning_tokens"]) == ("", "unclosed", 5)
    assert TRACE.startswith(row["reasoning"])


@pytest.mark.parametrize("enable_thinking", [True, False])
def test_reasoning_of_chats_is_a_field_or_begins_the_text(record_of, enable_thinking):
    """The server applies its template, which opens the block."""
    record = record_of("server")
    found = replace(record.server, tokenizer=None, forms=Forms(generation="chat", chat=True))
    record = record | {"server": found, "enable_thinking": enable_thinking}
    results, metadata = generate(open_server(record), TABLE)
    [row] = results.to_pylist()
    assert row["output"] == ANSWER
    if enable_thinking:
        assert (row["reasoning"].strip(), row["think_state"]) == (TRACE, "closed")
        # llama.cpp has a parser of reasoning for the templates that it recognizes
        assert metadata["tokenizer"]["reasoning"]["split_by"] in (["text"], ["reasoning_content"])
    else:
        assert (row["reasoning"], row["think_state"]) == (None, None)


def test_setting_that_the_template_ignores_is_noticed(server, tmp_path):
    served.record(server, tmp_path, concurrency=1, chat_template_args={"thinking_mode": "low"})
    reason = read_model(tmp_path / "resources" / "models" / "big.json").unavailable
    assert "chat_template_args.thinking_mode: the chat template has no such argument" in reason
