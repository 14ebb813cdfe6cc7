"""Damaged files of a run: the command that reads one names it or computes it again, and never uses it.

The commands run in this process, without Snakemake.
"""

import contextlib
import json
import re
import shutil
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from support import tiny
from support.messages import assert_states
from support.soak import examples
from support.stage_run import CONFIG, ES, GENERATION, GL, OPTIONS, Run
from support.workspace import read_notes
from vernacular.comparison.schema import CHANGES, COMPARISONS, OVERALL, RANKINGS
from vernacular.config import load as config
from vernacular.config.directories import clear_unavailable
from vernacular.core import artifacts
from vernacular.core.errors import ArtifactError
from vernacular.core.model_record import read_status
from vernacular.data.schema import ITEMS
from vernacular.inference.schema import GENERATIONS, SCORES
from vernacular.metrics.schema import METRICS, RESULTS, SIMILARITIES, TASK_RESULTS
from vernacular.protocols.schema import REQUESTS


@pytest.fixture(scope="module")
def completed_run(tmp_path_factory):
    directory = tmp_path_factory.mktemp("damage")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        for name, kind in (("one", "llama"), ("two", "gpt2"), ("encoder", "bert")):
            tiny.save(kind, name)
        Path("config.yaml").write_text(yaml.safe_dump(CONFIG))
        run = Run(config.load(["config.yaml"]))
        assert run.run_all() == 0
        yield run


@pytest.fixture
def run(completed_run):
    """The run; its files are restored after the test."""
    shutil.copytree("results", "kept/results")
    shutil.copytree("resources", "kept/resources")
    yield completed_run
    for directory in ("results", "resources"):
        shutil.rmtree(directory)
        shutil.move(f"kept/{directory}", directory)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def make_empty(path: Path) -> None:
    path.write_bytes(b"")


def flip_bit(path: Path) -> None:
    """Flip a bit in the first column's data of a Parquet file, or in the middle of another file."""
    content = bytearray(path.read_bytes())
    offset = len(content) // 2
    if path.suffix == ".parquet":
        column = pq.read_metadata(path).row_group(0).column(0)
        offset = (column.dictionary_page_offset or column.data_page_offset) + column.total_compressed_size - 1
    content[offset] ^= 1
    path.write_bytes(content)


def remove_digests(path: Path) -> None:
    """Rewrite the file without digests, as an earlier version did."""
    if path.suffix == ".parquet":
        table = pq.read_table(path)
        metadata = {b"vernacular": pq.read_metadata(path).metadata[b"vernacular"]}
        pq.write_table(table.replace_schema_metadata(metadata), path)
    else:
        content = json.loads(path.read_text())
        del content["sha256"]
        path.write_text(json.dumps(content))


def swap(path: Path) -> None:
    """Replace the file by that of the other model, or of the other language."""
    source = Path(str(path).replace("/one", "/two") if "/one" in str(path) else str(path).replace(GL, ES))
    assert source != path
    shutil.copyfile(source, path)


COMMANDS_BY_FILE = [
    (f"resources/items/{GL}.limit3.parquet", ["requests", "similarity", "metrics"]),
    (f"results/requests/{OPTIONS}.parquet", ["infer", "collect", "metrics", "report"]),
    (f"results/requests/{GENERATION}.parquet", ["similarity"]),
    ("resources/models/one.json", ["infer", "collect", "similarity", "metrics", "report"]),
    ("results/inference_status/one/1of1.json", ["collect"]),
    (f"results/one/scores/{OPTIONS}.parquet", ["metrics", "report"]),
    (f"results/one/generations/{GENERATION}.parquet", ["similarity", "metrics", "report"]),
    (f"results/one/similarity/{GENERATION}.parquet", ["metrics"]),
    (f"results/one/tasks/{OPTIONS}.parquet", ["compare", "changes", "report"]),
    ("results/one/metrics.parquet", ["compare", "summary"]),
    ("results/one/tokens.parquet", ["summary"]),
]


@pytest.mark.parametrize("damage", [truncate, make_empty, flip_bit, remove_digests, swap], ids=lambda f: f.__name__)
@pytest.mark.parametrize(
    ("file", "commands"), COMMANDS_BY_FILE, ids=lambda value: value if isinstance(value, str) else ""
)
def test_damaged_file_is_named_with_advice_and_not_read(run, file, commands, damage, capsys):
    damage(Path(file))
    outputs = {
        "requests": f"results/requests/{OPTIONS}.parquet",
        "similarity": f"results/one/similarity/{GENERATION}.parquet",
        "metrics": "results/one/metrics.parquet",
    }
    for command in commands:
        output = Path(outputs.get(command, f"results/requests/{OPTIONS}.parquet"))
        content = output.read_bytes()
        if command in outputs:
            output.unlink()  # an up-to-date file is not rewritten
        if command == "collect" and not Path(file).exists():
            continue
        capsys.readouterr()
        assert run(command) == 1, f"{command} accepted it"
        output.write_bytes(content)
        messages = [line for line in capsys.readouterr().err.splitlines() if line.startswith(f"{command}: ")]
        assert len(messages) == 1
        assert_states(messages[0], file, "delete")


