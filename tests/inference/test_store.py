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
from vernacular.core.processes import Stopped, stoppable
from vernacular.inference.job.store import Journal, Store, StoreError
from vernacular.inference.schema import SCORES

pytestmark = pytest.mark.usefixtures("heard_signals")

ROW = {"logprobs": [-0.1, -12.345678710937500, None], "flags": None}


def finished_table() -> pa.Table:
    row = {name: None for name in SCORES.schema.names}
    return pa.Table.from_pylist(
        [{**row, "request_id": "r1", "item_id": "a", "role": "good", "logprobs": [-1.5]}], schema=SCORES.schema
    )


def test_finished_evaluation_comes_back_and_its_journal_is_gone(tmp_path):
    store = Store(tmp_path)
    store.journal("k" * 40, seconds=0).add("b1", [ROW])
    assert list((tmp_path / "journal").rglob("*.part"))
    store.put("k" * 40, SCORES, finished_table(), {"counters": {"forwards": 2}})
    table, metadata = store.get("k" * 40, SCORES)
    assert table.column("logprobs").to_pylist() == [[-1.5]]
    assert metadata["counters"] == {"forwards": 2}
    assert not list((tmp_path / "journal").rglob("*.part"))


def test_damaged_or_foreign_evaluation_counts_as_none(tmp_path, caplog):
    store = Store(tmp_path)
    path = store.put("k" * 40, SCORES, finished_table(), {})
    other = store.path("f" * 40, SCORES)
    other.parent.mkdir(parents=True)
    other.write_bytes(path.read_bytes())
    assert store.get("f" * 40, SCORES) is None
    path.write_bytes(path.read_bytes()[:-20])
    assert store.get("k" * 40, SCORES) is None
    assert f"expected the evaluation {'f' * 40}, got {'k' * 40}" in caplog.text
    assert "damaged" in caplog.text


def test_journal_gives_batches_back_bit_for_bit(tmp_path):
    journal = Journal(tmp_path / "j", "key", seconds=0)
    journal.add("b1", [ROW])
    journal.add("b2", [])
    again = Journal(tmp_path / "j", "key")
    assert again.done("b1") == [ROW]
    assert again.done("b2") == []
    assert again.done("b3") is None


def test_unwritten_batches_are_lost_and_the_written_kept(tmp_path):
    journal = Journal(tmp_path / "j", "key", seconds=1e9)
    journal.add("b1", [ROW])
    journal.flush()
    journal.add("b2", [ROW])
    again = Journal(tmp_path / "j", "key")
    assert (again.done("b1"), again.done("b2")) == ([ROW], None)


def test_parts_are_written_after_1_2_4_seconds_and_then_at_the_usual_pace(tmp_path, monkeypatch):
    now = 0.0
    monkeypatch.setattr("vernacular.inference.job.store.time.monotonic", lambda: now)
    journal = Journal(tmp_path / "j", "key", seconds=5)
    written = []
    for second in range(1, 20):
        now = float(second)
        parts = len(list((tmp_path / "j").glob("*.part")))
        journal.add(f"b{second}", [])
        if len(list((tmp_path / "j").glob("*.part"))) > parts:
            written.append(second)
    assert written == [1, 3, 7, 12, 17]


@pytest.mark.parametrize("cut", [0, 10, 32, -1])
def test_torn_part_is_dropped_with_a_note(tmp_path, cut):
    journal = Journal(tmp_path / "j", "key", seconds=0)
    journal.add("b1", [ROW])
    journal.add("b2", [ROW])
    last = sorted((tmp_path / "j").iterdir())[-1]
    last.write_bytes(last.read_bytes()[:cut])
    again = Journal(tmp_path / "j", "key")
    assert (again.done("b1"), again.done("b2")) == ([ROW], None)
    assert "incomplete or damaged" in again.notes[0]


