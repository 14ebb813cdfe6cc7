"""Comparison of what was loaded with the files of its source: tensors and settings, of models and encoders alike.

Loaders drop and replace what a checkpoint contains without a message. Here, every tensor is found in the loaded object,
is in a list of what has no effect, or raises an error or a note.
"""

import inspect
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from zipfile import is_zipfile

import torch
from safetensors import safe_open
from transformers import modeling_rope_utils
from transformers.core_model_loading import revert_weight_conversion

from vernacular.checkpoints.files import read_json, weights_of
from vernacular.core.errors import ModelError

# compared at both ends of a tensor: those of another tensor differ, and reading all takes as long as loading
_AT_ENDS = 4
# Tensors inside of computed layers that no computation reads: masks and positions that old versions stored, and scales
# of a cache of 8 bits, which this one is not.
_WITHOUT_EFFECT = re.compile(
    r"(?:^|\.)(?:rotary_emb\.inv_freq|(?:attn|attention|self|self_attention)\.(?:masked_)?bias|position_ids|"
    r"token_type_ids|num_batches_tracked|k_scale|v_scale|(?:decoder|encoder)\.version|embed_positions\.weights)$"
)


def check_tensors(
    name: str, model: torch.nn.Module, directory: str | Path, unused: Iterable[str], *, allow_pickle: bool | None
) -> None:
    """Raise ModelError if a tensor in the files is not the loaded one of its name, or belongs to a layer unread.

    `unused`: the tensors that transformers did not load. Those of a layer or module that is computed, such as biases,
    would change its outputs; those of other modules (another head, more layers) are not an error.
    """
    modules = {module for module, _ in model.named_modules()} - {""}
    prefix = f"{model.base_model_prefix}."
    for key in sorted(unused):
        parents = {key.rpartition(".")[0], *(key[: match.end()] for match in re.finditer(r"\.\d+(?=\.)", key))}
        if not _WITHOUT_EFFECT.search(key) and modules & {p for k in parents for p in (k, prefix + k)}:
            raise ModelError(
                f"model {name}: {directory} contains {key}, which a {type(model).__name__} with its config "
                "does not use, although it computes the same layer. Correct the config, or use the class that saved it."
            )
    loaded = model.state_dict()  # without buffers that are computed, such as masks
    frequencies, settings = _frequencies(model), Path(directory, "config.json")
    packing = settings.exists() and read_json(name, settings).get("quantization_config")
    file_of: dict[str, Path] = {}
    others: dict[str, tuple[Path, list[int], torch.Tensor]] = {}
    scaled: set[str] = set()
    for file, key, shape, rows in _stored_rows(weights_of(name, Path(directory), allow_pickle=bool(allow_pickle))):
        if key in file_of:  # of pickles; those of safetensors are compared before (`files.sizes_of`)
            raise ModelError(f"model {name}: both {file_of[key]} and {file.name} contain {key}. Remove one of them.")
        file_of[key] = file
        if key.endswith("rotary_emb.inv_freq") and frequencies and not any(_rounded(rows, f) for f in frequencies):
            raise ModelError(
                f"model {name}: {key} in {file} are not the frequencies of RoPE that a {type(model).__name__} computes "
                "from its config. Correct its RoPE (rope_theta, rope_scaling), or use the class that saved it."
            )
        if packing and rows.dtype.itemsize == 1:  # FP8 and others: compared as they are, they would differ by scales
            scaled |= {key} if rows.is_floating_point() and packing.get("quant_method") == "fp8" else set()
            continue
        names = (key, prefix + key, key.removeprefix(prefix))
        if (tensor := next((loaded[candidate] for candidate in names if candidate in loaded), None)) is None:
            others[key] = file, shape, rows
        elif tensor.is_floating_point() and not (rows.is_floating_point() or packing):
            raise ModelError(
                f"model {name}: {file} contains {key} as integers ({rows.dtype}), and config.json no "
                "quantization_config, by which they would be read. Restore it, or convert the weights to floats."
            )
        elif not _is_equal(tensor, shape, rows):
            raise _replaced(name, key, file)
    if lacking := sorted(key for key in scaled if not {f"{key}_scale_inv", f"{key}_scale"} & file_of.keys()):
        problem = f"contains {lacking[0]} in 8 bits without its scale, {lacking[0]}_scale_inv"
        raise ModelError(f"model {name}: {file_of[lacking[0]]} {problem}. Download or convert the model again.")
    # names and parts of other versions, such as the experts of a layer, which transformers joins
    for key, tensor in _converted_back(model, loaded) if others else ():
        if (stored := others.pop(key, None)) and not _is_equal(tensor, *stored[1:]):
            raise _replaced(name, key, stored[0])


