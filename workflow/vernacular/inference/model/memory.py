"""Memory: how many tokens a forward pass may hold."""

import torch

from vernacular.inference.model.load import LoadedModel

SMALLEST_BUDGET = 16  # tokens; a batch that does not fit even so is given up and its requests are flagged

# Measured on one CPU core with layers as wide as SmolLM2-135M's: between 256 and 768 tokens a token costs the same, at
# 128 a fifth more.
_CPU_TOKENS = 512
_LARGEST_GPU_BUDGET = 16_384  # tokens; larger batches are no faster and make a stop signal wait


def token_budget(loaded: LoadedModel) -> int:
    """Tokens (padding included) per forward: the record's `batch_tokens`, else what the device's free memory allows."""
    if wanted := loaded.option("batch_tokens"):
        return int(wanted)
    if loaded.device.type != "cuda":
        return _CPU_TOKENS
    free, _ = torch.cuda.mem_get_info(loaded.device)
    return max(_CPU_TOKENS, min(_LARGEST_GPU_BUDGET, int(free * 0.5 / _bytes_per_token(loaded))))


def _bytes_per_token(loaded: LoadedModel) -> int:
    """A generous estimate of what one token adds to a forward: keys and values of all layers, one layer's work."""
    config = loaded.model.config.get_text_config(decoder=True)
    hidden, layers = config.hidden_size, config.num_hidden_layers
    inner = getattr(config, "intermediate_size", None) or 4 * hidden
    size = loaded.dtype.itemsize
    return size * (2 * hidden * layers + 8 * hidden + 4 * inner)


def release(loaded: LoadedModel) -> None:
    """Give cached blocks back to the device after an out-of-memory error."""
    if loaded.device.type == "cuda":
        torch.cuda.empty_cache()
