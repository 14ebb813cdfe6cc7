"""A real vLLM, as a server and as an engine: values and texts against those of the local model."""

import json

import pyarrow as pa
import pytest
import transformers as tf
from support import served, tiny, vllm_server
from support.engines import generate, outputs, score
from vernacular.checkpoints.resolve import resolve
from vernacular.core.model_record import Forms
from vernacular.inference.generation.generate import VLLMGeneration
from vernacular.inference.model.load import load
from vernacular.inference.server.served import open_server
from vernacular.protocols.schema import REQUESTS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(vllm_server.PYTHON is None, reason="VLLM_PYTHON is not set, and this Python cannot import vLLM"),
]

QUESTION = "Question: Which animal sleeps on the roof?\nA. the dog\nB. the cat\nC. the horse\nD. the bird\nAnswer:"
ARABIC, GEORGIAN = "أكلت القطة السمك في المطبخ هذا الصباح.", "დღეს დილით ბაზარში წავედით."
TEXTS = [
    *[(QUESTION + label, len(QUESTION), len(QUESTION) + 2) for label in (" A", " B", " C", " D")],
    (GEORGIAN, 0, len(GEORGIAN)),
    (ARABIC, 5, len(ARABIC)),
    ("O gato dorme no tellado e a cadela ladra na rúa.", 43, 47),
]
COMPARED = ("request_id", "tokens", "offsets", "is_greedy", "n_prompt_tokens", "flags")
SAMPLING = {"temperature": 0.8, "top_k": 20, "top_p": 0.9, "min_p": 0.02, "repetition_penalty": 1.1}


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """A trained model with heads of a size that vLLM has on CPUs, whose settings ask for sampling."""
    directory = tmp_path_factory.mktemp("model")
    with pytest.MonkeyPatch.context() as patch:
        sizes = {"hidden_size": 64, "num_attention_heads": 2, "num_hidden_layers": 2, "max_position_embeddings": 512}
        patch.setitem(tiny.CONFIGS, "wide", lambda v: tf.LlamaConfig(vocab_size=v, intermediate_size=96, **sizes))
        trained = served.trained_model(arch="wide")
    trained.model.save_pretrained(directory)
    trained.tokenizer.save_pretrained(directory)
    path = directory / "generation_config.json"
    path.write_text(
        json.dumps(json.loads(path.read_text()) | {"do_sample": True, "repetition_penalty": 1.5, "top_k": 5})
    )
    return directory


@pytest.fixture(scope="module")
def local(directory, tmp_path_factory):
    record = resolve("local", str(directory), tmp_path_factory.mktemp("converted"))
    return load(record | {"dtype": "float32", "device": "cpu"})


@pytest.fixture(scope="module")
def remote(directory, local, tmp_path_factory):
    with vllm_server.VLLMServer(directory, "--max-model-len", "512") as server:
        yield open_server(served.record(server, tmp_path_factory.mktemp("record"), tokenizer=local))


def continuations(*texts: str, **fields) -> pa.Table:
    rows = [
        {"request_id": f"r{i}", "item_id": f"i{i}", "role": "response", "kind": "generate", "prefix": "", "text": text,
         "max_new_tokens": 8, "stop": ["\n", " t"]} | fields
        for i, text in enumerate(texts)
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, schema=REQUESTS.schema)


PROMPTS = ("The keys to the", "O gato dorme no", GEORGIAN[:8], ARABIC[:10], "")


def test_probe_passes_all_checks(remote):
    server = remote.record.server
    assert server.forms == Forms(generation="ids", spans="prompt_logprobs", labels="logprob_token_ids", chat=False)
    assert all(check["passed"] for check in server.checks)
    seen = {check["check"]: check["seen"] for check in server.checks}
    assert (seen[14], seen[15]) == ("513 tokens refused (HTTP 400)", "greedy texts repeat, the seed repeats")


def test_values_of_the_server_are_those_of_the_local_model(remote, local):
    requests = tiny.score_requests(TEXTS)
    expected, actual = (score(model, requests)[0].to_pylist() for model in (local, remote))
    assert [[row[name] for name in COMPARED] for row in actual] == [
        [row[name] for name in COMPARED] for row in expected
    ]
    for row, expected_row in zip(actual, expected, strict=True):
        assert row["logprobs"] == pytest.approx(expected_row["logprobs"], abs=1e-4)


def test_texts_of_the_server_are_those_of_the_local_model(remote, local):
    """The server would sample by the settings of the model."""
    expected, actual = (generate(model, continuations(*PROMPTS))[0].to_pylist() for model in (local, remote))
    for name in ("output", "finish_reason", "n_prompt_tokens", "flags"):
        assert [row[name] for row in actual] == [row[name] for row in expected], name


def test_samples_of_the_server_repeat_with_the_request(remote):
    requests = continuations(*["O gato dorme no tellado."] * 4, gen_kwargs=SAMPLING)
    texts = [generate(remote, part)[0]["raw_output"].to_pylist() for part in (requests, requests.slice(2))]
    assert len(set(texts[0])) > 1
    assert texts[0][2:] == texts[1]


def test_texts_of_the_engine_are_those_of_transformers(local):
    pytest.importorskip("vllm", exc_type=ImportError)
    penalty = {"temperature": 0.0, "top_k": None, "top_p": None, "repetition_penalty": 1.3, "seed": None}
    for fields in ({}, {"stop": [], "max_new_tokens": 30}, {"decoding": penalty}):
        requests = continuations(*PROMPTS, **fields)
        expected, _ = generate(local, requests)
        assert outputs(VLLMGeneration(local, requests))[0].to_pylist() == expected.to_pylist()
    requests = continuations(*["O gato dorme no tellado."] * 4, gen_kwargs=SAMPLING)
    parts = (requests, requests.slice(2))
    texts = [outputs(VLLMGeneration(local, part))[0]["raw_output"].to_pylist() for part in parts]
    assert len(set(texts[0])) > 1
    assert texts[0][2:] == texts[1]
