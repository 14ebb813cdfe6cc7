"""What vLLM is asked, and the rows made of what it returns: a stand-in with its interface runs the tiny model greedily."""

import sys
from types import SimpleNamespace

import pyarrow as pa
import pytest
import torch
from support import tiny
from vernacular.inference.generation import vllm
from vernacular.inference.generation.generate import generate
from vernacular.inference.generation.prepare import continuation
from vernacular.inference.job.store import Journal
from vernacular.inference.journal import MemoryJournal
from vernacular.protocols.schema import REQUESTS


@pytest.fixture
def loaded():
    torch.set_num_threads(1)
    return tiny.loaded("gpt2")


@pytest.fixture
def engines(loaded, monkeypatch):
    """The options of each engine that was started, with what it was then asked."""
    started = []

    class LLM:
        def __init__(self, **options):
            self.asked = []
            started.append((options, self.asked))

        def generate(self, prompts, parameters, *, use_tqdm):
            self.asked += parameters
            return [self._one(p["prompt_token_ids"], how) for p, how in zip(prompts, parameters, strict=True)]

        def _one(self, ids, how):
            new, reason = [], "length"
            while len(new) < how.max_tokens and reason == "length":
                token = int(loaded.model(torch.tensor([ids + new])).logits[0, -1].argmax())
                new.append(token)
                text = continuation(loaded.tokenizer, ids, new)
                if token == loaded.eos_id or any(stop in text for stop in how.stop):
                    reason = "stop"
            return SimpleNamespace(outputs=[SimpleNamespace(token_ids=new, finish_reason=reason)])

    fake = SimpleNamespace(LLM=LLM, SamplingParams=lambda **given: SimpleNamespace(**given), __version__="9.9")
    monkeypatch.setitem(sys.modules, "vllm", fake)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (60, 100))
    monkeypatch.setattr(vllm, "_engines", {})
    return started


def row(name, text, **content):
    names = dict.fromkeys(REQUESTS.schema.names)
    content = {"prefix": "", "stop": [], "max_new_tokens": 6, **content}
    return names | {"request_id": name, "item_id": name, "role": "response", "kind": "generate", "text": text} | content


def table(*rows):
    return pa.Table.from_pylist(list(rows), schema=REQUESTS.schema)


def test_the_rows_are_those_of_our_own_engine(loaded, engines):
    ours = generate(loaded, table(row("a", "O gato")), journal=MemoryJournal())[0].to_pylist()[0]["raw_output"]
    requests = table(
        row("a", "O gato"),
        row("b", "Jutros smo", stop=["\n", ours[1:3]]),
        row("c", "O gato", stop=[ours[2:4]]),
        row("a", "O gato") | {"item_id": "same words"},
        row("d", ""),
        row("e", "x", role="skipped: no question", kind="score"),
    )
    expected, _ = generate(loaded, requests, journal=MemoryJournal())
    found, metadata = vllm.generate(loaded, requests, journal=MemoryJournal())
    assert found.to_pylist() == expected.to_pylist()
    assert found["finish_reason"].to_pylist()[2] == "stop"
    assert metadata["engine"] == {"name": "vllm", "version": "9.9"}
    assert (metadata["counters"]["requests"], metadata["counters"]["distinct"]) == (6, 4)
    [(options, asked)] = engines
    assert options["gpu_memory_utilization"] == pytest.approx(0.54)  # most of what is left beside the model
    assert (options["dtype"], options["model"]) == ("float32", str(loaded.record["folder"]))
    assert len(asked) == 3  # once for the same words, and never for an empty prompt


def test_the_way_to_decode_is_handed_on_and_each_request_has_its_own_stream(loaded, engines):
    sampled = {"temperature": 0.5, "top_k": 7, "top_p": None, "repetition_penalty": 1.25, "seed": 3}
    requests = table(row("a", "O gato", decoding=sampled), row("b", "Jutros", decoding=sampled), row("c", "smo"))
    vllm.generate(loaded, requests, journal=MemoryJournal())
    [(_, asked)] = engines
    told = {(one.temperature, one.top_k, one.top_p, one.repetition_penalty) for one in asked}
    assert told == {(0.5, 7, 1.0, 1.25), (0.0, -1, 1.0, 1.0)}
    seeds = [one.seed for one in asked if one.temperature]
    assert len(set(seeds)) == 2
    assert [one.seed for one in asked if not one.temperature] == [None]


def test_what_the_journal_has_is_not_asked_again(loaded, engines, tmp_path):
    requests = table(row("a", "O gato"), row("b", "Jutros smo"))
    first, _ = vllm.generate(loaded, requests, journal=Journal(tmp_path / "journal", seconds=0))
    again, _ = vllm.generate(loaded, requests, journal=Journal(tmp_path / "journal"))
    assert again.to_pylist() == first.to_pylist()
    [(_, asked)] = engines  # one engine for both
    assert len(asked) == 2
