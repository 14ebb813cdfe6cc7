"""Commands on a full disk: an error of one line that names the path, and no incomplete file.

The disk is a small tmpfs if the tests may mount one. Without it, a limit on file sizes (`ulimit -f`) makes every write
fail likewise. The commands run in this process, as the rules call them.
"""

import contextlib
import os
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from support import stages, tiny
from support.stage_run import CONFIG, Run
from vernacular.config import load as config
from vernacular.core import artifacts

COMMANDS = ["items", "requests", "model", "infer", "collect", "similarity", "metrics", "export", "compare", "changes",
         "summary", "report", "finish"]  # fmt: skip
SMALL_DISK = 40 * 2**20  # bytes


class RunWithExport(Run):
    """The commands of a run, and `export`."""

    def export(self, name: str) -> dict:
        tasks = [
            f"results/{name}/tasks/{e.id}.parquet" for e in self.config.evaluations.values() if e.protocol == "letters"
        ]
        return super().export(name) | {"tasks": tasks}

    def remove_outputs(self, command: str) -> None:
        """Remove outputs that the command would reuse, or delete itself and so free disk space."""
        if command in ("items", "requests"):
            shutil.rmtree({"items": "resources/items", "requests": "results/requests"}[command])
        if command == "infer":
            for entry in Path("results/store/scores").rglob("*.parquet"):
                entry.unlink()
        if command == "report":
            shutil.rmtree("results/report")


@pytest.fixture(scope="module")
def completed(tmp_path_factory) -> Path:
    """The directory of a run of all commands, which the tests copy."""
    directory = tmp_path_factory.mktemp("completed")
    with contextlib.chdir(directory):
        for name, kind in (("one", "llama"), ("two", "gpt2"), ("encoder", "bert")):
            tiny.save(kind, name)
        evaluations = [{**CONFIG["evaluations"][0], "protocols": ["generation", "options", "letters"]}]
        Path("config.yaml").write_text(yaml.safe_dump({**CONFIG, "evaluations": evaluations}))
        run = RunWithExport(config.load(["config.yaml"]))
        assert run.run_all() == 0
        assert run("export") == 0
    return directory


def copy_of(completed: Path, directory: Path) -> tuple[RunWithExport, Path]:
    shutil.copytree(completed, directory, dirs_exist_ok=True)
    with contextlib.chdir(directory):
        return RunWithExport(config.load(["config.yaml"])), directory


@pytest.fixture(scope="module")
def limited_run(completed, tmp_path_factory):
    return copy_of(completed, tmp_path_factory.mktemp("limited"))


@pytest.fixture(scope="module")
def small_disk_run(completed, tmp_path_factory):
    directory = tmp_path_factory.mktemp("small")
    command = ["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK}", "vernacular", str(directory)]
    mount = subprocess.run(command, capture_output=True, text=True, check=False)
    if mount.returncode:
        pytest.skip(f"cannot mount: {mount.stderr.strip()}")
    try:
        yield copy_of(completed, directory)
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


@pytest.fixture
def run(limited_run, monkeypatch):
    run, directory = limited_run
    monkeypatch.chdir(directory)
    return run


@pytest.fixture
def run_on_small_disk(small_disk_run, monkeypatch):
    run, directory = small_disk_run
    monkeypatch.chdir(directory)
    return run


@contextlib.contextmanager
def file_size_limit(size: int):
    """Limit the size of files to `size` bytes."""
    previous = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, previous[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, previous)


@contextlib.contextmanager
def full_disk(free: int):
    """Fill the small disk, which is the working directory, except for `free` bytes."""
    filler = Path("filler")
    disk = shutil.disk_usage(".")
    assert disk.total <= SMALL_DISK, "not the small disk"
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, disk.free - free)
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


def check_write_error(run, command: str, capsys, reason: str, limit) -> None:
    run.remove_outputs(command)
    contents_before = contents()
    capsys.readouterr()
    with limit:
        status = run(command)
    error = capsys.readouterr().err
    lines = [line for line in error.splitlines() if line.startswith(f"{command}: ")]
    assert status == 1
    assert len(lines) == 1
    assert re.search(rf"(results|resources)/[\w./-]+.*{reason}", lines[0])
    assert "Traceback" not in error
    contents_after = contents()
    assert not [path for path in contents_after if path.endswith(".tmp")]
    # files are unchanged or missing; nothing was computed again
    assert {path for path, content in contents_after.items() if contents_before.get(path, content) != content} == set()
    assert run(command) == 0, "with free space again"


@pytest.mark.parametrize("command", COMMANDS)
def test_file_size_limit_raises_one_line_error(run, command, capsys):
    check_write_error(run, command, capsys, "File too large", file_size_limit(0))


@pytest.mark.parametrize("command", COMMANDS)
def test_full_disk_raises_one_line_error(run_on_small_disk, command, capsys):
    check_write_error(run_on_small_disk, command, capsys, "No space left on device", full_disk(0))


@pytest.mark.parametrize("command", ["collect", "compare", "summary", "report"])
def test_disk_full_after_some_files_raises_one_line_error(run_on_small_disk, command, capsys):
    check_write_error(run_on_small_disk, command, capsys, "No space left on device", full_disk(8192))


def test_report_is_complete_or_the_previous_one(run, capsys):
    files = {path: path.stat().st_mtime_ns for path in Path("results/report").rglob("*")}
    shutil.copytree("results/report", "previous")
    for previous in (True, False):
        with file_size_limit(200_000):  # enough for the HTML, not enough for Vega
            assert run("report") == 1
        assert {path: path.stat().st_mtime_ns for path in Path("results/report").rglob("*")} == (
            files if previous else {}
        )
        shutil.rmtree("results/report", ignore_errors=True)
    assert not Path("results/report").exists()
    assert run("report") == 0


def test_log_on_full_disk_prints_no_traceback(run_on_small_disk):
    command = [sys.executable, "-m", "vernacular", "summary"]
    Path("logs").mkdir()
    for log in ("logs/s.log", "more/logs/s.log"):
        with full_disk(0):
            fields = stages.text("summary", **run_on_small_disk.summary(""), log=log)
            process = subprocess.run(command, input=fields, capture_output=True, text=True, check=False)
        assert process.returncode == 1
        assert "Traceback" not in process.stderr
        assert "Logging error" not in process.stderr
        assert "No space left on device" in process.stderr


def test_other_os_errors_are_not_converted(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileExistsError), artifacts.replacing(tmp_path / "file" / "x"):
        pass
