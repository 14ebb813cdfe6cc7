"""Adapters: their location, whether they are supported and fit their base, before anything is loaded; application.

An adapter is a directory written by PEFT (LoRA and related methods): local, in a package, or a Hub repository; or, of a
base that llama.cpp runs, a LoRA adapter in GGUF. Its
record is the base's record with the adapter's files and fingerprint added. The shapes of its weights are compared with
those of its base from the headers of their files.

Every tuner of PEFT is in one of three sets, with the reason. A model is evaluated by its own forward pass, in batches
that bypass PEFT's wrapper. An adapter must therefore work inside the base's modules: one that needs the wrapper (to put
vectors before the prompt, or to select an expert for each text) would silently have no effect. In addition, its effect
on a token must not depend on other texts or later tokens.
"""

import re
import warnings
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from vernacular.checkpoints import files, inputs
from vernacular.checkpoints.llama_cpp import check_adapter as check_gguf_adapter
from vernacular.checkpoints.resolve import locate
from vernacular.core.errors import ModelError, suggest
from vernacular.core.fingerprint import fingerprint
from vernacular.core.hub_snapshot import snapshot
from vernacular.core.model_record import AdapterRecord, ModelRecord

if TYPE_CHECKING:
    import torch
    from peft import PeftModel

_UNPACKED_DTYPES = {"F64", "F32", "F16", "BF16"}  # shapes of packed (quantized) weights cannot be compared

WEIGHTS, PICKLED, CONFIG = "adapter_model.safetensors", "adapter_model.bin", "adapter_config.json"

MODULE_TYPES = frozenset({
    "LORA", "ADALORA", "ADAMSS", "ADAPTION_PROMPT", "BEFT", "BOFT", "C3A", "DEFT", "DELORA", "FOURIERFT",
    "FROD", "GLORA", "GRALORA", "HIRA", "HRA", "IA3", "LN_TUNING", "LOHA", "LOKR", "MISS", "OFT", "OSF",
    "PEANUT", "PSOFT", "PVERA", "RANDLORA", "ROAD", "SHIRA", "SUPERTUNING", "TINYLORA", "TRAINABLE_TOKENS",
    "UNILORA", "VBLORA", "VERA", "WAVEFT",
})  # fmt: skip
PROMPT_TYPES = frozenset({
    "PROMPT_TUNING", "MULTITASK_PROMPT_TUNING", "P_TUNING", "PREFIX_TUNING", "CPT", "CARTRIDGE",
})  # fmt: skip
UNSUPPORTED_TYPES = {
    "POLY": "chooses among its skills by the ID of a task",
    "XLORA": "mixes other adapters by a second pass over each text",
    "SHADOW": "runs a second network in addition to the base",
    "LILY": "weights its experts by the mean of all tokens of a batch, including padding and later tokens",
}

_SUPPORTED_HINT = "only adapters that change weights (LoRA and related types) can be evaluated."
_OPTIONS = {
    "alora_invocation_tokens": "is activated by tokens in the text (aLoRA)",
    "arrow_config": "chooses among other adapters for each token (Arrow)",
    "layer_replication": "builds a model of repeated layers; merge it into its base and evaluate that",
    "sample_at_inference": "draws random numbers in every forward pass (PVeRA)",
}


def resolve_adapter(
    name: str,
    source: str,
    base: ModelRecord,
    *,
    allow_pickle: bool = False,
    allow_base_mismatch: bool = False,
    known: ModelRecord | None = None,
) -> ModelRecord:
    """Return the record of `base` with the adapter of `source` added; `known`: hashes of unchanged files.

    Raises ModelError if it does not exist, was not written by PEFT, is for another base, has its own vocabulary, or is
    of an unsupported type, such as one that changes the prompt instead of the weights.
    """
    permissions = {"allow_pickle": allow_pickle, "allow_base_mismatch": allow_base_mismatch}
    check_format(name, source, base.name, base_is_gguf=base.is_gguf)
    if base.is_gguf:
        directory, revision, _ = locate(source)
        check_gguf_adapter(name, directory, Path(base.directory))
        has_tokenizer, config = False, {"peft_type": "LORA"}
    else:
        directory, revision, config = check_adapter(name, source, base, **permissions)
        has_tokenizer = check_fits_base(name, source, directory, config, base)
    known_contents = known.adapter.contents if known and known.adapter else None
    contents = inputs.record_of(directory, allow_pickle=allow_pickle, known=known_contents)
    adapter = AdapterRecord(
        source=source,
        directory=str(directory.absolute() if base.is_gguf else directory.resolve()),
        revision=revision,
        type=str(config["peft_type"]),
        rank=config.get("r"),
        own_tokenizer=has_tokenizer,
        allow_pickle=allow_pickle,
        contents=contents,
    )
    identity = fingerprint([base.fingerprint, revision, inputs.identity(contents)])
    return replace(base, name=name, base=base.name, fingerprint=identity, adapter=adapter)


