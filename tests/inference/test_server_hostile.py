"""Servers whose answers are malformed, endless, about another model or another prompt, or repeat the key."""

import base64
import copy
import itertools
import json
import math
import random
import re
import time
import urllib.parse
from dataclasses import replace
from types import SimpleNamespace

import pyarrow as pa
import pytest
from support import served, tiny
from support.engines import generate, score
from vernacular.core.errors import ModelError, ServerError
from vernacular.core.model_record import ModelRecord
from vernacular.inference.engine import Server
from vernacular.inference.schema import MemoryJournal
from vernacular.inference.server.client import Client, response_limits
from vernacular.inference.server.probe import differences, probe
from vernacular.inference.server.served import connect, open_server
from vernacular.inference.server.start import longest_prompt
from vernacular.protocols.schema import REQUESTS

PROMPTS = ["O gato dorme no", "The capital of Italy", "A choiva cae"]
TEXTS = [(f"O gato {i:02} dorme no tellado.", 10, 28) for i in range(3)]


@pytest.fixture(autouse=True)
def short_waits(low_limits):
    low_limits("inference.server.client", FIRST_WAIT=0.0)


def requests(prompts=PROMPTS, **fields) -> pa.Table:
    rows = [
        {"request_id": f"r{i}", "item_id": f"i{i}", "role": "response", "kind": "generate", "prefix": "", "text": text,
         "messages": [{"role": "user", "content": text}], "max_new_tokens": 8, "stop": ["\n"], **fields}
        for i, text in enumerate(prompts)
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, schema=REQUESTS.schema)


class Honest:
    """The record of an honest server of one form, and its rows."""

    def __init__(self, model, form, directory):
        self.form = form
        tokenizer = model if form in ("vllm", "sglang", "echo") else None
        with served.Server(model, form) as server:
            self.record = served.record(server, directory, tokenizer=tokenizer)
            assert self.record.unavailable is None, self.record
            self.generated = self.generate(server)
            self.scored = self.score(server) if tokenizer else []

    def open(self, server, attempts=2, **settings):
        return open_server(self.record | {"source": server.source, **settings}, attempts=attempts)

    def generate(self, server, journal=None, prompts=PROMPTS, **settings):
        remote = self.open(server, **settings)
        try:
            table, self.metadata = generate(remote, requests(prompts), journal=journal or MemoryJournal())
        finally:
            remote.client.close()
        return table.to_pylist()

    def score(self, server, journal=None, **settings):
        remote = self.open(server, **settings)
        try:
            table, self.metadata = score(remote, tiny.score_requests(TEXTS), journal=journal or MemoryJournal())
        finally:
            remote.client.close()
        return table.to_pylist()


@pytest.fixture(scope="module")
def honest(model, tmp_path_factory):
    records = {}

    def of(form: str) -> Honest:
        if form not in records:
            records[form] = Honest(model, form, tmp_path_factory.mktemp(form))
        return records[form]

    return of


def changes(change):
    """Return a lie that changes the answers to one prompt."""

    def lie(server, original, body):
        content = original(body)
        prompt = json.dumps(body.get("messages") or server.loaded.tokenizer.decode(body["prompt"]))
        return change(content) or content if "Italy" in prompt or " 01 " in prompt else content

    return lie


def put(*keys_and_value):
    """Return a change that replaces one value of an answer."""
    *keys, last, value = keys_and_value

    def change(content):
        for key in keys:
            content = content[key]
        content[last] = value

    return change


MALFORMED = {
    "surrogate": put("choices", 0, "message", "content", "a\ud800b"),
    "text is a list": put("choices", 0, "message", "content", [{"text": "a"}]),
    "many": put("usage", "completion_tokens", "many"),
    "nan": put("usage", "completion_tokens", math.nan),
    "huge": put("usage", "completion_tokens", 2**70),
    "boolean": put("usage", "prompt_tokens", True),
    "negative": put("usage", "completion_tokens", -1),
    "usage is a list": put("usage", [1]),
    "reason is an object": put("choices", 0, "finish_reason", {"a": 1}),
    "no choices": put("choices", []),
    "null choices": put("choices", None),
    "two choices": lambda content: content["choices"].append(content["choices"][0]),
    "a list": lambda content: [content],
    "model is a number": put("model", 7),
}


