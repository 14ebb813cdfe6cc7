"""Whether an adapter's weights fit those of its base, read from the headers of their files alone.

An adapter's weights are named after the module that they change: `….q_proj.lora_A.weight`, or `….lm_head.weight` where
a module was trained whole. What has no counterpart in the base's files (of another name there, or quantized) is left to
PEFT, which is as strict when it loads it.
"""

import re
from pathlib import Path

from vernacular.checkpoints.limits import shapes_in
from vernacular.core.errors import ModelError

_UNPACKED = {"F64", "F32", "F16", "BF16"}  # the shapes of packed (quantized) weights say nothing


def check_shapes(name: str, source: str, weights: Path, config: dict, base: dict) -> None:
    """Raise ModelError if a weight in the file `weights` does not fit the one that it changes or replaces."""
    own = shapes_in(name, weights, _UNPACKED)
    of_adapter = {key.removeprefix("base_model.model."): shape for key, shape in own.items()}
    of_base = {}
    for file in sorted(Path(base["folder"]).glob("*.safetensors")):
        of_base |= shapes_in(name, file, _UNPACKED)
    misfit = f"model {name}: the adapter {source} does not fit its base {base['name']} ({base['source']})"
    for key, shape in of_adapter.items():
        module, part = _parted(key)
        found = _in_base(of_base, f"{module}.bias" if part == "bias" else f"{module}.weight")
        if not found or not shape:
            continue
        rows, words = found[0], _rows_in_vocabulary(module, part, shape, config)
        if words is not None and words != rows and (words > rows or part != "trainable_tokens_delta"):
            raise ModelError(vocabulary_mismatch(name, source, f"{key} has {words} rows, and {rows} in the base"))
        if part in ("weight", "bias") and shape != found:
            raise ModelError(f"{misfit}: {module} is {_shown(found)} there, and {_shown(shape)} in the adapter.")
        size = {
            "lora_A": shape[-1],
            "lora_B": shape[0],
            "lora_embedding_B": shape[0],
            "trainable_tokens_delta": shape[-1],
        }.get(part)
        if config.get("use_bdlora"):  # block-diagonal: a block's size
            size = None
        if size is not None and size not in found:
            raise ModelError(f"{misfit}: {module} is {_shown(found)} there, the adapter is for {size}.")
    deepest = _deepest(of_base)
    for container, number in _deepest(of_adapter).items():
        if number > deepest.get(container, number):
            raise ModelError(f"{misfit}: it changes layer {number}, and the base has layers 0 to {deepest[container]}.")


def vocabulary_mismatch(name: str, source: str, what: str) -> str:
    """Return the message for an adapter whose vocabulary is not its base's."""
    return (
        f"model {name}: the adapter {source} has another vocabulary than its base ({what}). "
        "Merge it into its base and evaluate the result as a model of its own."
    )


def _parted(key: str) -> tuple[str, str]:
    """Split the name of an adapter's weight into the module that it changes, and what of it.

    >>> _parted("model.embed_tokens.token_adapter.trainable_tokens_delta")
    ('model.embed_tokens', 'trainable_tokens_delta')
    >>> _parted("model.embed_tokens.base_layer.weight"), _parted("h.0.lora_A.weight")
    (('model.embed_tokens', 'weight'), ('h.0', 'lora_A'))
    """
    key = re.sub(r"\.(base_layer|token_adapter|original_module|modules_to_save)(?=\.)", "", key)
    module, _, part = re.sub(r"\.(lora_[AB])\.weight$", r".\1", key).rpartition(".")
    return module, part


def _in_base(of_base: dict[str, list[int]], name: str) -> list[int] | None:
    """The shape of a weight of the base, whose files may leave out the first part of names (GPT-2's "transformer.")."""
    return of_base.get(name) or of_base.get(name.partition(".")[2])


def _rows_in_vocabulary(module: str, part: str, shape: list[int], config: dict) -> int | None:
    """How many tokens a weight of the adapter is for, where it is one row for each (or names single ones)."""
    if part == "lora_embedding_A":
        return shape[1]
    if part == "weight" and len(shape) == 2 and not re.search(r"\.\d+\.", module):  # embeddings, or the head
        return shape[0]
    if part == "trainable_tokens_delta":
        tokens = config.get("trainable_token_indices") or config.get("token_indices") or []
        lists = tokens.values() if isinstance(tokens, dict) else [tokens]
        return 1 + max((token for some in lists for token in some if isinstance(token, int)), default=-1)
    return None


def _deepest(names) -> dict[str, int]:
    """Name of a list of modules -> the highest index in it."""
    found: dict[str, int] = {}
    for name in names:
        for container, number in re.findall(r"(?:^|\.)([^.]+)\.(\d+)(?=\.)", name):
            found[container] = max(found.get(container, 0), int(number))
    return found


def _shown(shape: list[int]) -> str:
    return " x ".join(map(str, shape))