def test_part_of_another_key_is_dropped_with_a_note(tmp_path):
    Journal(tmp_path / "j", "other", seconds=0).add("b1", [ROW])
    part = next((tmp_path / "j").iterdir())
    part.rename(part.with_name(part.name.replace("other.", "key.")))
    again = Journal(tmp_path / "j", "key")
    assert again.done("b1") is None
    assert "from another evaluation" in again.notes[0]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_signal_writes_everything_down_and_stops(tmp_path, number):
    handler = signal.getsignal(number)
    with stoppable() as stop:
        journal = Journal(tmp_path / "j", "key", stop=stop, seconds=1e9)
        journal.add("b1", [ROW])
        os.kill(os.getpid(), number)
        with pytest.raises(Stopped, match="2 finished batches are stored"):
            journal.add("b2", [ROW])
    assert signal.getsignal(number) == handler
    assert Journal(tmp_path / "j", "key").done("b2") == [ROW]


def test_a_second_signal_does_not_end_what_writes_down_its_answers_but_ctrl_c_does(tmp_path):
    with stoppable() as stop:
        for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGTERM):
            os.kill(os.getpid(), number)
        with pytest.raises(Stopped, match="stopped by SIGUSR1: 1 finished batch is stored"):
            Journal(tmp_path / "j", "key", stop=stop, seconds=1e9).add("b1", [ROW])
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_store_that_cannot_be_written_is_a_plain_sentence(tmp_path):
    (tmp_path / "store").write_text("a file where a folder should be")
    with pytest.raises(ArtifactError, match="the store cannot be written"):
        Store(tmp_path / "store").put("k" * 40, SCORES, finished_table(), {})
    with pytest.raises(ArtifactError, match="the store cannot be written"):
        Store(tmp_path / "store").journal("k", seconds=0).add("b", [ROW])


def test_an_entry_that_another_writer_has_put_is_kept(tmp_path):
    store = Store(tmp_path)
    store.put("k" * 40, SCORES, finished_table(), {"counters": {"writer": 1}})
    store.put("k" * 40, SCORES, finished_table(), {"counters": {"writer": 2}})
    assert store.get("k" * 40, SCORES)[1]["counters"] == {"writer": 1}


def test_a_damaged_entry_is_replaced(tmp_path):
    store = Store(tmp_path)
    path = store.put("k" * 40, SCORES, finished_table(), {"counters": {"writer": 1}})
    path.write_bytes(path.read_bytes()[:-20])
    store.put("k" * 40, SCORES, finished_table(), {"counters": {"writer": 2}})
    assert store.get("k" * 40, SCORES)[1]["counters"] == {"writer": 2}


def test_two_journals_of_one_evaluation_keep_what_both_have_done(tmp_path):
    store = Store(tmp_path)
    one, other = store.journal("k" * 40, seconds=0), store.journal("k" * 40, seconds=0)
    one.add("b1", [ROW])
    other.add("b2", [])
    again = store.journal("k" * 40)
    assert (again.done("b1"), again.done("b2")) == ([ROW], [])


def test_a_writer_goes_on_when_another_has_finished_the_evaluation_or_removed_the_store(tmp_path):
    store = Store(tmp_path / "store")
    slow = store.journal("k" * 40, seconds=0)
    slow.add("b1", [ROW])
    store.put("k" * 40, SCORES, finished_table(), {})
    slow.add("b2", [ROW])
    shutil.rmtree(tmp_path / "store")
    slow.add("b3", [ROW])
    assert store.journal("k" * 40).done("b3") == [ROW]


def test_a_journal_left_by_a_job_that_died_after_another_had_finished_is_removed_by_the_next_run(tmp_path):
    store = Store(tmp_path)
    store.put("k" * 40, SCORES, finished_table(), {})
    store.journal("k" * 40, seconds=0).add("b1", [ROW])
    store.journal("o" * 40, seconds=0).add("b1", [ROW])
    store.remove_journal("k" * 40)
    store.remove_journal("m" * 40)  # had none
    assert [path.name[:40] for path in tmp_path.rglob("*.part")] == ["o" * 40]


