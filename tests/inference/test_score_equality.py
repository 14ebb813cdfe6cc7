"""Every strategy compared with transformers' logits of single texts."""

import functools

import pytest
from oracles import surprisal
from support import tiny
from support.engines import score

EXAMPLES = (
    "Question: Which animal sleeps on the roof?\nA. the dog\nB. the cat\nAnswer: B\n\n"
    "Question: What is the capital of Galicia?\nA. Vigo\nB. Santiago\nAnswer: B\n\n"
)
QUESTIONS = ["O gato dorme?", "Where are the keys to the cabinet?", "A choiva cae sobre a vila 🙂 ninguén sae?", "ქ?"]
CHOICES = [" no tellado", " on the table", " si", " jabuke i kruške"]


def few_shot():
    """Return four questions after few-shot examples, with four text choices and four letters each."""
    texts = []
    for question in QUESTIONS:
        stem = f"Question: {question}\nAnswer:"
        for continuation in [*CHOICES, " A", " B", " C", " D"]:
            text = stem + continuation
            texts.append((EXAMPLES, text, len(EXAMPLES) + len(stem), len(EXAMPLES) + len(text)))
    return texts


def sentences():
    """Return complete sentences, and a span inside one."""
    lines = [*tiny.LINES[:3], "O gato dorme na rúa.", "O gato dorme na casa.", "a"]
    return [(line, 0, len(line)) for line in lines] + [(lines[0], 2, 6)]


def mixed():
    return (
        few_shot()
        + sentences()
        + [(text, start - len(EXAMPLES), end - len(EXAMPLES)) for _, text, start, end in few_shot()]
    )


@functools.cache
def expected(arch):
    """Return log-probabilities and greedy flags of the span's tokens, per text of mixed(), from all logits."""
    loaded = tiny.load_model(arch)
    return [reference_scores(loaded, "".join(prefix) + text, start, end) for *prefix, text, start, end in mixed()]


def reference_scores(loaded, text, start, end):
    reads_bos = not loaded.adds_bos and start == 0
    bos = loaded.tokenizer.bos_token_id if reads_bos else None
    scored = surprisal.causal(loaded.model, loaded.tokenizer, text, start, end, bos=bos)
    return scored.logprobs, scored.is_greedy


def assert_scores_match(arch, table):
    for text, (logprobs, is_greedy), row in zip(mixed(), expected(arch), table.to_pylist(), strict=True):
        assert row["flags"] is None
        assert row["logprobs"] == pytest.approx(logprobs, abs=1e-4), text
        assert sum(row["logprobs"]) == pytest.approx(sum(logprobs), abs=1e-4), text
        assert row["is_greedy"] == is_greedy


# strategy selected for each architecture with "auto"
FASTEST_STRATEGY = {
    "llama": "tree", "mistral": "tree", "qwen3": "tree", "gemma2": "tree", "gemma3": "tree", "cohere": "tree",
    "granite": "tree", "gpt2": "tree", "gpt_neox": "tree", "opt": "tree", "gpt_neo": "prefix", "bloom": "prefix",
    "mamba": "plain",
}  # fmt: skip


@pytest.mark.parametrize("strategy", ["tree", "prefix", "plain"])
@pytest.mark.parametrize("arch", FASTEST_STRATEGY)
def test_strategy_matches_single_text_scores(arch, strategy):
    table, metadata = score(tiny.load_model(arch), tiny.score_requests(mixed()), strategy=strategy)
    assert_scores_match(arch, table)
    order = ["tree", "prefix", "plain"]
    expected_strategy = order[max(order.index(strategy), order.index(FASTEST_STRATEGY[arch]))]
    assert metadata["engine"]["strategy"] == expected_strategy
    assert bool(metadata["engine"]["fallback"]) == (expected_strategy != strategy)


@pytest.mark.parametrize("arch", ["llama", "gemma3", "mistral", "bloom"])
@pytest.mark.parametrize("budget", [16, 60, 4096])
def test_scores_are_independent_of_budget(arch, budget):
    table, _ = score(tiny.load_model(arch, max_batch_tokens=budget), tiny.score_requests(mixed()))
    assert_scores_match(arch, table)