@pytest.mark.parametrize("change", MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_answer_is_refused_when_it_arrives_and_asked_again_later(model, honest, change):
    honest, journal = honest("chat"), MemoryJournal()
    with (
        served.Server(model, "chat", lie={"chat": changes(change)}) as server,
        pytest.raises(ModelError, match=r"^model big: item i1: no valid answer from the server: ") as raised,
    ):
        honest.generate(server, journal, concurrency=1)
    assert "\n" not in str(raised.value)
    with served.Server(model, "chat") as server:
        assert honest.generate(server, journal) == honest.generated


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (put("choices", 0, "finish_reason", 7), "no valid answer from the server: expected a finish reason, got 7."),
        (put("choices", 0, "prompt_logprobs", 1, None), "the server fails check 4 (boundary), which it passed at the start: "),
    ],
)  # fmt: skip
def test_item_of_a_malformed_score_is_named(model, honest, change, problem):
    with (
        served.Server(model, lie={"completions": changes(change)}) as server,
        pytest.raises(ModelError, match=f"^model big: item i1: {re.escape(problem)}"),
    ):
        honest("vllm").score(server)


def deep(content):
    return served.Raw([b"[" * 200_000])


def broken_gzip(content):
    return served.Raw([b"xx"], {"Content-Encoding": "gzip"})


def bomb(content):
    import gzip

    return served.Raw([gzip.compress(b" " * 2**26)], {"Content-Encoding": "gzip"})


def unknown_charset(content):
    return served.Raw([json.dumps(content).encode()], {"Content-Type": "application/json; charset=x-unknown"})


def not_utf8(content):
    return served.Raw([b'{"choices": "\xff"}'])


def endless(content):
    return served.Raw(itertools.repeat(b" " * 2**16))


UNREADABLE = [deep, broken_gzip, bomb, unknown_charset, not_utf8, endless]


@pytest.mark.parametrize("change", UNREADABLE, ids=lambda change: change.__name__)
def test_unreadable_answer_is_repeated_and_concerns_its_evaluation_only(model, honest, change):
    honest, left = honest("chat"), [1]
    once = changes(lambda content: change(content) if left and left.pop() else None)
    with served.Server(model, "chat", lie={"chat": once}) as server:
        assert honest.generate(server) == honest.generated
        assert honest.metadata["counters"]["server"]["retries"] == 1
    with (
        served.Server(model, "chat", lie={"chat": changes(change)}) as server,
        pytest.raises(ModelError, match="also after 2 attempts") as raised,
    ):
        honest.generate(server)
    assert not isinstance(raised.value, ServerError), "others would not be asked"


def trickle(content):
    def chunks():
        for _ in range(400):
            time.sleep(0.05)
            yield b" "

    return served.Raw(chunks())


def test_answer_that_arrives_byte_by_byte_ends(model, honest):
    honest = honest("chat")
    with (
        served.Server(model, "chat", lie={"chat": changes(trickle)}) as server,
        pytest.raises(ServerError, match="the response is not complete after 3 seconds"),
    ):
        honest.generate(server, attempts=1, timeout=1)


def test_headers_that_arrive_byte_by_byte_end():
    import socket
    import threading

    with socket.create_server(("127.0.0.1", 0)) as listener:
        ended = threading.Event()

        def serve():
            connection, _ = listener.accept()
            with connection:
                try:
                    for byte in b"HTTP/1.1 200 OK\r\nX: " + b"a" * 1000:
                        connection.sendall(bytes([byte]))
                        if ended.wait(0.05):
                            break
                except OSError:
                    pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        client = Client(f"http://127.0.0.1:{listener.getsockname()[1]}/v1", attempts=1, timeout=1)
        with pytest.raises(ServerError, match="the response is not complete after 1 seconds"):
            client.get("/models")
        client.close()
        ended.set()
        thread.join()


def test_limits_grow_with_the_tokens_that_are_asked_for():
    short, long = (response_limits({"max_tokens": n}, 600) for n in (16, 32_000))
    assert short[0] < 700
    assert long[0] > 8_000
    assert short[1] < 2**25
    assert response_limits({"n_predict": 1, "n_probs": 260_000}, 600)[1] > 100_000_000


# ----- the key -------------------------------------------------------------------------------------------------------


