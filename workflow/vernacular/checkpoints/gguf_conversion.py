"""Conversion of a GGUF file to a Hugging Face directory, by transformers.

The weights are dequantized to float32, which is exact: a quantized weight is a float16 scale times an integer.
"""

from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from vernacular.checkpoints.building import bounded_build
from vernacular.checkpoints.files import DAMAGED_FILE_ERRORS
from vernacular.core.errors import ModelError, first_line, first_of
from vernacular.core.failures import wrap_library_errors


def convert(file: Path, out: Path) -> None:
    """Write the model and the tokenizer of a GGUF file to the directory `out`, as float32 safetensors.

    Raises ModelError if the file is damaged, incomplete or of an unsupported architecture.
    """
    try:
        file_record = {"name": file.name, "directory": str(file), "bytes": file.stat().st_size}
        with wrap_library_errors(), bounded_build(file_record):
            load_kwargs = {"gguf_file": file.name, "trust_remote_code": False, "local_files_only": True}
            tokenizer = AutoTokenizer.from_pretrained(str(file.parent), **load_kwargs)
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
