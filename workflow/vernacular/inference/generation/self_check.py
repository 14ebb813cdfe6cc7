"""May these prompts share a prefix, or a batch at all? Asked of the model itself: both must give what one alone gives.

Architectures do silently count padding as text, ignore positions, or carry a state through it. So the shortest and the
longest prompt, between which padding is longest, are read together and apart before anything is generated.
"""

import torch

from vernacular.core.errors import first_line
from vernacular.core.failures import is_out_of_memory
from vernacular.inference.generation.cache import Prefix, can_share_prefix
from vernacular.inference.generation.decode import Forward, Work
from vernacular.inference.generation.prepare import Prompt
from vernacular.inference.model.base import release
from vernacular.inference.model.load import LoadedModel

# How far log-probabilities of the likeliest next tokens may differ (nats): the largest difference in full precision,
# the mean one in half, where any change of the batch's shape moves single tokens by tenths.
NOISE = {torch.float64: 1e-6, torch.float32: 1e-2, torch.float16: 0.05, torch.bfloat16: 0.15}
LIKELIEST = 50


def strategy(loaded: LoadedModel, prompts: list[Prompt], shared: list[int], work: Work) -> tuple[Prefix | None, dict]:
    """(the prefix to use or None, what there is to say about it); note["used"] is "prefix", "batch" or "single".

    `shared` are the tokens that open all prompts, [] where they are not worth sharing.
    """
    note: dict = {"prompts": len(prompts), "prefix_tokens": 0}
    if len(prompts) == 1:
        return None, note | {"used": "single"}
    pair = [min(prompts, key=_length), max(prompts, key=_length)]
    try:
        alone = [_first(loaded, [prompt], None, work)[0] for prompt in pair]
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return None, note | {"used": "single", "error": _reason(loaded, error)}  # shorter prompts may yet fit
    longest = max(len(p.ids) + p.max_new_tokens for p in prompts)
    if shared and can_share_prefix(loaded, longest):
        prefix = None
        try:
            prefix = read_prefix(loaded, shared, work)
            note["prefix_difference"] = difference(alone, _first(loaded, pair, prefix, work))
        except (ValueError, TypeError, RuntimeError, IndexError, AttributeError, MemoryError) as error:
            note["prefix_error"] = _reason(loaded, error)
        if agrees(loaded, note.get("prefix_difference")):
            return prefix, note | {"used": "prefix", "prefix_tokens": len(shared)}
    try:
        note["batch_difference"] = difference(alone, _first(loaded, pair, None, work))
    except (ValueError, TypeError, RuntimeError, IndexError, AttributeError, MemoryError) as error:
        note["batch_error"] = _reason(loaded, error)
    return None, note | {"used": "batch" if agrees(loaded, note.get("batch_difference")) else "single"}


def read_prefix(loaded: LoadedModel, ids: list[int], work: Work) -> Prefix:
    """Read the shared tokens once."""
    batch = Forward(loaded, [ids], None, 0, work)
    batch.logits()
    return Prefix(ids, batch.cache)


def difference(one: list[torch.Tensor], other: list[torch.Tensor]) -> dict[str, float]:
    """Largest and mean difference (nats) of the likeliest next tokens of each row; infinite where a number is none."""
    gaps = []
    for a, b in zip(one, other, strict=True):
        top = a.topk(min(LIKELIEST, len(a))).indices
        gaps.append((a[top] - b[top]).abs())
    gaps = torch.cat(gaps).nan_to_num(nan=float("inf"))
    return {"largest": gaps.max().item(), "mean": gaps.mean().item()}


def agrees(loaded: LoadedModel, gap: dict[str, float] | None) -> bool:
    """Is this difference no more than the noise of the model's precision?"""
    if gap is None:
        return False
    full = loaded.dtype in (torch.float32, torch.float64)
    return gap["largest" if full else "mean"] <= NOISE[loaded.dtype]


def _first(loaded: LoadedModel, prompts: list[Prompt], prefix: Prefix | None, work: Work) -> list[torch.Tensor]:
    """Log-probabilities of each prompt's next token."""
    start = len(prefix.ids) if prefix else 0
    batch = Forward(loaded, [prompt.ids[start:] for prompt in prompts], prefix, 1, work)
    return list(batch.logits().log_softmax(-1))


def _reason(loaded: LoadedModel, error: BaseException) -> str:
    if is_out_of_memory(error):
        release(loaded)
        return "out of memory"
    return f"{type(error).__name__}: {first_line(error)}"


def _length(prompt: Prompt) -> tuple[int, str]:
    return len(prompt.ids), prompt.request_id
