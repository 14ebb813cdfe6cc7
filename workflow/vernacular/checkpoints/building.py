"""Bounds on the model that a config describes: on its layers, and on the modules and parameters that are built.

transformers builds a model without memory for its parameters before it reads the weights. Modules and parameters are
counted during that build and compared with fixed limits and with the weights on disk, so that a config of a million
layers raises an error before its weights are allocated.
"""

import contextlib
import re
from pathlib import Path

from vernacular.checkpoints.files import read_json
from vernacular.core.errors import ModelError
from vernacular.types import ModelRecord

MAX_LAYERS = 1000  # or the number of tensors, if larger: a layer has at least one
# matches num_hidden_layers, n_layer, encoder_layers, num_blocks, depth, depths, num_hidden_groups; not layer_norm_eps
_LAYERS = re.compile(r"(?:^|_)(?:layers?|blocks|depths?|hidden_groups|group_num)$")
MAX_MODULES = 300_000  # mixtures of experts with a module for each matrix have 120,000
_SLACK = 100_000_000  # parameters: heads that are not stored, tied embeddings
_TIMES = 2  # parameters per number on disk; tied embeddings count twice
_TIMES_PACKED = 32  # if several are packed into one number
_TIMES_BYTE = 8  # parameters per byte, if the numbers on disk are unknown (pickles, 1-bit GGUF)


def check_layers(name: str, path: Path, config: dict, n_tensors: int | None) -> None:
    """Raise ModelError if a config claims more than MAX_LAYERS layers, and more than `n_tensors` (None: unknown)."""
    most = max(MAX_LAYERS, n_tensors or 0)
    for key, value in _counts(config):
        if value > most:
            raise ModelError(
                f"model {name}: {path}: expected at most {most} as {key}, got {value}; the weights contain "
                f"{'an unknown number of' if n_tensors is None else n_tensors} tensors. Correct the config."
            )


def _counts(config: dict):
    """Yield (key, number) of every number of layers in a config, at any depth."""
    ahead = [config]
    while ahead:
        for key, value in ahead.pop().items():
            if isinstance(value, list):
                value = {f"{key}[{i}]": one for i, one in enumerate(value)}
            if isinstance(value, dict):
                ahead.append(value)
            elif isinstance(value, int | float) and _LAYERS.search(key.partition("[")[0]):
                yield key, value


@contextlib.contextmanager
def bounded_build(record: ModelRecord):
    """Raise ModelError if what is built inside exceeds what the weights of a model's record justify."""
    from torch.nn.modules import module as torch_modules

    folder, most = Path(record["folder"]), _parameters(record)
    modules, parameters, claimed = 0, set(), 0

    def add_module(parent, name, child) -> None:
        nonlocal modules
        modules += 1
        if modules > MAX_MODULES:
            raise ModelError(
                f"model {record['name']}: the config in {folder} defines more than {MAX_MODULES} modules. "
                "Correct its numbers of layers and experts."
            )

    def add_parameter(parent, name, parameter) -> None:
        nonlocal claimed
        if parameter is None or (id(parent), name) in parameters:  # loading registers the weights in the same places
            return
        parameters.add((id(parent), name))
        claimed += parameter.numel()
        if most is not None and claimed > most:
            raise ModelError(
                f"model {record['name']}: expected at most {most:.3g} parameters, from the size of the weights, got "
                f"at least {claimed:.3g} from the config in {folder}. Correct the sizes in the config."
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


def _parameters(record: ModelRecord) -> int | None:
    """Return the maximum number of parameters that the weights can represent; None if nothing is known of them."""
    path = Path(record["folder"]) / "config.json"
    if count := record.get("parameters"):
        config = read_json(record["name"], path) if path.exists() else {}
        packed = isinstance(config, dict) and config.get("quantization_config")
        return (_TIMES_PACKED if packed else _TIMES) * count + _SLACK
    return _TIMES_BYTE * record["bytes"] + _SLACK if record.get("bytes") else None
