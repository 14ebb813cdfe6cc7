"""Checksums of a model in memory: any bit counts, and nothing but the bits."""

import pytest
import torch
from support import tiny
from vernacular.inference.model import base as module
from vernacular.inference.model.base import checksum, state_of

DTYPES = (torch.float32, torch.bfloat16, torch.float64, torch.int8, torch.bool, torch.uint8, torch.float8_e4m3fn)


def tensor(n: int = 1000, dtype=torch.float32) -> torch.Tensor:
    return torch.arange(1, n + 1).mul(2654435761).remainder(251).to(torch.float32).sub(125).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 3, 8, 1001])
def test_every_byte_counts(dtype, n):
    before = tensor(n, dtype)
    raw = before.view(torch.uint8)
    seen = {int(checksum(before))}
    for index in {0, len(raw) // 2, len(raw) - 1}:
        for bit in (1, 128):
            raw[index] ^= bit
            seen.add(int(checksum(before)))
            raw[index] ^= bit
    assert len(seen) == 1 + 2 * len({0, len(raw) // 2, len(raw) - 1})
    assert int(checksum(before)) in seen


@pytest.mark.parametrize("bit", [0, 7, 31, 32, 62, 63])
@pytest.mark.parametrize("other", [0, 31, 63])
@pytest.mark.parametrize(("i", "j"), [(0, 1), (0, 499), (3, 5), (128, 256)])
def test_two_changes_do_not_cancel_out(i, j, bit, other):
    words = tensor(500, torch.int64)
    before = int(checksum(words))
    changed = words.clone()
    for place, number in ((i, bit), (j, other)):
        changed[place] ^= 2**number if number < 63 else -(2**63)
    swapped = words.clone()
    swapped[[i, j]] = words[[j, i]]
    assert len({before, int(checksum(changed)), int(checksum(swapped))}) == 3


def test_negated_columns_change_it():
    weight = tensor(4096).reshape(64, 64)
    negated = weight.clone()
    negated[:, [3, 5]] *= -1  # as the QR of OLoRA may
    assert int(checksum(negated)) != int(checksum(weight))


def test_portions_strides_and_threads_do_not_count(monkeypatch):
    weight = tensor(6000).reshape(60, 100)
    expected = int(checksum(weight))
    for words in (1, 7, 64, 2**20):
        monkeypatch.setitem(module._PORTIONS, "cpu", words)
        assert int(checksum(weight)) == expected
    assert int(checksum(weight.T.contiguous().T)) == expected
    beside = torch.cat([torch.zeros(1), weight.flatten()])[1:]  # does not begin where a word does
    assert int(checksum(beside)) == expected
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert int(checksum(tensor(200_000))) == int(checksum(tensor(200_000).clone()))
    finally:
        torch.set_num_threads(before)


def test_what_is_not_in_memory_has_none_and_differs_from_itself():
    model = torch.nn.Linear(3, 4, device="meta")
    assert checksum(model.weight) is None
    assert state_of(model).differences(state_of(model)) == ["bias", "weight"]


@pytest.mark.parametrize("arch", ["llama", "gpt2", "qwen2"])
def test_a_model_has_one_state_until_something_changes(arch):
    model = tiny.model(arch, 400)
    before = state_of(model)
    model(input_ids=torch.zeros(1, 5, dtype=torch.long))
    assert not before.differences(state_of(model))
    assert set(before.tensors) == {name for name, _ in model.named_parameters(remove_duplicate=False)} | {
        name for name, _ in model.named_buffers(remove_duplicate=False)
    }
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if not tensor.is_floating_point():
            continue
        flat = tensor.data.view(-1)
        value = flat[-1].clone()
        flat[-1] = torch.nextafter(value, torch.tensor(99.0))
        assert name in before.differences(state_of(model))
        flat[-1] = value
    assert not before.differences(state_of(model))


def test_the_module_tree_ties_hooks_and_config_count():
    model = tiny.model("gpt2", 400)
    before = state_of(model)
    assert before.tensors["lm_head.weight"][0] == "transformer.wte.weight"
    with torch.no_grad():
        untied = torch.nn.Parameter(model.lm_head.weight.clone(), requires_grad=False)
    tied, model.lm_head.weight = model.lm_head.weight, untied
    assert before.differences(state_of(model)) == ["lm_head.weight"]
    model.lm_head.weight = tied
    handle = model.transformer.h[1].register_forward_hook(lambda *_: None)
    assert before.differences(state_of(model)) == ["transformer.h.1"]
    handle.remove()
    block, model.transformer.h[2] = model.transformer.h[2], torch.nn.Identity()
    assert "transformer.h.2" in before.differences(state_of(model))
    model.transformer.h[2] = block
    model.config.n_layer = 2
    assert before.differences(state_of(model)) == ["config"]
