"""Requests to vLLM and the rows built from its outputs; a fake vLLM runs the tiny model greedily."""

import sys
from types import SimpleNamespace

import pyarrow as pa
import pytest
import torch
from support import tiny
from support.engines import generate, outputs
from vernacular.core.errors import ModelError
from vernacular.core.metadata import OutputsMetadata, decode
from vernacular.inference.generation import generate as generation
from vernacular.inference.generation.decode import end_token_ids
from vernacular.inference.job.store import Journal
from vernacular.inference.model.tokenization import decode_continuation
from vernacular.inference.schema import MemoryJournal
from vernacular.protocols.schema import REQUESTS


@pytest.fixture
def loaded():
    torch.set_num_threads(1)
    return tiny.load_model("gpt2")


@pytest.fixture
def engines(loaded, monkeypatch):
    """Return (options, submitted sampling parameters) of each engine started."""
    engines_started = []

    class LLM:
        def __init__(self, **options):
            self.submitted = []
            engines_started.append((options, self.submitted))

        def generate(self, prompts, parameters, *, use_tqdm):
            self.submitted += parameters
            return [
                self._generate_one(p["prompt_token_ids"], params) for p, params in zip(prompts, parameters, strict=True)
            ]

        def _generate_one(self, ids, params):
            new_ids, finish_reason = [], "length"
            while len(new_ids) < params.max_tokens and finish_reason == "length":
                token = int(loaded.model(torch.tensor([ids + new_ids])).logits[0, -1].argmax())
                new_ids.append(token)
                text = decode_continuation(loaded.tokenizer, ids, new_ids)
                if token in end_token_ids(loaded) or any(stop in text for stop in params.stop):
                    finish_reason = "stop"
            return SimpleNamespace(outputs=[SimpleNamespace(token_ids=new_ids, finish_reason=finish_reason)])

    fake_vllm = SimpleNamespace(LLM=LLM, SamplingParams=lambda **kwargs: SimpleNamespace(**kwargs), __version__="9.9")
    monkeypatch.setitem(sys.modules, "vllm", fake_vllm)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (60, 100))
    monkeypatch.setattr(generation, "_engines", {})
    return engines_started


def build_request(name, text, **content):
    empty_request = dict.fromkeys(REQUESTS.schema.names)
    content = {"prefix": "", "stop": [], "max_new_tokens": 6, **content}
    return (
        empty_request
        | {"request_id": name, "item_id": name, "role": "response", "kind": "generate", "text": text}
        | content
    )


def build_table(*rows):
    return pa.Table.from_pylist(list(rows), schema=REQUESTS.schema)


def test_rows_match_transformers_engine(loaded, engines):
    text = generate(loaded, build_table(build_request("a", "O gato")), journal=MemoryJournal())[0].to_pylist()[0][
        "raw_output"
    ]
    requests = build_table(
        build_request("a", "O gato"),
        build_request("b", "Jutros smo", stop=["\n", text[1:3]]),
        build_request("c", "O gato", stop=[text[2:4]]),
        build_request("a", "O gato") | {"item_id": "same words"},
        build_request("d", ""),
        build_request("e", "x", role="skipped: no question", kind="score"),
    )
    expected, _ = generate(loaded, requests, journal=MemoryJournal())
    rows, metadata = outputs(generation.VLLMGeneration(loaded, requests), MemoryJournal())
    assert rows.to_pylist() == expected.to_pylist()
    assert rows["finish_reason"].to_pylist()[2] == "stop"
    assert decode(OutputsMetadata, metadata).counters.requests == 6
    assert metadata["engine"] == {"name": "vllm", "version": "9.9"}
    assert (metadata["counters"]["requests"], metadata["counters"]["distinct"]) == (6, 4)
    [(options, submitted)] = engines
    assert (options["kv_cache_memory_bytes"], "gpu_memory_utilization" in options) == (2 << 30, False)
    assert (options["dtype"], options["model"]) == ("float32", str(loaded.record.directory))
    assert len(submitted) == 3  # equal requests once, empty prompts never


