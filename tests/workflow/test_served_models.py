"""Complete runs with models behind a server: the same tables as with the model loaded locally, and no key anywhere."""

import json
from pathlib import Path

import pytest
from support import llama, served
from support.published import contents
from support.workspace import Workspace, output_tail
from vernacular import cli

pytestmark = [pytest.mark.usefixtures("default_signals"), pytest.mark.slow]

EVALUATIONS = [
    {"task": "cola", "languages": ["gl"], "limit": 4},
    {"task": "openbookqa", "languages": ["gl"], "protocols": ["generation", "options", "letters"], "limit": 3},
    {"task": "global_piqa", "languages": ["ar"], "limit": 3},
    {"task": "calame", "languages": ["gl"], "protocols": ["last_word"], "limit": 3},
]


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    workspace = Workspace(tmp_path_factory.mktemp("served"), EVALUATIONS)
    model = served.trained_model()
    model.model.save_pretrained(workspace.directory / "trained")
    model.tokenizer.save_pretrained(workspace.directory / "trained")
    workspace.config["similarity"]["metrics"] = ["cosine"]
    return workspace


@pytest.fixture(scope="module")
def server(workspace):
    with served.Server(served.trained_model(), key=served.KEY, length=512) as server:
        settings = {"source": server.source, "model": server.name, "tokenizer": "./trained", "api_key_env": "BIG_KEY"}
        local = {"source": "./trained", "dtype": "float32", "device": "cpu"}
        workspace.config["models"] = {"local": local, "big": settings}
        workspace.environment["BIG_KEY"] = served.KEY
        yield server


def test_served_model_has_the_results_of_the_local_model(workspace, server):
    run = workspace.run()
    assert run.returncode == 0, output_tail(run)
    assert "requests answered" in run.stdout + run.stderr
    columns = ["evaluation", "metric", "category"]
    local, big = (
        workspace.results().query(f"model == '{name}'").set_index(columns).sort_index() for name in ("local", "big")
    )
    assert local.index.equals(big.index)
    assert big["value"].to_numpy() == pytest.approx(local["value"].to_numpy(), abs=1e-3, rel=1e-5, nan_ok=True)
    assert big["n"].tolist() == local["n"].tolist()
    assert {e.split(".")[2] for e in big.index.get_level_values("evaluation")} == {
        "acceptability", "generation", "options", "letters", "minimal_pair", "last_word"
    }  # fmt: skip


def test_second_run_has_nothing_to_do(workspace, server):
    received = server.received
    assert workspace.planned_jobs() == {}
    assert server.received == received


def test_key_is_in_no_file_and_in_no_output(workspace, server):
    files = [path for path in workspace.directory.rglob("*") if path.is_file() and "trained" not in path.parts]
    assert len(files) > 50
    assert not [path for path in files if served.KEY.encode() in path.read_bytes()]


def test_publication_contains_neither_address_nor_key_nor_path(workspace, server, monkeypatch):
    monkeypatch.chdir(workspace.directory)
    assert cli.main(["publish", "results", "published", "--organization", "A lab"]) == 0
    files = contents(workspace.directory / "published")
    assert len(files) > 50
    private = ("127.0.0.1", f":{server.port}", served.KEY, str(workspace.directory), "BIG_KEY")
    assert [(name, text) for name, content in files.items() for text in private if text.encode() in content] == []
    records = [json.loads(path.read_text("utf-8")) for path in Path("published").glob("data/*/*/*/*.json")]
    details = {record["model_info"]["name"]: record["model_info"] for record in records}
    assert details["big"]["id"] == "org/tiny"
    assert details["big"]["inference_engine"] == {"name": "vLLM"}
    assert details["big"]["additional_details"]["deployment_type"] == "self_deployed"
    assert details["local"]["inference_engine"]["name"] == "transformers"


def test_two_models_on_one_server_run_side_by_side_within_its_limit(workspace, server):
    settings = workspace.config["models"]["big"]
    workspace.config["models"] |= {
        "big": settings | {"concurrency": 2},
        "second": settings | {"concurrency": 2, "bos": "never"},
    }
    del workspace.config["models"]["local"]
    workspace.config["evaluations"] = [EVALUATIONS[0], EVALUATIONS[1] | {"protocols": ["options"]}]
    server.most_active = 0
    run = workspace.run("--until", "collect")
    assert run.returncode == 0, output_tail(run)
    assert 0 < server.most_active <= 2
    for model in workspace.config["models"]:
        assert workspace.score_metadata(model, "openbookqa.gl.options.0shot")["engine"]


@pytest.mark.soak  # smaller runs with this server are in tests/inference/test_llama_cpp.py
@llama.needs_smollm
def test_quantized_model_behind_llama_cpp_with_its_own_tokenizer(tmp_path):
    pytest.importorskip("xllamacpp", exc_type=ImportError)
    workspace = Workspace(tmp_path, [{**evaluation, "limit": 2} for evaluation in EVALUATIONS])
    workspace.config["similarity"]["metrics"] = ["cosine"]
    with llama.LlamaServer(llama.SMOLLM) as server:
        workspace.config["models"] = {"smol": {"source": server.source, "concurrency": 1}}
        run = workspace.run()
    assert run.returncode == 0, output_tail(run)
    results = workspace.results()
    assert {e.split(".")[2] for e in results["evaluation"]} == {
        "acceptability", "generation", "options", "letters", "minimal_pair", "last_word"
    }  # fmt: skip
    assert results.query("metric == 'accuracy'")["n"].min() == 2
    metadata = workspace.score_metadata("smol", "global_piqa.ar.minimal_pair.0shot")
    assert metadata["engine"]["name"] == "server: forcing"
    assert metadata["model"]["server"]["file"] == "SmolLM2-135M-Instruct.Q4_1.gguf"
    notes = workspace.notes()
    assert notes.query("kind == 'unavailable'").empty
