"""Linear layers of a model in float32 on a CPU, computed by oneDNN.

PyTorch computes them with MKL, which does not use AVX-512 on processors of other vendors than Intel: on an AMD EPYC
with AVX-512, oneDNN (a part of PyTorch as well) computes the same product in less than half the time. On one without
AVX-512, MKL is faster by an eighth and is used. Results of the two differ by rounding, as they do between two
processors. PyTorch has no setting for this; the operator is the one to which its compiler lowers linear layers.
"""

import logging
import os
import platform
from types import MethodType

import torch
from transformers.pytorch_utils import Conv1D

log = logging.getLogger("vernacular")

_PROCESSORS = ("x86_64", "amd64")  # on others, PyTorch's own choice is not MKL
_TOLERANCE = 1e-4  # of the check, relative to the largest element of the product
_CHECK_ROWS = 4
# Both caches keep 2 MB per shape of layer and batch, for up to 1024 shapes, and scoring has hundreds of batch sizes; to
# build the code for a shape takes about as long as one row. The library reads these variables when it is first used.
_CACHES = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "16", "LRU_CACHE_CAPACITY": "16"}  # shapes


def _linear_forward(self: torch.nn.Linear, input: torch.Tensor) -> torch.Tensor:
    """Return input · weightᵀ + bias, [..., out_features] of [..., in_features]."""
    return _linear(input, self.weight, self.bias)


def _conv1d_forward(self: Conv1D, x: torch.Tensor) -> torch.Tensor:
    """Return x · weight + bias, [..., nf] of [..., nx]: a linear layer that stores its weight transposed (GPT-2)."""
    return _linear(x, self.weight.t(), self.bias)


_FORWARD = {torch.nn.Linear: _linear_forward, Conv1D: _conv1d_forward}


def use_onednn(model: torch.nn.Module) -> bool:
    """Let oneDNN compute the float32 linear layers of `model` on a CPU with AVX-512; return whether it does.

    Classes, parameters and names stay as they are, because PEFT looks at them. It must reproduce the first layer's
    product.
    """
    layers = [
        module
        for module in model.modules()
        # not a tensor of a quantization library, which claims a dtype that its memory has not
        if type(module) in _FORWARD and _is_suitable(module.weight) and type(module.weight.data) is torch.Tensor
    ]
    mkldnn = torch.backends.mkldnn
    on_x86 = platform.machine().lower() in _PROCESSORS
    is_available = mkldnn.is_available() and mkldnn.enabled and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    is_faster = torch.backends.cpu.get_cpu_capability().startswith("AVX512")  # ATEN_CPU_CAPABILITY=avx2 selects MKL
    if not (layers and on_x86 and is_available and is_faster):
        return False
    for variable, capacity in _CACHES.items():
        os.environ.setdefault(variable, capacity)
    if not _reproduces(layers[0]):
        log.warning("oneDNN does not reproduce the product of a linear layer; PyTorch computes it with MKL.")
        return False
    for layer in layers:
        layer.forward = MethodType(_FORWARD[type(layer)], layer)
    return True


def _is_suitable(tensor: torch.Tensor) -> bool:
    return tensor.dtype is torch.float32 and tensor.device.type == "cpu"


def _linear(input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """Return input · weightᵀ + bias; by PyTorch's own function if a gradient is required, or in another dtype."""
    needs_gradient = torch.is_grad_enabled() and (input.requires_grad or weight.requires_grad)
    if needs_gradient or not (_is_suitable(input) and _is_suitable(weight)):
        return torch.nn.functional.linear(input, weight, bias)
    return torch.ops.mkldnn._linear_pointwise(input, weight, bias, "none", [], "")


@torch.no_grad()
def _reproduces(layer: torch.nn.Module) -> bool:
    """Return whether oneDNN computes the product of a layer's weight with its own first rows, as float64 does."""
    weight = layer.weight if isinstance(layer, torch.nn.Linear) else layer.weight.t()
    rows = weight[:_CHECK_ROWS]
    expected = rows.double() @ weight.double().T
    try:
        actual = torch.ops.mkldnn._linear_pointwise(rows.contiguous(), weight, None, "none", [], "")
    except RuntimeError:
        return False
    scale = expected.abs().max()
    return bool(((actual - expected).abs() <= _TOLERANCE * scale).all() or not scale.isfinite())