def spellings(key: str) -> list[str]:
    quoted = "".join(f"%{ord(character):02X}" for character in key)
    escaped = "".join(f"\\u{ord(character):04x}" for character in key)
    encoded = [base64.b64encode((prefix + key).encode()).decode() for prefix in ("", "Bearer ", "u:", "me:")]
    encoded += [base64.urlsafe_b64encode((prefix + key + "??>").encode()).decode() for prefix in ("a", "ab", "abc")]
    encoded += [json.dumps(key), escaped, quoted, urllib.parse.quote(key, safe=""), key.encode().hex()]
    return [key, f"Bearer {key}", *encoded]


def leaked(text: str, key: str) -> bool:
    """Return whether a text contains the key or half of its base64."""
    cores = [base64.b64encode(b"\0" * i + key.encode()).decode()[4:-4] for i in range(3)]
    cores += [core.replace("+", "-").replace("/", "_") for core in cores]
    return any(part in text or part in urllib.parse.unquote(text) for part in [key, key.encode().hex(), *cores])


@pytest.mark.parametrize("key", ["sk-right+and/secret?1", "sk~kéy".encode("ascii", "replace").decode() + '"\\<&x'])
def test_key_is_removed_from_everything_that_the_server_says(model, key, tmp_path, monkeypatch, caplog, capsys):
    monkeypatch.setenv("LLM_AUTH", key)
    caplog.set_level("INFO")
    texts, is_late = spellings(key), []

    def answer(server, original, method, path, body):
        content = {"version": "engine " + " ".join(texts)} if path == "/version" else original(method, path, body)
        if path == "/v1/models":
            content["data"][0]["owned_by"] = " ".join(texts)
        if path == "/v1/chat/completions":
            content["system_fingerprint"] = texts[server.received % len(texts)]
            if is_late and "Italy" in json.dumps(body):
                raise served.Refusal(400, " ".join(texts))
            if is_late:
                content["choices"][0]["message"]["content"] = "Resposta: " + " ".join(texts)
        return content

    def faults(server, number, path):
        return 503 if number % 7 == 0 else None

    with served.Server(model, "chat", key=key, lie={"answer": answer}, faults=faults) as server:
        record = served.record(server, tmp_path, api_key_env="LLM_AUTH")
        is_late.append(True)
        remote = open_server(record)
        table, metadata = generate(remote, requests(), journal=MemoryJournal())
        remote.client.close()
    assert record.server.reported["version"].startswith("engine [LLM_AUTH: removed]")
    flags = table["flags"].to_pylist()
    assert any("redacted: the text contained the key of the server" in flag for flag in flags)
    assert any("error: the server refused the request (HTTP 400" in flag for flag in flags)
    out = capsys.readouterr()
    written = [path.read_text("utf-8") for path in tmp_path.rglob("*.json")]
    stored = [json.dumps(content, ensure_ascii=False) for content in (record.as_dict(), metadata, table.to_pylist())]
    for text in (*stored, *written, caplog.text, out.out, out.err):
        assert not leaked(text, key)


@pytest.mark.parametrize("key", ["sk-with newline\n", " sk-padded", "sk-é"])
def test_key_that_no_header_can_hold_is_named_by_its_variable_only(monkeypatch, key):
    monkeypatch.setenv("LLM_AUTH", key)
    with pytest.raises(ModelError, match="LLM_AUTH") as raised:
        connect(ModelRecord(name="big", source="http://127.0.0.1:9/v1", api_key_env="LLM_AUTH"))
    assert "sk-" not in str(raised.value)


def test_message_of_a_refusal_can_be_stored(model, honest):
    def refuse(server, original, body):
        raise served.Refusal(400, "a\ud800\nb\x1b[31m")

    with served.Server(model, "chat", lie={"chat": refuse}) as server:
        rows = honest("chat").generate(server)
    assert {row["flags"] for row in rows} == {"error: the server refused the request (HTTP 400: a\ufffd b\ufffd[31m)"}


# ----- other models --------------------------------------------------------------------------------------------------


def states(server, original, body, **fields):
    return original(body) | fields


