import contextlib
import os
import re
import shutil
import signal
import stat
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from vernacular.core.errors import ArtifactError
from vernacular.core.processes import Stopped, stop_on_signals
from vernacular.inference.job.store import Journal, Store, StoreError
from vernacular.inference.schema import SCORES

pytestmark = pytest.mark.usefixtures("default_signals")

ROW = {"logprobs": [-0.1, -12.345678710937500, None], "flags": None}


def finished_table() -> pa.Table:
    row = {name: None for name in SCORES.schema.names}
    return pa.Table.from_pylist(
        [{**row, "request_id": "r1", "item_id": "a", "role": "good", "logprobs": [-1.5]}], schema=SCORES.schema
    )


def test_put_stores_evaluation_and_removes_journal(tmp_path):
    store = Store(tmp_path)
    store.journal("k" * 40, seconds=0).add("b1", [ROW])
    assert list((tmp_path / "journal").rglob("*.part"))
    store.put("k" * 40, SCORES, finished_table(), {"counters": {"forwards": 2}})
    table, metadata = store.get("k" * 40, SCORES)
    assert table.column("logprobs").to_pylist() == [[-1.5]]
    assert metadata["counters"] == {"forwards": 2}
    assert not list((tmp_path / "journal").rglob("*.part"))


def test_get_returns_none_for_damaged_or_mismatched_entry(tmp_path, caplog):
    store = Store(tmp_path)
    path = store.put("k" * 40, SCORES, finished_table(), {})
    other_path = store.path("f" * 40, SCORES)
    other_path.parent.mkdir(parents=True)
    other_path.write_bytes(path.read_bytes())
    assert store.get("f" * 40, SCORES) is None
    path.write_bytes(path.read_bytes()[:-20])
    assert store.get("k" * 40, SCORES) is None
    assert f"expected the evaluation {'f' * 40}, got {'k' * 40}" in caplog.text
    assert "damaged" in caplog.text


def test_journal_restores_batches_exactly(tmp_path):
    journal = Journal(tmp_path / "j", "key", seconds=0)
    journal.add("b1", [ROW])
    journal.add("b2", [])
    reopened = Journal(tmp_path / "j", "key")
    assert reopened.get("b1") == [ROW]
    assert reopened.get("b2") == []
    assert reopened.get("b3") is None


def test_journal_restores_only_written_batches(tmp_path):
    journal = Journal(tmp_path / "j", "key", seconds=1e9)
    journal.add("b1", [ROW])
    journal.flush()
    journal.add("b2", [ROW])
    reopened = Journal(tmp_path / "j", "key")
    assert (reopened.get("b1"), reopened.get("b2")) == ([ROW], None)


def test_journal_write_interval_doubles_up_to_limit(tmp_path, monkeypatch):
    clock = 0.0
    monkeypatch.setattr("vernacular.inference.job.store.time.monotonic", lambda: clock)
    journal = Journal(tmp_path / "j", "key", seconds=5)
    write_seconds = []
    for second in range(1, 20):
        clock = float(second)
        n_parts = len(list((tmp_path / "j").glob("*.part")))
        journal.add(f"b{second}", [])
        if len(list((tmp_path / "j").glob("*.part"))) > n_parts:
            write_seconds.append(second)
    assert write_seconds == [1, 3, 7, 12, 17]


@pytest.mark.parametrize("n_bytes", [0, 10, 32, -1])
def test_truncated_journal_part_is_dropped(tmp_path, n_bytes):
    journal = Journal(tmp_path / "j", "key", seconds=0)
    journal.add("b1", [ROW])
    journal.add("b2", [ROW])
    last_part = sorted((tmp_path / "j").iterdir())[-1]
    last_part.write_bytes(last_part.read_bytes()[:n_bytes])
    reopened = Journal(tmp_path / "j", "key")
    assert (reopened.get("b1"), reopened.get("b2")) == ([ROW], None)
    assert "incomplete or damaged" in reopened.notes[0]