@pytest.mark.parametrize("damage", [truncate, make_empty, flip_bit, remove_digests], ids=lambda f: f.__name__)
@pytest.mark.parametrize(
    ("file", "command"),
    [
        ("results/compared/pairs.parquet", "summary"),
        ("results/summary/rankings.parquet", "report"),
        ("results/summary/overall.parquet", "summary"),
        ("results/summary/results.parquet", "report"),
        ("results/comparisons/one--two/changes.parquet", "report"),
        ("resources/encoders/encoder.json", "similarity"),
    ],
)
def test_damaged_file_of_all_models_is_named_with_advice(run, file, command, damage, capsys):
    [path] = Path().glob(file.replace("encoder.json", "*.json"))
    damage(path)
    capsys.readouterr()
    assert run(command) == 1
    messages = [line for line in capsys.readouterr().err.splitlines() if line.startswith(f"{command}: ")]
    assert len(messages) == 1
    assert_states(messages[0], str(path), "delete")


@pytest.mark.parametrize("damage", [truncate, make_empty, flip_bit, remove_digests, swap], ids=lambda f: f.__name__)
def test_damaged_store_file_is_recomputed_identically(run, damage):
    store_files = sorted(Path("results/store/scores").glob("*/*.parquet"))
    original = [pq.read_table(path) for path in store_files]
    if damage is swap:
        shutil.copyfile(store_files[1], store_files[0])
    else:
        damage(store_files[0])
    assert [run("infer", model) for model in ("one", "two")] == [0, 0]
    job_outcomes = [
        outcomes
        for path in Path("results/inference_status").glob("*/*.json")
        for outcomes in read_status(path).values()
    ]
    assert [outcome.reason for outcomes in job_outcomes for outcome in outcomes.values()].count("computed") == 1
    assert all(pq.read_table(path).equals(table) for path, table in zip(store_files, original, strict=True))


def test_damaged_status_file_is_named_and_recreated(run, capsys):
    status_file = Path("results/inference_status/one/1of1.json")
    status_file.write_text('{"models": {"one": {}}}')
    assert run("collect") == 1
    assert str(status_file) in capsys.readouterr().err
    assert clear_unavailable(Path("resources"), Path("results")) == [status_file]
    assert [run("infer"), run("collect")] == [0, 0]


def test_output_missing_from_store_is_noted_and_recomputed(run, capsys):
    scores = Path(f"results/one/scores/{OPTIONS}.parquet")
    original = pq.read_table(scores)
    key = artifacts.metadata(scores)["fingerprint"]
    Path(f"results/store/scores/{key[:2]}/{key}.parquet").unlink()
    assert run("collect") == 0
    [note] = [line for line in capsys.readouterr().out.splitlines() if OPTIONS in line]
    assert_states(note, "collect: one", OPTIONS, "outputs", "results/store")
    assert not artifacts.metadata(scores)["outcome"].is_complete
    assert [run(command) for command in ("similarity", "metrics", "compare", "changes", "summary", "finish")] == [
        0,
        0,
        0,
        0,
        0,
        1,
    ]
    [note] = [line for line in capsys.readouterr().err.splitlines() if OPTIONS in line]
    assert_states(note, OPTIONS, "outputs", "results/store")
    deleted = clear_unavailable(Path("resources"), Path("results"))
    assert {Path("results/inference_status/one/1of1.json"), scores} <= set(deleted)
    commands = ("infer", "collect", "similarity", "metrics", "compare", "changes", "summary", "finish")
    assert [run(command) for command in commands] == [0] * len(commands)
    stdout = capsys.readouterr().out
    assert "1 evaluation computed" in stdout
    assert "3 evaluations found" in stdout
    assert pq.read_table(scores).equals(original)


def test_outputs_of_other_requests_are_rejected(run, capsys):
    """For example, a file from a backup: undamaged and of the right model, but for earlier requests."""
    requests = artifacts.read(f"results/requests/{OPTIONS}.parquet", REQUESTS)
    metadata = artifacts.metadata(f"results/requests/{OPTIONS}.parquet")
    artifacts.write(f"results/requests/{OPTIONS}.parquet", REQUESTS, requests, metadata | {"fingerprint": "another"})
    assert run("metrics") == 1
    scores = f"results/one/scores/{OPTIONS}.parquet"
    sentence = f"{scores}: computed from other requests than the current ones; delete it to rebuild."
    assert sentence in capsys.readouterr().err  # the complete sentence, once


