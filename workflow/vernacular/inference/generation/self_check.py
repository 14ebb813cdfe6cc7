"""Self-check of prefix sharing and batching for generation: both must reproduce the results of single prompts.

Some architectures silently treat padding as text, ignore positions, or carry a state through the padding. Before
anything is generated, the shortest and the longest prompt, which need the most padding, are therefore computed together
and separately.
"""

import math

import torch

from vernacular.core.errors import first_line
from vernacular.inference.generation.cache import Prefix, can_share_prefix
from vernacular.inference.generation.decode import Forward, Work
from vernacular.inference.generation.prepare import Prompt
from vernacular.inference.model.loaded import Agreement, LoadedModel, agreement, within_memory

OUT_OF_MEMORY = "out of memory"
LIKELIEST = 50  # number of most probable next tokens that are compared


def strategy(loaded: LoadedModel, prompts: list[Prompt], shared: list[int], work: Work) -> tuple[Prefix | None, dict]:
    """Return (the prefix to use or None, a note for the metadata); note["used"] is "prefix", "batch" or "single".

    `shared` are the tokens that begin all prompts; [] if they are too few to share.
    """
    note: dict = {"prompts": len(prompts), "prefix_tokens": 0}
    if len(prompts) == 1:
        return None, note | {"used": "single"}
    pair = [min(prompts, key=_length), max(prompts, key=_length)]
    alone = within_memory(loaded, lambda: [_first(loaded, [prompt], None, work)[0] for prompt in pair])
    if alone is None:
        return None, note | {"used": "single", "error": OUT_OF_MEMORY}  # shorter prompts may still fit
    longest = max(len(p.ids) + p.max_new_tokens for p in prompts)
    if shared and can_share_prefix(loaded, longest):
        prefix = None

        def with_prefix() -> list[torch.Tensor]:
            nonlocal prefix
            prefix = read_prefix(loaded, shared, work)
            return _first(loaded, pair, prefix, work)

        if _agrees(loaded, alone, with_prefix, "prefix", note):
            return prefix, note | {"used": "prefix", "prefix_tokens": len(shared)}
        prefix = None  # free its memory
    agrees = _agrees(loaded, alone, lambda: _first(loaded, pair, None, work), "batch", note)
    return None, note | {"used": "batch" if agrees else "single"}


def read_prefix(loaded: LoadedModel, ids: list[int], work: Work) -> Prefix:
    """Compute the cache of the shared tokens in one forward pass."""
    batch = Forward(loaded, [ids], None, 0, work)
    batch.logits()
    return Prefix(ids, batch.cache)


def compared(loaded: LoadedModel, found: list[torch.Tensor], alone: list[torch.Tensor]) -> Agreement:
    """Compare the log-probabilities of each row's most probable next tokens with those of the single prompt."""
    likeliest = [row.topk(min(LIKELIEST, len(row))).indices for row in alone]
    values, reference = (
        torch.cat([row[top] for row, top in zip(rows, likeliest, strict=True)]) for rows in (found, alone)
    )
    return agreement(values, reference, loaded.dtype)


def _agrees(loaded: LoadedModel, alone: list[torch.Tensor], compute, name: str, note: dict) -> bool:
    """Return whether the rows returned by `compute` agree with those of single prompts.

    Writes NAME_difference or NAME_error to `note`.
    """
    try:
        outcome = within_memory(loaded, lambda: compared(loaded, compute(), alone))
    except (ValueError, TypeError, RuntimeError, IndexError, AttributeError) as error:
        note[f"{name}_error"] = f"{type(error).__name__}: {first_line(error)}"
        return False
    if outcome is None:
        note[f"{name}_error"] = OUT_OF_MEMORY
        return False
    note[f"{name}_difference"] = {"largest": _or_infinite(outcome.largest), "mean": _or_infinite(outcome.mean)}
    return outcome.agrees


def _or_infinite(gap: float) -> float:
    return math.inf if math.isnan(gap) else gap


def _first(loaded: LoadedModel, prompts: list[Prompt], prefix: Prefix | None, work: Work) -> list[torch.Tensor]:
    """Return the log-probabilities of each prompt's next token, [vocabulary] each."""
    start = len(prefix.ids) if prefix else 0
    batch = Forward(loaded, [prompt.ids[start:] for prompt in prompts], prefix, 1, work)
    return list(batch.logits().log_softmax(-1))


def _length(prompt: Prompt) -> tuple[int, str]:
    return len(prompt.ids), prompt.request_id
