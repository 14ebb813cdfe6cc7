"""CUDA results compared with those of a CPU in float32.

Scores of each strategy, greedy texts, a model read from disk or shared among devices, adapters, and 8-bit weights.
"""

import pyarrow as pa
import pytest
import torch
from support import lora_training, tiny
from support.engines import generate, score
from vernacular.checkpoints.adapters import resolve_adapter
from vernacular.inference.journal import MemoryJournal
from vernacular.inference.model.adapter import use_adapter
from vernacular.inference.model.load import load
from vernacular.inference.model.loaded import wrap
from vernacular.protocols.schema import REQUESTS

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch found no CUDA device"),
]

SHOTS = "Question: Which animal sleeps on the roof?\nAnswer: the cat\n\n" * 4


def requests() -> pa.Table:
    texts = []
    for number in range(12):
        stem = f"Question: who sleeps in house {number}?\nAnswer:"
        for option in (" the cat", " the dog", " nobody", " A"):
            start = len(SHOTS) + len(stem)
            texts.append((SHOTS, stem + option, start, start + len(option)))
    texts += [(line, 0, len(line)) for line in tiny.LINES[:6]]
    return tiny.score_requests(texts, extras=["entropy", "rank"])


def on_cuda(arch: str, **options):
    """Return a tiny model on the GPU, with exact float32 products."""
    torch.backends.cuda.matmul.allow_tf32 = False
    cpu = tiny.load_model(arch, **options)
    return wrap(cpu.model.to("cuda"), cpu.tokenizer, cpu.record | {"device": "cuda"})


@pytest.mark.parametrize("strategy", ["tree", "prefix", "plain"])
@pytest.mark.parametrize("arch", ["llama", "gemma3", "gpt2"])
def test_scores_equal_those_of_a_cpu(arch, strategy):
    expected, _ = score(tiny.load_model(arch), requests(), strategy=strategy)
    table, metadata = score(on_cuda(arch), requests(), strategy=strategy)
    assert metadata["engine"]["strategy"] == strategy
    assert metadata["model"]["device"].startswith("cuda")
    for name in ("logprobs", "entropy"):
        values, reference = ([v for row in t[name].to_pylist() for v in row] for t in (table, expected))
        assert values == pytest.approx(reference, abs=1e-3)
    assert table["tokens"].equals(expected["tokens"])


@pytest.mark.parametrize("arch", ["llama", "gemma3"])
def test_greedy_texts_equal_those_of_a_cpu(arch):
    rows = [
        {**row, "kind": "generate", "extras": [], "span_start": None, "span_end": None, "max_new_tokens": 8, "stop": ["\n"]}
        for row in requests().to_pylist()
    ]  # fmt: skip
    table = pa.Table.from_pylist(rows, schema=REQUESTS.schema)
    expected, _ = generate(tiny.load_model(arch), table, journal=MemoryJournal())
    generations, _ = generate(on_cuda(arch), table, journal=MemoryJournal())
    assert generations["raw_output"].to_pylist() == expected["raw_output"].to_pylist()


def test_weights_are_read_to_the_device(tmp_path):
    record = tiny.save("llama", tmp_path) | {"device": "cuda"}
    loaded = load(record)
    assert {parameter.device.type for parameter in loaded.model.parameters()} == {"cuda"}
    expected, _ = score(tiny.load_model("llama"), requests())
    values, reference = (
        [v for row in t["logprobs"].to_pylist() for v in row] for t in (score(loaded, requests())[0], expected)
    )
    assert values == pytest.approx(reference, abs=1e-3)


def all_logprobs(loaded, **options) -> list[float]:
    table, _ = score(loaded, requests(), **options)
    return [value for row in table["logprobs"].to_pylist() for value in row]


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_weights_shared_among_devices_give_the_same_scores(tmp_path):
    record = tiny.save("llama", tmp_path) | {"device": "cuda"}
    loaded = load(record)
    assert loaded.model.hf_device_map
    assert all_logprobs(loaded) == pytest.approx(all_logprobs(tiny.load_model("llama")), abs=1e-3)


@pytest.mark.parametrize(
    "target_modules", [["q_proj", "v_proj"], ["embed_tokens", "lm_head"]], ids=["layers", "tokens"]
)
def test_adapters_give_the_scores_of_a_cpu_and_leave_their_base(tmp_path, target_modules):
    base = tiny.save("llama", tmp_path / "base") | {"name": "base", "source": str(tmp_path / "base")}
    lora_training.train(tmp_path / "base", tmp_path / "adapter", target_modules=target_modules)
    adapter = resolve_adapter("adapter", str(tmp_path / "adapter"), base)
    values = {}
    for device in ("cpu", "cuda"):
        loaded = load(base | {"device": device})
        base_logprobs = all_logprobs(loaded)
        with use_adapter(loaded, adapter | {"device": device}) as adapted:
            values[device] = all_logprobs(adapted)
        assert all_logprobs(loaded) == base_logprobs
        assert values[device] != pytest.approx(base_logprobs, abs=0.01)
    assert values["cuda"] == pytest.approx(values["cpu"], abs=1e-3)


def test_8bit_weights_give_the_same_scores_with_each_strategy(tmp_path):
    pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed")
    record = tiny.save("llama", tmp_path) | {"device": "cuda", "quantization": {"load_in_8bit": True}}
    loaded = load(record)
    expected = all_logprobs(tiny.load_model("llama"))
    plain = all_logprobs(loaded, strategy="plain")
    assert sum(abs(a - b) for a, b in zip(plain, expected, strict=True)) / len(plain) < 0.1
    for strategy in ("prefix", "tree"):
        values = all_logprobs(loaded, strategy=strategy)
        assert sum(abs(a - b) for a, b in zip(values, plain, strict=True)) / len(plain) < 0.05
