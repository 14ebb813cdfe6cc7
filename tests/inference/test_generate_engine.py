"""Batches, prefixes, interruptions and memory change no greedy text: transformers' `generate`, one by one, is the oracle."""

import pyarrow as pa
import pytest
import torch
from support import tiny
from vernacular.core.artifacts import _as_table
from vernacular.core.errors import ModelError
from vernacular.core.processes import StopFlag, Stopped
from vernacular.inference.generation import decode, self_check
from vernacular.inference.generation import generate as engine
from vernacular.inference.generation.generate import generate
from vernacular.inference.generation.prepare import continuation
from vernacular.inference.job.store import Journal
from vernacular.inference.journal import MemoryJournal
from vernacular.inference.schema import GENERATIONS
from vernacular.protocols.schema import REQUESTS

TEXTS = [
    "O gato",
    "A choiva cae amodo sobre a vila; ninguén",
    "Question: What is the capital of Galicia?",
    "Jutros smo",
    "أكلت القطة",
    "The keys to the",
    "დღეს 🐈",
]
DEMONSTRATIONS = ["Question: Which animal sleeps on the roof?\nAnswer: B\n", "Question: What is it?\nAnswer: D\n"]
CAUSAL = [arch for arch in tiny.CONFIGS if arch not in tiny.MASKED]
NEW = 10


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def row(i, text, **content):
    names = dict.fromkeys(REQUESTS.schema.names)
    content = {"prefix": "", "stop": [], "max_new_tokens": NEW, **content}
    return (
        names
        | {"request_id": f"r{i}", "item_id": f"i{i}", "role": "response", "kind": "generate", "text": text}
        | content
    )


def rows(texts=TEXTS, shots=2, **content):
    few_shot_examples = DEMONSTRATIONS[:shots]
    return [
        row(i, text, prefix="".join(few_shot_examples), few_shot_examples=few_shot_examples, **content)
        for i, text in enumerate(texts)
    ]


def run(loaded, requests, journal=None):
    table, metadata = generate(
        loaded,
        pa.Table.from_pylist(requests, schema=REQUESTS.schema),
        journal=MemoryJournal() if journal is None else journal,
    )
    _as_table(table, GENERATIONS)
    return {found["item_id"]: found for found in table.to_pylist()}, metadata


def alone(loaded, request, **options):
    """transformers' own generation of one request."""
    ids = loaded.tokenizer(request["prefix"] + request["text"], return_tensors="pt")["input_ids"]
    asked = {"do_sample": False, "max_new_tokens": request["max_new_tokens"], "pad_token_id": 0, **options}
    whole = loaded.model.generate(ids, attention_mask=torch.ones_like(ids), **asked)[0]
    return continuation(loaded.tokenizer, ids[0].tolist(), whole[ids.shape[1] :].tolist())


@pytest.mark.parametrize("shots", [0, 2])
@pytest.mark.parametrize("arch", CAUSAL)
def test_batched_greedy_is_transformers_one_at_a_time(arch, shots):
    loaded = tiny.loaded(arch)
    requests = rows(shots=shots)
    found, _ = run(loaded, requests)
    assert [found[r["item_id"]]["raw_output"] for r in requests] == [alone(loaded, r) for r in requests]


@pytest.mark.parametrize("penalty", [0.5, 1.3])
def test_a_penalised_batch_is_transformers_one_at_a_time(penalty):
    """In a batch transformers would count the padding as seen; here each row has its own tokens alone."""
    loaded = tiny.loaded("llama")
    decoding = {"temperature": 0.0, "top_k": None, "top_p": None, "repetition_penalty": penalty, "seed": 0}
    requests = rows(decoding=decoding)
    found, _ = run(loaded, requests)
    expected = [alone(loaded, request, repetition_penalty=penalty) for request in requests]
    assert [found[r["item_id"]]["raw_output"] for r in requests] == expected


def test_the_shared_block_is_read_once():
    loaded = tiny.loaded("llama")
    _, shared = run(loaded, rows())
    strategy = shared["engine"]["strategies"][0]
    assert strategy["used"] == "prefix"
    assert strategy["prefix_tokens"] == shared["counters"]["prefix_tokens"] >= 16
    assert strategy["prefix_difference"]["largest"] < 1e-4