def _replaced(name: str, key: str, file: Path) -> ModelError:
    return ModelError(
        f"model {name}: the loaded {key} is not that in {file}. Another file or name of the checkpoint, or a "
        "tie stated by its config (tie_word_embeddings), replaced it. Correct the config or the files."
    )


def _is_equal(tensor: torch.Tensor, shape: list[int], rows: torch.Tensor) -> bool:
    """Return whether a loaded tensor has these first and last rows, in its dtype; also where they cannot be compared.

    Those that a quantization packs when it loads them have another shape or kind of numbers.
    """
    tensor = tensor.detach()
    is_other = list(tensor.shape) != shape or tensor.is_floating_point() != rows.is_floating_point()
    if is_other or tensor.device.type == "meta" or type(tensor.data) is not torch.Tensor:
        return True
    own = _rows_of(tensor).cpu()
    rows = rows.to(own.dtype)
    return torch.equal(*(each.float().nan_to_num() if each.is_floating_point() else each for each in (own, rows)))


def _converted_back(model: torch.nn.Module, loaded: dict) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors of a loaded model under the names and in the parts that its class saves, layer by layer."""
    if not getattr(model, "_weight_conversions", None):
        return
    layers: dict[str, dict] = {}
    for key, tensor in loaded.items():
        layers.setdefault(key[: found.end()] if (found := re.search(r"\.\d+\.", key)) else "", {})[key] = tensor
    for tensors in layers.values():
        yield from revert_weight_conversion(model, tensors).items()


# Names of settings that change a computation, and of those that only concern training, memory or speed.
_COMPUTED = re.compile(
    r"rope|rotary|alibi|position_embedding|norm|eps(?:ilon)?$|bias|scal|multiplier|cap|window|activation|residual|"
    r"temperature|qk|theta|logit|heads?(?:_|$)|expert|layers|attention|clip"
)
_TRAINING = re.compile(
    r"drop|init|grad|cache|loss|aux|fus|flash|kernel|quant|implementation|jitter|classifier|summary|token|fp32|skip_bias"
)
_NEUTRAL = (None, 0, 1, "", "absolute", "none", "default")
# of generation_config.json: what `generate` allows a text to be
_LIMITS = (
    "suppress_tokens",
    "begin_suppress_tokens",
    "bad_words_ids",
    "no_repeat_ngram_size",
    "min_length",
    "min_new_tokens",
)


def unread_settings(model: torch.nn.Module, directory: str | Path, name: str) -> list[str]:
    """Return notes on settings of config.json that by their names change a computation, and that transformers ignores.

    transformers keeps a setting that a class does not know as an attribute of the config, which nothing reads. Also on
    limits of texts in generation_config.json, which generation here does not follow. Raises ModelError if
    `rope_scaling` replaces the base of RoPE in `rope_parameters`.
    """
    stored = read_json(name, Path(directory, "config.json"))
    modules = {type(module).__module__ for module in model.modules()} | {type(model.config).__module__}
    pairs, text = [(stored, model.config)], stored.get("text_config")
    pairs += [(text, model.config.get_text_config(decoder=True))] if isinstance(text, dict) else []
    found = []
    for values, config in pairs:
        loaded = getattr(config, "rope_parameters", None) or {}
        rope = {kind: each for kind, each in loaded.items() if isinstance(each, dict)}  # those beside them are not used
        rope = _rope_settings({"rope_parameters": rope or loaded})
        for key, value in _rope_settings(values) if rope else ():
            if key == "rope_theta" and (key, value) not in rope:
                raise ModelError(
                    f"model {name}: {Path(directory, 'config.json')} has rope_theta: {value}, and transformers loads "
                    f"{dict(rope).get(key)}. State it where rope_scaling is, or all in rope_parameters, and only once."
                )
        if rope:
            source = inspect.getsource(modeling_rope_utils)
            found += [pair for pair in rope if not re.search(rf"\b{pair[0]}\b", source)]
        known = {*dir(type(config)), *type(config).attribute_map, *inspect.signature(type(config)).parameters}
        for key, value in values.items():
            is_set = bool(value) if isinstance(value, list | dict | bool) else value not in _NEUTRAL
            if key not in known and is_set and _COMPUTED.search(key) and not _TRAINING.search(key):
                found.append((key, value))
    if found:
        source = "".join(inspect.getsource(sys.modules[module]) for module in modules if not module.startswith("torch"))
        found = [(key, value) for key, value in found if not re.search(rf"\b{re.escape(key)}\b", source)]
    notes = [f"config.json has {key}: {value}, which {type(model).__name__} does not compute" for key, value in found]
    limits = [key for key in _LIMITS if getattr(getattr(model, "generation_config", None), key, None)]
    return notes + [f"generation_config.json has {key}, which generated texts do not follow" for key in limits]


def _rope_settings(values: dict) -> list[tuple[str, object]]:
    """Return (key, value) of the settings of RoPE in a config, of all kinds of layers."""
    pending = [{"rope_theta": values.get("rope_theta")}, values.get("rope_parameters"), values.get("rope_scaling")]
    found = []
    for each in pending:  # which grows
        pending += [value for value in each.values() if isinstance(value, dict)] if isinstance(each, dict) else []
        pairs = each.items() if isinstance(each, dict) else ()
        found += [(key, value) for key, value in pairs if value is not None and not isinstance(value, dict)]
    return found


def _frequencies(model: torch.nn.Module) -> list[torch.Tensor]:
    """Return the frequencies of RoPE that a model computes; old versions store those before linear scaling."""
    buffers = [tensor for key, tensor in model.named_buffers() if key.endswith("inv_freq")]
    found = [_rows_of(tensor.detach()).cpu().float() for tensor in buffers if tensor.device.type != "meta"]
    rope = getattr(model.config.get_text_config(decoder=True), "rope_parameters", None) or {}
    return found + [tensor * rope["factor"] for tensor in found if rope.get("rope_type") == "linear"]


def _rounded(rows: torch.Tensor, own: torch.Tensor) -> bool:
    """Return whether frequencies are equal but for storage as bfloat16, or as float16 with its smallest step."""
    return rows.shape == own.shape and torch.allclose(rows.float(), own, rtol=1e-2, atol=2**-24)


def _rows_of(tensor):
    """Return the first and last rows of a tensor, or of a slice of safetensors."""
    return torch.cat([tensor[:_AT_ENDS], tensor[-_AT_ENDS:]]) if len(tensor.shape) else tensor[None]


def _stored_rows(weights: list[Path]) -> Iterator[tuple[Path, str, list[int], torch.Tensor]]:
    """Yield (file, name, shape, first and last rows) of each tensor in files of safetensors or pickles."""
    for file in weights:
        if file.suffix == ".safetensors":
            with safe_open(file, framework="pt") as handle:
                for key in handle.keys():  # noqa: SIM118 (no mapping)
                    part = handle.get_slice(key)
                    shape = part.get_shape()
                    if not shape:
                        yield file, key, shape, handle.get_tensor(key)[None]
                    elif shape[0]:
                        low, high = part[: min(_AT_ENDS, shape[0])], part[max(0, shape[0] - _AT_ENDS) :]
                        yield file, key, shape, torch.cat([low, high])
        else:
            tensors = torch.load(file, map_location="cpu", mmap=is_zipfile(file), weights_only=True)
            tensors = {key: tensor for key, tensor in tensors.items() if isinstance(tensor, torch.Tensor)}
            for key, tensor in tensors.items():
                yield file, key, list(tensor.shape), _rows_of(tensor)
