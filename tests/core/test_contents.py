"""Content hashes are reused for unmodified files, and every modification is detected."""

import hashlib
import logging
import os
import socket
import subprocess
import sys
import time

import pytest
from support import observed
from vernacular.core.contents import compare_contents, contents
from vernacular.core.errors import ModelError

NAMES = ["a.bin", "sub/b.txt"]


@pytest.fixture
def root(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.bin").write_bytes(bytes(range(256)) * 1024)
    (tmp_path / "sub" / "b.txt").write_text("casa\n")
    return tmp_path


@pytest.fixture
def hashed_files(root):
    """Names of the files that are read, and thereby hashed, during the test."""
    with observed.opened_files(root) as paths:
        yield paths


def replace_bytes(path, old: bytes, new: bytes, *, keep_mtime: bool = False) -> None:
    """Replace bytes in place, optionally with the same modification time."""
    status = path.stat()
    content = path.read_bytes()
    assert len(old) == len(new)
    assert old in content
    with open(path, "r+b") as file:
        file.write(content.replace(old, new, 1))
    if keep_mtime:
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        assert path.stat().st_mtime_ns == status.st_mtime_ns


def test_hash_covers_complete_file(root):
    entries = contents(root, NAMES)
    assert list(entries) == NAMES
    assert entries["a.bin"]["sha256"] == hashlib.sha256((root / "a.bin").read_bytes()).hexdigest()
    assert entries["a.bin"]["size"] == 256 * 1024


def test_unmodified_file_is_not_hashed_again(root, hashed_files):
    known = contents(root, NAMES)
    assert hashed_files == NAMES
    assert contents(root, NAMES, known) == known
    assert compare_contents(root, NAMES, known)[0] == []
    assert hashed_files == NAMES


@pytest.mark.parametrize("keep_mtime", [False, True])
def test_modified_byte_is_detected_with_restored_mtime(root, keep_mtime):
    known = contents(root, NAMES)
    replace_bytes(root / "a.bin", bytes([255, 0, 1]), bytes([255, 9, 1]), keep_mtime=keep_mtime)
    assert compare_contents(root, NAMES, known)[0] == ["a.bin"]
    updated = contents(root, NAMES, known)
    assert updated["a.bin"]["sha256"] != known["a.bin"]["sha256"]
    assert updated["sub/b.txt"] == known["sub/b.txt"]


def test_touched_or_replaced_file_with_same_content_is_unchanged(root, hashed_files):
    known = contents(root, NAMES)
    os.utime(root / "a.bin", ns=(1, 1))
    copy = root / "copy"
    copy.write_bytes((root / "sub" / "b.txt").read_bytes())
    copy.replace(root / "sub" / "b.txt")
    hashed_files.clear()
    assert compare_contents(root, NAMES, known)[0] == []
    assert hashed_files == NAMES
    _, entries = compare_contents(root, NAMES, known)
    hashed_files.clear()
    assert compare_contents(root, NAMES, entries)[0] == []
    assert hashed_files == []


def test_size_change_is_detected_without_reading(root, hashed_files):
    known = contents(root, NAMES)
    with open(root / "a.bin", "ab") as file:
        file.write(b"x")
    hashed_files.clear()
    assert compare_contents(root, NAMES, known)[0] == ["a.bin"]
    assert hashed_files == []


def test_new_and_missing_files_are_changed(root):
    known = contents(root, NAMES)
    (root / "new").touch()
    (root / "a.bin").unlink()
    assert compare_contents(root, ["new", "sub/b.txt"], known)[0] == ["a.bin", "new"]
    assert compare_contents(root, ["a.bin", "new", "sub/b.txt"], known)[0] == ["a.bin", "new"]


def test_comparison_is_read_only(root):
    known = contents(root, NAMES)
    os.utime(root / "a.bin", ns=(1, 1))
    status = {path: path.stat() for path in root.rglob("*")}
    compare_contents(root, NAMES, known)[0]
    stamps = {path: (s.st_mtime_ns, s.st_ctime_ns, s.st_size) for path, s in status.items()}
    assert {p: (p.stat().st_mtime_ns, p.stat().st_ctime_ns, p.stat().st_size) for p in root.rglob("*")} == stamps


def test_symlink_is_hashed_as_its_target(root):
    (root / "link").symlink_to("a.bin")
    known = contents(root, ["link"])
    assert known["link"] == contents(root, ["a.bin"])["a.bin"]
    (root / "link").unlink()
    (root / "link").symlink_to("sub/b.txt")
    assert compare_contents(root, ["link"], known)[0] == ["link"]


def make_socket(path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "file not found"),
        (lambda path: path.symlink_to("nowhere"), "a link to nowhere, which does not exist"),
        (lambda path: path.symlink_to(path), "cannot be read"),
        (lambda path: path.mkdir(), "expected a regular file, got a directory"),
        (os.mkfifo, "expected a regular file, got a named pipe"),
        (make_socket, "expected a regular file, got a socket"),
        (lambda path: path.symlink_to("/dev/zero"), "expected a regular file, got a device"),
    ],
)
def test_missing_or_special_file_raises_model_error(tmp_path, monkeypatch, make, message):
    monkeypatch.chdir(tmp_path)  # the path of a socket must be short
    make(tmp_path.__class__("x"))
    with pytest.raises(ModelError, match=message) as error:
        contents(tmp_path, ["x"])
    assert str(tmp_path / "x") in str(error.value)
    assert compare_contents(tmp_path, ["x"], {"x": {"size": 0, "sha256": ""}})[0] == ["x"]


WRITER = "import sys, pathlib; p = pathlib.Path(sys.argv[1]); {}"


@pytest.mark.parametrize(
    "change",
    ["open(p, 'ab').write(b'x')", "open(p, 'r+b').write(b'zz')", "q = p.with_name('q'); q.touch(); q.replace(p)"],
)
def test_file_modified_while_hashed_is_rejected(root, low_limits, caplog, change):
    class Writer(logging.Handler):
        def emit(self, record):
            if record.getMessage().startswith("hashing"):
                subprocess.run([sys.executable, "-c", WRITER.format(change), str(root / "a.bin")], check=True)

    low_limits("core.contents", LARGE=1)  # so that a line is logged once the file is open
    logger, writer = logging.getLogger("vernacular"), Writer()
    logger.addHandler(writer)
    try:
        with (
            caplog.at_level("INFO", "vernacular"),
            pytest.raises(ModelError, match=r"a\.bin: modified while it was read"),
        ):
            contents(root, ["a.bin"])
    finally:
        logger.removeHandler(writer)


def test_hashing_waits_for_next_timestamp_tick(root, low_limits):
    """Timestamps of many file systems have ticks of milliseconds; two writes within one get the same timestamp."""
    tick = 300_000_000  # ns
    low_limits("core.contents", TICK=tick, COARSE_TICK=tick)
    (root / "a.bin").touch()
    known = contents(root, ["a.bin"])
    assert time.time_ns() - known["a.bin"]["mtime_ns"] >= tick
    (root / "a.bin").touch()
    written = contents(root, ["a.bin"])
    low_limits("core.contents", TICK=10**12, COARSE_TICK=10**12)
    with observed.sleeps() as sleeps:
        assert contents(root, ["a.bin"], written) == written
    assert sleeps == [], "no wait if nothing is read"


def test_hashing_of_large_files_is_logged(root, low_limits, caplog):
    low_limits("core.contents", LARGE=100_000)
    with caplog.at_level("INFO", logger="vernacular"):
        contents(root, NAMES)
    assert [record.getMessage() for record in caplog.records] == [f"hashing {root / 'a.bin'} (0.0 GB)"]
