"""A run, each kind of its files damaged in turn, and the command that reads it: right by name, or made again, never used.

The commands run in this process, without Snakemake: what is tested is what each says when it meets the file.
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
from support.soak import examples
from support.stage_run import CONFIG, ES, GENERATION, GL, OPTIONS, Run
from vernacular.comparison.schema import CHANGES, COMPARISONS, OVERALL, RANKINGS
from vernacular.config import load as config
from vernacular.config.unavailable import clear_unavailable
from vernacular.core import artifacts
from vernacular.core.errors import ArtifactError
from vernacular.data.schema import ITEMS
from vernacular.inference.schema import GENERATIONS, SCORES
from vernacular.metrics.schema import METRICS, RESULTS, SIMILARITIES, TASK_RESULTS
from vernacular.protocols.schema import REQUESTS


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("damage")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name, kind in (("one", "llama"), ("two", "gpt2"), ("encoder", "bert")):
            tiny.save(kind, name)
        Path("config.yaml").write_text(yaml.safe_dump(CONFIG))
        run = Run(config.load(["config.yaml"]))
        run.everything()
        yield run


@pytest.fixture
def run(place):
    """The run, with its files as they were."""
    shutil.copytree("results", "kept/results")
    shutil.copytree("resources", "kept/resources")
    yield place
    for folder in ("results", "resources"):
        shutil.rmtree(folder)
        shutil.move(f"kept/{folder}", folder)


def half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def bit_flipped(path: Path) -> None:
    """In the first column's data of a Parquet file, in the middle of another."""
    content = bytearray(path.read_bytes())
    at = len(content) // 2
    if path.suffix == ".parquet":
        column = pq.read_metadata(path).row_group(0).column(0)
        at = (column.dictionary_page_offset or column.data_page_offset) + column.total_compressed_size - 1
    content[at] ^= 1
    path.write_bytes(content)


def older(path: Path) -> None:
    """As a version wrote it that knew no digests."""
    if path.suffix == ".parquet":
        table = pq.read_table(path)
        note = {b"vernacular": pq.read_metadata(path).metadata[b"vernacular"]}
        pq.write_table(table.replace_schema_metadata(note), path)
    else:
        content = json.loads(path.read_text())
        del content["sha256"]
        path.write_text(json.dumps(content))


def swapped(path: Path) -> None:
    """For that of the other model, or else of the other language."""
    other = Path(str(path).replace("/one", "/two") if "/one" in str(path) else str(path).replace(GL, ES))
    assert other != path
    shutil.copyfile(other, path)


READ_BY = [
    (f"resources/items/{GL}.limit3.parquet", ["requests", "similarity", "metrics"]),
    (f"results/requests/{OPTIONS}.parquet", ["infer", "collect", "metrics", "report"]),
    (f"results/requests/{GENERATION}.parquet", ["similarity"]),
    ("resources/models/one.json", ["infer", "collect", "similarity", "metrics", "report"]),
    ("results/inference_status/one/1of1.json", ["collect"]),
    (f"results/one/scores/{OPTIONS}.parquet", ["metrics", "report"]),
    (f"results/one/generations/{GENERATION}.parquet", ["similarity", "metrics", "report"]),
    (f"results/one/similarity/{GENERATION}.parquet", ["metrics"]),
    (f"results/one/tasks/{OPTIONS}.parquet", ["compare", "report"]),
    ("results/one/metrics.parquet", ["compare", "summary"]),
]


@pytest.mark.parametrize("damage", [half, emptied, bit_flipped, older, swapped], ids=lambda f: f.__name__)
@pytest.mark.parametrize(("file", "commands"), READ_BY, ids=lambda each: each if isinstance(each, str) else "")
def test_a_damaged_file_is_named_with_the_way_out_and_never_read(run, file, commands, damage, capsys):
    damage(Path(file))
    built = Path(f"results/requests/{OPTIONS}.parquet")
    for command in commands:
        content = built.read_bytes()
        if command == "requests":
            built.unlink()  # a file that is up to date is kept
        if command == "collect" and not Path(file).exists():
            continue
        capsys.readouterr()
        assert run(command) == 1, f"{command} took it"
        built.write_bytes(content)
        told = [line for line in capsys.readouterr().err.splitlines() if line.startswith(f"{command}: ")]
        assert len(told) == 1
        assert file in told[0]
        assert "delete it to rebuild" in told[0]