def test_journal_part_of_other_key_is_dropped(tmp_path):
    Journal(tmp_path / "j", "other", seconds=0).add("b1", [ROW])
    part = next((tmp_path / "j").iterdir())
    part.rename(part.with_name(part.name.replace("other.", "key.")))
    reopened = Journal(tmp_path / "j", "key")
    assert reopened.get("b1") is None
    assert "from another evaluation" in reopened.notes[0]


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_signal_flushes_journal_and_stops(tmp_path, signum):
    handler = signal.getsignal(signum)
    with stop_on_signals() as stop:
        journal = Journal(tmp_path / "j", "key", stop=stop, seconds=1e9)
        journal.add("b1", [ROW])
        os.kill(os.getpid(), signum)
        with pytest.raises(Stopped, match="2 finished batches are stored"):
            journal.add("b2", [ROW])
    assert signal.getsignal(signum) == handler
    assert Journal(tmp_path / "j", "key").get("b2") == [ROW]


def test_second_signal_is_ignored_unless_sigint(tmp_path):
    with stop_on_signals() as stop:
        for signum in (signal.SIGUSR1, signal.SIGTERM, signal.SIGTERM):
            os.kill(os.getpid(), signum)
        with pytest.raises(Stopped, match="stopped by SIGUSR1: 1 finished batch is stored"):
            Journal(tmp_path / "j", "key", stop=stop, seconds=1e9).add("b1", [ROW])
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_unwritable_store_raises_artifact_error(tmp_path):
    (tmp_path / "store").write_text("a file where a directory should be")
    with pytest.raises(ArtifactError, match="the store cannot be written"):
        Store(tmp_path / "store").put("k" * 40, SCORES, finished_table(), {})
    with pytest.raises(ArtifactError, match="the store cannot be written"):
        Store(tmp_path / "store").journal("k", seconds=0).add("b", [ROW])


def test_put_keeps_existing_entry(tmp_path):
    store = Store(tmp_path)
    store.put("k" * 40, SCORES, finished_table(), {"counters": {"writer": 1}})
    store.put("k" * 40, SCORES, finished_table(), {"counters": {"writer": 2}})
    assert store.get("k" * 40, SCORES)[1]["counters"] == {"writer": 1}


def test_put_replaces_damaged_entry(tmp_path):
    store = Store(tmp_path)
    path = store.put("k" * 40, SCORES, finished_table(), {"counters": {"writer": 1}})
    path.write_bytes(path.read_bytes()[:-20])
    store.put("k" * 40, SCORES, finished_table(), {"counters": {"writer": 2}})
    assert store.get("k" * 40, SCORES)[1]["counters"] == {"writer": 2}


def test_concurrent_journals_share_batches(tmp_path):
    store = Store(tmp_path)
    first_journal, second_journal = store.journal("k" * 40, seconds=0), store.journal("k" * 40, seconds=0)
    first_journal.add("b1", [ROW])
    second_journal.add("b2", [])
    reopened = store.journal("k" * 40)
    assert (reopened.get("b1"), reopened.get("b2")) == ([ROW], [])


def test_journal_survives_finished_evaluation_and_removed_store(tmp_path):
    store = Store(tmp_path / "store")
    journal = store.journal("k" * 40, seconds=0)
    journal.add("b1", [ROW])
    store.put("k" * 40, SCORES, finished_table(), {})
    journal.add("b2", [ROW])
    shutil.rmtree(tmp_path / "store")
    journal.add("b3", [ROW])
    assert store.journal("k" * 40).get("b3") == [ROW]


def test_remove_journal_removes_only_its_key(tmp_path):
    store = Store(tmp_path)
    store.put("k" * 40, SCORES, finished_table(), {})
    store.journal("k" * 40, seconds=0).add("b1", [ROW])
    store.journal("o" * 40, seconds=0).add("b1", [ROW])
    store.remove_journal("k" * 40)
    store.remove_journal("m" * 40)  # had none
    assert [path.name[:40] for path in tmp_path.rglob("*.part")] == ["o" * 40]


def test_unreadable_journal_part_is_dropped(tmp_path):
    Journal(tmp_path / "j", "key", seconds=0).add("b1", [ROW])
    (tmp_path / "j" / "key.0.part").mkdir()
    reopened = Journal(tmp_path / "j", "key")
    assert reopened.get("b1") == [ROW]
    assert "unreadable (Is a directory)" in reopened.notes[0]


