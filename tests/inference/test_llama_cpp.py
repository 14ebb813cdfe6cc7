"""A real llama.cpp server: values against the local model, its own tokenizer, Georgian and Arabic, kill and restart."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pyarrow as pa
import pytest

pytest.importorskip("xllamacpp", exc_type=ImportError)

from support import llama, served, tiny
from support.engines import generate, score
from support.engines import generate as generate_locally
from support.engines import score as score_locally
from vernacular.core.errors import ServerError
from vernacular.core.model_record import Forms, ModelRecord
from vernacular.inference.job.run import run_group
from vernacular.inference.job.store import Store
from vernacular.inference.schema import MemoryJournal
from vernacular.inference.server.probe import differences, probe
from vernacular.inference.server.served import connect, open_server
from vernacular.protocols.schema import REQUESTS

QUESTION = "Question: Which animal sleeps on the roof?\nA. the dog\nB. the cat\nC. the horse\nD. the bird\nAnswer:"
ARABIC = "أكلت القطة السمك في المطبخ هذا الصباح."
GEORGIAN = "დღეს დილით ბაზარში წავედით."
TEXTS = [
    *[(QUESTION + label, len(QUESTION), len(QUESTION) + 2) for label in (" A", " B", " C", " D")],
    (GEORGIAN, 0, len(GEORGIAN)),
    (GEORGIAN, 11, 18),
    (ARABIC, 5, len(ARABIC)),
    ("O gato dorme no tellado e a cadela ladra na rúa.", 43, 47),
    ("Ela canta. 🙂", 0, 12),
]
COMPARED = ("request_id", "tokens", "offsets", "is_greedy", "n_prompt_tokens", "flags")


@pytest.fixture(autouse=True)
def short_waits(low_limits):
    low_limits("inference.server.client", FIRST_WAIT=0.01)


@pytest.fixture(scope="module")
def gguf(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    llama.write_gguf(model, path)
    return path


@pytest.fixture(scope="module")
def server(gguf):
    with llama.LlamaServer(gguf, float32=True) as server:
        yield server


@pytest.fixture(scope="module")
def local_record(server, model, tmp_path_factory):
    return served.record(server, tmp_path_factory.mktemp("model"), tokenizer=model, concurrency=1)


@pytest.fixture(scope="module", params=["local", "server"])
def record(request, server, local_record, tmp_path_factory):
    """The record with the local tokenizer, and with the server's."""
    is_local = request.param == "local"
    record = local_record if is_local else served.record(server, tmp_path_factory.mktemp("model"), concurrency=1)
    assert record.server.tokenizer == request.param
    return record


def test_probe_selects_forced_tokens_because_echo_is_ignored(record):
    checks = {(check["form"], check["check"]): check for check in record.server.checks}
    assert record.server.forms == Forms(generation="native", chat=True, spans="forcing", labels="forcing")
    assert not checks["echo", 3]["passed"]
    assert not checks["prompt_logprobs", 3]["passed"]
    assert all(check["passed"] for (form, _), check in checks.items() if form == "forcing")
    assert checks["forcing", 14]["seen"] == "513 tokens refused (HTTP 400)"


def test_values_of_a_float32_file_are_those_of_the_local_model(record, model):
    requests = tiny.score_requests(TEXTS)
    expected, actual = (
        score_locally(model, requests)[0].to_pylist(),
        score(open_server(record), requests)[0].to_pylist(),
    )
    same = COMPARED if record.server.tokenizer == "local" else COMPARED[2:]  # the server names tokens by their text
    assert [[row[name] for name in same] for row in actual] == [[row[name] for name in same] for row in expected]
    for row, expected_row in zip(actual, expected, strict=True):
        assert row["logprobs"] == pytest.approx(expected_row["logprobs"], abs=0.01)
    assert any(len(row["logprobs"]) > 5 for row in actual)


def test_texts_are_those_of_the_local_model(record, model):
    rows = [
        {"request_id": f"r{i}", "item_id": f"i{i}", "role": "response", "kind": "generate", "prefix": "", "text": text,
         "max_new_tokens": 8, "stop": ["\n", " t"]}
        for i, text in enumerate(["The keys to the", "O gato dorme no", GEORGIAN[:8], ARABIC[:10]])
    ]  # fmt: skip
    requests = pa.Table.from_pylist(rows, schema=REQUESTS.schema)
    expected = generate_locally(model, requests, journal=MemoryJournal())[0].to_pylist()
    actual = generate(open_server(record), requests, journal=MemoryJournal())[0].to_pylist()
    for name in ("output", "finish_reason", "n_prompt_tokens", "flags"):
        assert [row[name] for row in actual] == [row[name] for row in expected], name


def test_server_killed_in_the_middle_and_restarted_on_its_port(gguf, local_record, tmp_path):
    path = tiny.write_requests(tmp_path / "e.parquet", tiny.score_requests(TEXTS))
    with llama.LlamaServer(gguf, float32=True) as first:
        record = local_record | {"source": first.source}
        port = first.port
        remote = open_server(record, attempts=2)
        journal = llama.Killing(first, after=3)
        with pytest.raises(ServerError, match="no answer after 2 attempts"):
            score(remote, tiny.score_requests(TEXTS), journal=journal)
    n_finished = len(journal.rows)
    assert n_finished >= 3
    with llama.LlamaServer(gguf, port=port, float32=True):
        remote = open_server(record)
        table, metadata = score(remote, tiny.score_requests(TEXTS), journal=journal)
        whole, whole_metadata = score(remote, tiny.score_requests(TEXTS))
        assert run_group([record], {"e": path}, tmp_path / "store")[1] == {"big": {}}
    assert [row["flags"] for row in table.to_pylist()] == [row["flags"] for row in whole.to_pylist()]
    assert metadata["counters"]["server"]["requests"] < whole_metadata["counters"]["server"]["requests"]
    assert len(journal.rows) == whole_metadata["counters"]["calls"]
    assert list(Store(tmp_path / "store").root.glob("scores/*/*.parquet"))


def test_a_trial_asks_a_fraction_of_the_requests_and_the_full_probe_confirms_its_identity(server, model):
    """The full probe has about a thousand requests, one per token, before the first value."""
    found, requests = {}, {}
    for trial in (False, True):
        client = connect(ModelRecord(name="m", source=server.source, concurrency=1), attempts=2)
        record = ModelRecord(name="m", source=server.source, concurrency=1)
        found[trial] = probe(record, client, model.tokenizer, trial=trial)
        requests[trial] = client.usage.requests
        client.close()
    assert requests[True] < requests[False] / 3, requests
    assert found[True].trial
    assert not found[False].trial
    assert found[True].forms == found[False].forms
    assert found[True].forms.spans == "forcing"
    assert differences(found[True], found[False]) is None
