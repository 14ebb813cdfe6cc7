"""Which prompts are generated together: a plan made of the whole evaluation, the same at every attempt."""

import torch

from vernacular.inference.generate_prompts import Prompt
from vernacular.inference.load import LoadedModel
from vernacular.inference.memory import token_budget

# Measured on a CPU core with a 135M model: a step of 32 rows takes four times as long as a step of one; the prompts'
# tokens, which no batch makes cheaper, take most of the time by then.
_CPU_ROWS, _GPU_ROWS = 32, 256
_CPU_PREFILL, _CPU_CACHE = 4096, 2 << 30  # tokens in the first forward; bytes of keys and values


def limits(loaded: LoadedModel) -> dict[str, int]:
    """How large a batch may be: `rows`, `prefill_tokens` (padding included) and `cache_tokens` (prefix included).

    The record's `batch_tokens`, where a person set it, is the number of prefill tokens. On a GPU the numbers follow its
    free memory, rounded down to a power of two so that the next attempt finds the same plan.
    """
    if loaded.device.type != "cuda":
        prefill = loaded.option("batch_tokens") or _CPU_PREFILL
        cache = _CPU_CACHE // _cache_bytes(loaded)
        return {"rows": _CPU_ROWS, "prefill_tokens": int(prefill), "cache_tokens": max(1, cache)}
    free, _ = torch.cuda.mem_get_info(loaded.device)
    cache = int(free * 0.5) // _cache_bytes(loaded)
    return {
        "rows": _GPU_ROWS,
        "prefill_tokens": token_budget(loaded),
        "cache_tokens": 1 << max(0, cache.bit_length() - 1),
    }


def batches(prompts: list[Prompt], prefix: int, limits: dict[str, int]) -> list[list[Prompt]]:
    """Prompts in batches of like length, the longest first, so that memory runs out at once or not at all.

    `prefix` is the number of tokens they share, which each row holds in its cache but does not compute.
    """
    plan: list[list[Prompt]] = []
    width = room = 0
    for prompt in sorted(prompts, key=lambda p: (-len(p.ids), -p.max_new_tokens, p.request_id)):
        rows = len(plan[-1]) + 1 if plan else 1
        new = max(room, prompt.max_new_tokens)
        full = (
            rows > limits["rows"]
            or rows * (width - prefix) > limits["prefill_tokens"]
            or rows * (width + new) > limits["cache_tokens"]
        )
        if not plan or full:
            plan.append([])
            width, new = len(prompt.ids), prompt.max_new_tokens
        plan[-1].append(prompt)
        room = new
    return plan


def _cache_bytes(loaded: LoadedModel) -> int:
    """Bytes of keys and values that one token holds, in all layers."""
    config = loaded.model.config.get_text_config(decoder=True)
    all_heads = getattr(config, "num_attention_heads", None)
    heads = getattr(config, "num_key_value_heads", None) or all_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // (all_heads or 1)
    return 2 * config.num_hidden_layers * (heads or 1) * width * loaded.dtype.itemsize
