"""CUDA results compared with those of a CPU in float32.

Scores of each strategy and architecture, greedy and sampled texts, a whole job, a model read from disk or shared among
devices, adapters, 16-bit and 8-bit weights, exhausted memory, and embeddings of an encoder.
"""

import pyarrow as pa
import pytest
import torch
from support import lora_training, reasoning, sample_items, similarity_encoders, tiny
from support.engines import generate, score
from transformers import AutoModel
from vernacular.checkpoints.adapters import resolve_adapter
from vernacular.core import artifacts
from vernacular.inference.job.run import COMPUTED, run_group
from vernacular.inference.model.load import load, use_adapter
from vernacular.inference.model.loaded import wrap
from vernacular.inference.schema import SCORES, MemoryJournal
from vernacular.metrics.similarity.encoder import TokenEncoder
from vernacular.protocols.build import build
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


@pytest.mark.parametrize("arch", sorted(tiny.CONFIGS))
def test_scores_of_each_architecture_equal_those_of_a_cpu(arch):
    expected, expected_metadata = score(tiny.load_model(arch), requests())
    table, metadata = score(on_cuda(arch), requests())
    assert metadata["engine"]["strategy"] == expected_metadata["engine"]["strategy"]
    values, reference = ([v for row in t["logprobs"].to_pylist() for v in row] for t in (table, expected))
    assert values == pytest.approx(reference, abs=1e-3)


@pytest.mark.parametrize("arch", ["llama", "gemma2", "gpt2", "mistral"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_strategies_in_16_bits_agree(arch, dtype):
    expected = all_logprobs(tiny.load_model(arch))
    loaded = on_cuda(arch, dtype=str(dtype).removeprefix("torch."))
    loaded.model.to(dtype)
    for strategy in ("plain", "prefix", "tree"):
        values = all_logprobs(loaded, strategy=strategy)
        assert sum(abs(a - b) for a, b in zip(values, expected, strict=True)) / len(values) < 0.1


def test_a_job_on_a_gpu_stores_the_outputs_of_a_cpu(tmp_path):
    texts = {name: [f"{name}{i} {line}" for i, line in enumerate(tiny.LINES[:9])] for name in "abc"}
    record, paths = tiny.job(tmp_path, texts, max_batch_tokens=128)
    tables = {}
    for device, overlaps in (("cpu", False), ("cuda", False), ("cuda", True)):
        store = tmp_path / f"{device}-{overlaps}"
        assert run_group([record | {"device": device}], paths, store, overlaps=overlaps)[0] == {
            "m": dict.fromkeys("abc", COMPUTED)
        }
        files = {
            artifacts.metadata(path, SCORES, allow_moved=True).fingerprint: path for path in store.rglob("*.parquet")
        }
        tables[device, overlaps] = {key: artifacts.read(path, SCORES, allow_moved=True) for key, path in files.items()}
    assert len(tables["cpu", False]) == 3
    for key, expected in tables["cpu", False].items():
        for overlaps in (False, True):
            table = tables["cuda", overlaps][key]
            values, reference = ([v for row in t["logprobs"].to_pylist() for v in row] for t in (table, expected))
            assert values == pytest.approx(reference, abs=1e-3)
        assert tables["cuda", True][key].equals(tables["cuda", False][key])


def test_exhausted_memory_of_a_gpu_makes_batches_smaller():
    texts = [(f"{number} " + " ".join(tiny.LINES[:9]), 0, 400) for number in range(300)]
    expected, _ = score(tiny.load_model("llama"), tiny.score_requests(texts[:8]))
    loaded = on_cuda("llama", max_batch_tokens=1 << 20)
    score(loaded, tiny.score_requests(texts[:8]))  # allocates what every computation needs
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(loaded.device).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + (96 << 20)) / total)
    try:
        table, metadata = score(loaded, tiny.score_requests(texts), strategy="plain")
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert metadata["counters"]["budget"] < 1 << 20
    assert not [flag for flag in table["flags"].to_pylist() if flag and flag.startswith("error")]
    values, reference = ([v for row in t["logprobs"].to_pylist() for v in row] for t in (table.slice(0, 8), expected))
    assert values == pytest.approx(reference, abs=1e-3)


def test_embeddings_equal_those_of_a_cpu(tmp_path):
    directory = similarity_encoders.bert(tmp_path)
    encoder = TokenEncoder(similarity_encoders.record(directory))
    assert encoder.device == "cuda"
    rows = [tokens.ids for tokens in encoder.tokenize(similarity_encoders.LINES)]
    model = AutoModel.from_pretrained(directory).eval()
    for ids, states in zip(rows, encoder.embed(rows, (0, 2, 3)), strict=True):
        with torch.inference_mode():
            expected = model(input_ids=torch.tensor([ids]), output_hidden_states=True).hidden_states
        for layer, values in states.items():
            assert values == pytest.approx(expected[layer][0].numpy(), abs=1e-4)


def test_samples_equal_those_of_a_cpu():
    task = {"task": "t", "item_type": "question", "protocols": ["generation"]}
    items = [sample_items.item("a", question="Que animal durme?", choices=["o gato", "o can"], gold=[0])]
    gen_kwargs = {"temperature": 0.7, "top_p": 0.9, "top_k": 50, "repetition_penalty": 1.2, "max_gen_toks": 12}
    options = {"repeats": 40, "gen_kwargs": gen_kwargs}
    settings = {"language": "gl", "shots": 0, "seed": 0, "style": "default"}
    table = reasoning.table(*build(items, task, protocol="generation", options=options, **settings)[0])
    texts = [
        generate(loaded, table, journal=MemoryJournal())[0]["raw_output"].to_pylist()
        for loaded in (tiny.load_model("llama"), on_cuda("llama"), on_cuda("llama"))
    ]
    assert len(set(texts[0])) > 20
    assert texts[1] == texts[2]
    assert sum(a == b for a, b in zip(texts[0], texts[1], strict=True)) >= 39  # float noise may move one draw


@pytest.mark.parametrize("arch", ["llama", "gemma2", "gemma3", "gpt2", "bloom", "opt", "mamba", "gpt_neo"])
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
    pytest.importorskip("bitsandbytes", exc_type=ImportError)
    record = tiny.save("llama", tmp_path) | {"device": "cuda", "quantization": {"load_in_8bit": True}}
    loaded = load(record)
    expected = all_logprobs(tiny.load_model("llama"))
    plain = all_logprobs(loaded, strategy="plain")
    assert sum(abs(a - b) for a, b in zip(plain, expected, strict=True)) / len(plain) < 0.1
    for strategy in ("prefix", "tree"):
        assert all_logprobs(loaded, strategy=strategy) == plain
