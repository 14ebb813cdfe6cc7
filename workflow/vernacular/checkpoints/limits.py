"""Bounds on what a checkpoint's files claim, checked before anything of that size is read, built or allocated.

A header of a million tensors, a config of a million layers or a file of holes costs a message, not the machine.
"""

import contextlib
import re
from pathlib import Path

from safetensors import SafetensorError, safe_open

from vernacular.checkpoints.files import read_json
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


MAX_MODULES = 300_000  # mixtures of experts with a module for each matrix have 120,000
_SLACK = 100_000_000  # parameters: heads that are not stored, tied embeddings
_TIMES = 2  # parameters per number on disk; tied embeddings count twice
_TIMES_PACKED = 32  # where many are packed into one number
_TIMES_BYTE = 8  # parameters per byte, where the number on disk is unknown (pickles, GGUF of 1 bit)


@contextlib.contextmanager
def bounded_build(record: dict):
    """Raise ModelError if what is built inside exceeds what the weights of a model's record justify."""
    from torch.nn.modules import module as torch_modules

    folder, most = Path(record["folder"]), _parameters(record)
    modules, parameters, claimed = 0, set(), 0

    def add_module(parent, name, child) -> None:
        nonlocal modules
        modules += 1
        if modules > MAX_MODULES:
            raise ModelError(
                f"model {record['name']}: {folder} asks for more than {MAX_MODULES} modules. Correct the numbers of "
                "layers and experts in its config."
            )

    def add_parameter(parent, name, parameter) -> None:
        nonlocal claimed
        if parameter is None or (id(parent), name) in parameters:  # loading puts the weights in the same places
            return
        parameters.add((id(parent), name))
        claimed += parameter.numel()
        if most is not None and claimed > most:
            raise ModelError(
                f"model {record['name']}: the config in {folder} asks for more than {claimed:.3g} parameters, and its "
                f"weights justify {most:.3g} at most. Correct the sizes in the config."
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


def _parameters(record: dict) -> int | None:
    """How many parameters the weights can stand for; None where nothing is known of them."""
    path = Path(record["folder"]) / "config.json"
    if count := record.get("parameters"):
        config = read_json(record["name"], path) if path.exists() else {}
        packed = isinstance(config, dict) and config.get("quantization_config")
        return (_TIMES_PACKED if packed else _TIMES) * count + _SLACK
    return _TIMES_BYTE * record["bytes"] + _SLACK if record.get("bytes") else None
