"""Every strategy against transformers' own logits, one text at a time."""

import functools

import pytest
import torch
from support import tiny
from vernacular.inference.scoring.score import score

SHOTS = (
    "Question: Which animal sleeps on the roof?\nA. the dog\nB. the cat\nAnswer: B\n\n"
    "Question: What is the capital of Galicia?\nA. Vigo\nB. Santiago\nAnswer: B\n\n"
)
QUESTIONS = ["O gato dorme?", "Where are the keys to the cabinet?", "A choiva cae sobre a vila 🙂 ninguén sae?", "ქ?"]
CHOICES = [" no tellado", " on the table", " si", " jabuke i kruške"]


def few_shot():
    """Four questions after one block of few-shot examples, four text choices and four letters each."""
    found = []
    for question in QUESTIONS:
        stem = f"Question: {question}\nAnswer:"
        for tail in [*CHOICES, " A", " B", " C", " D"]:
            text = stem + tail
            found.append((SHOTS, text, len(SHOTS) + len(stem), len(SHOTS) + len(text)))
    return found


def sentences():
    """Whole sentences, and a span inside one."""
    lines = [*tiny.LINES[:3], "O gato dorme na rúa.", "O gato dorme na casa.", "a"]
    return [(line, 0, len(line)) for line in lines] + [(lines[0], 2, 6)]


def mixed():
    return (
        few_shot() + sentences() + [(text, start - len(SHOTS), end - len(SHOTS)) for _, text, start, end in few_shot()]
    )


@functools.cache
def expected(arch):
    """Per text of mixed(): log-probabilities and greedy marks of the span's tokens; whole text in, every logit out."""
    loaded = tiny.loaded(arch)
    return [one_by_one(loaded, "".join(prefix) + text, start, end) for *prefix, text, start, end in mixed()]


@torch.inference_mode()
def one_by_one(loaded, whole, start, end):
    tokenizer = loaded.tokenizer
    found = tokenizer(whole, return_offsets_mapping=True, return_special_tokens_mask=True)
    ids, offsets, special = found["input_ids"], found["offset_mapping"], found["special_tokens_mask"]
    span = [i for i, (a, b) in enumerate(offsets) if not special[i] and a < end and b > start]
    if not loaded.adds_bos and start == 0 and tokenizer.bos_token_id is not None:
        ids, span = [tokenizer.bos_token_id, *ids], [i + 1 for i in span]
    logits = loaded.model(input_ids=torch.tensor([ids])).logits[0].double().log_softmax(-1)
    logprobs = [logits[i - 1, ids[i]].item() for i in span]
    return logprobs, [bool(logits[i - 1, ids[i]] >= logits[i - 1].max() - 1e-6) for i in span]


def assert_same(arch, table):
    for text, (logprobs, greedy), row in zip(mixed(), expected(arch), table.to_pylist(), strict=True):
        assert row["flags"] is None
        assert row["logprobs"] == pytest.approx(logprobs, abs=1e-4), text
        assert sum(row["logprobs"]) == pytest.approx(sum(logprobs), abs=1e-4), text
        assert row["is_greedy"] == greedy


# the strategy that each architecture ends with when it is asked for the fastest
BEST = {
    "llama": "tree", "mistral": "tree", "qwen3": "tree", "gemma2": "tree", "gemma3": "tree", "cohere": "tree",
    "granite": "tree", "gpt2": "tree", "gpt_neox": "tree", "opt": "tree", "gpt_neo": "prefix", "bloom": "prefix",
    "mamba": "plain",
}  # fmt: skip


@pytest.mark.parametrize("strategy", ["tree", "prefix", "plain"])
@pytest.mark.parametrize("arch", BEST)
def test_strategy_gives_the_numbers_of_one_text_at_a_time(arch, strategy):
    table, metadata = score(tiny.loaded(arch), tiny.score_requests(mixed()), strategy=strategy)
    assert_same(arch, table)
    order = ["tree", "prefix", "plain"]
    used = order[max(order.index(strategy), order.index(BEST[arch]))]
    assert metadata["engine"]["strategy"] == used
    assert bool(metadata["engine"]["fallback"]) == (used != strategy)


@pytest.mark.parametrize("arch", ["llama", "gemma3", "mistral", "bloom"])
@pytest.mark.parametrize("budget", [16, 60, 4096])
def test_any_budget_gives_the_same_numbers(arch, budget):
    table, _ = score(tiny.loaded(arch, max_batch_tokens=budget), tiny.score_requests(mixed()))
    assert_same(arch, table)
