"""Commands `items` and `requests`: one job for all files, which rewrites only outdated files."""

from pathlib import Path

import pyarrow as pa
import pytest
import yaml
from support import observed, stages
from support.stage_run import CONFIG, ES, GENERATION, GL, OPTIONS, Run
from vernacular.config import load as config
from vernacular.core import artifacts
from vernacular.core.errors import DataError, MachineError
from vernacular.core.fields import Fields, Stage
from vernacular.core.metadata import Metadata
from vernacular.data.load import load_items
from vernacular.data.schema import ITEMS
from vernacular.protocols.schema import REQUESTS
from vernacular.stages import items as command
from vernacular.stages.common import Batch

ITEMS_FILES = {name: Path(f"resources/items/{name}.limit3.parquet") for name in (GL, ES)}


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run with items and requests."""
    monkeypatch.chdir(tmp_path)
    Path("config.yaml").write_text(yaml.safe_dump(CONFIG))
    run = Run(config.load(["config.yaml"]))
    assert run("items") == run("requests") == 0
    return run


def rewritten_files(run: Run, command: str, edit) -> set[str]:
    """Run a command with an edited spec; return the names of the files that it rewrites."""
    fields = getattr(run, command)("")
    edit(fields["spec"])
    directory = Path(fields["out"])
    stats_before = {path: path.stat() for path in directory.glob("*.parquet")}
    assert stages.run(command, **fields) == 0
    stats_after = {path: path.stat() for path in directory.glob("*.parquet")}
    unchanged = {path for path in stats_before if stats_before[path].st_ino == stats_after[path].st_ino}
    assert all(stats_before[path].st_mtime_ns < stats_after[path].st_mtime_ns for path in unchanged), (
        "newer than the job's inputs"
    )
    return {path.stem.removesuffix(".limit3") for path in stats_after.keys() - unchanged}


def set_entry(*keys, value):
    """Return a function that sets one entry of a spec."""

    def edit(spec):
        for key in keys[:-1]:
            spec = spec[key]
        assert spec.get(keys[-1]) != value
        spec[keys[-1]] = value

    return edit


def change_file_hash(spec):
    files = spec["items"][f"{ES}.limit3"]["files"]
    files[next(iter(files))] = "another content"


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (lambda spec: None, set()),
        (change_file_hash, {ES}),
        (set_entry("items", f"{ES}.limit3", "limit", value=2), {ES}),
        (set_entry("items", f"{ES}.limit3", "task", "citation", value="another"), {ES}),
        (set_entry("code", value="another"), {GL, ES}),
        (set_entry("libraries", value={"pyarrow": "another"}), {GL, ES}),
    ],
)
def test_items_are_rewritten_only_if_their_spec_changed(run, edit, expected):
    assert rewritten_files(run, "items", edit) == expected


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (lambda spec: None, set()),
        (set_entry("evaluations", OPTIONS, "seed", value=1), {OPTIONS}),
        (set_entry("evaluations", GENERATION, "style", value="open"), {GENERATION}),
        (set_entry("evaluations", OPTIONS, "prompts", value={}), {OPTIONS}),
        (
            set_entry("code", value="another"),
            {f"{items}.{p}.0shot" for items in (GL, ES) for p in ("options", "generation")},
        ),
    ],
)
def test_requests_are_rewritten_only_if_their_spec_changed(run, edit, expected):
    assert rewritten_files(run, "requests", edit) == expected


def test_requests_are_rewritten_if_their_items_changed(run):
    assert rewritten_files(run, "items", set_entry("items", f"{ES}.limit3", "limit", value=2)) == {ES}
    assert rewritten_files(run, "requests", lambda spec: None) == {f"{ES}.options.0shot", f"{ES}.generation.0shot"}
    assert (
        len(set(artifacts.read(f"results/requests/{ES}.options.0shot.parquet", REQUESTS)["item_id"].to_pylist())) == 2
    )


def test_failed_dataset_affects_only_itself_and_is_retried(run, monkeypatch, capsys):
    """Also for errors of an unexpected class."""
    errors = {"es": DataError("es: gone"), "gl": RecursionError("gl: too deep")}

    def fail(task, language, **options):
        if language in errors:
            raise errors[language]
        return load_items(task, language, **options)

    monkeypatch.setattr(command, "load_items", fail)
    for path in ITEMS_FILES.values():
        path.unlink()
    assert run("items") == 0
    assert "items: 0 datasets read, 2 unavailable" in (captured := capsys.readouterr()).out
    assert "es: gone" in captured.err
    assert "RecursionError: gl: too deep" in captured.err
    assert [artifacts.metadata(path)["outcome"].reason[:2] for path in ITEMS_FILES.values()] == ["Re", "es"]
    assert run("requests") == 0
    assert {
        path.stem for path in Path("results/requests").glob("*") if not artifacts.metadata(path)["outcome"].is_complete
    } == {f"{items}.{protocol}.0shot" for items in (GL, ES) for protocol in ("options", "generation")}
    del errors["gl"]
    assert run("items") == run("requests") == 0
    _, line, _ = capsys.readouterr().out.splitlines()
    assert line.startswith("items: 1 dataset read, 1 unavailable")
    assert artifacts.read(ITEMS_FILES[GL], ITEMS).num_rows > 3


def test_machine_error_ends_the_job(run, capsys):
    def fail(_):
        raise MachineError("disk full")

    ITEMS_FILES[ES].unlink()
    with observed.calls(load_items, fail):
        assert stages.run("items", **run.items(""), attempt="1of2") == 1
    assert "items: disk full" in capsys.readouterr().err
    assert not ITEMS_FILES[ES].exists()
    with observed.calls(load_items, fail):
        assert stages.run("items", **run.items(""), attempt="2of2") == 0
    assert artifacts.metadata(ITEMS_FILES[ES])["outcome"].reason == "disk full"
    assert artifacts.read(ITEMS_FILES[GL], ITEMS).num_rows > 3


@pytest.mark.parametrize("value", [10**12, 2**70, "many"])
def test_rows_that_do_not_fit_their_file_affect_no_other_file(tmp_path, value):
    schema = pa.schema([("name", pa.string()), ("count", pa.int32())])
    counts = artifacts.Kind("counts", schema, key=("name",), metadata=Metadata)

    class Counts(Batch):
        key, noun, kind = "counts", "count", counts

        def metadata(self, spec):
            return Metadata(fingerprint=str(spec))

        def make(self, path, spec):
            self.write(path, spec, [{"name": "a", "count": spec}])
            return "one row"

    class Spec(Fields):
        counts: dict

    class Job(Stage):
        spec: Spec
        out: Path

    batch = Counts(Job(spec=Spec(counts={"first": value, "second": 1}), out=tmp_path / "counts"))
    assert batch.run("counts") == "counts: 1 count built, 1 failed"
    assert "do not fit the counts schema" in artifacts.metadata(tmp_path / "counts" / "first.parquet")["outcome"].reason
    assert artifacts.read(tmp_path / "counts" / "second.parquet", counts).num_rows == 1
