"""Ctrl-C, as a terminal sends it: to Snakemake and to all that it started, at once."""

import os
import signal
import time

import pytest
from support.faults import ASKED, Place, alive, end, session

pytestmark = pytest.mark.usefixtures("heard_signals")


@pytest.fixture
def place(ready, tmp_path):
    place = Place(ready, tmp_path / "run")
    yield place
    end(place)


def test_ctrl_c_keeps_what_was_answered_says_how_to_go_on_and_leaves_nothing_running(place):
    place.hold()
    place.start_locally(ASKED)
    place.until_held()
    answered = len(place.batches())
    assert any("vernacular infer" in command for command in session(place.process.pid).values())
    os.killpg(place.process.pid, signal.SIGINT)
    assert place.wait() == 1
    stopped = time.time()
    assert len(place.batches()) <= answered + 2, "the batch in hand is finished, and no other"
    assert "stored; the next run resumes from there." in place.said()
    assert "To resume, run the same command again." in place.said()
    assert "Traceback" not in place.said()
    place.until(lambda: not session(place.process.pid), "the end of all processes", seconds=120)
    assert not list((place.folder / ".snakemake").glob("locks/*"))
    assert not [path for path in place.folder.rglob("*") if path.name.endswith(".tmp") or "shell_tmp" in path.name]

    known = {batch for _, batch in place.batches()}
    place.let_go()
    place.start_locally(ASKED, pause=0)
    assert place.wait() == 0, place.said()
    again = {batch for when, batch in place.batches() if when > stopped}
    assert again
    assert not again & known, "nothing that was answered is asked again"


def test_ctrl_c_while_a_model_loads_does_not_wait_for_it(place):
    place.hold("loading")
    place.start_locally(ASKED)
    pid = place.until_held()
    os.killpg(place.process.pid, signal.SIGINT)
    assert place.wait() == 1  # nobody lets it go
    assert not alive(pid)
    assert "infer: stopped by SIGINT: finished outputs are stored; the next run resumes from there." in place.said()
    assert "To resume, run the same command again." in place.said()
    assert "Traceback" not in place.said()
    place.until(lambda: not session(place.process.pid), "the end of all processes", seconds=120)
    assert not place.batches()
    assert not place.kept()
    assert not [path for path in place.folder.rglob("*") if path.name.endswith(".tmp") or "shell_tmp" in path.name]