@pytest.mark.parametrize("arch", ["mistral", "gemma3", "mamba"])
def test_a_window_that_is_reached_or_a_state_shares_no_prefix(arch):
    _, metadata = run(tiny.loaded(arch), rows())
    assert metadata["engine"]["strategies"][0]["used"] == "batch"
    assert metadata["counters"]["prefix_tokens"] == 0


def test_a_prefix_that_changes_the_numbers_is_left_away():
    """GPT-Neo's local attention counts padding as text, which nothing in its cache tells."""
    _, metadata = run(tiny.loaded("gpt_neo"), rows())
    strategy = metadata["engine"]["strategies"][0]
    assert strategy["prefix_difference"]["largest"] > 0.1
    assert strategy["used"] == "batch"


def test_batching_that_changes_the_numbers_is_left_away(monkeypatch):
    monkeypatch.setattr(self_check, "_agrees", lambda *_: False)
    loaded = tiny.loaded("llama")
    found, metadata = run(loaded, rows())
    assert metadata["engine"]["strategies"][0]["used"] == "single"
    assert found["i0"]["raw_output"] == alone(loaded, rows()[0])


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory"), TypeError("no such argument")])
def test_a_check_that_fails_leaves_the_prefix_away_and_says_why(monkeypatch, error):
    def failing(*_):
        raise error

    loaded = tiny.loaded("llama")
    expected, _ = run(loaded, rows())
    monkeypatch.setattr(self_check, "read_prefix", failing)
    found, metadata = run(loaded, rows())
    assert found == expected
    strategy = metadata["engine"]["strategies"][0]
    assert strategy["used"] == "batch"
    assert strategy["prefix_error"] in ("out of memory", "TypeError: no such argument")


def test_no_memory_for_the_longest_prompt_costs_only_that(monkeypatch):
    loaded = tiny.loaded("llama")
    expected, _ = run(loaded, rows())
    longest = max(len(loaded.tokenizer(r["prefix"] + r["text"])["input_ids"]) for r in rows())
    whole = decode.Forward.logits

    def limited(self):
        if self.ids.shape[1] >= longest:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return whole(self)

    monkeypatch.setattr(decode.Forward, "logits", limited)
    found, metadata = run(loaded, rows())
    assert metadata["engine"]["strategies"][0]["used"] == "single"
    lost = [name for name in found if found[name]["flags"]]
    assert [found[name]["flags"] for name in lost] == ["error: out of memory in a batch of one prompt"]
    assert all(found[name] == expected[name] for name in found if name not in lost)


def test_nan_agrees_with_nothing():
    loaded, one, nan = tiny.loaded("llama"), [torch.tensor([0.0, -1.0])], [torch.tensor([0.0, float("nan")])]
    assert not self_check.compared(loaded, nan, one).agrees
    equal = self_check.compared(loaded, one, one)
    assert (equal.agrees, equal.largest, equal.mean) == (True, 0.0, 0.0)


@pytest.mark.parametrize("limit", [{"rows": 1}, {"rows": 3}, {"prefill_tokens": 40}, {"cache_tokens": 120}])
def test_batch_sizes_change_no_text(monkeypatch, limit):
    loaded = tiny.loaded("llama")
    expected, _ = run(loaded, rows())
    whole = engine.limits
    monkeypatch.setattr(engine, "limits", lambda loaded: whole(loaded) | limit)
    found, metadata = run(loaded, rows())
    assert metadata["counters"]["batches"] > 1
    assert {k: v["raw_output"] for k, v in found.items()} == {k: v["raw_output"] for k, v in expected.items()}


def test_row_order_and_further_rows_change_no_text():
    loaded = tiny.loaded("qwen3")
    expected, _ = run(loaded, rows())
    found, _ = run(loaded, rows()[::-1])
    few, _ = run(loaded, rows()[2:5])
    assert found == expected
    assert few == {name: expected[name] for name in few}


def test_equal_requests_are_generated_once():
    requests = rows(TEXTS[:2])
    requests.append({**requests[0], "item_id": "twin"})
    found, metadata = run(tiny.loaded("llama"), requests)
    assert metadata["counters"]["distinct"] == 2
    assert found["twin"] == {**found["i0"], "item_id": "twin"}


def test_stopped_rows_leave_the_batch():
    loaded = tiny.loaded("llama")
    requests = rows(max_new_tokens=1)
    requests[0]["max_new_tokens"] = 60
    _, metadata = run(loaded, requests)
    # 60 tokens for one row cost about 60 rows of work, not 60 batches of 7
    prefill = 3 * sum(len(loaded.tokenizer(r["prefix"] + r["text"])["input_ids"]) for r in requests)
    assert metadata["counters"]["tokens_computed"] < prefill + 60 + 7
    assert metadata["counters"]["tokens_generated"] == 60 + 6


