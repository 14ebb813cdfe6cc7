"""The main job from Hub ids: a model and a data set on a small Hub on 127.0.0.1, fetched by the real clients."""

import contextlib
import json
import threading
from pathlib import Path

import pytest
from support import adapting
from support.workplace import Workplace, said

pytestmark = pytest.mark.slow  # a story of five whole runs

MODEL, DATA = "meta-llama/Llama-2-7b-hf", "proxectonos/openbookqa_gl"


def question(i: int) -> str:
    choices = {"text": [f"a opción {n} da pregunta {i}" for n in "ABCD"], "label": list("ABCD")}
    return json.dumps({"id": f"q{i}", "question_stem": f"Cal é a {i}?", "choices": choices, "answerKey": "ABCD"[i % 4]})


class Watch(threading.Thread):
    """Looks, five times a second, for a text in the command line of every process; `seen` has those that hold it."""

    def __init__(self, text: str):
        super().__init__(daemon=True)
        self.text, self.seen, self.looked, self._over = text.encode(), set(), set(), threading.Event()
        self.start()

    def run(self):
        while not self._over.wait(0.2):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                with contextlib.suppress(OSError):  # it has ended
                    line = path.read_bytes()
                    self.looked |= {verb for verb in (b"model", b"items", b"infer") if b"vernacular\0" + verb in line}
                    if self.text in line:
                        self.seen.add(line)

    def stop(self):
        self._over.set()
        self.join()


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
    place.config["similarity"]["metrics"] = ["cosine"]  # the others are in test_whole_runs
    place.everything_said, run = [], place.run
    watch = Watch(hub.token)

    def run_and_keep(*arguments):
        done = run(*arguments)
        place.everything_said.append(done.stdout + done.stderr)
        return done

    place.run, place.watch = run_and_keep, watch
    place.environment = {
        "HF_ENDPOINT": hub.address,
        "HF_HOME": str(place.folder / "hf"),
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }
    yield place
    watch.stop()


def test_a_gated_model_is_named_with_what_to_do_and_the_rest_goes_on(place):
    run = place.run()
    assert run.returncode == 1
    assert f"{MODEL}: access is gated. Accept the terms at" in run.stdout + run.stderr
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


def test_what_fails_with_a_token_at_hand_is_told_without_it(place, hub):
    """From its file this time, with everything that can be said said: lost, refused, broken."""
    place.environment.pop("HF_TOKEN", None)
    (place.folder / "hf").mkdir(exist_ok=True)
    (place.folder / "hf" / "token").write_text(hub.token)
    place.environment |= {"HF_DEBUG": "1", "HF_HUB_VERBOSITY": "debug", "HTTPX_LOG_LEVEL": "trace"}
    hub.add("me/broken", {"config.json": "{}"}, private=True)
    hub.add("me/refused", {"config.json": "{}"}, private=True)
    hub.errors |= {"/api/models/me/broken/revision/main": [500] * 9, "/api/models/me/refused/revision/main": [401] * 9}
    place.config["models"] |= {name: {"source": f"me/{name}@main"} for name in ("lost", "broken", "refused")}
    run = place.run("--verbose", "--printshellcmds", "--until", "model")
    said = run.stdout + run.stderr
    assert "me/lost: not found on the Hub, or private." in said
    assert "me/broken: not in the local cache, and the Hub cannot be reached (HTTP 500)." in said
    assert "me/refused: the Hub denied access (HTTP 401). Check that HF_TOKEN is valid" in said
    assert hub.token not in said
    assert {token for _, path, token in hub.log if "/broken/" in path} == {hub.token}


def test_the_token_stands_in_no_file_no_sentence_and_no_command_line(place, hub):
    for path in place.folder.rglob("*"):
        if path.is_file() and path != place.folder / "hf" / "token":
            assert hub.token.encode() not in path.read_bytes(), path
    assert len(place.everything_said) >= 5
    assert not [said for said in place.everything_said if hub.token in said]
    assert place.watch.looked == {b"model", b"items", b"infer"}
    assert place.watch.seen == set()