def test_put_removes_only_stale_temporary_files(tmp_path):
    store = Store(tmp_path)
    directory = store.path("k" * 40, SCORES).parent
    directory.mkdir(parents=True)
    (directory / ".dead.tmp").write_text("half")
    (directory / ".writing.tmp").write_text("half")
    os.utime(directory / ".dead.tmp", (1e9, 1e9))
    path = store.put("k" * 40, SCORES, finished_table(), {})
    assert {path.name for path in directory.iterdir()} == {".writing.tmp", path.name}


@pytest.mark.parametrize(("store_mode", "directory_mode", "file_mode"), [(0o2775, 0o2775, 0o664), (0o2770, 0o2770, 0o660), (0o755, 0o755, 0o644)])  # fmt: skip
@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_files_inherit_permissions_of_store_directory(tmp_path, store_mode, directory_mode, file_mode, umask):
    (tmp_path / "store").mkdir()
    (tmp_path / "store").chmod(store_mode)
    original_umask = os.umask(umask)
    try:
        store = Store(tmp_path / "store")
        store.put("k" * 40, SCORES, finished_table(), {})
        store.journal("o" * 40, seconds=0).add("b1", [ROW])
        assert os.umask(umask) == umask, "the umask of the process changed"
    finally:
        os.umask(original_umask)
    paths = list((tmp_path / "store").rglob("*"))
    assert {stat.S_IMODE(path.stat().st_mode) for path in paths if path.is_dir()} == {directory_mode}
    assert {stat.S_IMODE(path.stat().st_mode) for path in paths if path.is_file()} == {file_mode}


@pytest.fixture
def another_user():
    """Return a context manager in which this process is an unprivileged user, if it runs as root."""

    @contextlib.contextmanager
    def switch_user():
        if os.geteuid() != 0:
            yield
            return
        os.seteuid(65534)
        try:
            yield
        finally:
            os.seteuid(0)

    return switch_user


@pytest.fixture
def store_path():
    """Return a store path that every user can access, unlike pytest's tmp_path."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        yield Path(directory) / "store"
        for path in Path(directory).rglob("*"):
            if path.is_dir():
                path.chmod(0o755)


def test_read_only_store_is_readable_and_rejects_writes(store_path, another_user):
    store = Store(store_path)
    store.put("k" * 40, SCORES, finished_table(), {})
    for path in (store_path, *store_path.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    with another_user():
        assert store.get("k" * 40, SCORES)[0].num_rows == 1
        store.remove_journal("k" * 40)
        for key in ("k" * 40, "o" * 40):
            message = rf"the store cannot be written at {re.escape(str(store.path(key, SCORES)))}: Permission denied"
            with pytest.raises(StoreError, match=message):
                store.check_writable(key, SCORES)
        with pytest.raises(StoreError, match=message):
            store.put("o" * 40, SCORES, finished_table(), {})
        with pytest.raises(
            StoreError, match=rf"cannot be written at {store_path}/journal/oo/o+\..*\.part: Permission denied"
        ):
            store.journal("o" * 40, seconds=0).add("b1", [ROW])


def test_unreadable_store_raises_store_error(store_path, another_user):
    store = Store(store_path)
    path = store.put("k" * 40, SCORES, finished_table(), {})
    path.parent.chmod(0)
    with another_user(), pytest.raises(StoreError, match=f"cannot be read at {path}: Permission denied"):
        store.get("k" * 40, SCORES)


@pytest.mark.skipif(os.geteuid() != 0, reason="requires two users")
def test_irreplaceable_damaged_entry_raises_store_error(store_path, another_user):
    store = Store(store_path)
    path = store.put("k" * 40, SCORES, finished_table(), {})
    path.write_bytes(path.read_bytes()[:-20])
    path.parent.chmod(0o1777)
    with another_user():
        assert store.get("k" * 40, SCORES) is None
        with pytest.raises(StoreError, match=f"the store cannot be written at {path}: Operation not permitted"):
            store.check_writable("k" * 40, SCORES)
        with pytest.raises(StoreError, match=f"the store cannot be written at {path}: Operation not permitted"):
            store.put("k" * 40, SCORES, finished_table(), {})
        store.check_writable("kk" + "o" * 38, SCORES)
    assert not list(path.parent.glob(".*")), "temporary files found"
