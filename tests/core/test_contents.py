"""Content hashes are reused while a file is untouched, and no change of a file is overlooked."""

import hashlib
import os
import socket
import subprocess
import sys

import pytest
from vernacular.core import contents as module
from vernacular.core.contents import changed, compared, contents
from vernacular.core.errors import ModelError

NAMES = ["a.bin", "sub/b.txt"]


@pytest.fixture
def root(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.bin").write_bytes(bytes(range(256)) * 1024)
    (tmp_path / "sub" / "b.txt").write_text("casa\n")
    return tmp_path


@pytest.fixture
def read(monkeypatch):
    """Paths that are hashed from here on."""
    paths = []
    hashed = module._hashed
    monkeypatch.setattr(module, "_hashed", lambda path, *rest: paths.append(path.name) or hashed(path, *rest))
    return paths


def edit(path, old: bytes, new: bytes, *, keep_time: bool = False) -> None:
    """Replace bytes in place."""
    before = path.stat()
    content = path.read_bytes()
    assert len(old) == len(new)
    assert old in content
    with open(path, "r+b") as file:
        file.write(content.replace(old, new, 1))
    if keep_time:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert path.stat().st_mtime_ns == before.st_mtime_ns


def test_the_hash_is_of_the_whole_file(root):
    found = contents(root, NAMES)
    assert list(found) == NAMES
    assert found["a.bin"]["sha256"] == hashlib.sha256((root / "a.bin").read_bytes()).hexdigest()
    assert found["a.bin"]["size"] == 256 * 1024


def test_an_untouched_file_is_not_read_again(root, read):
    known = contents(root, NAMES)
    assert read == ["a.bin", "b.txt"]
    assert contents(root, NAMES, known) == known
    assert changed(root, NAMES, known) == []
    assert read == ["a.bin", "b.txt"]


@pytest.mark.parametrize("keep_time", [False, True])
def test_a_byte_in_the_middle_is_noticed_even_with_the_time_set_back(root, keep_time):
    known = contents(root, NAMES)
    edit(root / "a.bin", bytes([255, 0, 1]), bytes([255, 9, 1]), keep_time=keep_time)
    assert changed(root, NAMES, known) == ["a.bin"]
    again = contents(root, NAMES, known)
    assert again["a.bin"]["sha256"] != known["a.bin"]["sha256"]
    assert again["sub/b.txt"] == known["sub/b.txt"]


def test_a_file_that_is_only_touched_or_copied_over_is_the_same(root, read):
    known = contents(root, NAMES)
    os.utime(root / "a.bin", ns=(1, 1))
    copy = root / "copy"
    copy.write_bytes((root / "sub" / "b.txt").read_bytes())
    copy.replace(root / "sub" / "b.txt")
    read.clear()
    assert changed(root, NAMES, known) == []
    assert read == ["a.bin", "b.txt"]
    _, entries = compared(root, NAMES, known)
    read.clear()
    assert changed(root, NAMES, entries) == []
    assert read == []


def test_another_size_is_a_change_without_reading(root, read):
    known = contents(root, NAMES)
    read.clear()
    with open(root / "a.bin", "ab") as file:
        file.write(b"x")
    assert changed(root, NAMES, known) == ["a.bin"]
    assert read == []


def test_new_and_missing_files_are_changes(root):
    known = contents(root, NAMES)
    (root / "new").touch()
    (root / "a.bin").unlink()
    assert changed(root, ["new", "sub/b.txt"], known) == ["a.bin", "new"]
    assert changed(root, ["a.bin", "new", "sub/b.txt"], known) == ["a.bin", "new"]


def test_comparing_writes_nothing(root):
    known = contents(root, NAMES)
    os.utime(root / "a.bin", ns=(1, 1))
    before = {path: path.stat() for path in root.rglob("*")}
    changed(root, NAMES, known)
    stamps = {path: (s.st_mtime_ns, s.st_ctime_ns, s.st_size) for path, s in before.items()}
    assert {p: (p.stat().st_mtime_ns, p.stat().st_ctime_ns, p.stat().st_size) for p in root.rglob("*")} == stamps


def test_a_link_is_its_target(root):
    (root / "link").symlink_to("a.bin")
    known = contents(root, ["link"])
    assert known["link"] == contents(root, ["a.bin"])["a.bin"]
    (root / "link").unlink()
    (root / "link").symlink_to("sub/b.txt")
    assert changed(root, ["link"], known) == ["link"]


def make_socket(path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


@pytest.mark.parametrize(
    ("make", "said"),
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
def test_what_is_not_a_file_is_named(tmp_path, monkeypatch, make, said):
    monkeypatch.chdir(tmp_path)  # the path of a socket must be short
    make(tmp_path.__class__("x"))
    with pytest.raises(ModelError, match=said) as error:
        contents(tmp_path, ["x"])
    assert str(tmp_path / "x") in str(error.value)
    assert changed(tmp_path, ["x"], {"x": {"size": 0, "sha256": ""}}) == ["x"]


WRITER = "import sys, pathlib; p = pathlib.Path(sys.argv[1]); {}"


@pytest.mark.parametrize(
    "change",
    ["open(p, 'ab').write(b'x')", "open(p, 'r+b').write(b'zz')", "q = p.with_name('q'); q.touch(); q.replace(p)"],
)
def test_a_file_modified_while_it_is_read_is_refused(root, monkeypatch, change):
    def interfere(path, file, size):
        digest = hashed(path, file, size)
        subprocess.run([sys.executable, "-c", WRITER.format(change), str(path)], check=True)
        return digest

    hashed = module._hashed
    monkeypatch.setattr(module, "_hashed", interfere)
    with pytest.raises(ModelError, match=r"a\.bin: modified while it was read"):
        contents(root, ["a.bin"])


@pytest.mark.parametrize(("tick", "waits"), [(3600 * 10**9, True), (0, False)])
def test_a_file_is_hashed_once_the_clock_of_its_times_has_moved_on(root, monkeypatch, tick, waits):
    """Many file systems' clocks move every few milliseconds: a write meanwhile has the time of the one before."""
    slept = []
    monkeypatch.setattr(module.time, "sleep", slept.append)
    monkeypatch.setattr(module, "_TICK", tick)
    monkeypatch.setattr(module, "_COARSE_TICK", tick)
    known = contents(root, ["a.bin"])
    assert [0 < seconds <= 3600 for seconds in slept] == [True] * waits
    contents(root, ["a.bin"], known)
    assert len(slept) == waits, "not where nothing is read"


def test_large_files_are_announced(root, monkeypatch, caplog):
    monkeypatch.setattr(module, "_LARGE", 100_000)
    with caplog.at_level("INFO", logger="vernacular"):
        contents(root, NAMES)
    assert [record.getMessage() for record in caplog.records] == [f"hashing {root / 'a.bin'} (0.0 GB)"]
