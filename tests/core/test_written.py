"""Directories that a run shares with its user: it replaces the files that it wrote, and no others."""

import os
import signal
import subprocess
import sys

import pytest
from vernacular.core.errors import UserError
from vernacular.core.written import COMPLETE, foreign_files, rewriting


def write(directory, **texts) -> None:
    """Run a command that writes `texts` by path (`__` for a slash)."""
    with rewriting(directory, "comparisons") as new:
        for name, text in texts.items():
            path = new / name.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)


def contents(directory) -> dict[str, str]:
    """Return the texts of all files in a directory except for those of the mechanism."""
    files = {path.relative_to(directory).as_posix(): path for path in directory.rglob("*") if path.is_file()}
    return {name: path.read_text() for name, path in files.items() if not name.startswith(".vernacular")}


def test_files_of_an_earlier_run_are_replaced_and_others_kept(tmp_path):
    write(tmp_path, a__x="1", b__y="1", c="1")
    (tmp_path / "a" / "own").write_text("precious")
    (tmp_path / "empty").mkdir()
    first = (tmp_path / COMPLETE).read_text()
    write(tmp_path, c="2", d__z="2")
    assert contents(tmp_path) == {"a/own": "precious", "c": "2", "d/z": "2"}
    assert not (tmp_path / "b").exists(), "nothing is left in it"
    assert (tmp_path / "empty").is_dir()
    assert (tmp_path / COMPLETE).read_text() != first
    assert foreign_files(tmp_path, "comparisons") == ["a/own"]


def test_failed_command_changes_nothing(tmp_path):
    write(tmp_path / "new", c="1")
    for directory in ("new", "other"):
        with pytest.raises(TypeError):
            write(tmp_path / directory, c="2", d=None)
    assert contents(tmp_path / "new") == {"c": "1"}
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("own", ["c", "c/inner"])
def test_file_of_a_user_is_not_overwritten(tmp_path, own):
    (tmp_path / own).parent.mkdir(exist_ok=True)
    (tmp_path / own).write_text("precious")
    with pytest.raises(UserError, match=r"c: expected a file that a run wrote, or none"):
        write(tmp_path, c="1")
    assert contents(tmp_path) == {own: "precious"}


def test_symbolic_links_are_not_followed(tmp_path):
    directory, outside = tmp_path / "directory", tmp_path / "outside"
    write(directory, a__x="1", b="1")
    outside.mkdir()
    (outside / "x").write_text("precious")
    (directory / "a" / "x").unlink()
    (directory / "a").rmdir()
    (directory / "a").symlink_to(outside)
    (directory / "b").unlink()
    (directory / "b").symlink_to(outside / "x")
    assert foreign_files(directory, "comparisons") == ["a", "b"]
    write(directory, c="2")
    for name in ("a__x", "b"):
        with pytest.raises(UserError):
            write(directory, **{name: "2"})
    assert contents(outside) == {"x": "precious"}
    assert (directory / "a").is_symlink()
    assert (directory / "b").is_symlink()


def test_list_from_elsewhere_names_no_file_outside(tmp_path):
    write(tmp_path / "directory", c="1")
    (tmp_path / "x").write_text("precious")
    path = tmp_path / "directory" / ".vernacular"
    path.write_text(path.read_text().replace('"c"', f'"../x",\n"{tmp_path}/x",\n"c"'))
    write(tmp_path / "directory", d="2")
    assert (tmp_path / "x").read_text() == "precious"
    assert contents(tmp_path / "directory") == {"d": "2"}


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"files": 1}', '{"files": [[]]}'])
def test_without_its_list_a_file_is_a_users(tmp_path, damage):
    write(tmp_path, c="1")
    (tmp_path / ".vernacular").write_text(damage)
    assert foreign_files(tmp_path, "comparisons") == ["c"]
    write(tmp_path, d="2")
    assert contents(tmp_path) == {"c": "1", "d": "2"}


def test_files_of_operating_systems_are_ignored(tmp_path):
    write(tmp_path, c="1")
    for name in (".DS_Store", ".nfs0000123", ".snakemake_timestamp", ".c.host.12.0123456789abcdef.tmp"):
        (tmp_path / name).write_text("")
    assert foreign_files(tmp_path, "comparisons") == []
    write(tmp_path, d="2")
    assert set(contents(tmp_path)) == {".DS_Store", ".nfs0000123", "d"}


KILLED = """
import os, signal, sys
from pathlib import Path
from vernacular.core import written
n_left = int(sys.argv[2])
def counted(function):
    def call(*arguments, **keywords):
        global n_left
        if n_left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        n_left -= 1
        return function(*arguments, **keywords)
    return call
for module, name in ((os, "replace"), (os, "open"), (os, "unlink"), (os, "rmdir"), (os, "mkdir")):
    setattr(module, name, counted(getattr(module, name)))
with written.rewriting(Path(sys.argv[1]), "comparisons") as new:
    for name in ("c", "d", "e/f"):
        (new / name).parent.mkdir(exist_ok=True)
        (new / name).write_text("2")
"""


@pytest.mark.slow
def test_kill_at_any_point_leaves_no_unknown_file(tmp_path, default_signals):
    for n in range(60):
        directory = tmp_path / str(n)
        write(directory, a__x="1", c="1")
        (directory / "own").write_text("precious")
        done = subprocess.run([sys.executable, "-c", KILLED, directory, str(n)], check=False, capture_output=True)
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
        assert foreign_files(directory, "comparisons") == ["own"], n
        write(directory, c="3", g="3")
        assert contents(directory) == {"own": "precious", "c": "3", "g": "3"}, n
        assert not os.path.lexists(directory / ".vernacular-new")
        if done.returncode == 0:
            break
    assert done.returncode == 0
    assert n > 10
