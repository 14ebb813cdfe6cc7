"""Bounds on the model that a config describes, on its layers, modules and parameters; and models built from GGUF files.

transformers builds a model without memory for its parameters before it reads the weights. Modules and parameters are
counted during that build and compared with fixed limits and with the weights on disk, so that a config of a million
layers raises an error before its weights are allocated.

A GGUF file is converted to a Hugging Face directory by transformers. The weights are dequantized to float32, which is
exact: a quantized weight is a float16 scale times an integer.
"""

import contextlib
import re
from pathlib import Path

import torch
import transformers
from tokenizers import Regex, pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.integrations.gguf import get_gguf_tokenizer
from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS

from vernacular.checkpoints.files import DAMAGED_FILE_ERRORS, read_json
from vernacular.core.errors import ModelError, first_line, first_of, format_count
from vernacular.core.library_errors import wrap_library_errors
from vernacular.core.model_record import ModelRecord

MAX_LAYERS = 1000  # or the number of tensors, if larger: a layer has at least one
# matches num_hidden_layers, n_layer, encoder_layers, num_blocks, depth, depths, num_hidden_groups; not layer_norm_eps
_LAYERS = re.compile(r"(?:^|_)(?:layers?|blocks|depths?|hidden_groups|group_num)$")
MAX_MODULES = 300_000  # mixtures of experts with a module for each matrix have 120,000
_SLACK = 100_000_000  # parameters: heads that are not stored, tied embeddings
_PARAMETERS_PER_NUMBER = 2  # parameters per number on disk; tied embeddings count twice
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
            raise ModelError(
                f"model {record.name}: the config in {directory} defines more than {MAX_MODULES} modules. "
                "Correct its numbers of layers and experts."
            )

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

    hooks = [
        torch_modules.register_module_module_registration_hook(add_module),
        torch_modules.register_module_parameter_registration_hook(add_parameter),
    ]
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
        return (_PARAMETERS_PER_PACKED_NUMBER if packed else _PARAMETERS_PER_NUMBER) * count + _SLACK
    return _PARAMETERS_PER_BYTE * record.bytes + _SLACK if record.bytes else None


# How llama.cpp divides a text before the merges of a byte-level vocabulary apply, by `tokenizer.ggml.pre`, where
# transformers has no pattern and would use that of GPT-2 without a message. One after the other, as there.
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_WORD = r" ?[^(\s|.,!?…。，、।۔،)]+"
_SPLITS = {
    **dict.fromkeys(
        ("gpt-2", "phi-2", "mpt", "olmo", "jais", "jina-es", "jina-de", "gigachat", "roberta-bpe"), (_GPT2,)
    ),
    **dict.fromkeys(
        ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"), (r"\p{N}", _GPT2)
    ),
    **dict.fromkeys(("bloom", "gpt3-finnish", "poro-chat"), (_WORD,)),
    "viking": (_WORD, r"\p{N}"),
    "falcon": (r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, "[0-9][0-9][0-9]"),
    "stablelm2": (GGUF_PRE_TOKENIZER_SPLITS["qwen2"],),
}


def convert(file: Path, out: Path) -> None:
    """Write the model and the tokenizer of a GGUF file to the directory `out`, as float32 safetensors.

    Raises ModelError if the file is damaged, incomplete or of an unsupported architecture.
    """
    try:
        file_record = ModelRecord(name=file.name, directory=str(file), bytes=file.stat().st_size)
        with wrap_library_errors(), bounded_build(file_record):
            load_kwargs = {"gguf_file": file.name, "trust_remote_code": False, "local_files_only": True}
            tokenizer = read_tokenizer(file)
            model, report = AutoModelForCausalLM.from_pretrained(
                str(file.parent), dtype=torch.float32, output_loading_info=True, **load_kwargs
            )
    except DAMAGED_FILE_ERRORS as error:
        raise ModelError(
            f"{file.name}: cannot be read as GGUF ({first_line(error)}); the download may be incomplete. "
            "Download it again."
        ) from None
    if missing := sorted(report["missing_keys"]):
        raise ModelError(
            f"{file.name}: {len(missing)} of the weights of a {type(model).__name__} not found ({first_of(missing)}). "
            "Convert the model to GGUF again, or use its original checkpoint."
        )
    # the saved model is not quantized; save_pretrained would reject these attributes
    model.config.__dict__.pop("quantization_config", None)
    model.hf_quantizer = None
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


def read_tokenizer(file: Path):
    """Return the tokenizer of a GGUF file, which divides texts as llama.cpp does.

    Raises ModelError if the file names a pre-tokenizer that is unknown: it would divide them unlike in training.
    """
    tokenizer = AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name, local_files_only=True)
    _, settings, _ = get_gguf_tokenizer(str(file))
    name = settings.get("pre_tokenizer_type")
    if settings.get("tokenizer_type") != "gpt2" or name in GGUF_PRE_TOKENIZER_SPLITS:
        return tokenizer  # set by transformers; the other types of tokenizer have none
    if name not in _SPLITS:
        found = (
            "not stated" if name is None else f'"{name}", which transformers {transformers.__version__} does not know'
        )
        raise ModelError(
            f"{file.name}: its pre-tokenizer (tokenizer.ggml.pre) is {found}: texts would be divided into other tokens "
            "than in training. Use the original checkpoint, or serve the file by llama.cpp (docs/servers.md)."
        )
    splits = [pre_tokenizers.Split(Regex(split), "isolated") for split in _SPLITS[name]]
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*splits, byte_level])
    return tokenizer
