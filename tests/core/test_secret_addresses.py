"""URLs with credentials are rejected in config and task files, and redacted in messages and logs."""

import json
import subprocess
import sys

import pytest
from support import stages
from support.hub_server import environment
from vernacular.config import load as config
from vernacular.core.errors import ConfigError, DataError, ModelError, redact_secrets
from vernacular.data.tasks import load_task

# S3CRET must not appear in any message
WITH_SECRET = [
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
PUBLIC = [
    "https://host.org:8080/a@1.0/x.csv",
    "https://host.org/x.csv?author=me&keyword=token&rlkey=1&dl=0",
    "hf://datasets/owner/name@main/x.csv",
    "https://host.org/x.csv#key",
    "me@host.org, https://host.org/x.csv",
]
CONFIG_LINES = [
    "models: {other: {source: ADDRESS}}",
    "models: {ADDRESS: {source: ./mine}}",
    "similarity: {encoders: {gl: {source: ADDRESS}}}",
    "external_results: {old: {path: ADDRESS}}",
    "tasks: [ADDRESS]",
    "lm_eval: {python: ADDRESS}",
]
TASK = "task: t\nprotocols: [acceptability]\nitem_type: sentence\nlanguages: {gl: {source: SOURCE}}\ncolumns: {context: s, label: l}\n"
SOURCES = {
    "url": {"url": "ADDRESS"},
    "file": {"file": "ADDRESS"},
    "examples": {"file": "x.csv", "few_shot": "ADDRESS"},
    "treebank": {"treebank": [{"url": "ADDRESS"}], "pattern": "object_case"},
    "hub": {"hub": "owner/name", "files": {"test": ["ADDRESS"]}},
    "revision": {"hub": "owner/name", "revision": "ADDRESS"},
}


def config_error(load) -> str:
    with pytest.raises(ConfigError) as error:
        load()
    message = str(error.value)
    assert "would be copied into the results" in message
    assert "CRET" not in message
    assert len(message.splitlines()) == 1
    return message


@pytest.mark.parametrize("address", WITH_SECRET)
def test_url_with_secret_is_rejected_and_redacted(tmp_path, address):
    path = tmp_path / "config.yaml"
    for config_line in CONFIG_LINES:
        models_line = "" if config_line.startswith("models") else "models: {mine: {source: ./mine}}"
        path.write_text(
            f"evaluations: [{{task: cola, data: samples}}]\n{models_line}\n{config_line.replace('ADDRESS', json.dumps(address))}"
        )
        assert config_error(lambda: config.load([path])).startswith(f"{path}, line 3: ")
    path.write_text("evaluations: [{task: cola, data: samples}]\nmodels: {mine: {source: ./mine}}\n")
    override = {"models": {"mine": {"source": address}}}
    assert config_error(lambda: config.load([path], override)).startswith("--config: models.mine.source: ")
    for source in SOURCES.values():
        path = tmp_path / "t.yaml"
        path.write_text(TASK.replace("SOURCE", json.dumps(source).replace("ADDRESS", address)))
        assert config_error(lambda path=path: load_task(path)).startswith(f"{path}, line 4: languages.gl.source.")


@pytest.mark.parametrize("address", PUBLIC)
def test_url_without_secret_is_unchanged(tmp_path, address):
    assert redact_secrets(address) == address
    path = tmp_path / "t.yaml"
    path.write_text(TASK.replace("SOURCE", json.dumps({"file": address})))
    assert load_task(path)["languages"]["gl"]["source"] == [{"file": address}]


@pytest.mark.parametrize("address", WITH_SECRET)
def test_secrets_are_redacted_in_error_messages(address):
    for error_class in (DataError, ModelError, ConfigError):
        message = str(error_class(f"{address}: cannot be fetched; see {address}."))
        assert "CRET" not in message
        assert "cannot be fetched" in message


def test_redaction_time_is_not_quadratic():
    for text in ("x://", "x://a:b", "x://a?", "?token=", "hf_a", "x:// ", "?a&"):
        assert redact_secrets(text * 40_000)[:4] == (text * 2)[:4]


def test_signature_of_hub_redirect_is_not_logged(start_hub, tmp_path):
    hub, store = start_hub(), start_hub()
    files = {"config.json": "{}", "model.safetensors": b"no weights"}
    for server in (hub, store):
        server.add("me/model", files)
    hub.storage_servers, hub.signature = {"/me/model/resolve/": store.address}, "?X-Amz-Signature=S3CRET&v=1"
    spec = {"name": "m", "source": "me/model", "kind": "auto", "allow_pickle": False}
    fields = stages.text("model", spec=spec, out="out.json", log="model.log")
    command = [sys.executable, "-m", "vernacular", "model"]
    env = environment(hub.address, tmp_path / "hf")
    options = {"cwd": tmp_path, "input": fields, "capture_output": True, "text": True, "check": False, "env": env}
    process = subprocess.run(command, **options)
    assert b"X-Amz-Signature=S3CRET" in b"".join(store.raw_requests), "the storage server receives the signature"
    log = (tmp_path / "model.log").read_text("utf-8")
    assert "model.safetensors?X-Amz-Signature=…&v=1" in log
    assert "CRET" not in log + process.stdout + process.stderr
