"""Self-check of prefix sharing and batching for generation: both must reproduce the results of single prompts.

Some architectures silently treat padding as text, ignore positions, or carry a state through the padding. Before
anything is generated, the shortest and the longest prompt, which need the most padding, are therefore computed together
and separately.
"""

import math

import torch

from vernacular.core.errors import first_line
from vernacular.inference.generation.cache import Prefix, can_share_prefix
from vernacular.inference.generation.decode import DecodingBatch, DecodingCounters
from vernacular.inference.generation.prepare import PreparedPrompt
from vernacular.inference.model.loaded import Agreement, LoadedModel, agreement, within_memory

OUT_OF_MEMORY = "out of memory"
N_COMPARED_TOKENS = 50  # number of most probable next tokens that are compared


def select_batching(
    loaded: LoadedModel, prompts: list[PreparedPrompt], shared_ids: list[int], counters: DecodingCounters
) -> tuple[Prefix | None, dict]:
    """Return (the prefix to use or None, a note for the metadata); note["used"] is "prefix", "batch" or "single".

    `shared_ids` are the tokens that begin all prompts; [] if they are too few to share.
    """
    note: dict = {"prompts": len(prompts), "prefix_tokens": 0}
    if len(prompts) == 1:
        return None, note | {"used": "single"}
    pair = [min(prompts, key=_prompt_length), max(prompts, key=_prompt_length)]
    single_logprobs = within_memory(
        loaded, lambda: [_next_token_logprobs(loaded, [prompt], None, counters)[0] for prompt in pair]
    )
    if single_logprobs is None:
        return None, note | {"used": "single", "error": OUT_OF_MEMORY}  # shorter prompts may still fit
    max_tokens = max(len(p.ids) + p.max_new_tokens for p in prompts)
    if shared_ids and can_share_prefix(loaded, max_tokens):
        prefix = None

        def compute_with_prefix() -> list[torch.Tensor]:
            nonlocal prefix
            prefix = compute_prefix(loaded, shared_ids, counters)
            return _next_token_logprobs(loaded, pair, prefix, counters)

        if _agrees(loaded, single_logprobs, compute_with_prefix, "prefix", note):
            return prefix, note | {"used": "prefix", "prefix_tokens": len(shared_ids)}
        prefix = None  # free its memory
    agrees = _agrees(loaded, single_logprobs, lambda: _next_token_logprobs(loaded, pair, None, counters), "batch", note)
    return None, note | {"used": "batch" if agrees else "single"}


def compute_prefix(loaded: LoadedModel, ids: list[int], counters: DecodingCounters) -> Prefix:
    """Compute the cache of the shared tokens in one forward pass."""
    batch = DecodingBatch(loaded, [ids], None, 0, counters)
    batch.logits()
    return Prefix(ids, batch.cache)


def compare(loaded: LoadedModel, batched: list[torch.Tensor], single: list[torch.Tensor]) -> Agreement:
    """Compare the log-probabilities of each row's most probable next tokens with those of the single prompt."""
    top_tokens = [row.topk(min(N_COMPARED_TOKENS, len(row))).indices for row in single]
    values, reference = (
        torch.cat([row[tokens] for row, tokens in zip(rows, top_tokens, strict=True)]) for rows in (batched, single)
    )
    return agreement(values, reference, loaded.dtype)


def _agrees(loaded: LoadedModel, single: list[torch.Tensor], compute, name: str, note: dict) -> bool:
    """Return whether the rows returned by `compute` agree with those of single prompts.

    Writes NAME_difference or NAME_error to `note`.
    """
    try:
        result = within_memory(loaded, lambda: compare(loaded, compute(), single))
    except (ValueError, TypeError, RuntimeError, IndexError, AttributeError) as error:
        note[f"{name}_error"] = f"{type(error).__name__}: {first_line(error)}"
        return False
    if result is None:
        note[f"{name}_error"] = OUT_OF_MEMORY
        return False
    note[f"{name}_difference"] = {"largest": _nan_to_inf(result.largest), "mean": _nan_to_inf(result.mean)}
    return result.agrees


def _nan_to_inf(difference: float) -> float:
    return math.inf if math.isnan(difference) else difference


def _next_token_logprobs(
    loaded: LoadedModel, prompts: list[PreparedPrompt], prefix: Prefix | None, counters: DecodingCounters
) -> list[torch.Tensor]:
    """Return the log-probabilities of each prompt's next token, [vocabulary] each."""
    start = len(prefix.ids) if prefix else 0
    batch = DecodingBatch(loaded, [prompt.ids[start:] for prompt in prompts], prefix, 1, counters)
    return list(batch.logits().log_softmax(-1))


def _prompt_length(prompt: PreparedPrompt) -> tuple[int, str]:
    return len(prompt.ids), prompt.request_id
