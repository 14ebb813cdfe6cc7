"""Hosted servers that answer chats only, refuse fields that they do not know, and return no log-probabilities."""

import pyarrow as pa
import pytest
from support import served
from support.engines import generate
from vernacular.core.errors import ServerError
from vernacular.core.model_record import Forms
from vernacular.inference.schema import MemoryJournal
from vernacular.inference.server.client import Client, RefusedError
from vernacular.inference.server.served import open_server
from vernacular.protocols.schema import REQUESTS


def requests(**fields) -> pa.Table:
    rows = [
        {"request_id": f"r{i}", "item_id": f"i{i}", "role": "response", "kind": "generate", "prefix": "", "text": text,
         "messages": [{"role": "user", "content": text}], "max_new_tokens": 8, "stop": ["\n"], **fields}
        for i, text in enumerate(["O gato dorme no", "დღეს დილით", "أكلت القطة"])
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, schema=REQUESTS.schema)


def test_strict_server_generates_with_the_fields_that_it_accepts(model, tmp_path, monkeypatch):
    monkeypatch.setenv("BIG_KEY", served.KEY)
    with served.Server(model, "strict", key=served.KEY) as server:
        record = served.record(server, tmp_path, api_key_env="BIG_KEY")
        assert record.server.forms == Forms(generation="chat", chat=True)
        assert record.server.fields == {"temperature": 0.0}
        assert record.server.limit == "max_completion_tokens"
        [generated] = [check for check in record.server.checks if check["name"] == "stop and seed"]
        assert (generated["form"], generated["passed"]) == ("chat", True)
        table, metadata = generate(open_server(record), requests(), journal=MemoryJournal())
    assert metadata["engine"]["fallback"] == []
    for row, request in zip(table.to_pylist(), requests().to_pylist(), strict=True):
        assert row["flags"] is None
        expected = server.generate(server.encode(request["text"]), 8, 0, 0, [])[0]
        assert row["raw_output"] == model.tokenizer.decode(expected, skip_special_tokens=True)
        assert row["rendered"] == "chat template applied by the server"


def test_what_a_strict_server_cannot_answer_is_stated(model, tmp_path):
    with served.Server(model, "strict") as server:
        reasons = served.record(server, tmp_path).server.reasons
    assert reasons == {
        "spans": "log-probabilities of a text are not available: the server answers chats only",
        "labels": "the server answers chats only; set chat: true to score letters as the answer of a chat",
    }
    with served.Server(model, "strict") as server:
        reasons = served.record(server, tmp_path, chat=True).server.reasons
    assert reasons["labels"] == "the server returns no log-probabilities of the next token"


def test_temperature_that_the_server_does_not_accept_is_noted_or_refused(model, tmp_path):
    with served.Server(model, "strict", accepted=()) as server:
        record = served.record(server, tmp_path)
        assert record.server.fields == {}
        _, metadata = generate(open_server(record), requests(), journal=MemoryJournal())
        assert metadata["engine"]["fallback"] == ["temperature: not accepted by the server, which uses its own"]
        sampled = requests(decoding={"temperature": 0.5, "top_k": 40, "seed": 3})
        table, _ = generate(open_server(record), sampled, journal=MemoryJournal())
    assert set(table["flags"].to_pylist()) == {"error: the server does not accept temperature, top_k"}
    assert table["raw_output"].null_count == table.num_rows


def web_page(server, original, method, path, body):
    """Answer with the page of a web application wherever there is no endpoint."""
    try:
        return original(method, path, body)
    except served.Refusal as error:
        if error.status != 403:
            raise
        return served.WEB_PAGE


def test_web_pages_instead_of_endpoints_are_not_repeated(model, tmp_path):
    with served.Server(model, "strict", lie={"answer": web_page}) as server:
        record = served.record(server, tmp_path)
        assert record.server.forms.generation == "chat"
        client = Client(server.source, attempts=5)
        received = server.received
        with pytest.raises(RefusedError, match="a web page instead of JSON"):
            client.get("/version", root=True)
        assert server.received == received + 1


def test_wrong_key_is_denied_although_other_endpoints_may_be_forbidden(model, tmp_path):
    with served.Server(model, "strict", key="sk-other") as server:
        client = Client(server.source, key=served.KEY, key_name="BIG_KEY", attempts=1)
        with pytest.raises(RefusedError, match="HTTP 401"):
            client.get("/version", root=True)
        with pytest.raises(ServerError, match="denied access"):
            client.post("/chat/completions", {})
        assert "denied access" in served.record(server, tmp_path).unavailable