def test_a_row_of_zero_new_tokens_is_empty():
    found, _ = run(tiny.loaded("llama"), rows(max_new_tokens=0))
    assert {(r["raw_output"], r["finish_reason"], r["n_tokens"]) for r in found.values()} == {("", "length", 0)}


def test_items_that_could_not_be_asked_come_back_flagged():
    skipped = row(9, "-", kind="score", span_start=1, span_end=1) | {"role": "skipped: no question"}
    found, _ = run(tiny.loaded("llama"), [*rows(TEXTS[:1]), skipped])
    assert found["i9"]["flags"] == "error: no question"
    assert found["i9"]["raw_output"] is None


def test_no_requests_no_rows():
    found, metadata = run(tiny.loaded("llama"), [])
    assert found == {}
    assert metadata["counters"]["forwards"] == 0


def test_a_masked_model_cannot_generate():
    with pytest.raises(ModelError, match="masked language model"):
        run(tiny.loaded("bert"), rows())


class Limited:
    """`decode` on a device where batches of more than `most` rows do not fit."""

    def __init__(self, most):
        self.most, self.sizes, self.whole = most, [], decode.decode

    def __call__(self, loaded, prompts, prefix, work):
        self.sizes.append(len(prompts))
        if len(prompts) > self.most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return self.whole(loaded, prompts, prefix, work)


def test_out_of_memory_halves_the_batch_and_loses_nothing(monkeypatch):
    loaded = tiny.loaded("llama")
    expected, _ = run(loaded, rows())
    limited = Limited(2)
    monkeypatch.setattr(engine, "decode", limited)
    found, metadata = run(loaded, rows())
    assert found == expected
    assert limited.sizes[:2] == [7, 3]
    assert metadata["counters"]["oom_retries"] == 2


def test_a_row_that_does_not_fit_alone_is_flagged(monkeypatch):
    monkeypatch.setattr(engine, "decode", Limited(0))
    found, _ = run(tiny.loaded("llama"), rows(TEXTS[:2]))
    assert {r["flags"] for r in found.values()} == {"error: out of memory in a batch of one prompt"}


def test_other_errors_are_not_taken_for_memory(monkeypatch):
    def broken(*_):
        raise RuntimeError("shapes do not match")

    monkeypatch.setattr(engine, "decode", broken)
    with pytest.raises(RuntimeError, match="shapes"):
        run(tiny.loaded("llama"), rows())


def test_nan_is_an_error_and_not_a_token():
    loaded = tiny.loaded("llama", seed=5)
    with torch.no_grad():
        loaded.model.lm_head.weight[0, 0] = float("nan")
    found, _ = run(loaded, rows(TEXTS[:2]))
    assert {r["flags"] for r in found.values()} == {"error: the model returned NaN"}
    assert {r["raw_output"] for r in found.values()} == {None}


def test_an_interrupted_run_goes_on_where_it_was(tmp_path, monkeypatch):
    loaded = tiny.loaded("llama")
    whole = engine.limits
    monkeypatch.setattr(engine, "limits", lambda loaded: whole(loaded) | {"rows": 2})
    expected, full = run(loaded, rows())
    stop = StopFlag()
    stop.name = "SIGTERM"
    with pytest.raises(Stopped):
        run(loaded, rows(), Journal(tmp_path / "journal", "key", stop=stop))
    found, resumed = run(loaded, rows(), Journal(tmp_path / "journal", "key"))
    assert found == expected
    assert resumed["counters"]["resumed"] == 1
    assert resumed["counters"]["batches"] == full["counters"]["batches"] - 1


def test_halves_of_an_earlier_attempt_are_found_again(tmp_path, monkeypatch):
    loaded = tiny.loaded("llama")
    monkeypatch.setattr(engine, "decode", Limited(4))
    journal = Journal(tmp_path / "journal", "key")
    expected, _ = run(loaded, rows(), journal)
    journal.flush()
    again = Limited(99)
    monkeypatch.setattr(engine, "decode", again)
    found, _ = run(loaded, rows(), Journal(tmp_path / "journal", "key"))
    assert found == expected
    assert again.sizes == []