def test_model_that_cannot_be_loaded_is_noted_and_others_continue(run, capsys):
    weights = Path("two/model.safetensors")
    original = weights.read_bytes()
    tensors = load_file(weights)
    save_file({name: tensor for name, tensor in tensors.items() if "h.1." not in name}, weights)
    try:
        assert [run(command, "two") for command in ("model", "infer", "collect", "similarity", "metrics")] == [0] * 5
        [note] = [line for line in capsys.readouterr().out.splitlines() if "model two" in line]
        assert_states(note, "infer: two", "all evaluations", "model two")
        assert [run(command) for command in ("compare", "changes", "summary", "report", "finish")] == [0, 0, 0, 0, 1]
        [note] = [line for line in capsys.readouterr().err.splitlines() if "model two" in line]
        assert_states(note, "more", "model two", "not found", "two")
        notes = read_notes(Path()).query("kind == 'unavailable'")
        assert set(zip(notes["model"], notes["evaluation"], strict=True)) == {
            ("two", e) for e in run.config.evaluations
        }
        assert set(pd.read_csv("results/summary/results.csv")["model"]) == {"one"}
    finally:
        weights.write_bytes(original)
    deleted = set(clear_unavailable(Path("resources"), Path("results")))
    assert Path("results/inference_status/two/1of1.json") in deleted
    assert Path(f"results/two/tasks/{OPTIONS}.parquet") in deleted
    assert not [path for path in deleted if "one" in path.parts]
    assert [run(command, "two") for command in ("model", "infer", "collect")] == [0] * 3
    assert "4 evaluations found" in capsys.readouterr().out


def test_damaged_files_are_deleted_at_end_of_run(run):
    damaged = [Path("resources/models/one.json"), Path(f"resources/items/{GL}.limit3.parquet")]
    damaged += [Path(f"results/requests/{OPTIONS.replace(GL, ES)}.parquet")]
    for path in damaged:
        flip_bit(path) if path.suffix == ".json" else truncate(path)
    assert set(damaged) <= set(clear_unavailable(Path("resources"), Path("results")))
    assert not any(path.exists() for path in damaged)


KINDS = [
    (f"resources/items/{GL}.limit3.parquet", ITEMS),
    (f"results/requests/{OPTIONS}.parquet", REQUESTS),
    (f"results/one/scores/{OPTIONS}.parquet", SCORES),
    (f"results/one/generations/{GENERATION}.parquet", GENERATIONS),
    (f"results/one/similarity/{GENERATION}.parquet", SIMILARITIES),
    (f"results/one/tasks/{OPTIONS}.parquet", TASK_RESULTS),
    ("results/one/metrics.parquet", METRICS),
    ("results/comparisons/one--two/changes.parquet", CHANGES),
    ("results/compared/pairs.parquet", COMPARISONS),
    ("results/summary/rankings.parquet", RANKINGS),
    ("results/summary/overall.parquet", OVERALL),
    ("results/summary/results.parquet", RESULTS),
]


@pytest.mark.parametrize(("file", "kind"), KINDS, ids=[kind.name for _, kind in KINDS])
def test_changed_byte_never_changes_rows_or_metadata(completed_run, tmp_path, file, kind):
    """61 bytes are tested here, all bytes in `test_artifacts`; soak tests select other bytes each time."""
    original = Path(file).read_bytes()
    metadata = artifacts.metadata(file)
    damaged = tmp_path.joinpath(*Path(file).parts[-kind.path_depth :])
    damaged.parent.mkdir(parents=True, exist_ok=True)
    damaged.write_bytes(original)

    @settings(max_examples=examples(61))
    @given(st.integers(0, len(original) - 1), st.integers(1, 255))
    def check_changed_byte(offset, pattern):
        with open(damaged, "r+b") as handle:
            handle.seek(offset)
            handle.write(bytes([original[offset] ^ pattern]))
        with pytest.raises(ArtifactError, match=re.escape(str(damaged))):
            artifacts.read(damaged, kind)
        with contextlib.suppress(ArtifactError):
            assert artifacts.metadata(damaged) == metadata
        with open(damaged, "r+b") as handle:
            handle.seek(offset)
            handle.write(original[offset : offset + 1])

    check_changed_byte()
    assert artifacts.read(damaged, kind).equals(artifacts.read(file, kind))