def test_engine_takes_the_free_memory_of_a_gpu(loaded, engines):
    device = torch.device("cuda")
    generation._engine(SimpleNamespace(record=loaded.record, device=device, dtype=loaded.dtype, max_length=None))
    [(options, _)] = engines
    assert options["gpu_memory_utilization"] == pytest.approx(0.54)  # 0.9 of the free fraction
    assert "kv_cache_memory_bytes" not in options


def test_engine_that_does_not_start_is_tried_once(loaded, monkeypatch):
    starts = []

    def start(**options):
        starts.append(options)
        raise RuntimeError("Engine core initialization failed. See root cause above.")

    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(LLM=start, __version__="9.9"))
    monkeypatch.setattr(generation, "_engines", {})
    for _ in range(2):
        with pytest.raises(ModelError, match=r"tiny-gpt2: vLLM 9.9 does not start \(RuntimeError: Engine core"):
            outputs(generation.VLLMGeneration(loaded, build_table(build_request("a", "O gato"))))
    assert len(starts) == 1


def test_end_token_is_no_part_of_the_text(loaded, engines):
    requests = build_table(build_request("a", "O gato"), build_request("b", "Jutros smo"))
    ids = loaded.tokenizer("O gato", return_tensors="pt")["input_ids"]
    loaded.model.generation_config.eos_token_id = [loaded.eos_id, int(loaded.model(ids).logits[0, -1].argmax())]
    expected = generate(loaded, requests)[0].to_pylist()
    assert (expected[0]["n_tokens"], expected[0]["finish_reason"]) == (0, "eos")
    assert outputs(generation.VLLMGeneration(loaded, requests))[0].to_pylist() == expected


@pytest.mark.parametrize("seed", [3, None])
def test_sampling_parameters_are_passed_with_seed_per_request(loaded, engines, seed):
    sampled = {"temperature": 0.5, "top_k": 7, "top_p": None, "repetition_penalty": 1.25, "seed": seed}
    requests = build_table(
        build_request("a", "O gato", decoding=sampled),
        build_request("b", "Jutros", decoding=sampled),
        build_request("c", "smo"),
    )
    outputs(generation.VLLMGeneration(loaded, requests), MemoryJournal())
    [(_, submitted)] = engines
    sampling_settings = {
        (params.temperature, params.top_k, params.top_p, params.repetition_penalty) for params in submitted
    }
    assert sampling_settings == {(0.5, 7, 1.0, 1.25), (0.0, -1, 1.0, 1.0)}
    seeds = [params.seed for params in submitted if params.temperature]
    assert (len(set(seeds)), None in seeds) == (2, False)
    assert [params.seed for params in submitted if not params.temperature] == [None]


def test_journaled_requests_are_not_regenerated(loaded, engines, tmp_path):
    requests = build_table(build_request("a", "O gato"), build_request("b", "Jutros smo"))
    first_table, _ = outputs(generation.VLLMGeneration(loaded, requests), Journal(tmp_path / "journal", seconds=0))
    second, _ = outputs(generation.VLLMGeneration(loaded, requests), Journal(tmp_path / "journal"))
    assert second.to_pylist() == first_table.to_pylist()
    [(_, submitted)] = engines  # one engine for both runs
    assert len(submitted) == 2


def test_failed_engine_is_not_used_again(loaded, engines, monkeypatch):
    requests = build_table(build_request("a", "O gato"))
    first = generation.VLLMGeneration(loaded, requests)
    engine, _ = generation._engine(loaded)
    monkeypatch.setattr(engine, "generate", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        outputs(first)
    assert outputs(generation.VLLMGeneration(loaded, requests))[0]["finish_reason"].to_pylist() == ["length"]
    assert len(engines) == 2
