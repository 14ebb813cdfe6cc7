"""Jobs with served models: the same store, journal and resume as for local models."""

import json

import pytest
from support import served, tiny
from vernacular.core import artifacts
from vernacular.inference.job.run import run_group
from vernacular.inference.schema import SCORES
from vernacular.stages.collect import write_outputs

pytestmark = pytest.mark.slow

TEXTS = [(f"O gato {i:02} dorme no tellado.", 10, 28) for i in range(8)]


@pytest.fixture(autouse=True)
def short_waits(low_limits):
    low_limits("inference.server.client", FIRST_WAIT=0.001)


def requests_file(directory, name="e", texts=TEXTS, **metadata):
    return tiny.write_requests(directory / f"{name}.parquet", tiny.score_requests(texts), **metadata)


def scored(server) -> dict:
    """Return the answered requests that score one of TEXTS, with their counts."""

    def is_scored(content: str) -> bool:
        prompt = json.loads(content)[1].get("prompt")
        return isinstance(prompt, list) and server.loaded.tokenizer.decode(prompt).startswith("O gato 0")

    return {content: n for content, n in server.answered.items() if is_scored(content)}


def run(record, directory, **paths):
    return run_group([record], paths, directory / "store")


def test_second_run_finds_all_outputs_in_the_store_and_sends_nothing(model, tmp_path):
    with served.Server(model) as server:
        record = served.record(server, tmp_path, tokenizer=model)
        path = requests_file(tmp_path)
        assert run(record, tmp_path, e=path) == ({"big": {"e": "computed"}}, {"big": {}})
        assert set(scored(server).values()) == {1}
        received = server.received
        assert run(record, tmp_path, e=path) == ({"big": {"e": "found in the store"}}, {"big": {}})
        assert server.received == received
    counts, missing = write_outputs(record, {"e": path}, tmp_path / "big", tmp_path / "store")
    assert (counts["collected"], missing) == (1, {})
    metadata = artifacts.metadata(tmp_path / "big" / "scores" / "e.parquet")
    assert metadata["engine"]["name"] == "server: prompt_logprobs"
    assert metadata["model"]["server"]["model"] == "org/tiny"
    assert {check["check"] for check in metadata["model"]["probe"]} >= {1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 14, 15, 16}
    assert metadata["counters"]["server"]["requests"] == len(TEXTS)


def test_server_killed_in_the_middle_and_restarted_costs_only_what_is_missing(model, tmp_path):
    def dies_later(server, number, path):
        return "drop" if len(scored(server)) >= 3 else None

    path, other = requests_file(tmp_path), requests_file(tmp_path, "f", [("A choiva cae amodo.", 2, 18)])
    with served.Server(model) as server:
        record = served.record(server, tmp_path, tokenizer=model)
    port = int(record.source.rpartition(":")[2].removesuffix("/v1"))
    with served.Server(model, faults=dies_later, port=port) as server:
        done, failed = run(record | {"concurrency": 1}, tmp_path, e=path, f=other)
        first = scored(server)
    assert done == {"big": {}}
    assert set(failed["big"]) == {"e", "f"}
    assert all("no answer after 8 attempts" in reason for reason in failed["big"].values())
    assert len(first) == 3
    with served.Server(model, port=port) as server:
        assert run(record, tmp_path, e=path, f=other) == ({"big": {"e": "computed", "f": "computed"}}, {"big": {}})
        second = scored(server)
    assert len(second) == len(TEXTS) - 3
    assert not first.keys() & second.keys()
    write_outputs(record, {"e": path}, tmp_path / "big", tmp_path / "store")
    rows = artifacts.read(tmp_path / "big" / "scores" / "e.parquet", SCORES)
    with served.Server(model) as server:
        whole = run(served.record(server, tmp_path / "whole", tokenizer=model), tmp_path / "whole", e=path)
    assert whole[1] == {"big": {}}
    write_outputs(record, {"e": path}, tmp_path / "big2", tmp_path / "whole" / "store")
    assert rows.equals(artifacts.read(tmp_path / "big2" / "scores" / "e.parquet", SCORES))


def test_request_that_the_server_never_answers_concerns_its_evaluation_only(model, tmp_path):
    poison = "A choiva cae amodo."

    def lie(server, original, body):
        prompt = body["prompt"]
        is_poison = "A choiva" in (prompt if isinstance(prompt, str) else model.tokenizer.decode(prompt))
        return served.Raw([b"{}"], status=500) if is_poison else original(body)

    paths = {"e": requests_file(tmp_path, "e", [(poison, 2, 18)]), "f": requests_file(tmp_path, "f")}
    with served.Server(model) as server:
        record = served.record(server, tmp_path, tokenizer=model)
    with served.Server(model, lie={"completions": lie}) as server:
        done, failed = run(record | {"source": server.source, "concurrency": 1}, tmp_path, **paths)
    assert done == {"big": {"f": "computed"}}, failed
    assert "no valid answer from the server: HTTP 500: {}, also after 8 attempts" in failed["big"].pop("e")
    assert failed == {"big": {}}
    with served.Server(model) as server:
        done, failed = run(record | {"source": server.source}, tmp_path, **paths)
    assert (done, failed) == ({"big": {"e": "computed", "f": "found in the store"}}, {"big": {}})


