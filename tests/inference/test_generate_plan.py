import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support import tiny
from support.soak import examples
from transformers.cache_utils import DynamicLayer
from vernacular.inference.generation.decode import GrowingLayer
from vernacular.inference.generation.generate import batch_limits, make_batches
from vernacular.inference.generation.prepare import PreparedPrompt

LIMITS = {"rows": 4, "prefill_tokens": 40, "cache_tokens": 80}


def build_prompt(i, length, max_new_tokens=5):
    return PreparedPrompt(f"r{i}", [1] * length, None, max_new_tokens, [], {})


def lengths(plan):
    return [[len(p.ids) for p in batch] for batch in plan]


def test_prompts_are_batched_by_similar_length_longest_first():
    prompts = [build_prompt(i, n) for i, n in enumerate([3, 20, 19, 4, 3, 20])]
    assert lengths(make_batches(prompts, 0, LIMITS)) == [[20, 20], [19, 4], [3, 3]]


def test_shared_prefix_counts_toward_cache_only():
    prompts = [build_prompt(i, 20) for i in range(6)]
    assert lengths(make_batches(prompts, 0, LIMITS)) == [[20, 20], [20, 20], [20, 20]]
    assert lengths(make_batches(prompts, 15, LIMITS)) == [[20, 20, 20], [20, 20, 20]]  # 3 x (20 + 5) tokens of cache


def test_prompt_beyond_limits_forms_single_batch():
    assert lengths(make_batches([build_prompt(0, 500), build_prompt(1, 3)], 0, LIMITS)) == [[500], [3]]


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 60), st.integers(0, 30)), max_size=30),
    st.integers(0, 10),
    st.randoms(use_true_random=False),
)
def test_every_prompt_is_batched_once_within_limits(sizes, n_prefix_tokens, random):
    prompts = [
        build_prompt(i, n_prefix_tokens + length, max_new_tokens) for i, (length, max_new_tokens) in enumerate(sizes)
    ]
    plan = make_batches(prompts, n_prefix_tokens, LIMITS)
    assert sorted(p.request_id for batch in plan for p in batch) == sorted(p.request_id for p in prompts)
    for batch in plan:
        longest, max_new_tokens = max(len(p.ids) for p in batch), max(p.max_new_tokens for p in batch)
        assert len(batch) <= LIMITS["rows"]
        assert len(batch) == 1 or len(batch) * (longest - n_prefix_tokens) <= LIMITS["prefill_tokens"]
        assert len(batch) == 1 or len(batch) * (longest + max_new_tokens) <= LIMITS["cache_tokens"]
    random.shuffle(prompts)
    assert make_batches(prompts, n_prefix_tokens, LIMITS) == plan


def test_max_batch_tokens_sets_prefill_tokens():
    assert batch_limits(tiny.load_model("llama", max_batch_tokens=96))["prefill_tokens"] == 96


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=8), st.integers(0, 3), st.integers(0, 7))
def test_growing_layer_equals_dynamic_layer(steps, room, select_step):
    torch.manual_seed(0)
    growing, dynamic = GrowingLayer(room), DynamicLayer()
    rows = 2
    for i, length in enumerate(steps):
        if i == select_step:
            for layer in (growing, dynamic):
                layer.batch_repeat_interleave(2)
                layer.batch_select_indices(torch.tensor([3, 0, 1]))
            rows = 3 if i else rows
        keys, values = torch.randn(2, rows, 2, length, 4)
        for actual, expected in zip(growing.update(keys, values), dynamic.update(keys, values), strict=True):
            assert torch.equal(actual, expected)
        assert growing.get_seq_length() == dynamic.get_seq_length()