@pytest.mark.parametrize("damage", [half, emptied, bit_flipped, older], ids=lambda f: f.__name__)
@pytest.mark.parametrize(
    ("file", "command"),
    [
        ("results/summary/comparisons.parquet", "summary"),
        ("results/summary/rankings.parquet", "report"),
        ("results/summary/overall.parquet", "summary"),
        ("results/summary/results.parquet", "report"),
        ("results/comparisons/one--two/changes.parquet", "report"),
        ("resources/encoders/encoder.json", "similarity"),
    ],
)
def test_a_file_of_all_models_that_is_damaged_is_named_too(run, file, command, damage, capsys):
    [path] = Path().glob(file.replace("encoder.json", "*.json"))
    damage(path)
    capsys.readouterr()
    assert run(command) == 1
    told = [line for line in capsys.readouterr().err.splitlines() if line.startswith(f"{command}: ")]
    assert len(told) == 1
    assert str(path) in told[0]
    assert "delete it to rebuild" in told[0]


@pytest.mark.parametrize("damage", [half, emptied, bit_flipped, older, swapped], ids=lambda f: f.__name__)
def test_a_damaged_answer_in_the_store_is_asked_again_and_is_the_same(run, damage):
    stored = sorted(Path("results/store/scores").glob("*/*.parquet"))
    whole = [pq.read_table(path) for path in stored]
    if damage is swapped:
        shutil.copyfile(stored[1], stored[0])
    else:
        damage(stored[0])
    assert [run("infer", model) for model in ("one", "two")] == [0, 0]
    asked = [
        how
        for path in Path("results/inference_status").glob("*/*.json")
        for how in json.loads(path.read_text())["models"].values()
    ]
    assert sorted(how for of_model in asked for how in of_model.values()).count("computed") == 1
    assert all(pq.read_table(path).equals(table) for path, table in zip(stored, whole, strict=True))


def test_a_damaged_record_of_a_job_is_named_and_made_again_by_the_next_run(run, capsys):
    asked = Path("results/inference_status/one/1of1.json")
    asked.write_text('{"models": {"one": {}}}')
    assert run("collect") == 1
    assert str(asked) in capsys.readouterr().err
    assert clear_unavailable(Path("resources"), Path("results")) == [asked]
    assert [run("infer"), run("collect")] == [0, 0]


def test_an_output_that_the_store_lost_costs_its_evaluation_and_is_computed_by_the_next_run(run, capsys):
    scores = Path(f"results/one/scores/{OPTIONS}.parquet")
    before = pq.read_table(scores)
    key = artifacts.metadata(scores)["fingerprint"]
    Path(f"results/store/scores/{key[:2]}/{key}.parquet").unlink()
    assert run("collect") == 0
    assert f"collect: one: {OPTIONS}: outputs not found in results/store" in capsys.readouterr().out
    assert "unavailable" in artifacts.metadata(scores)
    assert [run(command) for command in ("similarity", "metrics", "compare", "summary", "verify")] == [0, 0, 0, 0, 1]
    assert f"{OPTIONS}: outputs not found in results/store" in capsys.readouterr().err
    deleted = clear_unavailable(Path("resources"), Path("results"))
    assert {Path("results/inference_status/one/1of1.json"), scores} <= set(deleted)
    commands = ("infer", "collect", "similarity", "metrics", "compare", "summary", "verify")
    assert [run(command) for command in commands] == [0] * len(commands)
    assert "1 evaluation computed, 3 evaluations found in the store" in capsys.readouterr().out
    assert pq.read_table(scores).equals(before)