def test_server_that_answers_differently_is_another_model(model, tmp_path):
    path = requests_file(tmp_path)
    with served.Server(model) as server:
        record = served.record(server, tmp_path, tokenizer=model)
    other = served.trained_model("bytes", steps=60)
    with served.Server(other) as server:
        moved = record | {"source": server.source}
        done, failed = run(moved, tmp_path, e=path)
        assert done == {"big": {}}
        assert (
            "does not answer as it did when the model was recorded: log-probabilities differ by" in failed["big"]["e"]
        )
        changed = served.record(server, tmp_path, tokenizer=model)
    assert changed.fingerprint != record.fingerprint


def test_server_replaced_during_an_evaluation_leaves_no_outputs(model, tmp_path):
    path = requests_file(tmp_path)
    with served.Server(model) as server:
        record = served.record(server, tmp_path, tokenizer=model)

        def replaced(body, original=server.completions):
            if len(scored(server)) >= 3:
                server.loaded = served.trained_model("bytes", steps=60)
            return original(body)

        server.completions = replaced
        done, failed = run(record | {"concurrency": 1}, tmp_path, e=path)
    assert done == {"big": {}}
    assert "does not answer as it did" in failed["big"]["e"]
    assert not [file for file in (tmp_path / "store").rglob("*") if file.is_file()]


def test_same_server_at_another_address_is_the_same_model(model, tmp_path):
    records = []
    for _ in range(2):
        with served.Server(model) as server:
            records.append(served.record(server, tmp_path, tokenizer=model))
    assert records[0].source != records[1].source
    assert records[0].fingerprint == records[1].fingerprint
    with served.Server(model) as server:
        declared = served.record(server, tmp_path, tokenizer=model, revision="v2")
    assert declared.fingerprint != records[0].fingerprint


@pytest.mark.parametrize(
    ("form", "possible"), [("vllm", {"e", "letters", "texts"}), ("text", {"letters", "texts"}), ("chat", {"texts"})]
)
def test_evaluations_that_the_server_cannot_answer_are_not_applicable_with_the_reason(model, tmp_path, form, possible):
    paths = {
        "e": requests_file(tmp_path),
        "letters": requests_file(tmp_path, "letters", protocol="letters", label_spans=True),
        "texts": requests_file(tmp_path, "texts", [], protocol="generation", request_kind="generate"),
    }
    with served.Server(model, form) as server:
        record = served.record(server, tmp_path, tokenizer=model if form == "vllm" else None)
    counts, _ = write_outputs(record, paths, tmp_path / "big", tmp_path / "store")
    for name in paths.keys() - possible:
        [output] = (tmp_path / "big").glob(f"*/{name}.parquet")
        reason = artifacts.metadata(output)["outcome"].reason
        assert reason.startswith(f"{'acceptability' if name == 'e' else name} is not possible: ")
    assert counts["not applicable"] == len(paths) - len(possible)


def test_label_outside_the_list_is_not_answerable_and_never_minus_infinity(model, tmp_path):
    question = "Question: Which animal sleeps on the roof?\nA. the dog\nB. the cat\nC. the horse\nD. the bird\nAnswer:"
    texts = [(question + label, len(question), len(question) + 2) for label in (" A", " B", " C", " D", " Q")]
    path = requests_file(tmp_path, "letters", texts, protocol="letters", label_spans=True)
    with served.Server(model, "text") as server:
        record = served.record(server, tmp_path)
        assert run(record, tmp_path, letters=path)[1] == {"big": {}}
    write_outputs(record, {"letters": path}, tmp_path / "big", tmp_path / "store")
    output = tmp_path / "big" / "scores" / "letters.parquet"
    rows = artifacts.read(output, SCORES).to_pylist()
    listed = [row for row in rows if row["logprobs"] is not None]
    missing = [row for row in rows if row["logprobs"] is None]
    assert listed
    assert missing
    assert all(row["flags"].startswith("error: not answerable: ") for row in missing)
    context = model.tokenizer(question)["input_ids"]
    with served.Server(model) as server:
        expected = server.logprobs(context)[-1]
    for row in listed:
        [token] = model.tokenizer(row["tokens"][0])["input_ids"]
        assert row["logprobs"] == pytest.approx([float(expected[token])], abs=1e-4)
    counters = artifacts.metadata(output)["counters"]
    assert counters["coverage"] == pytest.approx(len(listed) / len(rows))
    assert counters["calls"] == 1


def test_keys_are_read_from_the_environment_and_stored_nowhere(model, tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("BIG_KEY", served.KEY)
    path = requests_file(tmp_path)
    with served.Server(
        model, key=served.KEY, faults=lambda server, number, path: 500 if number % 5 == 0 else None
    ) as server:
        record = served.record(server, tmp_path, tokenizer=model, api_key_env="BIG_KEY")
        assert run(record, tmp_path, e=path)[1] == {"big": {}}
        write_outputs(record, {"e": path}, tmp_path / "big", tmp_path / "store")
        assert set(server.headers) == {f"Bearer {served.KEY}"}
        monkeypatch.setenv("BIG_KEY", "sk-wrong-but-secret")
        wrong = served.record(server, tmp_path, tokenizer=model, api_key_env="BIG_KEY", name="wrong")
    assert "denied access" in wrong.unavailable
    assert "BIG_KEY" in wrong.unavailable
    monkeypatch.delenv("BIG_KEY")
    missing = served.record(server, tmp_path, tokenizer=model, api_key_env="BIG_KEY", name="missing")
    assert "environment variable BIG_KEY (api_key_env) is not set" in missing.unavailable
    texts = [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()]
    texts += [json.dumps(artifacts.metadata(file), default=str).encode() for file in tmp_path.rglob("big/*/*.parquet")]
    texts.append(caplog.text.encode())
    assert not any(b"secret" in text for text in texts)
