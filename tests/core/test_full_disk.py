"""Every command that writes, on a disk that takes no more: one line that names the path, no half-written file.

The disk is a small tmpfs where the tests may mount one; everywhere, files are limited in size (`ulimit -f`), which makes
every write fail likewise. The commands run in this process, as the rules call them.
"""

import contextlib
import json
import os
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from support import tiny
from support.stage_run import CONFIG, Run
from vernacular.config import dependencies as specs
from vernacular.config import load as config
from vernacular.core import artifacts

COMMANDS = ["items", "requests", "model", "infer", "collect", "similarity", "metrics", "export", "compare", "summary",
         "report", "verify"]  # fmt: skip


class RunWithCompat(Run):
    """The commands of a run, and `compat`."""

    def export(self, name: str) -> list[str]:
        tasks = [
            f"results/{name}/tasks/{e.id}.parquet" for e in self.config.evaluations.values() if e.protocol == "letters"
        ]
        files = ["--items-dir", "resources/items", "--tasks", *tasks, "--out", f"results/exports/{name}"]
        return ["--spec", json.dumps(specs.of_export(self.config)), *files]

    def forget(self, command: str) -> None:
        """Remove what the command would find, or remove itself, and the disk have room again."""
        if command in ("items", "requests"):
            shutil.rmtree({"items": "resources/items", "requests": "results/requests"}[command])
        if command == "infer":
            for entry in Path("results/store/scores").rglob("*.parquet"):
                entry.unlink()
        if command == "report":
            shutil.rmtree("results/report")


@contextlib.contextmanager
def made(folder: Path):
    """A run in `folder`, and in it."""
    with contextlib.chdir(folder):
        for name, kind in (("one", "llama"), ("two", "gpt2"), ("encoder", "bert")):
            tiny.save(kind, name)
        evaluations = [{**CONFIG["evaluations"][0], "protocols": ["generation", "options", "letters"]}]
        Path("config.yaml").write_text(yaml.safe_dump({**CONFIG, "evaluations": evaluations}))
        run = RunWithCompat(config.load(["config.yaml"]))
        run.everything()
        assert run("export") == 0
        yield run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    with made(tmp_path_factory.mktemp("limited")) as run:
        yield run


@pytest.fixture(scope="module")
def run_on_a_small_disk(tmp_path_factory):
    folder = tmp_path_factory.mktemp("small")
    command = ["mount", "-t", "tmpfs", "-o", "size=40m", "vernacular", str(folder)]
    tried = subprocess.run(command, capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"cannot mount: {tried.stderr.strip()}")
    try:
        with made(folder) as run:
            yield run
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextlib.contextmanager
def limited(size: int):
    """Inside, no file grows beyond `size` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextlib.contextmanager
def filled(free: int):
    """Inside, the disk has `free` bytes left."""
    filler = Path("filler")
    with filler.open("wb") as file:
        size = shutil.disk_usage(".").free
        os.posix_fallocate(file.fileno(), 0, size - free)
    try:
        yield
    finally:
        filler.unlink()


def contents() -> dict[str, bytes]:
    return {
        str(path): path.read_bytes()
        for top in ("results", "resources")
        for path in Path(top).rglob("*")
        if path.is_file()
    }


def check_refused(run, command: str, capsys, reason: str, full) -> None:
    run.forget(command)
    before = contents()
    capsys.readouterr()
    with full:
        status = run(command)
    error = capsys.readouterr().err
    lines = [line for line in error.splitlines() if line.startswith(f"{command}: ")]
    assert status == 1
    assert len(lines) == 1
    assert re.search(rf"(results|resources)/[\w./-]+.*{reason}", lines[0])
    assert "Traceback" not in error
    after = contents()
    assert not [path for path in after if path.endswith(".tmp")]
    # what stands there is as it was, or is not there: nothing was computed anew
    assert {path for path, content in after.items() if before.get(path, content) != content} == set()
    assert run(command) == 0, "with room again"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_that_cannot_grow_is_one_line_with_its_path(run, command, capsys):
    check_refused(run, command, capsys, "File too large", limited(0))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_disk_is_one_line_with_its_path(run_on_a_small_disk, command, capsys):
    check_refused(run_on_a_small_disk, command, capsys, "No space left on device", filled(0))


@pytest.mark.parametrize("command", ["collect", "compare", "summary", "report"])
def test_a_disk_that_is_full_after_some_files_is_one_line_with_its_path(run_on_a_small_disk, command, capsys):
    check_refused(run_on_a_small_disk, command, capsys, "No space left on device", filled(8192))


def test_half_a_page_is_not_left(run, capsys):
    with limited(200_000):  # enough for the page, too little for Vega
        assert run("report") == 1
    assert not Path("results/report").exists()
    assert run("report") == 0


def test_a_log_on_a_full_disk_is_no_traceback(run_on_a_small_disk):
    command = [sys.executable, "-m", "vernacular", "summary", *run_on_a_small_disk.summary(""), "--log", "logs/s.log"]
    Path("logs").mkdir()
    for log in ("logs/s.log", "more/logs/s.log"):
        with filled(0):
            ended = subprocess.run([*command[:-1], log], capture_output=True, text=True, check=False)
        assert ended.returncode == 1
        assert "Traceback" not in ended.stderr
        assert "Logging error" not in ended.stderr
        assert "No space left on device" in ended.stderr


def test_an_error_of_another_kind_keeps_its_traceback(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileExistsError), artifacts.replacing(tmp_path / "file" / "x"):
        pass