def test_canonical_name_of_the_model_is_learned_and_another_one_stops_the_job(model, tmp_path):
    alias = {"model": "/home/me/models/tiny-canonical.gguf", "system_fingerprint": "fp_1"}
    with served.Server(model, "chat") as server:
        server.chat = lambda body, original=server.chat: original(body) | alias
        record = served.record(server, tmp_path)
        assert record.server.stated["/chat/completions"]["models"] == ["tiny-canonical.gguf"]
        assert "/home/me" not in json.dumps(record.as_dict())
        remote = open_server(record)
        rows = generate(remote, requests(), journal=MemoryJournal())[0].to_pylist()
        assert [row["flags"] for row in rows] == [None] * len(rows)
        server.chat = lambda body, original=server.chat: original(body) | {"model": "other"}
        with pytest.raises(ServerError, match=r'^model big: .* as the model "other" instead of "tiny-canonical\.gguf"'):
            generate(remote, requests(), journal=MemoryJournal())
        with pytest.raises(ModelError, match='answers as the model "other"'):
            Server(record)


def test_server_that_states_two_models_is_refused_by_the_probe(model, tmp_path):
    with served.Server(model, "chat") as server:
        server.chat = lambda body, original=server.chat: original(body) | {"model": f"m{server.received % 2}"}
        assert "answers as the model" in served.record(server, tmp_path).unavailable


def test_another_system_fingerprint_is_flagged_counted_and_recorded(model, tmp_path):
    with served.Server(model, "vllm") as server:
        server.completions = lambda body, original=server.completions: original(body) | {"system_fingerprint": "fp_1"}
        record = served.record(server, tmp_path, tokenizer=model)
        fingerprint = changes(put("system_fingerprint", "fp 2; error: x"))
        server.completions = lambda body, original=server.completions: fingerprint(server, original, body)
        table, metadata = score(open_server(record), tiny.score_requests(TEXTS))
        journal, remote = MemoryJournal(), open_server(record)
        for _ in range(2):  # from the server, and from the journal
            generated = generate(remote, requests(), journal=journal)[0].to_pylist()
            assert [row["flags"] for row in generated] == [None, "system fingerprint: fp_2_error__x instead of fp_1", None]  # fmt: skip
    assert [row["flags"] is not None for row in table.to_pylist()] == [False, True, False]
    assert metadata["flags"] == {"system fingerprint": 1}
    assert metadata["engine"]["stated"]["system_fingerprints"] == ["fp 2; error: x", "fp_1"]
    assert None not in table["logprobs"].to_pylist()


# ----- other prompts -------------------------------------------------------------------------------------------------

LONG = "O gato dorme no tellado e a cadela ladra na rúa. " * 6


def cut(server, original, prompt):
    return original(prompt)[-150:]


@pytest.mark.parametrize("form", ["vllm", "sglang", "echo"])
def test_prompt_that_the_server_cuts_is_an_error_of_its_row(model, honest, form):
    honest = honest(form)
    with served.Server(model, form, length=None, lie={"prompt_ids": cut}) as server:
        rows = honest.generate(server, prompts=[*PROMPTS, LONG])
    assert [row["raw_output"] for row in rows[:3]] == [row["raw_output"] for row in honest.generated]
    assert rows[3]["raw_output"] is None
    assert rows[3]["flags"].startswith("error: of a prompt of ")
    assert rows[3]["flags"].endswith(" tokens, the server read 150")


@pytest.mark.parametrize("form", ["vllm", "text", "chat"])
def test_longest_request_of_the_run_is_read_whole_or_the_job_stops(model, form, tmp_path):
    tokenizer = model if form == "vllm" else None
    table = requests([*PROMPTS, LONG * 3])
    with served.Server(model, form, length=None) as server:
        record = served.record(server, tmp_path, tokenizer=tokenizer)
        started = Server(record, requests=[table])
        checks = started.served.metadata()["probe"]
        assert all(isinstance(check["seen"], str) for check in checks)
        lengths = [check for check in checks if check["name"] == "length"]
        assert [check["passed"] for check in lengths] == [True] * len(lengths) != []
        server.encode = lambda text, original=server.encode: original(text)[-330:]
        server.prompt_ids = lambda prompt, original=server.prompt_ids: original(prompt)[-330:]
        Server(record, requests=[requests()])
        with pytest.raises(ModelError) as raised:
            Server(record, requests=[table])
        if form == "vllm":
            Server(record | {"max_length": 330}, requests=[table])
    n, advice = (r"\d+", ", or set max_length") if form == "vllm" else (r"about \d+", "")
    assert re.fullmatch(
        f"model big: {server.source} does not read a prompt of this run whole: of a prompt of {n} tokens, the server "
        f"read 330. Start the server with a longer context{advice}.",
        str(raised.value),
    )


def refused(content):
    raise served.Refusal(400, "content filter")


