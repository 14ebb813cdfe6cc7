"""Conversion of a GGUF file to a Hugging Face directory, by transformers.

The weights are dequantized to float32, which is exact: a quantized weight is a float16 scale times an integer.
"""

from pathlib import Path

import torch
import transformers
from tokenizers import Regex, pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.integrations.gguf import get_gguf_tokenizer
from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS

from vernacular.checkpoints.files import DAMAGED_FILE_ERRORS, bounded_build
from vernacular.core.errors import ModelError, first_line, first_of
from vernacular.core.library_errors import wrap_library_errors
from vernacular.core.model_record import ModelRecord

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
    """Write the model and tokenizer of a GGUF file to `out` as float32; raise ModelError if it is not supported."""
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

    Raises ModelError if its pre-tokenizer is unknown: it would divide them unlike in training.
    """
    tokenizer = AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name, local_files_only=True)
    _, settings, _ = get_gguf_tokenizer(str(file))
    name = settings.get("pre_tokenizer_type")
    if settings.get("tokenizer_type") != "gpt2" or name in GGUF_PRE_TOKENIZER_SPLITS:
        return tokenizer  # set by transformers; the other types of tokenizer have none
    if name not in _SPLITS:
        unknown = f'"{name}", which transformers {transformers.__version__} does not know'
        found = "not stated" if name is None else unknown
        raise ModelError(
            f"{file.name}: its pre-tokenizer (tokenizer.ggml.pre) is {found}: texts would be divided into other tokens "
            "than in training. Use the original checkpoint, or serve the file by llama.cpp (docs/servers.md)."
        )
    splits = [pre_tokenizers.Split(Regex(split), "isolated") for split in _SPLITS[name]]
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*splits, byte_level])
    return tokenizer
