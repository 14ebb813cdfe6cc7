"""The token budget of a forward pass, and what happens when memory runs out, in scoring and generation alike.

torch is imported where a GPU is asked: an engine without it has the same rules.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from vernacular.core.library_errors import is_out_of_memory

if TYPE_CHECKING:
    from vernacular.inference.model.loaded import LoadedModel

T = TypeVar("T")

SMALLEST_BUDGET = 16  # tokens; if a batch does not fit at this budget, its requests are given up and flagged

# Measured on one CPU core with layers as wide as SmolLM2-135M's: the time per token is the same between 256 and 768
# tokens, and a fifth higher at 128.
_CPU_TOKENS = 512
_CPU_PROMPT_TOKENS = 2048  # of an encoder, behind whose prompts an output head of 250,000 rows predicts a few tokens
LOGIT_BYTES = 512 * 2**20  # float32 logits at a time on a GPU: enough rows for an efficient matrix product
_LARGEST_GPU_BUDGET = 16_384  # tokens; larger batches are not faster and delay the reaction to a stop signal


def token_budget(loaded: "LoadedModel") -> int:
    """Return the tokens per forward, padding included: the setting `max_batch_tokens`, else by device and memory."""
    if budget := loaded.record.max_batch_tokens:
        return int(budget)
    if loaded.device.type != "cuda":
        return _CPU_PROMPT_TOKENS if loaded.kind == "seq2seq" else _CPU_TOKENS
    import torch

    free, _ = torch.cuda.mem_get_info(loaded.device)
    # the logits of a chunk, whatever the vocabulary's size: in the model's dtype, in float32, and a copy for statistics
    free -= 3 * max(LOGIT_BYTES, 4 * loaded.n_embeddings)
    return max(_CPU_TOKENS, min(_LARGEST_GPU_BUDGET, int(free * 0.5 / _bytes_per_token(loaded))))


def _bytes_per_token(loaded: "LoadedModel") -> int:
    """Return a high estimate of one token's memory: keys and values of all layers, activations of one layer."""
    config = loaded.model.config.get_text_config(decoder=True)
    hidden_size, n_layers = config.hidden_size, getattr(config, "num_hidden_layers", 1)
    intermediate_size = getattr(config, "intermediate_size", None) or 4 * hidden_size
    size = loaded.dtype.itemsize
    return size * (2 * hidden_size * n_layers + 8 * hidden_size + 4 * intermediate_size)


def release_memory(loaded: "LoadedModel") -> None:
    """Return cached memory blocks to the device after an out-of-memory error."""
    if getattr(loaded.device, "type", None) == "cuda":
        import torch

        torch.cuda.empty_cache()


def within_memory(loaded: "LoadedModel", compute: Callable[..., T], *args) -> T | None:
    """Return `compute(*args)`; None if memory ran out, after the memory it used has been freed."""
    try:
        result = compute(*args)
        loaded.on_batch()
        return result
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
    release_memory(loaded)  # outside the except clause, whose traceback keeps the tensors alive
    return None


def halve(size: int, smallest: int, *, used: int | None = None) -> int | None:
    """Return the size to try after one that ran out of memory; None if `size` is already the smallest.

    `used` is the part of `size` that the failed attempt used.

    >>> halve(512, 16), halve(512, 16, used=100), halve(20, 16), halve(16, 16)
    (256, 50, 16, None)
    """
    if size <= smallest:
        return None
    return max(smallest, min(size, size if used is None else used) // 2)
