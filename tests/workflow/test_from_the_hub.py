"""Complete runs from Hub IDs: a model and a dataset on a small Hub on 127.0.0.1, downloaded by the real clients."""

import contextlib
import json
import threading
from pathlib import Path

import pytest
from support import lora_training
from support.workspace import Workspace, output_tail

pytestmark = pytest.mark.slow  # complete runs

MODEL, DATA = "meta-llama/Llama-2-7b-hf", "proxectonos/openbookqa_gl"


def question(i: int) -> str:
    choices = {"text": [f"a opción {n} da pregunta {i}" for n in "ABCD"], "label": list("ABCD")}
    return json.dumps({"id": f"q{i}", "question_stem": f"Cal é a {i}?", "choices": choices, "answerKey": "ABCD"[i % 4]})


class CommandLineMonitor(threading.Thread):
    """Searches the command lines of all processes for a text, five times a second; `matches` has those that contain it."""

    def __init__(self, text: str):
        super().__init__(daemon=True)
        self.text, self.matches, self.commands, self._stopped = text.encode(), set(), set(), threading.Event()
        self.start()

    def run(self):
        while not self._stopped.wait(0.2):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                with contextlib.suppress(OSError):  # the process has exited
                    line = path.read_bytes()
                    self.commands |= {name for name in (b"model", b"items", b"infer") if b"stage.py\0" + name in line}
                    if self.text in line:
                        self.matches.add(line)

    def stop(self):
        self._stopped.set()
        self.join()


@pytest.fixture(scope="module")
def workspace(hub, tmp_path_factory):
    workspace = Workspace(tmp_path_factory.mktemp("hub"), [])
    hub.add(MODEL, {f.name: f.read_bytes() for f in (workspace.directory / "causal").iterdir()}, gated=True)
    split = {"test": range(12), "validation": range(12, 20)}
    hub.add(DATA, {f"{name}.jsonl": "\n".join(map(question, rows)) for name, rows in split.items()})
    workspace.config |= {
        "models": {"llama-2-7b": {"source": f"{MODEL}@main", "dtype": "float32"}},
        "data": "hub",
        "evaluations": [{"task": "openbookqa", "languages": ["gl"], "protocols": ["letters", "options"], "shots": 2}],
    }
    workspace.outputs, run = [], workspace.run
    monitor = CommandLineMonitor(hub.token)

    def run_and_record(*arguments):
        process = run(*arguments)
        workspace.outputs.append(process.stdout + process.stderr)
        return process

    workspace.run, workspace.monitor = run_and_record, monitor
    workspace.environment = {
        "HF_ENDPOINT": hub.address,
        "HF_HOME": str(workspace.directory / "hf"),
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }
    yield workspace
    monitor.stop()


def test_gated_model_is_reported_with_advice_and_the_run_continues(workspace):
    run = workspace.run()
    assert run.returncode == 1
    assert f"{MODEL}: access is gated. Accept the terms at" in run.stdout + run.stderr
    assert "HF_TOKEN" in run.stdout + run.stderr
    assert "gated" in workspace.notes().query("kind == 'unavailable'")["note"].iloc[0]


def test_models_and_datasets_are_downloaded_by_hub_id_and_inference_sends_no_requests_to_it(workspace, hub):
    workspace.environment["HF_TOKEN"] = hub.token
    directory = lora_training.train(workspace.directory / "causal", workspace.directory / "lora", steps=2)
    config = json.loads((directory / "adapter_config.json").read_text()) | {"base_model_name_or_path": MODEL}
    (directory / "adapter_config.json").write_text(json.dumps(config))
    hub.add("me/tuned-gl", {f.name: f.read_bytes() for f in directory.iterdir() if f.suffix != ".md"})
    workspace.config["models"]["tuned"] = {"base": "llama-2-7b", "adapter": "me/tuned-gl@main"}
    run = workspace.run("resources/models/tuned.json")
    assert run.returncode == 0, output_tail(run)
    hub.log.clear()
    run = workspace.run()
    assert run.returncode == 0, output_tail(run)
    assert hub.log == []
    log = (workspace.directory / "logs" / "infer" / "llama-2-7b.1of1.log").read_text("utf-8")
    assert "4 evaluations computed" in log, "of the base and its adapter"
    results = workspace.results()
    assert set(results["evaluation"]) == {"openbookqa.gl.letters.2shot", "openbookqa.gl.options.2shot"}
    assert set(results["dataset_revision"]) == {hub.repositories[DATA].refs["main"]}
    assert set(results.query("metric == 'accuracy' and category == ''")["n"]) == {12}
    assert set(results.query("model == 'llama-2-7b'")["model_revision"]) == {hub.repositories[MODEL].refs["main"]}
    tuned = results.query("model == 'tuned'")
    commits = [hub.repositories[name].refs["main"] for name in (MODEL, "me/tuned-gl")]
    assert set(tuned["model_revision"]) == {" + ".join(commits)}
    assert set(tuned["adapter"]) == {"me/tuned-gl@main"}
    assert set(tuned["base"]) == {"llama-2-7b"}


def test_error_messages_do_not_contain_the_token(workspace, hub):
    """The token is read from its file, with verbose logging; one repository is missing, one forbidden, one broken."""
    workspace.environment.pop("HF_TOKEN", None)
    (workspace.directory / "hf").mkdir(exist_ok=True)
    (workspace.directory / "hf" / "token").write_text(hub.token)
    workspace.environment |= {"HF_DEBUG": "1", "HF_HUB_VERBOSITY": "debug", "HTTPX_LOG_LEVEL": "trace"}
    hub.add("me/broken", {"config.json": "{}"}, private=True)
    hub.add("me/refused", {"config.json": "{}"}, private=True)
    hub.errors |= {"/api/models/me/broken/revision/main": [500] * 9, "/api/models/me/refused/revision/main": [401] * 9}
    workspace.config["models"] |= {name: {"source": f"me/{name}@main"} for name in ("lost", "broken", "refused")}
    run = workspace.run("--verbose", "--printshellcmds", "--until", "model")
    output = run.stdout + run.stderr
    assert "me/lost: not found on the Hub, or private." in output
    assert "me/broken: not in the local cache, and the Hub cannot be reached (HTTP 500)." in output
    assert "me/refused: the Hub denied access (HTTP 401). Check that HF_TOKEN is valid" in output
    assert hub.token not in output
    assert {token for _, path, token in hub.log if "/broken/" in path} == {hub.token}


def test_token_is_in_no_file_no_output_and_no_command_line(workspace, hub):
    for path in workspace.directory.rglob("*"):
        if path.is_file() and path != workspace.directory / "hf" / "token":
            assert hub.token.encode() not in path.read_bytes(), path
    assert len(workspace.outputs) == 4
    assert not [output for output in workspace.outputs if hub.token in output]
    assert workspace.monitor.commands == {b"model", b"items", b"infer"}
    assert workspace.monitor.matches == set()
