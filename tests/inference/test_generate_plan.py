import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support import tiny
from support.soak import examples
from transformers.cache_utils import DynamicLayer
from vernacular.inference.generation.cache import GrowingLayer
from vernacular.inference.generation.generate import batches, limits
from vernacular.inference.generation.prepare import Prompt

LIMITS = {"rows": 4, "prefill_tokens": 40, "cache_tokens": 80}


def prompt(i, length, new=5):
    return Prompt(f"r{i}", [1] * length, None, new, [], {})


def lengths(plan):
    return [[len(p.ids) for p in batch] for batch in plan]


def test_like_lengths_go_together_and_the_longest_first():
    prompts = [prompt(i, n) for i, n in enumerate([3, 20, 19, 4, 3, 20])]
    assert lengths(batches(prompts, 0, LIMITS)) == [[20, 20], [19, 4], [3, 3]]


def test_the_shared_prefix_is_not_computed_but_held():
    prompts = [prompt(i, 20) for i in range(6)]
    assert lengths(batches(prompts, 0, LIMITS)) == [[20, 20], [20, 20], [20, 20]]
    assert lengths(batches(prompts, 15, LIMITS)) == [[20, 20, 20], [20, 20, 20]]  # 3 x (20 + 5) tokens of cache


def test_a_prompt_beyond_every_limit_goes_alone():
    assert lengths(batches([prompt(0, 500), prompt(1, 3)], 0, LIMITS)) == [[500], [3]]


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 60), st.integers(0, 30)), max_size=30),
    st.integers(0, 10),
    st.randoms(use_true_random=False),
)
def test_every_prompt_is_planned_once_within_the_limits_whatever_the_order(sizes, prefix, draw):
    prompts = [prompt(i, prefix + length, new) for i, (length, new) in enumerate(sizes)]
    plan = batches(prompts, prefix, LIMITS)
    assert sorted(p.request_id for batch in plan for p in batch) == sorted(p.request_id for p in prompts)
    for batch in plan:
        longest, new = max(len(p.ids) for p in batch), max(p.max_new_tokens for p in batch)
        assert len(batch) <= LIMITS["rows"]
        assert len(batch) == 1 or len(batch) * (longest - prefix) <= LIMITS["prefill_tokens"]
        assert len(batch) == 1 or len(batch) * (longest + new) <= LIMITS["cache_tokens"]
    draw.shuffle(prompts)
    assert batches(prompts, prefix, LIMITS) == plan


def test_a_persons_batch_tokens_are_the_tokens_of_a_forward():
    assert limits(tiny.loaded("llama", max_batch_tokens=96))["prefill_tokens"] == 96


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=8), st.integers(0, 3), st.integers(0, 7))
def test_a_growing_layer_holds_what_a_dynamic_one_holds(steps, room, cut):
    torch.manual_seed(0)
    ours, theirs = GrowingLayer(room), DynamicLayer()
    rows = 2
    for i, length in enumerate(steps):
        if i == cut:
            for layer in (ours, theirs):
                layer.batch_repeat_interleave(2)
                layer.batch_select_indices(torch.tensor([3, 0, 1]))
            rows = 3 if i else rows
        keys, values = torch.randn(2, rows, 2, length, 4)
        for found, expected in zip(ours.update(keys, values), theirs.update(keys, values), strict=True):
            assert torch.equal(found, expected)
        assert ours.get_seq_length() == theirs.get_seq_length()
