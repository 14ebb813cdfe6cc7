"""A complete run with every limit lowered: small data cross each of them several times, and no result may change.

All stages run in this process, in the order of the rules, twice: with the limits of the package, and with those of LOW.
"""

import json
import os
import shutil
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
import yaml
from support import limits, lora_training, series_training, tiny
from support.stage_run import Run
from vernacular import cli
from vernacular.config import load as config
from vernacular.core import artifacts

pytestmark = pytest.mark.slow

LOW = {  # module: constant: value; those that change batches, and thereby the last digits, have tests of their own
    "core.artifacts": {"ROWS_PER_GROUP": 2, "CHUNK": 100, "GUESS": 64},
    "core.contents": {"CHUNK": 1000},
    "inference.job.work": {"BATCH_ROWS": 2},
    "inference.model.load": {"WORDS_PER_STEP": {"cpu": 8}},
    "inference.model.batch_tokenization": {"BLOCK": 2, "BLOCK_CHARACTERS": 300},
    "inference.schema": {"ROWS_AT_A_TIME": 2},
    "metrics.corpus": {"CELLS": 6_000},
    "report.evaluation": {"ITEMS_PER_FILE": 2},
    "statistics.intervals": {"CELLS": 6_000},
    "statistics.paired": {"CELLS": 6_000, "COLUMNS": 1},
    "summary.notes": {"MAX_LIST": 60},
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
    assert stages().run_all(exports=True) == 0
    assert cli.main(["publish", "results", "publications/one"]) == 0
    shutil.copytree("publications/one", "publications/two")
    assert cli.main(["join", "publications", "joined"]) == 0
    if not external.exists():
        shutil.copytree("publications/one", external)
    with_external = stages(external_results={"lab": {"path": str(external), "model": "tuned"}})
    assert with_external("external") == with_external("changes") == 0


@pytest.fixture(scope="module")
def directories(tmp_path_factory) -> tuple[Path, Path]:
    """The directories of the two runs, each with a publication, compared with as external results, and a join."""
    root, previous = tmp_path_factory.mktemp("limits"), os.getcwd()
    tiny.save("llama", root / "models" / "causal")
    tiny.save("bert", root / "models" / "encoder")
    series_training.train(root / "models" / "out", steps=(1, 2, 3))
    lora_training.train(root / "models" / "causal", root / "models" / "adapter", steps=2)
    for name in ("usual", "low"):
        shutil.copytree(root / "models", root / name)
    try:
        os.chdir(root / "usual")
        run_stages(root / "published")
        os.chdir(root / "low")
        with pytest.MonkeyPatch.context() as patch:
            for module, constants in LOW.items():
                limits.lower(patch, module, **constants)
            run_stages(root / "published")
    finally:
        os.chdir(previous)
    return root / "usual", root / "low"


def relative_paths(directory: Path, *patterns: str) -> list[Path]:
    return sorted(path.relative_to(directory) for pattern in patterns for path in directory.glob(pattern))


def assert_equal(actual, expected, where: str) -> None:
    """Compare rows; sums of another length change the last digits of statistics."""
    assert type(actual) is type(expected), where
    if isinstance(expected, float):
        assert actual == pytest.approx(expected, rel=1e-9, abs=1e-12, nan_ok=True), where
    elif isinstance(expected, dict):
        assert actual.keys() == expected.keys(), where
        for key, value in expected.items():
            assert_equal(actual[key], value, f"{where} {key}")
    elif isinstance(expected, list | tuple):
        assert len(actual) == len(expected), where
        for number, (value, expected_value) in enumerate(zip(actual, expected, strict=True)):
            assert_equal(value, expected_value, f"{where} {number}")
    else:
        assert actual == expected, where


def test_every_kind_of_artifact_has_several_row_groups_with_the_same_rows(directories):
    usual, low = directories
    patterns = ("resources/items/*.parquet", "results/**/*.parquet", "publications/one/**/*.parquet")
    paths = relative_paths(usual, *patterns)
    assert paths == relative_paths(low, *patterns)
    several = {}
    for path in paths:
        expected, rows = (pq.read_table(directory / path).to_pylist() for directory in directories)
        n_groups = pq.ParquetFile(low / path).num_row_groups
        assert n_groups == max(1, -(-len(rows) // LOW["core.artifacts"]["ROWS_PER_GROUP"])), path
        assert_equal(rows, expected, str(path))
        kind = artifacts.metadata(low / path, allow_moved=True)["kind"]
        several[kind] = several.get(kind, False) or n_groups > 1
    empty = {"curve pairs", "curve pair points", "unpaired"}  # of one curve; of results per item
    assert {kind for kind, has_several in several.items() if not has_several} == empty
    assert len(several) == 23


def test_tables_for_people_have_the_same_content(directories):
    usual, low = directories
    paths = relative_paths(usual, "results/**/*.csv", "joined/*.csv", "results/exports/*/*/*")
    assert paths == relative_paths(low, "results/**/*.csv", "joined/*.csv", "results/exports/*/*/*")
    for path in paths:
        assert_equal(*(numbers(directory / path) for directory in (low, usual)), str(path))


def numbers(path: Path) -> list:
    """Return the words of a file, with numbers as numbers, rounded ones as texts; notes of any number of rows."""
    if path.name == "notes.csv":
        frame = pd.read_csv(path, keep_default_na=False)
        for column in {"models", "evaluations"} & set(frame):
            frame[column] = frame[column].str.split(", ")
            frame = frame.explode(column)
        return sorted(map(tuple, frame.to_numpy().tolist()), key=str)
    return [as_number(word) for word in path.read_text("utf-8").replace(",", " ").split()]


def as_number(word: str) -> float | str:
    try:
        return float(word)
    except ValueError:
        return word


def test_items_of_the_report_are_in_more_files_with_the_same_content(directories):
    usual, low = (directory / "results" / "report" / "data" for directory in directories)
    for path in relative_paths(usual, "e*/i0.js"):
        content = [[], []]
        for rows, root in zip(content, (usual, low), strict=True):
            for number in range(len(list((root / path.parent).glob("i*.js")))):
                rows += json.loads((root / path.parent / f"i{number}.js").read_text("utf-8").split(",", 1)[1][:-3])
        assert_equal(content[1], content[0], str(path))
        n_files = len(list((low / path.parent).glob("i*.js")))
        assert n_files == -(-len(content[0]) // LOW["report.evaluation"]["ITEMS_PER_FILE"]) > 1