def test_an_unreadable_part_is_dropped_with_a_note(tmp_path):
    Journal(tmp_path / "j", "key", seconds=0).add("b1", [ROW])
    (tmp_path / "j" / "key.0.part").mkdir()
    again = Journal(tmp_path / "j", "key")
    assert again.done("b1") == [ROW]
    assert "unreadable (Is a directory)" in again.notes[0]


def test_what_killed_writers_left_is_removed_and_what_is_being_written_is_not(tmp_path):
    store = Store(tmp_path)
    folder = store.path("k" * 40, SCORES).parent
    folder.mkdir(parents=True)
    (folder / ".dead.tmp").write_text("half")
    (folder / ".writing.tmp").write_text("half")
    os.utime(folder / ".dead.tmp", (1e9, 1e9))
    path = store.put("k" * 40, SCORES, finished_table(), {})
    assert {each.name for each in folder.iterdir()} == {".writing.tmp", path.name}


@pytest.mark.parametrize(("mode", "of_folders", "of_files"), [(0o2775, 0o2775, 0o664), (0o2770, 0o2770, 0o660), (0o755, 0o755, 0o644)])  # fmt: skip
@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_what_is_written_has_the_permissions_of_the_stores_directory(tmp_path, mode, of_folders, of_files, umask):
    (tmp_path / "store").mkdir()
    (tmp_path / "store").chmod(mode)
    before = os.umask(umask)
    try:
        store = Store(tmp_path / "store")
        store.put("k" * 40, SCORES, finished_table(), {})
        store.journal("o" * 40, seconds=0).add("b1", [ROW])
        assert os.umask(umask) == umask, "the process keeps its own"
    finally:
        os.umask(before)
    found = [path for path in (tmp_path / "store").rglob("*")]
    assert {stat.S_IMODE(path.stat().st_mode) for path in found if path.is_dir()} == {of_folders}
    assert {stat.S_IMODE(path.stat().st_mode) for path in found if path.is_file()} == {of_files}


@pytest.fixture
def another_user():
    """Inside `with another_user():`, this process is a user without privileges, where it may become one."""

    @contextlib.contextmanager
    def becoming():
        if os.geteuid() != 0:
            yield
            return
        os.seteuid(65534)
        try:
            yield
        finally:
            os.seteuid(0)

    return becoming


@pytest.fixture
def place():
    """A directory that every user can reach; pytest's own is closed."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder) / "store"
        for path in Path(folder).rglob("*"):
            if path.is_dir():
                path.chmod(0o755)


def test_a_store_that_may_only_be_read_is_read_and_refuses_with_its_path_before_anything_is_computed(
    place, another_user
):
    store = Store(place)
    store.put("k" * 40, SCORES, finished_table(), {})
    for path in (place, *place.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    with another_user():
        assert store.get("k" * 40, SCORES)[0].num_rows == 1
        store.remove_journal("k" * 40)
        for key in ("k" * 40, "o" * 40):
            said = rf"the store cannot be written at {re.escape(str(store.path(key, SCORES)))}: Permission denied"
            with pytest.raises(StoreError, match=said):
                store.check_writable(key, SCORES)
        with pytest.raises(StoreError, match=said):
            store.put("o" * 40, SCORES, finished_table(), {})
        with pytest.raises(
            StoreError, match=rf"cannot be written at {place}/journal/oo/o+\..*\.part: Permission denied"
        ):
            store.journal("o" * 40, seconds=0).add("b1", [ROW])


def test_a_store_that_may_not_be_read_is_an_error_with_its_path_and_not_an_empty_one(place, another_user):
    store = Store(place)
    path = store.put("k" * 40, SCORES, finished_table(), {})
    path.parent.chmod(0)
    with another_user(), pytest.raises(StoreError, match=f"cannot be read at {path}: Permission denied"):
        store.get("k" * 40, SCORES)


@pytest.mark.skipif(os.geteuid() != 0, reason="takes two users")
def test_another_users_damaged_entry_that_may_not_be_replaced_is_an_error_before_anything_is_computed(
    place, another_user
):
    store = Store(place)
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
    assert not list(path.parent.glob(".*")), "nothing half-written is left"
