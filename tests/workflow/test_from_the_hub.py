"""The main job from Hub ids: a model and a data set on a small Hub on 127.0.0.1, fetched by the real clients."""

import json

import adapting
import pytest
from hub_server import HubServer
from workplace import Workplace, said

MODEL, DATA = "meta-llama/Llama-2-7b-hf", "proxectonos/openbookqa_gl"


def question(i: int) -> str:
    choices = {"text": [f"a opción {n} da pregunta {i}" for n in "ABCD"], "label": list("ABCD")}
    return json.dumps({"id": f"q{i}", "question_stem": f"Cal é a {i}?", "choices": choices, "answerKey": "ABCD"[i % 4]})


@pytest.fixture(scope="module")
def hub():
    server = HubServer()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def place(hub, tmp_path_factory):
    place = Workplace(tmp_path_factory.mktemp("hub"), [])
    hub.add(MODEL, {f.name: f.read_bytes() for f in (place.folder / "causal").iterdir()}, gated=True)
    split = {"test": range(12), "validation": range(12, 20)}
    hub.add(DATA, {f"{name}.jsonl": "\n".join(map(question, rows)) for name, rows in split.items()})
    place.config |= {
        "models": {"llama-2-7b": {"source": f"{MODEL}@main", "dtype": "float32"}},
        "data": "hub",
        "evaluations": [
            {"task": "openbookqa", "languages": ["gl"], "protocols": ["generation", "options"], "shots": 2}
        ],
    }
    place.environment = {
        "HF_ENDPOINT": hub.address,
        "HF_HOME": str(place.folder / "hf"),
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }
    return place


def test_a_gated_model_is_named_with_what_to_do_and_the_rest_goes_on(place):
    run = place.run()
    assert run.returncode == 1
    assert f"{MODEL}: gated. Accept its terms at" in run.stdout + run.stderr
    assert "HF_TOKEN" in run.stdout + run.stderr
    assert "gated" in place.notes().query("kind == 'unavailable'")["note"].iloc[0]


def test_hub_ids_are_all_it_takes(place, hub):
    place.environment["HF_TOKEN"] = hub.token
    run = place.run()
    assert run.returncode == 0, said(run)
    results = place.results()
    assert set(results["evaluation"]) == {"openbookqa.gl.generation.2shot", "openbookqa.gl.options.2shot"}
    assert set(results["model_revision"]) == {hub.repositories[MODEL].refs["main"]}
    assert set(results["dataset_revision"]) == {hub.repositories[DATA].refs["main"]}
    assert results.query("metric == 'accuracy' and category == ''")["n"].iloc[0] == 12


def test_model_jobs_ask_the_hub_nothing(place, hub):
    (place.folder / "results" / "store").rename(place.folder / "results" / "lost")
    hub.log.clear()
    run = place.run("--forcerun", "infer")
    assert run.returncode == 0, said(run)
    assert hub.log == []


def test_an_adapter_comes_from_the_hub_too(place, hub):
    folder = adapting.train(place.folder / "causal", place.folder / "lora", steps=2)
    config = json.loads((folder / "adapter_config.json").read_text()) | {"base_model_name_or_path": MODEL}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    hub.add("me/tuned-gl", {f.name: f.read_bytes() for f in folder.iterdir() if f.suffix != ".md"})
    place.config["models"]["tuned"] = {"base": "llama-2-7b", "adapter": "me/tuned-gl@main"}
    run = place.run()
    assert run.returncode == 0, said(run)
    tuned = place.results().query("model == 'tuned'")
    commits = [hub.repositories[name].refs["main"] for name in (MODEL, "me/tuned-gl")]
    assert set(tuned["model_revision"]) == {" + ".join(commits)}
    assert set(tuned["adapter"]) == {"me/tuned-gl@main"}
    assert set(tuned["base"]) == {"llama-2-7b"}


def test_the_token_stands_in_no_file(place, hub):
    for path in place.folder.rglob("*"):
        if path.is_file():
            assert hub.token.encode() not in path.read_bytes(), path