def failing(content):
    return served.Raw([b"{}"], status=500)


BAD = {name: MALFORMED[name] for name in ("surrogate", "many", "usage is a list", "reason is an object")}
BAD |= {change.__name__: change for change in (deep, broken_gzip, refused, failing)}


@pytest.mark.parametrize("change", BAD.values(), ids=BAD.keys())
def test_bad_answer_to_the_longest_request_concerns_its_evaluation_only(model, honest, change):
    honest, table = honest("chat"), requests(["A vaca.", LONG])

    def lie(server, original, body):
        content = original(body)
        return change(content) or content if LONG in json.dumps(body, ensure_ascii=False) else content

    with served.Server(model, "chat", length=None, lie={"chat": lie}) as server:
        started = Server(honest.record | {"source": server.source}, requests=[requests(), table])
        [seen] = [check["seen"] for check in started.served.metadata()["probe"] if check["name"] == "length"]
        assert seen.startswith("not comparable: ")
        rows, _ = generate(started.served, requests(), journal=MemoryJournal())
        assert rows.to_pylist() == honest.generated
        if change is refused:
            flags = generate(started.served, table, journal=MemoryJournal())[0]["flags"].to_pylist()
            assert flags == [None, "error: the server refused the request (HTTP 400: content filter)"]
        else:
            reason = "HTTP 5.*, also after .* attempts" if change is failing else ""
            with pytest.raises(ModelError, match=f"^model big: item i1: no valid answer from the server: {reason}"):
                generate(started.served, table, journal=MemoryJournal())


def test_longest_prompt_counts_the_prefix():
    rows = [{"prefix": "a", "text": "bcd"}, {"prefix": "abcdef", "text": "g"}, {"prefix": "", "text": "bcdef"}]
    table = pa.Table.from_pylist(rows)
    encoded = table.set_column(0, "prefix", table["prefix"].dictionary_encode())
    assert longest_prompt([table, encoded]) == longest_prompt([encoded]) == "abcdefg"
    assert longest_prompt([table.slice(0, 0)]) is None


def test_chats_are_counted_with_the_configured_tokenizer(model, tmp_path):
    with served.Server(model, "chat", length=None) as server:
        record = served.record(server, tmp_path, tokenizer=model)
        assert record.server.forms.generation == "chat"
        assert record.server.offset is not None
        remote = open_server(record)
        assert [row["flags"] for row in generate(remote, requests(), journal=MemoryJournal())[0].to_pylist()] == [None] * 3  # fmt: skip
        server.encode = lambda text, original=server.encode: original(text)[-150:]
        rows = generate(remote, requests([*PROMPTS, LONG]), journal=MemoryJournal())[0].to_pylist()
    assert [row["flags"] is None for row in rows] == [True, True, True, False]
    assert "the server read 150" in rows[3]["flags"]


def test_missing_usage_is_noted(model, tmp_path):
    with served.Server(model, "vllm", lie={"usage": lambda server, original, ids, n: None}) as server:
        record = served.record(server, tmp_path, tokenizer=model)
        _, metadata = generate(open_server(record), requests(), journal=MemoryJournal())
        assert metadata["engine"]["fallback"] == [
            "length of prompts: not reported by the server, which may have cut them"
        ]
        _, metadata = score(open_server(record), tiny.score_requests(TEXTS))
        assert len(metadata["engine"]["fallback"]) == 1


# ----- the probe -----------------------------------------------------------------------------------------------------


def test_refused_text_of_the_probe_is_noted(model, tmp_path):
    def filtered(server, original, body):
        if "gato" in body["messages"][0]["content"]:
            raise served.Refusal(400, "content filter")
        return original(body)

    with served.Server(model, "chat", lie={"chat": filtered}) as server:
        record = served.record(server, tmp_path, tokenizer=model)
        assert record.server.answers["texts"][1] is None
        assert differences(record.server, copy.deepcopy(record.server)) is None
        Server(record, requests=[requests()])
        rows = generate(open_server(record), requests(), journal=MemoryJournal())[0].to_pylist()
    assert [row["flags"] is None for row in rows] == [False, True, True]


