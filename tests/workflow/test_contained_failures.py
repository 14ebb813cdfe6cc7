"""Whatever a model or dataset does costs its own values: the others are in the summary, and the next run tries again."""

import json
from pathlib import Path

import pytest
import yaml
from support import tiny
from support.workplace import ROOT, Workplace, said

pytestmark = pytest.mark.usefixtures("heard_signals")

SENTENCES, OPTIONS = "cola.gl.acceptability.0shot", "openbookqa.gl.options.0shot"
LOST = "lost.gl.acceptability.0shot"

# code of a model's own, which runs in its forward pass or while it is loaded
CODE = """
import os, signal
from transformers import LlamaConfig, LlamaForCausalLM

class PanicException(BaseException):
    "What a panic of a library in Rust is for Python."

    __module__ = "pyo3_runtime"

class Own(LlamaForCausalLM):
    def __init__(self, *given, **named):
        super().__init__(*given, **named)
        {loading}

    def forward(self, *given, **named):
        {forward}
        return super().forward(*given, **named)
"""
KILL = "os.kill(os.getpid(), signal.SIGKILL)"


def with_code(folder: Path, *, loading: str = "pass", forward: str = "pass") -> None:
    tiny.save("llama", folder)
    config = json.loads((folder / "config.json").read_text())
    config["auto_map"] = {"AutoModelForCausalLM": "own.Own"}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "own.py").write_text(CODE.format(loading=loading, forward=forward))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = Workplace(tmp_path_factory.mktemp("contained"), [])
    place.config["evaluations"] = [
        {"task": "cola", "languages": ["gl"], "limit": 4},
        {"task": "openbookqa", "languages": ["gl"], "protocols": ["options"], "limit": 4},
        {"task": "lost", "data": "hub"},
    ]
    with_code(place.folder / "killed", forward=KILL)
    with_code(place.folder / "killed-loading", loading=KILL)
    with_code(place.folder / "panics", forward="raise PanicException('a regex too many')")
    for name in ("killed", "killed-loading", "panics"):
        place.config["models"][name] = {"source": f"./{name}", "dtype": "float32", "trust_remote_code": True}
    task = yaml.safe_load((ROOT / "workflow" / "tasks" / "cola.yaml").read_text())
    task |= {"task": "lost", "languages": {"gl": {"source": {"file": "absent.jsonl"}}}}
    (place.folder / "mine").mkdir()
    (place.folder / "mine" / "lost.yaml").write_text(yaml.safe_dump(task))
    place.config["tasks"] = ["mine"]
    return place


def test_what_dies_panics_or_is_missing_costs_its_own_values_alone(place):
    run = place.run()
    assert run.returncode == 1, said(run)
    assert set(place.results()["model"]) == {"tiny"}
    assert set(place.results()["evaluation"]) == {SENTENCES, OPTIONS}
    notes = place.notes().query("kind == 'unavailable'")
    why = {(row.model, row.evaluation): row.note for row in notes.itertuples()}
    models = ("tiny", "killed", "killed-loading", "panics")
    assert set(why) == {(m, e) for m in models for e in (SENTENCES, OPTIONS, LOST)} - {
        ("tiny", SENTENCES), ("tiny", OPTIONS)
    }  # fmt: skip
    assert all("absent.jsonl" in why[model, LOST] for model in models)
    for evaluation in (SENTENCES, OPTIONS):
        assert "SIGKILL (probable cause: out of memory)" in why["killed", evaluation]
        assert "SIGKILL (probable cause: out of memory)" in why["killed-loading", evaluation]
        assert "a regex too many" in why["panics", evaluation]


def test_the_next_plan_tries_again_what_failed_and_nothing_else(place):
    planned = place.planned()
    assert planned["items"] == planned["requests"] == 1
    assert "model" not in planned


@pytest.mark.slow
def test_a_model_and_a_file_that_are_mended_are_evaluated_by_the_next_run(place):
    for name in ("killed", "killed-loading", "panics"):
        tiny.save("llama", place.folder / name)
    rows = [{"sentence": f"O gato número {i} durme.", "label": i % 2} for i in range(4)]
    (place.folder / "mine" / "absent.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = place.run()
    assert run.returncode == 0, said(run)
    assert set(place.results()["model"]) == {"tiny", "killed", "killed-loading", "panics"}
    assert place.notes().query("kind == 'unavailable'").empty
    assert place.planned() == {}