def check_format(name: str, source: str, base: str, *, base_is_gguf: bool) -> None:
    """Raise ModelError unless an adapter is in GGUF if llama.cpp runs its base, and of PEFT if transformers does."""
    is_gguf = source.partition("@")[0].endswith(".gguf")
    if base_is_gguf and not is_gguf:
        raise ModelError(
            f"model {name}: {source} is an adapter of PEFT, and llama.cpp runs its base {base}, a GGUF file. Convert "
            f"the adapter with convert_lora_to_gguf.py of llama.cpp, or set dtype: float32 of {base}."
        )
    if is_gguf and not base_is_gguf:
        problem = f"is an adapter in GGUF, and its base {base} is no GGUF file that llama.cpp runs"
        raise ModelError(f"model {name}: {source} {problem}. Set a GGUF file with dtype: auto as the base's source.")


def check_adapter(
    name: str, source: str, base: ModelRecord, *, allow_pickle: bool, allow_base_mismatch: bool
) -> tuple[Path, str | None, dict]:
    """Return (directory, commit or None, content of adapter_config.json) of a valid adapter, downloaded if needed.

    Neither its weights nor the files of its base are read. Raises ModelError as `resolve_adapter`.
    """
    directory, revision = _locate(name, source, allow_pickle)
    config = _config(name, directory, source)
    if reason := unsupported_reason(config):
        raise ModelError(f"model {name}: {source} {reason}")
    _check_name(name, source, config, base, allow_base_mismatch)
    for file in inputs.files_of(directory, allow_pickle=allow_pickle):
        files.check_size(name, directory / file)
    if not (directory / WEIGHTS).exists():
        if not (directory / PICKLED).exists():
            raise ModelError(f"model {name}: no adapter weights ({WEIGHTS}) found in {source}.")
        if not allow_pickle:
            raise ModelError(
                f"model {name}: {source} contains only pickled weights ({PICKLED}), which can run code when they are "
                "loaded. Set allow_pickle: true for this model if you trust it."
            )
    return directory, revision, config


def check_fits_base(name: str, source: str, directory: Path, config: dict, base: ModelRecord) -> bool:
    """Return whether an adapter has its own tokenizer; raise ModelError if weights or vocabulary do not fit."""
    if (directory / WEIGHTS).exists():
        check_shapes(name, source, directory / WEIGHTS, config, base)
    return _check_vocabulary(name, source, directory, base)


def _locate(name: str, source: str, allow_pickle: bool) -> tuple[Path, str | None]:
    if inputs.is_path(source) or source.startswith(files.PREFIX):
        directory = files.find_in_package(source) if source.startswith(files.PREFIX) else Path(source).expanduser()
        if not directory.is_dir():
            raise ModelError(f"model {name}: adapter directory not found: {source}.")
        return directory, None
    repository, _, revision = source.partition("@")
    patterns = inputs.download_patterns(allow_pickle=allow_pickle)
    directory = snapshot(repository, revision or None, patterns)
    return directory, directory.name


def _config(name: str, directory: Path, source: str) -> dict:
    if not (directory / CONFIG).exists():
        is_model = (directory / "config.json").exists()
        complete = " It contains a complete model; set it as source instead of adapter."
        hint = complete if is_model else files.subdirectories_with(directory, CONFIG)
        raise ModelError(f"model {name}: {source} is not a PEFT adapter: {CONFIG} not found.{hint}")
    config = files.read_json(name, directory / CONFIG)
    if not isinstance(config, dict) or not config.get("peft_type"):
        raise ModelError(f"model {name}: {source} is not a PEFT adapter: peft_type not found in {CONFIG}.")
    return config


