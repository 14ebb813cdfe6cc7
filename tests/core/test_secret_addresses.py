"""An address that lets in whoever holds it is refused wherever it is written, and shown nowhere."""

import json
import subprocess
import sys

import pytest
from support.hub_server import environment
from vernacular.config import load as config
from vernacular.core.errors import ConfigError, DataError, ModelError, without_secrets
from vernacular.data.tasks import load_task

# S3CRET is what nobody may read
SECRET = [
    "https://me:S3CRET@host.org/x.csv",
    "https://S3CRET@host.org/x.csv",
    "https://me:S3/CRET?@host.org/x.csv",
    "hf://me:S3CRET@datasets/owner/name/x.csv",
    "s3://KEY:S3CRET@bucket/x.csv",
    "https://host.org/x.csv?token=S3CRET",
    "https://host.org/x.csv?v=1&access_token=S3CRET&w=2",
    "https://host.org/x.csv?X-Amz-Algorithm=A&X-Amz-Credential=S3CRET%2F1&X-Amz-Signature=S3CRET",
    "https://host.org/x.csv?AWSAccessKeyId=S3CRET&Expires=1&Signature=S3CRET",
    "https://host.org/x.csv?sv=2024&sig=S3CRET",
    "https://host.org/x.csv?apiKey=S3CRET;password=S3CRET#token=S3CRET",
    "host.org/x.csv?PRIVATE-TOKEN=S3CRET",
    "hf_" + "S3CRET" * 5,
]
PLAIN = [
    "https://host.org:8080/a@1.0/x.csv",
    "https://host.org/x.csv?author=me&keyword=token&rlkey=1&dl=0",
    "hf://datasets/owner/name@main/x.csv",
    "https://host.org/x.csv#key",
    "me@host.org, https://host.org/x.csv",
]
WAYS = [
    "models: {other: {source: ADDRESS}}",
    "models: {ADDRESS: {source: ./mine}}",
    "similarity: {encoders: {gl: {source: ADDRESS}}}",
    "external_results: {old: {path: ADDRESS}}",
    "tasks: [ADDRESS]",
]
TASK = "task: t\nprotocols: [acceptability]\nitem_type: sentence\nlanguages: {gl: {source: SOURCE}}\ncolumns: {context: s, label: l}\n"
SOURCES = {
    "url": {"url": "ADDRESS"},
    "file": {"file": "ADDRESS"},
    "examples": {"file": "x.csv", "few_shot": "ADDRESS"},
    "treebank": {"treebank": [{"url": "ADDRESS"}], "pattern": "object_case"},
    "hub": {"hub": "owner/name", "files": {"test": ["ADDRESS"]}},
    "revision": {"hub": "owner/name", "revision": "ADDRESS"},
    "lm-eval": {"lm-eval": "ADDRESS"},
}


def refused(load) -> str:
    with pytest.raises(ConfigError) as error:
        load()
    said = str(error.value)
    assert "would be copied into the results" in said
    assert "CRET" not in said
    assert len(said.splitlines()) == 1
    return said


@pytest.mark.parametrize("address", SECRET)
def test_a_secret_address_is_refused_in_config_and_task_files_and_not_shown(tmp_path, address):
    path = tmp_path / "config.yaml"
    for way in WAYS:
        own = "" if way.startswith("models") else "models: {mine: {source: ./mine}}"
        path.write_text(
            f"evaluations: [{{task: cola, data: samples}}]\n{own}\n{way.replace('ADDRESS', json.dumps(address))}"
        )
        assert refused(lambda: config.load([path])).startswith(f"{path}, line 3: ")
    path.write_text("evaluations: [{task: cola, data: samples}]\nmodels: {mine: {source: ./mine}}\n")
    override = {"models": {"mine": {"source": address}}}
    assert refused(lambda: config.load([path], override)).startswith("--config: models.mine.source: ")
    for source in SOURCES.values():
        path = tmp_path / "t.yaml"
        path.write_text(TASK.replace("SOURCE", json.dumps(source).replace("ADDRESS", address)))
        assert refused(lambda path=path: load_task(path)).startswith(f"{path}, line 4: languages.gl.source.")


@pytest.mark.parametrize("address", PLAIN)
def test_an_address_that_holds_no_secret_is_left_as_it_is(tmp_path, address):
    assert without_secrets(address) == address
    path = tmp_path / "t.yaml"
    path.write_text(TASK.replace("SOURCE", json.dumps({"file": address})))
    assert load_task(path)["languages"]["gl"]["source"] == [{"file": address}]


@pytest.mark.parametrize("address", SECRET)
def test_no_sentence_shows_it_wherever_it_came_from(address):
    for kind in (DataError, ModelError, ConfigError):
        said = str(kind(f"{address}: cannot be fetched; see {address}."))
        assert "CRET" not in said
        assert "cannot be fetched" in said


def test_what_it_takes_to_look_for_secrets_does_not_grow_with_the_square_of_a_text():
    for text in ("x://", "x://a:b", "x://a?", "?token=", "hf_a", "x:// ", "?a&"):
        assert without_secrets(text * 40_000)[:4] == (text * 2)[:4]


def test_a_signature_that_the_hub_hands_out_stays_out_of_the_log(start_hub, tmp_path):
    hub, store = start_hub(), start_hub()
    files = {"config.json": "{}", "model.safetensors": b"no weights"}
    for server in (hub, store):
        server.add("me/model", files)
    hub.stored, hub.signature = {"/me/model/resolve/": store.address}, "?X-Amz-Signature=S3CRET&v=1"
    spec = json.dumps({"name": "m", "source": "me/model", "kind": "auto", "allow_pickle": False})
    command = [sys.executable, "-m", "vernacular", "model", "--spec", spec, "--out", "out.json", "--log", "model.log"]
    own = environment(hub.address, tmp_path / "hf")
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=own)
    assert b"X-Amz-Signature=S3CRET" in b"".join(store.heard), "the one that it is meant for is given it"
    log = (tmp_path / "model.log").read_text("utf-8")
    assert "model.safetensors?X-Amz-Signature=…&v=1" in log
    assert "CRET" not in log + run.stdout + run.stderr
