"""Models behind a server in the config: keys, limits, specs and what `check` says."""

import os
import time

import pytest
import yaml
from support import served, specs, stages, tiny
from vernacular.cli import main
from vernacular.config import dependencies
from vernacular.config import load as config
from vernacular.core.errors import ConfigError
from vernacular.core.model_record import read_model

SERVER = {"source": "http://node7:8000/v1", "model": "org/name"}
EVALUATIONS = [{"task": "cola", "languages": ["gl"]}]


def write(tmp_path, *, evaluations=EVALUATIONS, **models):
    content = {"models": models, "data": "samples", "evaluations": evaluations}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(content), "utf-8")
    return [tmp_path / "config.yaml"]


def error(tmp_path, **models) -> str:
    with pytest.raises(ConfigError) as raised:
        config.load(write(tmp_path, **models))
    return str(raised.value).partition(": ")[2]


def test_all_keys_of_a_server_are_accepted(tmp_path):
    keys = {"tokenizer": "org/name@main", "revision": "v2", "api_key_env": "MY_KEY", "concurrency": 16, "timeout": 60.5}
    loaded = config.load(write(tmp_path, big=SERVER | keys, tiny={"source": "./tiny"}))
    assert loaded.servers == ["big"]
    assert {key: loaded.models["big"][key] for key in keys} == keys
    assert not keys.keys() & loaded.models["tiny"].keys()


@pytest.mark.parametrize(
    "source", ["http://u:p@node7/v1", "https://node7/v1?key=abc", "http://node7/v1#x", "http:///v1", "https://"]
)
def test_addresses_with_credentials_or_without_host_are_rejected(tmp_path, source):
    message = error(tmp_path, big={"source": source})
    assert message.startswith("models.big.source: ")
    assert "p@" not in message
    assert "abc" not in message or "expected the address" in message


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (SERVER | {"dtype": "bfloat16"}, "models.big.dtype: dtype is decided by the server; remove it."),
        (SERVER | {"shards": 2}, "models.big.shards: shards is decided by the server; remove it."),
        (SERVER | {"kind": "masked"}, "models.big.kind: a model behind a server is a causal model; remove it."),
        ({"source": "./m", "concurrency": 2}, "models.big.concurrency: concurrency requires a server as the source, such as http://host:8000/v1."),
        (SERVER | {"num_concurrent": 2}, 'models.big.num_concurrent: unknown key. Did you mean "concurrency"?'),
        (SERVER | {"concurrency": 0}, "models.big.concurrency: expected at least 1, got 0."),
    ],
)  # fmt: skip
def test_wrong_keys_are_rejected(tmp_path, entry, message):
    assert error(tmp_path, big=entry) == message


def test_key_in_the_place_of_its_variable_is_rejected_and_not_shown(tmp_path):
    message = error(tmp_path, big=SERVER | {"api_key_env": "sk-abc-secret"})
    assert (
        message
        == "models.big.api_key_env: expected the name of an environment variable (MY_KEY), never the key itself."
    )


def test_adapter_on_a_server_is_rejected(tmp_path):
    message = error(tmp_path, big=SERVER, tuned={"base": "big", "adapter": "./a"})
    assert (
        message
        == "models.tuned.base: big is behind a server, which applies no adapters; serve the adapted model instead."
    )


def test_models_on_one_server_share_one_limit(tmp_path):
    other = SERVER | {"model": "org/other"}
    message = error(tmp_path, big=SERVER | {"concurrency": 8}, other=other)
    assert message == "models.other.concurrency: big is on the same server, whose limit they share; set the same value."
    config.load(write(tmp_path, big=SERVER | {"concurrency": 8}, other=other | {"concurrency": 8}))


