"""Linear layers by oneDNN compute what PyTorch's own compute."""

import copy
import os
import subprocess
import sys

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.pytorch_utils import Conv1D
from vernacular.checkpoints.linear_layers import use_onednn

pytestmark = pytest.mark.skipif(not use_onednn(torch.nn.Linear(1, 1)), reason="oneDNN is not used on this processor")


def layer(kind: type, n_in: int, n_out: int, bias: bool = True) -> torch.nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = kind(n_out, n_in) if kind is Conv1D else kind(n_in, n_out, bias=bias)
        if kind is Conv1D:
            torch.nn.init.normal_(module.bias)
    return module.requires_grad_(False)


def inputs(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def uses_onednn(module: torch.nn.Module) -> bool:
    return "forward" in vars(module)


@pytest.mark.parametrize("shape", [(1, 64), (7, 64), (2, 5, 64), (1, 1, 64), (0, 64), (3, 0, 64), (64,)])
@pytest.mark.parametrize(("kind", "bias"), [(torch.nn.Linear, True), (torch.nn.Linear, False), (Conv1D, True)])
def test_a_layer_computes_the_same_product(kind, bias, shape):
    module = layer(kind, 64, 96, bias)
    if kind is Conv1D and len(shape) == 1:
        pytest.skip("Conv1D itself needs two dimensions")
    expected = module.double()(inputs(*shape).double())
    module.float()
    assert use_onednn(module)
    assert uses_onednn(module)
    assert type(module) is kind
    actual = module(inputs(*shape))
    assert actual.shape == expected.shape
    assert actual.dtype is torch.float32
    torch.testing.assert_close(actual.double(), expected, rtol=1e-5, atol=1e-5)


def test_inputs_that_are_not_contiguous():
    module = layer(torch.nn.Linear, 64, 96)
    wide = inputs(6, 128)
    expected = module(wide[:, 32:96].contiguous())
    assert use_onednn(module)
    torch.testing.assert_close(module(wide[:, 32:96]), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(module(wide[:, 32:96].t().contiguous().t()), expected, rtol=1e-5, atol=1e-5)


def test_a_model_has_the_same_parameters_and_logits():
    config = GPT2Config(n_layer=2, n_embd=32, n_head=2, vocab_size=100, n_positions=64)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = GPT2LMHeadModel(config).eval().requires_grad_(False)
    ids = torch.randint(0, 100, (3, 20), generator=torch.Generator().manual_seed(0))
    expected, names = model(ids).logits, list(model.state_dict())
    assert use_onednn(model)
    replaced = [type(module) for module in model.modules() if uses_onednn(module)]
    assert (replaced.count(torch.nn.Linear), replaced.count(Conv1D)) == (1, 8)  # the head, and four per layer
    assert list(model.state_dict()) == names
    assert model.lm_head.weight is model.transformer.wte.weight
    torch.testing.assert_close(model(ids).logits, expected, rtol=1e-4, atol=1e-5)


def test_a_copy_uses_its_own_weight():
    """PEFT trains copies of whole layers, such as the output head."""
    module = layer(torch.nn.Linear, 8, 4)
    assert use_onednn(module)
    copied = copy.deepcopy(module)
    copied.weight.zero_()
    torch.testing.assert_close(copied(inputs(1, 8))[0], module.bias)
    assert module(inputs(1, 8)).std() > 0


def test_a_gradient_is_still_computed():
    module, row = layer(torch.nn.Linear, 8, 4), inputs(1, 8).requires_grad_()
    assert use_onednn(module)
    module(row).sum().backward()
    torch.testing.assert_close(row.grad[0], module.weight.sum(0))


def test_other_layers_are_left_alone():
    class Doubled(torch.nn.Linear):
        def forward(self, input):
            return 2 * super().forward(input)

    for module in (layer(torch.nn.Linear, 8, 4).bfloat16(), layer(torch.nn.Linear, 8, 4).double(), Doubled(8, 4)):
        assert not use_onednn(module)
        assert not uses_onednn(module)


def test_a_layer_converted_afterwards_uses_pytorch():
    module = layer(torch.nn.Linear, 8, 4)
    assert use_onednn(module)
    module.double()
    row = inputs(1, 8).double()
    torch.testing.assert_close(module(row), torch.nn.functional.linear(row, module.weight, module.bias))


def test_nothing_changes_if_onednn_is_disabled():
    module = layer(torch.nn.Linear, 8, 4)
    with torch.backends.mkldnn.flags(enabled=False):
        assert not use_onednn(module)
    assert not uses_onednn(module)


def test_nothing_changes_if_the_product_differs(monkeypatch, caplog):
    module = layer(torch.nn.Linear, 8, 4)
    monkeypatch.setattr(
        torch.ops.mkldnn, "_linear_pointwise", lambda rows, weight, *rest: 1.001 * rows @ weight.t(), raising=True
    )
    assert not use_onednn(module)
    assert not uses_onednn(module)
    assert "does not reproduce" in caplog.text


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_batch_sizes():
    """In a process of its own: the caches of oneDNN are limited before it is first used."""
    code = """
import torch
from vernacular.checkpoints.linear_layers import use_onednn
torch.set_num_threads(1)
layers = [torch.nn.Linear(256, n, bias=False).requires_grad_(False) for n in (256, 512, 768)]
assert all(map(use_onednn, layers))
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 2**20
for n_rows in range(1, 301):
    for layer in layers:
        layer(torch.zeros(n_rows, 256))
    if n_rows == 30:
        before = resident()
print(resident() - before)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(run.stdout) < 100  # MiB; 700 with caches for 1024 shapes


@pytest.mark.parametrize("capability", ["avx2", pytest.param("default", marks=pytest.mark.slow)])
def test_a_processor_without_avx512_uses_pytorch(capability):
    code = """
import torch
from vernacular.checkpoints.linear_layers import use_onednn
assert not use_onednn(torch.nn.Linear(8, 4).requires_grad_(False))
"""
    environment = {**os.environ, "ATEN_CPU_CAPABILITY": capability}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
