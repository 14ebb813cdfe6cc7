"""Conversion of a GGUF file to a Hugging Face directory, by transformers.

The weights are dequantized to float32, which is exact: a quantized weight is a float16 scale times an integer.
"""

import contextlib
import functools
from pathlib import Path

import gguf
import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from vernacular.checkpoints.building import bounded_build
from vernacular.checkpoints.files import DAMAGED_FILE_ERRORS
from vernacular.core.errors import ModelError, first_line, first_of
from vernacular.core.failures import wrap_library_errors
from vernacular.core.imports import SCIPY, stand_ins

with stand_ins(*SCIPY):  # for losses of object detection
    import transformers.modeling_utils  # noqa: F401


def convert(file: Path, out: Path) -> None:
    """Write the model and the tokenizer of a GGUF file to the directory `out`, as float32 safetensors.

    Raises ModelError if the file is damaged, incomplete or of an unsupported architecture.
    """
    try:
        file_record = {"name": file.name, "directory": str(file), "bytes": file.stat().st_size}
        with wrap_library_errors(), bounded_build(file_record), _parse_once():
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


class _Reader(gguf.GGUFReader):
    """A reader whose slices are plain arrays: a slice of the memory map itself takes ten times as long."""

    def _get(self, *args, **kwargs):
        if isinstance(self.data, np.memmap):
            self.data = self.data.view(np.ndarray)
        return super()._get(*args, **kwargs)


@contextlib.contextmanager
def _parse_once():
    """Cache gguf's reader and name map while a file is converted.

    transformers 5.23 parses the metadata three times (config, tokenizer, weights), 5 s each for a vocabulary of 49,000
    tokens, and builds the map of tensor names once per module.
    """
    replacements = {"GGUFReader": _Reader, "get_tensor_name_map": gguf.get_tensor_name_map}
    originals = {name: getattr(gguf, name) for name in replacements}
    for name, replacement in replacements.items():
        setattr(gguf, name, functools.cache(replacement))
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(gguf, name, original)
