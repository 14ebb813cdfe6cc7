"""Bounds on the model that a config describes: on its layers, and on the modules and parameters that are built.

transformers builds a model without memory for its parameters before it reads the weights. Modules and parameters are
counted during that build and compared with fixed limits and with the weights on disk, so that a config of a million
layers raises an error before its weights are allocated.
"""

import contextlib
import re
from pathlib import Path

from vernacular.checkpoints.files import read_json
from vernacular.core.errors import ModelError, format_count
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