def _check_name(name: str, source: str, config: dict, base: ModelRecord, allowed: bool) -> None:
    """Raise ModelError if the adapter was trained on another base: of two Hub IDs, because paths tell nothing."""
    trained_on, base_id = config.get("base_model_name_or_path") or "", base.source.partition("@")[0]
    hub_id = r"[\w.-]+/[\w.-]+"
    comparable = re.fullmatch(hub_id, trained_on) and re.fullmatch(hub_id, base_id)
    if allowed or not comparable or trained_on.startswith("."):
        return
    if trained_on.casefold() != base_id.casefold():
        raise ModelError(
            f"model {name}: expected the base {trained_on}, on which the adapter {source} was trained, got {base_id}. "
            "Set allow_base_mismatch: true for this model if this is intended."
        )


def _check_vocabulary(name: str, source: str, directory: Path, base: ModelRecord) -> bool:
    """Return whether the adapter has its own tokenizer; raise ModelError if its vocabulary differs or is missing."""
    adapter_tokenizer, base_tokenizer = (Path(path) / "tokenizer.json" for path in (directory, base.directory))
    if not adapter_tokenizer.exists():
        for file in sorted(path for path in directory.iterdir() if path.is_file()):
            if not inputs.is_tokenizer_file(file.name) and not file.name.startswith("chat_template"):
                continue
            of_base = Path(base.directory, file.name)
            if not of_base.exists() or file.read_bytes() != of_base.read_bytes():
                raise ModelError(
                    f"model {name}: the adapter {source} contains {file.name}, unlike that of its base, but no "
                    "tokenizer.json. Save its tokenizer there, or remove the file if the adapter was trained without."
                )
        return False
    if not base_tokenizer.exists():
        return True
    if differing := _read_vocabulary(name, adapter_tokenizer) ^ _read_vocabulary(name, base_tokenizer):
        tokens = {token for token, _ in differing}
        details = f"{len(tokens)} of the tokens differ, such as {min(tokens)!r}"
        raise ModelError(vocabulary_mismatch(name, source, details))
    return True


def _read_vocabulary(name: str, tokenizer: Path) -> set[tuple[str, int]]:
    """Return the tokens of a tokenizer.json and their IDs."""
    content = files.read_json(name, tokenizer)
    try:
        vocabulary = content["model"].get("vocab") or {}
        pairs = vocabulary.items() if isinstance(vocabulary, dict) else ((t, i) for i, (t, _) in enumerate(vocabulary))
        return {*pairs, *((token["content"], token["id"]) for token in content.get("added_tokens") or [])}
    except (LookupError, TypeError, ValueError, AttributeError):
        raise ModelError(f"model {name}: {tokenizer} is not a tokenizer.") from None


def check_shapes(name: str, source: str, weights: Path, config: dict, base: ModelRecord) -> None:
    """Raise ModelError if a weight in the file `weights` does not fit the base weight that it changes or replaces."""
    shapes = files.shapes_in(name, weights, _UNPACKED_DTYPES)
    adapter_shapes = {key.removeprefix("base_model.model."): shape for key, shape in shapes.items()}
    if empty := [key for key, shape in shapes.items() if 0 in shape]:
        raise ModelError(
            f"model {name}: the adapter {source} contains {len(empty)} empty tensors ({empty[0]}: shape "
            f"{_format_shape(shapes[empty[0]])}). DeepSpeed ZeRO-3 saves such files unless it gathers the weights: set "
            "stage3_gather_16bit_weights_on_model_save, or convert the checkpoint with zero_to_fp32.py."
        )
    base_shapes = {}
    for file in sorted(Path(base.directory).glob("*.safetensors")):
        base_shapes |= files.shapes_in(name, file, _UNPACKED_DTYPES)
    mismatch = f"model {name}: the adapter {source} does not fit its base {base.name} ({base.source})"
    for key, shape in adapter_shapes.items():
        module, part = _split_key(key)
        weight = f"{module}.bias" if part == "bias" else f"{module}.weight"
        # files may omit the first component of names ("transformer." of GPT-2)
        base_shape = base_shapes.get(weight) or base_shapes.get(weight.partition(".")[2])
        if not base_shape or not shape:
            continue
        rows, n_tokens = base_shape[0], _rows_in_vocabulary(module, part, shape, config)
        if n_tokens is not None and n_tokens != rows and (n_tokens > rows or part != "trainable_tokens_delta"):
            raise ModelError(vocabulary_mismatch(name, source, f"expected {rows} rows in {key}, got {n_tokens}"))
        if part in ("weight", "bias") and shape != base_shape:
            raise ModelError(
                f"{mismatch}: expected shape {_format_shape(base_shape)} of {module}, got {_format_shape(shape)}."
            )
        dimensions = {"lora_A": -1, "lora_B": 0, "lora_embedding_B": 0, "trainable_tokens_delta": -1}
        size = shape[dimensions[part]] if part in dimensions else None
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


