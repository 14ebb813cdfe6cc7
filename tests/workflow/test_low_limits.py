"""A complete run with every limit lowered: small data cross each of them several times, and no result may change.

All stages run in this process, in the order of the rules, twice: with the limits of the package, and with those of LOW.
"""

import importlib
import os
import shutil
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
import yaml
from support import lora_training, tiny
from support.stage_run import Run
from vernacular import cli
from vernacular.config import load as config
from vernacular.core import artifacts

pytestmark = pytest.mark.slow

LOW = {  # module: constant: value; docs/resources.md describes each
    "core.artifacts": {"ROWS_PER_GROUP": 3},
    "core.contents": {"_CHUNK": 1000},
    "core.digests": {"_CHUNK": 100, "_GUESS": 64},
    "inference.generation.generate": {"_CPU_ROWS": 2, "_CPU_PREFILL": 64, "_CPU_CACHE": 1 << 14},
    "inference.job.work": {"_BATCH_ROWS": 2},
    "inference.model.base": {"_WORDS_PER_STEP": {"cpu": 8}},
    "inference.model.batch_tokenization": {"BLOCK": 2},
    "inference.model.loaded": {"_CPU_TOKENS": 64},
    "inference.schema": {"_ROWS_AT_A_TIME": 2},
    "inference.scoring.chunks": {"CHUNK_CHARACTERS": 10_000},
    "inference.scoring.head": {"_CHUNK_BYTES": {"cpu": 1 << 13}, "_BLOCK_COLUMNS": 16},
    "metrics.corpus": {"_CELLS": 30},
    "metrics.similarity.encoder": {"TOKEN_BUDGET": {"cpu": 16}, "LIMIT": 1 << 12},
    "metrics.similarity.token_metrics": {"CHUNK_TOKENS": 20},
    "report.evaluation": {"ITEMS_PER_FILE": 2},
    "statistics.intervals": {"_CELLS": 50},
    "statistics.paired": {"_CELLS": 50, "_COLUMNS": 1},
    "summary.notes": {"_MAX_LIST": 60},
}
EVALUATIONS = [
    {"task": "openbookqa", "languages": ["gl"], "protocols": ["generation", "options"], "shots": 2, "limit": 4},
    {
        "task": "openbookqa",
        "languages": ["es"],
        "protocols": ["letters"],
        "prompts": ["default", "instructed", "formal"],
        "limit": 4,
    },
    {"task": "cola", "languages": ["es"], "min_k_plus_plus": True, "limit": 6},
    {"task": "serbian_cloze", "languages": ["sr"], "limit": 4},
]
CONFIG = {
    "models": {
        "tiny": {"source": "./causal", "dtype": "float32", "device": "cpu", "shards": 2},
        "tuned": {"base": "tiny", "adapter": "./adapter"},
        "mine": {"series": "./out/checkpoint-*", "dtype": "float32", "device": "cpu"},
    },
    "data": "samples",
    "evaluations": EVALUATIONS,
    "similarity": {"metrics": ["cosine", "bertscore"], "encoders": {"default": "./encoder"}},
}


def stages(**changes) -> Run:
    Path("config.yaml").write_text(yaml.safe_dump(CONFIG | changes, sort_keys=False))
    return Run(config.load(["config.yaml"]))


def run_stages(external: Path) -> None:
    """Run all stages in the current directory, publish, join two publications, and compare with external results."""
    run = stages()
    assert run("items") == run("requests") == run("encoder") == 0
    for model in run.config.models:
        assert run("model", model) == 0
    for base in run.config.bases:
        assert run("infer", base) == 0
    for model in run.config.models:
        for command in ("collect", "similarity", "metrics", "export"):
            assert run(command, model) == 0
    for command in ("compare", "curves", "summary", "report", "verify"):
        assert run(command) == 0
    assert cli.main(["publish", "results", "publications/one"]) == 0
    shutil.copytree("publications/one", "publications/two")
    assert cli.main(["join", "publications", "joined"]) == 0
    if not external.exists():
        shutil.copytree("publications/one", external)
    assert stages(external_results={"lab": {"path": str(external), "model": "tuned"}})("compare") == 0


@pytest.fixture(scope="module")
def directories(tmp_path_factory) -> tuple[Path, Path]:
    """The directories of the two runs, each with a publication, compared with as external results, and a join."""
    root, previous = tmp_path_factory.mktemp("limits"), os.getcwd()
    tiny.save("llama", root / "models" / "causal")
    tiny.save("bert", root / "models" / "encoder")
    for step in (10, 20, 30):
        lora_training.pretrain(root / "models" / "causal", root / "models" / "out" / f"checkpoint-{step}", steps=step // 10)
    lora_training.train(root / "models" / "causal", root / "models" / "adapter", steps=2)
    for name in ("usual", "low"):
        shutil.copytree(root / "models", root / name)
    try:
        os.chdir(root / "usual")
        run_stages(root / "published")
        os.chdir(root / "low")
        with pytest.MonkeyPatch.context() as patch:
            for module, constants in LOW.items():
                for name, value in constants.items():
                    patch.setattr(importlib.import_module(f"vernacular.{module}"), name, value)
            run_stages(root / "published")
    finally:
        os.chdir(previous)
    return root / "usual", root / "low"


def relative_paths(directory: Path, pattern: str) -> list[Path]:
    return sorted(path.relative_to(directory) for path in directory.glob(pattern))


def test_every_artifact_of_three_rows_has_several_row_groups_with_the_same_rows(directories):
    usual, low = directories
    patterns = ("resources/items/*.parquet", "results/**/*.parquet", "publications/one/**/*.parquet")
    paths = [path for pattern in patterns for path in relative_paths(usual, pattern)]
    assert paths == [path for pattern in patterns for path in relative_paths(low, pattern)]
    kinds = {}
    for path in paths:
        expected, table = pq.read_table(usual / path), pq.read_table(low / path)
        groups = pq.ParquetFile(low / path).num_row_groups
        assert groups == max(1, -(-table.num_rows // LOW["core.artifacts"]["ROWS_PER_GROUP"])), path
        pd.testing.assert_frame_equal(as_text(table), as_text(expected), rtol=1e-3, atol=2e-4, obj=str(path))
        kinds.setdefault(artifacts.metadata(low / path, allow_moved=True)["kind"], set()).add(min(groups, 3))
    assert {kind for kind, groups in kinds.items() if 3 in groups} == set(kinds)
    assert len(kinds) >= 18