def test_specs_of_a_server(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tiny.tokenizer("bytes").save_pretrained(tmp_path / "tok")
    loaded = config.load(write(tmp_path, big=SERVER | {"tokenizer": "./tok", "concurrency": 2}, tiny={"source": "./m"}))
    spec = specs.server_spec(loaded, "big")
    assert (spec["name"], spec["model"], spec["concurrency"]) == ("big", "org/name", 2)
    assert "tokenizer.json" in spec["tokenizer_files"]
    before = dict(spec["tokenizer_files"])
    (tmp_path / "tok" / "tokenizer_config.json").write_text("{}")
    dependencies.content_hash.cache_clear()
    assert specs.server_spec(loaded, "big")["tokenizer_files"] != before
    local, remote = (specs.inference_spec(loaded, [name]) for name in ("tiny", "big"))
    assert local["engines"].keys() == remote["engines"].keys()
    assert not set(local["engines"].values()) & set(remote["engines"].values())
    assert "model" not in remote["models"]["big"]


def test_check_says_which_protocols_a_server_can_answer(tmp_path, monkeypatch, low_limits, capsys):
    monkeypatch.chdir(tmp_path)
    with served.Server(tiny.load_model("llama", tokens="bytes"), "text") as server:
        models = {
            "big": {"source": server.source, "model": server.name},
            "gone": {"source": "http://127.0.0.1:9/v1", "model": "m"},
        }
        low_limits("inference.server.client", FIRST_WAIT=0.0)
        [path] = write(tmp_path, **models)
        assert main(["check", str(path)]) == 0
        assert server.received == 0
        offline = capsys.readouterr().out
        assert main(["check", str(path), "--online"]) == 1
    assert f"{server.source}, http://127.0.0.1:9/v1 (--online asks the Hub and servers)" in offline
    online = capsys.readouterr()
    assert f"big ({server.source}): no protocol\n" in online.out
    assert "acceptability is not possible: log-probabilities of a text are not available" in online.out
    assert "model gone: http://127.0.0.1:9/v1: no answer" in online.err
    assert "\n  check 1 (reach and name): passed\n" in online.out


def test_a_run_uses_the_recent_probe_of_a_check_once(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    model = served.trained_model()
    model.tokenizer.save_pretrained("tok")
    record = tmp_path / "resources" / "models" / "big.json"
    with served.Server(model) as server:
        [path] = write(tmp_path, big={"source": server.source, "model": server.name, "tokenizer": "./tok"})
        spec = specs.server_spec(config.load([path]), "big") | {"code": "as in a rule", "libraries": {"a": "1"}}

        def probes(spec) -> int:
            """Return the number of requests of the stage."""
            received = server.received
            assert stages.run("server", spec=spec, out=str(record)) == 0
            return server.received - received

        n_requests = probes(spec)
        probed = read_model(record)
        assert main(["check", str(path), "--online"]) == 0
        assert probes(spec | {"concurrency": 2}) > 0, "another setting"
        assert (probes(spec), read_model(record)) == (0, probed)
        assert "(probed by `check --online`)" in capsys.readouterr().out
        assert probes(spec) == n_requests, "used once"
        assert main(["check", str(path), "--online"]) == 0
        [kept] = tmp_path.glob("resources/probes/*/big.json")
        os.utime(kept, (0, time.time() - 3700))
        assert probes(spec) == n_requests, "too old"


def test_check_says_what_a_provider_without_log_probabilities_cannot_answer(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BIG_KEY", served.KEY)
    evaluations = [{"task": "openbookqa", "languages": ["gl"], "protocols": ["generation", "letters", "options"]}]
    with served.Server(tiny.load_model("llama", tokens="bytes"), "strict", key=served.KEY) as server:
        settings = {"source": server.source, "model": server.name, "api_key_env": "BIG_KEY"}
        [path] = write(tmp_path, evaluations=evaluations, big=settings)
        assert main(["check", str(path), "--online"]) == 0
    out = capsys.readouterr().out
    assert f"big ({server.source}): generation\n" in out
    assert (
        "options is not possible: log-probabilities of a text are not available: the server answers chats only" in out
    )
    assert "letters is not possible: the server answers chats only; set chat: true to score letters" in out
    assert served.KEY not in out


def test_check_reads_what_an_earlier_run_found_out_about_a_server(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    model = served.trained_model()
    with served.Server(model) as server:
        served.record(server, tmp_path, tokenizer=model)
        [path] = write(tmp_path, big={"source": server.source, "model": server.name, "tokenizer": "./tok"})
        received = server.received
        assert main(["check", str(path)]) == 1
        assert server.received == received
    captured = capsys.readouterr()
    assert f"big ({server.source}): acceptability\n" in captured.out
    assert "Not checked" not in captured.out
    assert "model big: model file or directory not found: ./tok." in captured.err


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("source", "http://node8:8000/v1"), ("model", "org/other"), ("tokenizer", "org/name@main"), ("revision", "v2"),
        ("reference", "./copy"), ("api_key_env", "MY_KEY"), ("concurrency", 16), ("timeout", 60.5), ("chat", True),
        ("max_length", 512),
    ],
)  # fmt: skip
def test_each_setting_of_a_server_is_in_its_spec(tmp_path, key, value):
    before, after = (
        specs.server_spec(config.load(write(tmp_path, big=settings)), "big")
        for settings in (SERVER, SERVER | {key: value})
    )
    assert before != after


def test_names_of_keys_are_in_the_spec_of_the_summary_for_the_search_of_publications(tmp_path):
    loaded = config.load(write(tmp_path, big=SERVER | {"api_key_env": "CAFE"}, tiny={"source": "./m"}))
    assert specs.summary_spec(loaded)["api_key_env"] == ["CAFE"]
    assert "api_key_env" not in specs.summary_spec(config.load(write(tmp_path, big=SERVER)))
