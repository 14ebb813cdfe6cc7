"""Checksums of a model in memory depend on every bit and on nothing else."""

import pytest
import torch
from support import tiny
from vernacular.inference.model.load import checksum, model_state

DTYPES = (torch.float32, torch.bfloat16, torch.float64, torch.int8, torch.bool, torch.uint8, torch.float8_e4m3fn)


def build_tensor(n: int = 1000, dtype=torch.float32) -> torch.Tensor:
    return torch.arange(1, n + 1).mul(2654435761).remainder(251).to(torch.float32).sub(125).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 3, 8, 1001])
def test_checksum_depends_on_every_byte(dtype, n):
    tensor = build_tensor(n, dtype)
    raw = tensor.view(torch.uint8)
    checksums = {int(checksum(tensor))}
    for index in {0, len(raw) // 2, len(raw) - 1}:
        for bit in (1, 128):
            raw[index] ^= bit
            checksums.add(int(checksum(tensor)))
            raw[index] ^= bit
    assert len(checksums) == 1 + 2 * len({0, len(raw) // 2, len(raw) - 1})
    assert int(checksum(tensor)) in checksums


@pytest.mark.parametrize("bit", [0, 7, 31, 32, 62, 63])
@pytest.mark.parametrize("other_bit", [0, 31, 63])
@pytest.mark.parametrize(("i", "j"), [(0, 1), (0, 499), (3, 5), (128, 256)])
def test_two_changes_do_not_cancel(i, j, bit, other_bit):
    words = build_tensor(500, torch.int64)
    original = int(checksum(words))
    changed = words.clone()
    for index, position in ((i, bit), (j, other_bit)):
        changed[index] ^= 2**position if position < 63 else -(2**63)
    swapped = words.clone()
    swapped[[i, j]] = words[[j, i]]
    assert len({original, int(checksum(changed)), int(checksum(swapped))}) == 3


def test_negated_columns_change_checksum():
    weight = build_tensor(4096).reshape(64, 64)
    negated = weight.clone()
    negated[:, [3, 5]] *= -1  # as the QR of OLoRA may
    assert int(checksum(negated)) != int(checksum(weight))


def test_checksum_is_independent_of_step_strides_and_threads(low_limits):
    weight = build_tensor(6000).reshape(60, 100)
    expected = int(checksum(weight))
    for words in (1, 7, 64, 2**20):
        low_limits("inference.model.load", WORDS_PER_STEP={"cpu": words})
        assert int(checksum(weight)) == expected
    assert int(checksum(weight.T.contiguous().T)) == expected
    unaligned = torch.cat([torch.zeros(1), weight.flatten()])[1:]  # not aligned to a word
    assert int(checksum(unaligned)) == expected
    n_threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert int(checksum(build_tensor(200_000))) == int(checksum(build_tensor(200_000).clone()))
    finally:
        torch.set_num_threads(n_threads)


def test_meta_tensor_has_no_checksum_and_always_differs():
    model = torch.nn.Linear(3, 4, device="meta")
    assert checksum(model.weight) is None
    assert model_state(model).differences(model_state(model)) == ["bias", "weight"]


@pytest.mark.parametrize("arch", ["llama", "gpt2", "qwen2"])
def test_model_state_changes_only_with_tensors(arch):
    model = tiny.model(arch, 400)
    state = model_state(model)
    model(input_ids=torch.zeros(1, 5, dtype=torch.long))
    assert not state.differences(model_state(model))
    assert set(state.tensors) == {name for name, _ in model.named_parameters(remove_duplicate=False)} | {
        name for name, _ in model.named_buffers(remove_duplicate=False)
    }
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if not tensor.is_floating_point():
            continue
        flat = tensor.data.view(-1)
        value = flat[-1].clone()
        flat[-1] = torch.nextafter(value, torch.tensor(99.0))
        assert name in state.differences(model_state(model))
        flat[-1] = value
    assert not state.differences(model_state(model))


def test_model_state_includes_ties_hooks_modules_and_config():
    model = tiny.model("gpt2", 400)
    state = model_state(model)
    assert state.tensors["lm_head.weight"][0] == "transformer.wte.weight"
    with torch.no_grad():
        untied = torch.nn.Parameter(model.lm_head.weight.clone(), requires_grad=False)
    tied, model.lm_head.weight = model.lm_head.weight, untied
    assert state.differences(model_state(model)) == ["lm_head.weight"]
    model.lm_head.weight = tied
    handle = model.transformer.h[1].register_forward_hook(lambda *_: None)
    assert state.differences(model_state(model)) == ["transformer.h.1"]
    handle.remove()
    block, model.transformer.h[2] = model.transformer.h[2], torch.nn.Identity()
    assert "transformer.h.2" in state.differences(model_state(model))
    model.transformer.h[2] = block
    model.config.n_layer = 2
    assert state.differences(model_state(model)) == ["config"]
