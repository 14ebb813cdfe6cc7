"""Interrupted on one machine, again and again: what the next plain `snakemake` makes of it, and what it asks again.

The tests are one story: each starts the run of the folder where the one before left it. Needs no SLURM.
"""

import re
import shutil
import signal
import subprocess

import pytest
from support.faults import ASKED, Place, end, table

pytestmark = [pytest.mark.usefixtures("heard_signals"), pytest.mark.slow]


@pytest.fixture(scope="module")
def place(ready, tmp_path_factory):
    place = Place(ready, tmp_path_factory.mktemp("local") / "run")
    place.hold()
    yield place
    end(place)


def test_a_job_that_is_killed_leaves_its_journal(place):
    place.start_locally()
    place.hit("kill -9 of the job", place.kill_worker)
    assert place.wait() == 1
    assert place.parts()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1], ids=lambda number: number.name)
def test_a_job_that_is_asked_to_stop_writes_everything_down(place, number):
    place.start_locally()
    place.hit(number.name, lambda: place.kill_worker(number))
    assert place.wait() == 1
    assert f"stopped by {number.name}" in place.said()


def test_a_second_person_in_the_same_folder_is_told_that_it_is_locked_and_harms_nothing(place):
    place.start_locally()
    place.until_held()
    first, place.process = place.process, None
    place.start_locally()
    assert place.wait() == 1
    assert "Directory cannot be locked" in place.said()
    place.process = first


def test_snakemake_and_its_job_killed_leave_a_lock_and_a_journal(place):
    place.hit("kill -9 of Snakemake and the job", place.kill_snakemake, place.kill_worker)
    place.start_locally("--unlock")
    assert place.wait() == 0


def test_a_torn_part_is_dropped(place):
    place.start_locally()
    place.kill_worker()
    assert place.wait() == 1
    last = max(place.parts(), key=lambda part: part.name)
    last.write_bytes(last.read_bytes()[:-1])
    place.hit("a torn journal part", but=last)


def test_a_store_that_is_lost_is_made_again(place):
    place.let_go()
    known = set(place.finished())
    place.start_locally(pause=0.1)
    place.until(lambda: set(place.finished()) - known, "an evaluation that is finished")
    lost = place.folder / "lost"  # at once, or a part that is written in between is in the way
    place.hit("the store lost in the middle", lambda: (place.folder / "results" / "store").rename(lost))
    place.faults[-1] = (*place.faults[-1][:2], 0.0)  # nothing was kept
    assert place.wait() == 1
    # the second where it was lost between the making of a folder and the writing of a file there
    assert re.search("outputs not found in results/store|the store cannot be written", place.said())
    shutil.rmtree(lost)


def test_after_all_this_the_tables_are_those_of_an_uninterrupted_run(place, whole, capsys):
    place.finish()
    assert place.differs_from(whole) == []
    assert {batch for _, batch in place.batches()} == {batch for _, batch in whole.batches()}
    redone = place.redone()
    assert redone["SIGTERM"] == redone["SIGUSR1"] == 0
    assert redone["a torn journal part"] > 0, "the test has torn something"
    with capsys.disabled():
        print("\n" + table(place, whole))


def mount(folder, *options: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", ",".join(options), "vernacular", str(folder)]
    tried = subprocess.run(command, capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"cannot mount: {tried.stderr.strip()}")


@pytest.fixture
def full(ready, tmp_path):
    place = Place(ready, tmp_path / "run")
    store = place.folder / "results" / "store"
    mount(store, "size=10m", "ro")
    yield place
    end(place)
    subprocess.run(["umount", store], check=True)


def test_a_store_that_cannot_be_written_ends_the_job_at_once_with_a_sentence(full, whole, capsys):
    store = str(full.folder / "results" / "store")
    full.start_locally(ASKED)
    assert full.wait() == 1
    assert f"the store cannot be written at {store.removeprefix(str(full.folder) + '/')}" in full.said()
    assert "Read-only file system" in full.said()
    full.hit("a store that may only be read")

    subprocess.run(["mount", "-o", "remount,rw,size=12k", store], check=True)
    full.start_locally(ASKED)
    assert full.wait() == 1
    assert "No space left on device" in full.said()
    assert len(full.batches()) < len(whole.batches()), "what cannot be kept is not asked"
    full.hit("a full disk")

    subprocess.run(["mount", "-o", "remount,size=10m", store], check=True)
    full.finish()
    assert full.differs_from(whole) == []
    with capsys.disabled():
        print("\n" + table(full, whole))
