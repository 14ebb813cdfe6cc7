"""Commands `items` and `requests`: one job for all files, which keeps those that are up to date."""

import json
from pathlib import Path

import pytest
import yaml
from support.stage_run import CONFIG, ES, GENERATION, GL, OPTIONS, Run
from vernacular import cli
from vernacular.commands import items as command
from vernacular.config import load as config
from vernacular.core import artifacts
from vernacular.core.errors import DataError, MachineError
from vernacular.data.schema import ITEMS
from vernacular.protocols.schema import REQUESTS

ITEMS_OF = {name: Path(f"resources/items/{name}.limit3.parquet") for name in (GL, ES)}


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run whose items and requests are written."""
    monkeypatch.chdir(tmp_path)
    Path("config.yaml").write_text(yaml.safe_dump(CONFIG))
    run = Run(config.load(["config.yaml"]))
    assert run("items") == run("requests") == 0
    return run


def written_by(run: Run, command: str, edit) -> set[str]:
    """Names of the files that a command writes anew when its spec is edited, and leaves as they are otherwise."""
    arguments = getattr(run, command)("")
    spec = json.loads(arguments[1])
    edit(spec)
    folder = Path(arguments[-1])
    before = {path: path.stat() for path in folder.glob("*.parquet")}
    assert cli.main([command, "--spec", json.dumps(spec), *arguments[2:]]) == 0
    after = {path: path.stat() for path in folder.glob("*.parquet")}
    kept = {path for path in before if before[path].st_ino == after[path].st_ino}
    assert all(before[path].st_mtime_ns < after[path].st_mtime_ns for path in kept), "newer than the job's inputs"
    return {path.stem.removesuffix(".limit3") for path in after.keys() - kept}


def at(*keys, value):
    """A function that sets one entry of a spec."""

    def edit(spec):
        for key in keys[:-1]:
            spec = spec[key]
        assert spec.get(keys[-1]) != value
        spec[keys[-1]] = value

    return edit


def other_file(spec):
    files = spec["items"][f"{ES}.limit3"]["files"]
    files[next(iter(files))] = "another content"


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (lambda spec: None, set()),
        (other_file, {ES}),
        (at("items", f"{ES}.limit3", "limit", value=2), {ES}),
        (at("items", f"{ES}.limit3", "task", "citation", value="another"), {ES}),
        (at("code", value="another"), {GL, ES}),
        (at("libraries", value={"pyarrow": "another"}), {GL, ES}),
    ],
)
def test_items_of_which_nothing_changed_are_kept(run, edit, expected):
    assert written_by(run, "items", edit) == expected


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (lambda spec: None, set()),
        (at("evaluations", OPTIONS, "seed", value=1), {OPTIONS}),
        (at("evaluations", GENERATION, "style", value="open"), {GENERATION}),
        (at("evaluations", OPTIONS, "prompts", value={}), {OPTIONS}),
        (at("code", value="another"), {f"{items}.{p}.0shot" for items in (GL, ES) for p in ("options", "generation")}),
    ],
)
def test_requests_of_which_nothing_changed_are_kept(run, edit, expected):
    assert written_by(run, "requests", edit) == expected


def test_requests_follow_their_items(run):
    assert written_by(run, "items", at("items", f"{ES}.limit3", "limit", value=2)) == {ES}
    assert written_by(run, "requests", lambda spec: None) == {f"{ES}.options.0shot", f"{ES}.generation.0shot"}
    assert (
        len(set(artifacts.read(f"results/requests/{ES}.options.0shot.parquet", REQUESTS)["item_id"].to_pylist())) == 2
    )


def test_a_dataset_that_fails_costs_itself_alone_and_is_read_by_the_next_run(run, monkeypatch, capsys):
    """Also where the library's error is of a class that nobody foresaw."""
    read = command.load_items
    errors = {"es": DataError("es: gone"), "gl": RecursionError("gl: too deep")}

    def fail(task, language, **options):
        if language in errors:
            raise errors[language]
        return read(task, language, **options)

    monkeypatch.setattr(command, "load_items", fail)
    for path in ITEMS_OF.values():
        path.unlink()
    assert run("items") == 0
    assert "items: 0 datasets read, 2 unavailable" in (said := capsys.readouterr()).out
    assert "es: gone" in said.err
    assert "RecursionError: gl: too deep" in said.err
    assert [artifacts.metadata(path)["unavailable"][:2] for path in ITEMS_OF.values()] == ["Re", "es"]
    assert run("requests") == 0
    assert {path.stem for path in Path("results/requests").glob("*") if "unavailable" in artifacts.metadata(path)} == {
        f"{items}.{protocol}.0shot" for items in (GL, ES) for protocol in ("options", "generation")
    }
    del errors["gl"]
    assert run("items") == run("requests") == 0
    assert "items: 1 dataset read, 1 unavailable" in capsys.readouterr().out
    assert artifacts.read(ITEMS_OF[GL], ITEMS).num_rows > 3


def test_what_the_machine_refuses_ends_the_job(run, monkeypatch, capsys):
    def refuse(*_, **__):
        raise MachineError("disk full")

    monkeypatch.setattr(command, "load_items", refuse)
    ITEMS_OF[ES].unlink()
    first = ["items", *run.items(""), "--attempt", "1of2"]
    assert cli.main(first) == 1
    assert "items: disk full" in capsys.readouterr().err
    assert not ITEMS_OF[ES].exists()
    assert cli.main([*first[:-1], "2of2"]) == 0
    assert artifacts.metadata(ITEMS_OF[ES])["unavailable"] == "disk full"
    assert artifacts.read(ITEMS_OF[GL], ITEMS).num_rows > 3
