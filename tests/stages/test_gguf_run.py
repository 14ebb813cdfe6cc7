"""GGUF files in all stages: a file and an adapter, in shards, and the same file converted."""

import contextlib
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from support import gguf_models as models
from support.stage_run import Run
from vernacular.config.load import load
from vernacular.config.references import check_references
from vernacular.core.errors import ConfigError
from vernacular.core.validate import Problems

pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed (pip install llama-cpp-python)")

EVALUATIONS = [
    {"task": "cola", "languages": ["gl"], "protocols": ["acceptability"], "limit": 4},
    {"task": "openbookqa", "languages": ["gl"], "protocols": ["letters", "options"], "limit": 3},
]
MODELS = {
    "mine": {"source": "./mine.gguf", "shards": 2},
    "again": {"source": "./copy.gguf"},
    "exact": {"source": "./mine.gguf", "dtype": "float32"},
    "adapted": {"base": "mine", "adapter": "./lora.gguf"},
}


def config(names, **changes):
    entries = {name: MODELS[name] | changes for name in names}
    return load([], {"models": entries, "data": "samples", "evaluations": EVALUATIONS})


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    root = tmp_path_factory.mktemp("run")
    models.write(*models.model("qwen2"), root / "exact.gguf", "qwen2")
    models.quantize(root / "exact.gguf", root / "mine.gguf", "Q4_K_M")
    (root / "copy.gguf").write_bytes((root / "mine.gguf").read_bytes())
    models.write_adapter(root / "lora.gguf", "qwen2")
    with contextlib.chdir(root):
        assert Run(config(MODELS)).run_all() == 0
    return root


def scores(directory, name):
    return {
        path.name: [row["logprobs"] for row in pq.read_table(path).to_pylist()]
        for path in sorted((directory / "results" / name / "scores").glob("*.parquet"))
    }


def test_values_are_those_of_one_job_whatever_the_shards(directory):
    assert len(scores(directory, "mine")) == 3
    assert scores(directory, "mine") == scores(directory, "again")
    assert scores(directory, "adapted") != scores(directory, "mine")
    differences = [
        abs(a - b)
        for name, rows in scores(directory, "exact").items()
        for row, other in zip(rows, scores(directory, "mine")[name], strict=True)
        for a, b in zip(row, other, strict=True)
        if a is not None
    ]
    assert 0 < sum(differences) / len(differences) < 0.5  # activations are rounded to 8 bits


def test_only_the_converted_model_has_weights_on_disk(directory):
    converted = {path.parent.name.partition(".")[0] for path in directory.rglob("*.safetensors")}
    assert converted == {"mine"}
    record = Path(directory, "resources", "models", "again.json").read_text()
    assert "copy.gguf" in record
    assert "converted" not in record


def test_tokenizers_of_files_are_counted(directory):
    rows = pq.read_table(directory / "results" / "summary" / "tokenizers.parquet").to_pylist()
    by_model = {row["model"]: row["tokens"] for row in rows if row["task"] == "cola"}
    assert by_model["mine"] == by_model["exact"] > 0


def test_check_names_what_llama_cpp_cannot_run(directory, tmp_path):
    (tmp_path / "cut.gguf").write_bytes((directory / "mine.gguf").read_bytes()[:2000])
    entries = {
        "cut": {"source": str(tmp_path / "cut.gguf")},
        "mine": {"source": str(directory / "mine.gguf")},
        "peft": {"base": "mine", "adapter": str(directory)},
        "lora": {"base": "exact", "adapter": str(directory / "lora.gguf")},
        "exact": {"source": str(directory / "mine.gguf"), "dtype": "float32"},
    }
    problems = Problems()
    with contextlib.suppress(ConfigError):
        check_references(load([], {"models": entries, "data": "samples", "evaluations": EVALUATIONS}), problems)
    found = "\n".join(map(str, problems))
    for text in ("cut.gguf cannot be read as GGUF", "is an adapter of PEFT", "lora.gguf is an adapter in GGUF"):
        assert text in found
    assert "model mine" not in found