def _rows_in_vocabulary(module: str, part: str, shape: list[int], config: dict) -> int | None:
    """Return the number of tokens that a weight is for, of single tokens the highest ID plus one; None: none."""
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


def unsupported_reason(config: dict) -> str | None:
    """Return why an adapter with this config (adapter_config.json) cannot be evaluated, or None if it can."""
    peft_type = str(config["peft_type"])
    if peft_type in PROMPT_TYPES:
        return f"is a {peft_type} adapter, which inserts vectors before the prompt; {_SUPPORTED_HINT}"
    if peft_type in UNSUPPORTED_TYPES:
        return f"is a {peft_type} adapter, which {UNSUPPORTED_TYPES[peft_type]}; {_SUPPORTED_HINT}"
    if peft_type not in MODULE_TYPES:
        return f'has peft_type "{peft_type}", which is not supported.{suggest(peft_type, sorted(MODULE_TYPES))}'
    for option, behavior in _OPTIONS.items():
        if config.get(option):
            return f"sets {option}: it {behavior}."
    if str(config.get("init_lora_weights")).startswith("corda"):
        return (
            "has init_lora_weights: corda, which requires the covariances of its training data. Save it as a LoRA: "
            "save_pretrained(…, path_initial_model_for_weight_conversion=…)."
        )
    return None


# Some initializations draw random numbers (pissa_niter_4 for its SVD) and change the base accordingly, so that without
# a fixed seed an adapter's outputs would depend on what ran before it.
_SEED = 0


def apply_adapter(model: "torch.nn.Module", adapter_dir: str, *, allow_pickle: bool) -> "tuple[PeftModel, list, list]":
    """Apply an adapter in place; return (PEFT's model, weights without counterpart, missing weights).

    Raises what PEFT raises. The random state of the process is unchanged.
    """
    import torch  # imported here, with PEFT: checking an adapter's config needs neither, and both take seconds
    from peft import PeftModel

    options = {} if allow_pickle else {"use_safetensors": True}
    devices = range(torch.cuda.device_count())
    # PEFT's warnings repeat what the returned lists contain
    with torch.random.fork_rng(devices), warnings.catch_warnings(action="ignore"):
        torch.manual_seed(_SEED)
        peft = PeftModel.from_pretrained(model, adapter_dir, **options)
        report = peft.load_adapter(adapter_dir, "default", **options)  # again: this call reports misfitting weights
    return peft.eval().requires_grad_(False), report.unexpected_keys, _missing(peft, report.missing_keys)


def unknown_settings(name: str, adapter_dir: str) -> list[str]:
    """Return notes on settings of an adapter that PEFT drops, with a warning only: those of a later version."""
    import peft

    config = files.read_json(name, Path(adapter_dir, CONFIG))
    known = {field.name for field in fields(peft.PEFT_TYPE_TO_CONFIG_MAPPING[config["peft_type"]])}
    unknown = {key: value for key, value in config.items() if key not in known and value}
    return [f"{CONFIG} has {key}: {value}, which PEFT {peft.__version__} ignores" for key, value in unknown.items()]


def _missing(peft: "PeftModel", names: list[str]) -> list[str]:
    """Return the weights reported as missing that are not loaded under another name (VB-LoRA's layers share one)."""
    weights = peft.state_dict(keep_vars=True)
    loaded = {id(weight) for name, weight in weights.items() if name not in names}
    return [name for name in names if id(weights.get(name)) not in loaded]