@pytest.mark.parametrize("change", [refused, put("usage", "completion_tokens", "many")], ids=["refused", "malformed"])
@pytest.mark.parametrize("times", [1, 2])
def test_single_bad_answer_to_the_probe_is_not_the_end_of_a_job(model, honest, change, times, caplog):
    record, left = honest("chat").record, [True] * times

    def lie(server, original, body):
        content = original(body)
        is_sampled = body["temperature"] == 1.0 and body["max_tokens"] == 12
        return change(content) or content if is_sampled and left and left.pop() else content

    with served.Server(model, "chat", lie={"chat": lie}) as server:
        record |= {"source": server.source}
        if times == 1:
            Server(record, requests=[requests()])
        else:
            with pytest.raises(ModelError, match=r": texts were obtained by chat, and the server fails check 15 \(stop and seed\): (HTTP 400|expected a number of tokens as completion_tokens, got 'many')"):  # fmt: skip
                Server(record, requests=[requests()])
        assert "model big: the server is probed once more: texts were obtained by chat, and" in caplog.text


def test_another_model_is_not_asked_once_more(model, honest, caplog):
    record = honest("chat").record
    stated = {"/chat/completions": {"models": ["other"], "system_fingerprints": []}}
    with served.Server(model, "chat") as server:
        server.chat = lambda body, original=server.chat: original(body) | {"model": "org/tiny"}
        record |= {"source": server.source, "server": replace(record.server, stated=stated)}
        with pytest.raises(ModelError, match=r'answers as the model "org/tiny" instead of "other"\. If another'):
            Server(record)
    assert "once more" not in caplog.text


def test_single_refusal_of_the_comparison_between_evaluations_is_asked_once_more(model, honest):
    record, left = honest("vllm").record, []

    def lie(server, original, body):
        if left and left.pop():
            refused(body)
        return original(body)

    with served.Server(model, "vllm", lie={"completions": lie}) as server:
        started = Server(record | {"source": server.source})
        left.append(True)
        started.verify()
        assert not left
        left += [True, True]
        with pytest.raises(ModelError, match=r"does not answer as it did .*: HTTP 400: content filter\."):
            started.verify()


def scaled(form, factor):
    """Return lies that multiply all log-probabilities."""

    def legacy(server, original, *arguments):
        content = original(*arguments)
        content["token_logprobs"] = [None if v is None else v * factor for v in content["token_logprobs"]]
        content["top_logprobs"] = [
            None if top is None else {token: v * factor for token, v in top.items()} for top in content["top_logprobs"]
        ]
        return content

    def chat(server, original, body):
        content = original(body)
        for entry in (content["choices"][0].get("logprobs") or {}).get("content", []):
            for listed in (entry, *entry["top_logprobs"]):
                listed["logprob"] *= factor
        return content

    def values(server, original, ids, body):
        return [(v if v is None else v * factor, b if b is None else b * factor, t) for v, b, t in original(ids, body)]

    lies = {"legacy_logprobs": legacy, "chat": chat}  # the first one contains the prompt, if it is echoed
    return lies | {"prompt_values": values} if form == "vllm" else lies


SCALES = {"natural": 1.0, "base 2": 1 / math.log(2), "base 10": 1 / math.log(10), "cold": 2.0, "hot": 1 / 1.3}


@pytest.mark.slow
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("form", ["vllm", "echo", "text", "chat"])
def test_lists_in_another_base_or_at_another_temperature_are_refused(model, form, scale):
    with served.Server(model, form, lie=scaled(form, SCALES[scale])) as server:
        record = ModelRecord(name="big", source=server.source, chat=form == "chat")
        client = connect(record, attempts=2)
        tokenizer = model.tokenizer if form in ("vllm", "echo") else None
        found = probe(record, client, tokenizer, model=server.name)
        client.close()
    kind = "spans" if form in ("vllm", "echo") else "labels"
    assert (getattr(found.forms, kind) is not None) == (scale == "natural")
    if scale != "natural":
        # large factors also show where generated tokens are read again
        assert re.match(
            r"the server fails check (6 \(self-consistent|9 \(no temperature or penalties)\): ", found.reasons[kind]
        )
        assert found.forms.labels is None


def test_lists_that_are_sampled_from_are_not_refused():
    """Sample from the lists themselves: 60 probes, with an error rate of 1e-6."""
    from vernacular.inference.server.sampled import ERROR_RATE, Bets

    source = random.Random(0)
    refused = 0
    for _ in range(60):
        bets = Bets()
        for _ in range(4):
            tokens = []
            for _ in range(16):
                weights = [source.gammavariate(0.3, 1) + 1e-9 for _ in range(40)]
                logs = {i: math.log(weight / sum(weights)) for i, weight in enumerate(weights)}
                chosen = source.choices(range(40), weights)[0]
                top = dict(sorted(logs.items(), key=lambda pair: -pair[1])[:20])
                tokens.append((chosen, top | {chosen: logs[chosen]}))
            bets.add(tokens)
            refused += bets.evidence() >= -math.log(ERROR_RATE)
    assert refused == 0


