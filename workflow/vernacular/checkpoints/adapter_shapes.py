"""Comparison of the shapes of an adapter's weights with those of its base, from the headers of their files."""

import re
from pathlib import Path

from vernacular.checkpoints.files import shapes_in
from vernacular.core.errors import ModelError

_UNPACKED_DTYPES = {"F64", "F32", "F16", "BF16"}  # shapes of packed (quantized) weights cannot be compared


def check_shapes(name: str, source: str, weights: Path, config: dict, base: dict) -> None:
    """Raise ModelError if a weight in the file `weights` does not fit the base weight that it changes or replaces."""
    shapes = shapes_in(name, weights, _UNPACKED_DTYPES)
    adapter_shapes = {key.removeprefix("base_model.model."): shape for key, shape in shapes.items()}
    if empty := [key for key, shape in shapes.items() if 0 in shape]:
        raise ModelError(
            f"model {name}: the adapter {source} contains {len(empty)} empty tensors ({empty[0]}: shape "
            f"{_format_shape(shapes[empty[0]])}). DeepSpeed ZeRO-3 saves such files unless it gathers the weights: set "
            "stage3_gather_16bit_weights_on_model_save, or convert the checkpoint with zero_to_fp32.py."
        )
    base_shapes = {}
    for file in sorted(Path(base["directory"]).glob("*.safetensors")):
        base_shapes |= shapes_in(name, file, _UNPACKED_DTYPES)
    mismatch = f"model {name}: the adapter {source} does not fit its base {base['name']} ({base['source']})"
    for key, shape in adapter_shapes.items():
        module, part = _split_key(key)
        base_shape = _base_shape(base_shapes, f"{module}.bias" if part == "bias" else f"{module}.weight")
        if not base_shape or not shape:
            continue
        rows, n_tokens = base_shape[0], _rows_in_vocabulary(module, part, shape, config)
        if n_tokens is not None and n_tokens != rows and (n_tokens > rows or part != "trainable_tokens_delta"):
            raise ModelError(vocabulary_mismatch(name, source, f"expected {rows} rows in {key}, got {n_tokens}"))
        if part in ("weight", "bias") and shape != base_shape:
            raise ModelError(
                f"{mismatch}: expected shape {_format_shape(base_shape)} of {module}, got {_format_shape(shape)}."
            )
        size = {
            "lora_A": shape[-1],
            "lora_B": shape[0],
            "lora_embedding_B": shape[0],
            "trainable_tokens_delta": shape[-1],
        }.get(part)
        if config.get("use_bdlora"):  # block-diagonal: a block's size
            size = None
        if size is not None and size not in base_shape:
            raise ModelError(f"{mismatch}: expected a dimension of {module} ({_format_shape(base_shape)}), got {size}.")
    max_indices = _max_layer_indices(base_shapes)
    for container, index in _max_layer_indices(adapter_shapes).items():
        if index > max_indices.get(container, index):
            raise ModelError(f"{mismatch}: expected layers 0 to {max_indices[container]}, got layer {index}.")


def vocabulary_mismatch(name: str, source: str, details: str) -> str:
    """Return the error message for an adapter whose vocabulary is not its base's."""
    return (
        f"model {name}: the vocabulary of the adapter {source} differs from that of its base ({details}). "
        "Merge the adapter into its base and evaluate the result as a separate model."
    )


def _split_key(key: str) -> tuple[str, str]:
    """Split an adapter weight's name into the module that it changes and the part of it.

    >>> _split_key("model.embed_tokens.token_adapter.trainable_tokens_delta")
    ('model.embed_tokens', 'trainable_tokens_delta')
    >>> _split_key("model.embed_tokens.base_layer.weight"), _split_key("h.0.lora_A.weight")
    (('model.embed_tokens', 'weight'), ('h.0', 'lora_A'))
    """
    key = re.sub(r"\.(base_layer|token_adapter|original_module|modules_to_save)(?=\.)", "", key)
    module, _, part = re.sub(r"\.(lora_[AB])\.weight$", r".\1", key).rpartition(".")
    return module, part


def _base_shape(base_shapes: dict[str, list[int]], name: str) -> list[int] | None:
    """Return the shape of a base weight; files may omit the first component of names ("transformer." of GPT-2)."""
    return base_shapes.get(name) or base_shapes.get(name.partition(".")[2])


def _rows_in_vocabulary(module: str, part: str, shape: list[int], config: dict) -> int | None:
    """Return the number of tokens that an adapter weight is for, or None if it has no row per token.

    For a weight of single tokens: the highest token ID plus one.
    """
    if part == "lora_embedding_A":
        return shape[1]
    if part == "weight" and len(shape) == 2 and not re.search(r"\.\d+\.", module):  # embeddings, or the head
        return shape[0]
    if part == "trainable_tokens_delta":
        tokens = config.get("trainable_token_indices") or config.get("token_indices") or []
        token_lists = tokens.values() if isinstance(tokens, dict) else [tokens]
        indices = [index for token_list in token_lists for index in token_list if isinstance(index, int)]
        return 1 + max(indices, default=-1)
    return None


def _max_layer_indices(names) -> dict[str, int]:
    """Return the highest index in each list of modules, by the list's name."""
    max_indices: dict[str, int] = {}
    for name in names:
        for container, index in re.findall(r"(?:^|\.)([^.]+)\.(\d+)(?=\.)", name):
            max_indices[container] = max(max_indices.get(container, 0), int(index))
    return max_indices


def _format_shape(shape: list[int]) -> str:
    return " x ".join(map(str, shape))
