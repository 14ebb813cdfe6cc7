"""Mean and standard deviation of ln p under the next-token distribution: equal to plain transformers, on request only."""

import numpy as np
import pyarrow as pa
import pytest
import torch
from support import tiny
from support.engines import score
from torch.utils._python_dispatch import TorchDispatchMode
from vernacular.inference.scoring.head import logprob_moments

TEXTS = ["O gato dorme no tellado.", "O gato dorme na rúa e a cadela ladra.", "Jutros smo otišli na pijacu."]
COLUMNS = ["logprob_mean", "logprob_sd"]


def requests(*extras):
    return tiny.score_requests([(text, 0, len(text)) for text in TEXTS], extras=extras)


def reference(loaded, text):
    """Return (ln p, its mean and standard deviation) of each token of a text after its first, from transformers."""
    ids = loaded.tokenizer(text)["input_ids"]
    ids = ids if loaded.adds_bos or loaded.bos_id is None else [loaded.bos_id, *ids]
    with torch.inference_mode():
        logprobs = loaded.model(torch.tensor([ids])).logits[0, :-1].double().log_softmax(-1)
    mean = (logprobs.exp() * logprobs).sum(-1)
    variance = (logprobs.exp() * (logprobs - mean[:, None]) ** 2).sum(-1)
    return logprobs[range(len(ids) - 1), ids[1:]], mean, variance.sqrt()


@pytest.mark.parametrize(
    ("arch", "strategy"),
    [
        ("llama", "tree"),
        ("llama", "plain"),
        ("gpt2", "prefix"),
        ("gemma2", "plain"),
        ("granite", "plain"),
        ("mamba", "plain"),
    ],
)
def test_moments_equal_transformers(arch, strategy, low_limits):
    low_limits("inference.scoring.head", BLOCK_COLUMNS=37)  # several blocks, the last of them shorter
    loaded = tiny.load_model(arch)
    rows = score(loaded, requests("logprob_moments"), strategy=strategy)[0].to_pylist()
    for row, text in zip(rows, TEXTS, strict=True):
        logprobs, mean, deviation = reference(loaded, text)
        n = len(row["logprobs"]) - (row["logprobs"][0] is None)
        assert n == len(mean)
        for name, expected in zip(COLUMNS, (mean, deviation), strict=True):
            assert row[name][-n:] == pytest.approx(expected.tolist(), abs=1e-4)
            assert len(row[name]) == len(row["logprobs"])
        z = (np.array(row["logprobs"][-n:]) - row["logprob_mean"][-n:]) / row["logprob_sd"][-n:]
        assert z == pytest.approx(((logprobs - mean) / deviation).numpy(), abs=1e-4)


@pytest.mark.parametrize(("arch", "strategy"), [("llama", "tree"), ("gpt2", "prefix"), ("gemma2", "plain")])
def test_most_probable_tokens_equal_transformers(arch, strategy):
    loaded = tiny.load_model(arch)
    without = tiny.score_requests([(TEXTS[0], 0, 3)], item="other")
    mixed = pa.concat_tables([requests("top_token"), without])
    *rows, without = score(loaded, mixed, strategy=strategy)[0].to_pylist()
    assert without["top_tokens"] is None, "not requested"
    for row, text in zip(rows, TEXTS, strict=True):
        ids = loaded.tokenizer(text)["input_ids"]
        ids = ids if loaded.adds_bos or loaded.bos_id is None else [loaded.bos_id, *ids]
        with torch.inference_mode():
            expected = loaded.model(torch.tensor([ids])).logits[0, :-1].argmax(-1).tolist()
        n = len(expected)
        assert row["top_tokens"][-n:] == loaded.tokenizer.convert_ids_to_tokens(expected)
        is_greedy = [token == top for token, top in zip(row["tokens"], row["top_tokens"], strict=True)]
        assert is_greedy[-n:] == row["is_greedy"][-n:]


def test_first_token_without_a_predecessor_has_none():
    rows = score(tiny.load_model("gpt2", tokens="bare"), requests("logprob_moments"))[0].to_pylist()
    assert {(row[name][0], row["logprobs"][0]) for row in rows for name in COLUMNS} == {(None, None)}


def test_moments_of_extreme_distributions():
    logits = torch.zeros(5, 9)
    logits[1, 0] = 1e4  # certain
    logits[2, 4:] = -torch.inf  # uniform over four tokens
    logits[3, 1] = torch.nan
    logits[4] = torch.tensor([0.0, *[-12.0] * 8])
    mean, deviation = logprob_moments(logits, logits.amax(-1))
    assert mean[:3].tolist() == pytest.approx([-np.log(9), 0, -np.log(4)])
    assert deviation[:3].tolist() == [0, 0, 0]
    assert mean[3].isnan() & deviation[3].isnan()
    logprobs = logits[4].double().log_softmax(-1)
    expected = (logprobs.exp() * (logprobs - (logprobs.exp() * logprobs).sum()) ** 2).sum().sqrt()
    assert float(deviation[4]) == pytest.approx(float(expected), abs=1e-4)


class LargestTensor(TorchDispatchMode):
    """The largest number of elements of a tensor with a storage of its own that an operation returns."""

    n_elements = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        result = operation(*args, **(kwargs or {}))
        inputs = {a.untyped_storage().data_ptr() for a in args if isinstance(a, torch.Tensor)}
        for tensor in result if isinstance(result, tuple | list) else [result]:
            if isinstance(tensor, torch.Tensor) and tensor.untyped_storage().data_ptr() not in inputs:
                self.n_elements = max(self.n_elements, tensor.numel())
        return result


def test_no_second_array_of_the_vocabulary(low_limits):
    logits, n_columns = torch.randn(8, 50_000), 500
    low_limits("inference.scoring.head", BLOCK_COLUMNS=n_columns)
    before = logits.clone()
    maximum = logits.amax(-1)
    with LargestTensor() as largest:
        logprob_moments(logits, maximum)
    assert 0 < largest.n_elements <= 8 * n_columns < logits.numel() / 10
    assert logits.equal(before)


def test_other_outputs_do_not_change():
    loaded = tiny.load_model("llama")
    (plain, plain_run), (asked, asked_run) = (score(loaded, requests(*extras)) for extras in ((), ("logprob_moments",)))
    others = [name for name in plain.column_names if name not in ("request_id", *COLUMNS)]
    assert plain.select(others).equals(asked.select(others)), "bit for bit"
    for name in COLUMNS:
        assert plain[name].null_count == len(TEXTS)
        assert asked[name].null_count == 0
    for name in ("requests", "forwards", "tokens_computed", "tokens_trie"):
        assert plain_run["counters"][name] == asked_run["counters"][name] > 0


def test_masked_models_have_none():
    table, metadata = score(tiny.load_model("bert"), requests("logprob_moments"))
    plain, plain_metadata = score(tiny.load_model("bert"), requests())
    assert [value for name in COLUMNS for row in table[name].to_pylist() for value in row or ()] == [None] * (
        2 * sum(map(len, table["tokens"].to_pylist()))
    )
    assert table["logprobs"].equals(plain["logprobs"])
    assert metadata["engine"]["fallback"] == ["min_k_plus_plus: not defined by pseudo-log-likelihood"]
    assert plain_metadata["engine"]["fallback"] == []