# ----- generated answers ---------------------------------------------------------------------------------------------

LEAVES = [None, True, -1, 2**70, 1e400, math.nan, "many", "\ud800", [], {}, [[]], {"a": None}, 0.5, "7"]


def nodes(content, path=()):
    yield path
    if isinstance(content, dict | list):
        for key in content if isinstance(content, dict) else range(len(content)):
            yield from nodes(content[key], (*path, key))


def mutate(content, source: random.Random):
    """Return (an answer with one value of another type or deleted, its path); None as path: bytes are damaged."""
    if source.random() < 0.15:
        data = json.dumps(content).encode()
        position = source.randrange(len(data))
        return source.choice(
            [
                served.Raw([data[:position]]),
                served.Raw([data[:position] + b"\xff" + data[position:]]),
                served.Raw([data], {"Content-Encoding": source.choice(["gzip", "deflate"])}),
                served.Raw([data], {"Content-Length": str(len(data) + 7)}),
                served.Raw([b"["] * 10_000),
                served.Raw([data + data]),
                served.Raw([b"1" * 10_000]),
                served.Raw([b""], status=source.choice([204, 301, 418, 500])),
            ]
        ), None
    content = copy.deepcopy(content)
    path = source.choice([path for path in nodes(content) if path])
    parent = content
    for key in path[:-1]:
        parent = parent[key]
    old = parent[path[-1]]
    is_number = type(old) in (int, float)  # -1 is a log-probability, too
    new = source.choice([x for x in LEAVES if type(x) is not type(old) and not (is_number and x == -1)])
    if source.random() < 0.15 and isinstance(parent, dict):
        del parent[path[-1]]
    else:
        parent[path[-1]] = new
    return content, path


def check_hostile_answers(honest, model, form, seeds):
    """Mutate the answer to one request: its row is as it was, flagged, or the evaluation fails in one line."""
    source = SimpleNamespace(random=random.Random(0), path=None)

    def lie(server, original, body):
        content, source.path = mutate(original(body), source.random)
        return content

    method = {"chat": "chat", "sglang": "sglang"}.get(form, "completions")
    outcomes = {"same": 0, "flagged": 0, "failed": 0}
    for is_score in (False, True) if honest.scored else (False,):
        table = tiny.score_requests(TEXTS[:1]) if is_score else requests(PROMPTS[:1])
        expected = (honest.scored if is_score else honest.generated)[0]
        names = ("logprobs", "tokens") if is_score else ("raw_output", "output")
        with served.Server(model, form, lie={method: lie}) as server:
            remote = honest.open(server, attempts=1)
            for seed in seeds:
                source.random.seed(seed)
                try:
                    rows, _ = (score if is_score else generate)(remote, table, journal=MemoryJournal())
                except ModelError as error:
                    message = str(error)
                else:
                    message = None
                if message is not None:
                    assert message.startswith("model big: "), seed
                    assert "\n" not in message, seed
                    outcomes["failed"] += 1
                    continue
                [row] = rows.to_pylist()
                is_same = all(row[name] == expected[name] for name in names)
                ended = source.path and source.path[-1] == "content"  # null: a chat without a text
                assert is_same or row["flags"] or ended, (seed, source.path, row)
                outcomes["same" if is_same else "flagged"] += 1
            remote.client.close()
    return outcomes


@pytest.mark.parametrize("form", ["chat", "vllm", "sglang", "echo"])
def test_fifty_hostile_answers_end_in_a_value_a_flag_or_one_line(model, honest, form):
    outcomes = check_hostile_answers(honest(form), model, form, range(50))
    assert outcomes["failed"] >= 10
    assert outcomes["same"] >= 1


@pytest.mark.soak
@pytest.mark.parametrize("form", ["chat", "vllm", "sglang", "echo"])
def test_thousands_of_hostile_answers_end_in_a_value_a_flag_or_one_line(model, honest, form):
    check_hostile_answers(honest(form), model, form, range(50, 2000))
