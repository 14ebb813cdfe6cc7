"""CUDA results compared with those of a CPU in float32: scores of each strategy, generation, and a model read from disk."""

import pyarrow as pa
import pytest
import torch
from support import tiny
from vernacular.inference.generation.generate import generate
from vernacular.inference.journal import MemoryJournal
from vernacular.inference.model.load import load
from vernacular.inference.model.loaded import wrap
from vernacular.inference.scoring.score import score
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
