"""Bounds on what a checkpoint's files claim, checked before anything of that size is read, built or allocated.

A header of a million tensors, a config of a million layers or a file of holes costs a message, not the machine.
"""

import re
from pathlib import Path

from safetensors import SafetensorError, safe_open

from vernacular.core.contents import open_regular
from vernacular.core.errors import ModelError, first_line

MAX_HEADER = 50_000_000  # bytes; 144,000 tensors of a quantized mixture of experts take 20 MB over all its files
MAX_TENSORS = 200_000  # in one file
MAX_JSON = 500_000_000  # bytes; the largest tokenizer.json have 40 MB
MAX_LAYERS = 1000  # or as many as there are tensors: a layer has one of its own
_SPARSE = 1 << 30  # bytes from which a file that is almost all holes is rejected
# num_hidden_layers, n_layer, encoder_layers, num_blocks, depth, depths, num_hidden_groups; no layer_norm_eps
_LAYERS = re.compile(r"(?:^|_)(?:layers?|blocks|depths?|hidden_groups|group_num)$")


def check_size(name: str, file: Path) -> None:
    """Raise ModelError if `file` is not a regular file, or consists of holes: an incomplete download."""
    with open_regular(file):
        status = file.stat()
    allocated = status.st_blocks * 512  # 0 on file systems that do not report it
    if status.st_size > _SPARSE and 0 < allocated < status.st_size / 100:
        raise ModelError(
            f"model {name}: {file} claims {status.st_size / 1e9:.0f} GB, and {allocated / 1e6:.0f} MB are on disk. "
            "Fetch it again if the download is incomplete; restore it first if it is archived."
        )


def shapes_in(name: str, file: Path, dtypes: set[str] | None = None) -> dict[str, list[int]]:
    """Return the shape of each tensor in a safetensors file, from its header.

    Args:
        dtypes: Those of the tensors to return ("F32", …); None for all.

    Raises:
        ModelError: The file is not a complete safetensors file, or its header is unreasonably large.
    """
    with open_regular(file) as opened:
        claimed = int.from_bytes(opened.read(8), "little")
    if claimed > MAX_HEADER and claimed <= file.stat().st_size:
        raise ModelError(
            f"model {name}: the header of {file} has {claimed / 1e6:.0f} MB; at most {MAX_HEADER / 1e6:.0f} MB are "
            "read. Save the model in several files."
        )
    try:
        with safe_open(file, framework="np") as opened:
            keys = opened.keys()
            if len(keys) > MAX_TENSORS:
                raise ModelError(
                    f"model {name}: {file} holds {len(keys)} tensors; at most {MAX_TENSORS} are read. "
                    "Save the model in several files."
                )
            slices = {key: opened.get_slice(key) for key in keys}
            return {key: part.get_shape() for key, part in slices.items() if not dtypes or part.get_dtype() in dtypes}
    except (SafetensorError, OSError) as error:
        raise ModelError(
            f"model {name}: {file} is no whole safetensors file ({first_line(error)}): half a download? Fetch it again."
        ) from None


def check_layers(name: str, path: Path, config: dict, n_tensors: int | None) -> None:
    """Raise ModelError if a config claims more layers than the weights have tensors (None: unknown, pickled)."""
    most = max(MAX_LAYERS, n_tensors or 0)
    for key, value in _counts(config):
        if value > most:
            raise ModelError(
                f"model {name}: {path} sets {key} to {value}, and the weights hold "
                f"{'at most ' + str(MAX_LAYERS) if n_tensors is None else n_tensors} tensors. Correct the config."
            )


def _counts(config: dict):
    """(key, number) of every number of layers in a config, at any depth of it."""
    ahead = [config]
    while ahead:
        for key, value in ahead.pop().items():
            if isinstance(value, list):
                value = {f"{key}[{i}]": one for i, one in enumerate(value)}
            if isinstance(value, dict):
                ahead.append(value)
            elif isinstance(value, int | float) and _LAYERS.search(key.partition("[")[0]):
                yield key, value