def test_answers_to_other_requests_are_no_answers(run, capsys):
    """A file from a backup: whole, of the right model, in the right place, but not to what is asked now."""
    other = artifacts.read(f"results/requests/{OPTIONS}.parquet", REQUESTS)
    note = artifacts.metadata(f"results/requests/{OPTIONS}.parquet")
    artifacts.write(f"results/requests/{OPTIONS}.parquet", REQUESTS, other, note | {"fingerprint": "another"})
    assert run("metrics") == 1
    told = capsys.readouterr().err
    assert (
        f"results/one/scores/{OPTIONS}.parquet: computed from other requests than the current ones; delete it" in told
    )


def test_a_model_that_cannot_be_asked_is_noted_and_the_other_goes_on(run, capsys):
    weights = Path("two/model.safetensors")
    whole = weights.read_bytes()
    tensors = load_file(weights)
    save_file({name: tensor for name, tensor in tensors.items() if "h.1." not in name}, weights)
    try:
        assert [run(command, "two") for command in ("model", "infer", "collect", "similarity", "metrics")] == [0] * 5
        assert "infer: two: all evaluations failed: model two: " in capsys.readouterr().out
        assert [run(command) for command in ("compare", "summary", "report", "verify")] == [0, 0, 0, 1]
        said = capsys.readouterr().err
        assert f"{OPTIONS}: model two: " in said
        assert "not found in" in said
        notes = pd.read_csv("results/summary/notes.csv").query("kind == 'unavailable'")
        assert set(zip(notes["model"], notes["evaluation"], strict=True)) == {
            ("two", e) for e in run.config.evaluations
        }
        assert set(pd.read_csv("results/summary/results.csv")["model"]) == {"one"}
    finally:
        weights.write_bytes(whole)
    forgotten = set(clear_unavailable(Path("resources"), Path("results")))
    assert Path("results/inference_status/two/1of1.json") in forgotten
    assert Path(f"results/two/tasks/{OPTIONS}.parquet") in forgotten
    assert not [path for path in forgotten if "one" in path.parts]
    assert [run(command, "two") for command in ("model", "infer", "collect")] == [0] * 3
    assert "4 evaluations found in the store" in capsys.readouterr().out


def test_what_is_damaged_is_deleted_when_a_run_ends(run):
    damaged = [Path("resources/models/one.json"), Path(f"resources/items/{GL}.limit3.parquet")]
    damaged += [Path(f"results/requests/{OPTIONS.replace(GL, ES)}.parquet")]
    for path in damaged:
        bit_flipped(path) if path.suffix == ".json" else half(path)
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
    ("results/summary/comparisons.parquet", COMPARISONS),
    ("results/summary/rankings.parquet", RANKINGS),
    ("results/summary/overall.parquet", OVERALL),
    ("results/summary/results.parquet", RESULTS),
]


@pytest.mark.parametrize(("file", "kind"), KINDS, ids=[kind.name for _, kind in KINDS])
def test_no_changed_byte_changes_a_row_or_the_metadata(place, tmp_path, file, kind):
    """Of 61 bytes here, and of all of them in `test_artifacts`; in a soak, of others each time."""
    whole = Path(file).read_bytes()
    note = artifacts.metadata(file)
    damaged = tmp_path.joinpath(*Path(file).parts[-kind.place :])
    damaged.parent.mkdir(parents=True, exist_ok=True)
    damaged.write_bytes(whole)

    @settings(max_examples=examples(61))
    @given(st.integers(0, len(whole) - 1), st.integers(1, 255))
    def changed(at, pattern):
        with open(damaged, "r+b") as written:
            written.seek(at)
            written.write(bytes([whole[at] ^ pattern]))
        with pytest.raises(ArtifactError, match=re.escape(str(damaged))):
            artifacts.read(damaged, kind)
        with contextlib.suppress(ArtifactError):
            assert artifacts.metadata(damaged) == note
        with open(damaged, "r+b") as written:
            written.seek(at)
            written.write(whole[at : at + 1])

    changed()
    assert artifacts.read(damaged, kind).equals(artifacts.read(file, kind))
