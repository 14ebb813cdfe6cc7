"""Failures of a model or dataset affect only its own values; the summary has the others, and the next run retries."""

import json
from pathlib import Path

import pytest
import yaml
from support import tiny
from support.workspace import ROOT, Workspace, output_tail
from vernacular.config.directories import clear_unavailable

pytestmark = [pytest.mark.usefixtures("default_signals"), pytest.mark.slow]

SENTENCES, OPTIONS = "cola.gl.acceptability.0shot", "openbookqa.gl.options.0shot"
LOST = "lost.gl.acceptability.0shot"

# custom model code that runs in the forward pass or during loading
CODE = """
import os, signal
from transformers import LlamaConfig, LlamaForCausalLM

class PanicException(BaseException):
    "A Rust panic, as seen by Python."

    __module__ = "pyo3_runtime"

class CustomModel(LlamaForCausalLM):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        {loading}

    def forward(self, *args, **kwargs):
        {forward}
        return super().forward(*args, **kwargs)
"""
KILL = "os.kill(os.getpid(), signal.SIGKILL)"


def save_model_with_code(directory: Path, *, loading: str = "pass", forward: str = "pass") -> None:
    tiny.save("llama", directory)
    config = json.loads((directory / "config.json").read_text())
    config["auto_map"] = {"AutoModelForCausalLM": "own.CustomModel"}
    (directory / "config.json").write_text(json.dumps(config))
    (directory / "own.py").write_text(CODE.format(loading=loading, forward=forward))


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    workspace = Workspace(tmp_path_factory.mktemp("contained"), [])
    workspace.config["evaluations"] = [
        {"task": "cola", "languages": ["gl"], "limit": 4},
        {"task": "openbookqa", "languages": ["gl"], "protocols": ["options"], "limit": 4},
        {"task": "lost", "data": "hub"},
    ]
    save_model_with_code(workspace.directory / "killed", forward=KILL)
    save_model_with_code(workspace.directory / "killed-loading", loading=KILL)
    save_model_with_code(workspace.directory / "panics", forward="raise PanicException('a regex too many')")
    for name in ("killed", "killed-loading", "panics"):
        workspace.config["models"][name] = {"source": f"./{name}", "dtype": "float32", "trust_remote_code": True}
    task = yaml.safe_load((ROOT / "workflow" / "tasks" / "cola.yaml").read_text())
    task |= {"task": "lost", "languages": {"gl": {"source": {"file": "absent.jsonl"}}}}
    (workspace.directory / "mine").mkdir()
    (workspace.directory / "mine" / "lost.yaml").write_text(yaml.safe_dump(task))
    workspace.config["tasks"] = ["mine"]
    return workspace


def test_killed_panicking_and_missing_inputs_affect_only_their_own_values(workspace):
    run = workspace.run()
    assert run.returncode == 1, output_tail(run)
    check_last_lines(run.stderr)
    assert set(workspace.results()["model"]) == {"tiny"}
    assert set(workspace.results()["evaluation"]) == {SENTENCES, OPTIONS}
    notes = workspace.notes().query("kind == 'unavailable'")
    reasons = {(row.model, row.evaluation): row.note for row in notes.itertuples()}
    models = ("tiny", "killed", "killed-loading", "panics")
    assert set(reasons) == {(m, e) for m in models for e in (SENTENCES, OPTIONS, LOST)} - {
        ("tiny", SENTENCES), ("tiny", OPTIONS)
    }  # fmt: skip
    assert all("absent.jsonl" in reasons[model, LOST] for model in models)
    for evaluation in (SENTENCES, OPTIONS):
        assert "SIGKILL (probable cause: out of memory)" in reasons["killed", evaluation]
        assert "SIGKILL (probable cause: out of memory)" in reasons["killed-loading", evaluation]
        assert "a regex too many" in reasons["panics", evaluation]


def check_last_lines(stderr: str) -> None:
    """Check that a run ends with its reasons by model and how to resume, without commands and specifications."""
    *others, logs, last = stderr.partition("\nThe summary is written, but results are missing:\n")[2].splitlines()
    assert last == "Finished results are kept. To resume, run the same command again."
    assert logs.startswith("Logs: ")
    assert {"logs/items/items.log", "logs/infer/killed.1of1.log", "logs/infer/panics.1of1.log"} <= set(
        logs.removeprefix("Logs: ").split(", ")
    )
    reasons: dict[str, list[str]] = {}
    for line in others:
        if not line.startswith("    "):
            models = reasons.setdefault(line.strip(), [])
        else:
            models.append(line.strip())
    everyone = "tiny, killed, killed-loading, panics"
    assert set(reasons) == {everyone, "killed, killed-loading", "panics"}
    assert reasons[everyone][0].startswith(f"{LOST}: ")
    assert "SIGKILL (probable cause: out of memory)" in reasons["killed, killed-loading"][0]
    assert "a regex too many" in reasons["panics"][0]
    assert "<<<" not in stderr
    assert '{"' not in stderr
    assert "Traceback" not in stderr


def test_next_plan_retries_only_failed_steps(workspace):
    planned = workspace.planned_jobs()
    assert planned["items"] == planned["requests"] == 1
    assert "model" not in planned


def test_fixed_models_and_files_are_evaluated_by_the_next_run(workspace):
    for name in ("killed", "killed-loading", "panics"):
        tiny.save("llama", workspace.directory / name)
    rows = [{"sentence": f"O gato número {i} durme.", "label": i % 2} for i in range(4)]
    (workspace.directory / "mine" / "absent.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert workspace.run_stages() == 0
    assert set(workspace.results()["model"]) == {"tiny", "killed", "killed-loading", "panics"}
    assert workspace.notes().query("kind == 'unavailable'").empty
    assert clear_unavailable(workspace.directory / "resources", workspace.directory / "results") == []
