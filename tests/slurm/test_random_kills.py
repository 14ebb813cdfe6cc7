"""Runs that are killed at random moments, drawn from a seed, until one comes to its end: its tables are as if nothing was.

A moment is a share of the time that an undisturbed run takes, so that kills meet every stage: planning, inference, and the
tables after it. What is killed is the job that runs then, Snakemake alone (its job lives on, and the next run starts a
second one in the same directory), or both.
"""

import os
import random
import signal
import time
from collections import Counter

import pytest
from support.faults import Place, alive, end, session

pytestmark = [pytest.mark.usefixtures("heard_signals"), pytest.mark.slow]

TARGET = "results/summary/results.csv"
PAUSE = 0.1  # seconds after each batch: half of an undisturbed run is inference
KINDS = ("the job", "snakemake", "both")


class Killer:
    """Kills runs of a place; `figures` counts kills by what was killed and what ran then."""

    def __init__(self, seed: int, seconds: float):
        self.draw, self.seconds, self.figures = random.Random(seed), seconds, Counter()

    def run_and_kill(self, place: Place, kind: str) -> bool:
        """Start snakemake and kill at a random moment; False where the run came to its end before."""
        place.start_locally("--unlock")
        place.wait()
        place.start_locally(TARGET, pause=PAUSE)
        moment = time.monotonic() + self.draw.uniform(0, self.seconds)
        while time.monotonic() < moment or (kind == "the job" and not jobs_of(place)):
            if place.process.poll() is not None:
                assert place.process.returncode == 0, place.said()
                return False
            time.sleep(0.02)
        running = jobs_of(place)
        self.figures[kind, *sorted(set(running.values()))] += 1
        if kind == "both":
            os.killpg(place.process.pid, signal.SIGKILL)
        elif kind == "snakemake":
            place.process.send_signal(signal.SIGKILL)
        else:
            for pid in running:
                if alive(pid):
                    os.kill(pid, signal.SIGKILL)
        place.wait()
        return True


def jobs_of(place: Place) -> dict[int, str]:
    """The commands of the package that run, by pid."""
    words = {pid: command.split() for pid, command in session(place.process.pid).items()}
    found = {
        pid: each[each.index("vernacular") + 1] for pid, each in words.items() if each[1:3] == ["-m", "vernacular"]
    }
    return {pid: name for pid, name in found.items() if name != "timings"}


def story(ready, folder, whole, killer: Killer, kinds: list[str]) -> int:
    """Kill runs in a copy of the prepared directory, in turn, until one ends; returns how many were killed."""
    place, killed, sessions = Place(ready, folder), 0, []
    try:
        for kind in kinds:
            ended = not killer.run_and_kill(place, kind)
            sessions.append(place.process.pid)
            if ended:
                break
            killed += 1
        place.start_locally("--unlock")
        place.wait()
        place.finish()
        # what a killed Snakemake left running would write into the tables that are compared
        place.until(lambda: not any(session(each) for each in sessions), "the end of what was left running")
        assert place.differs_from(whole) == []
        assert not place.parts(), "no journal of a finished evaluation is left"
    finally:
        for each in sessions:
            if session(each):
                os.killpg(each, signal.SIGKILL)
        end(place)
    return killed


@pytest.fixture(scope="module")
def seconds(ready, tmp_path_factory) -> float:
    """How long an undisturbed run takes here."""
    place, started = Place(ready, tmp_path_factory.mktemp("timed") / "run"), time.monotonic()
    place.start_locally(TARGET, pause=PAUSE)
    assert place.wait() == 0, place.said()
    return time.monotonic() - started


def test_a_run_that_is_killed_up_to_three_times_ends_with_the_tables_of_an_undisturbed_one(
    ready, whole, seconds, tmp_path
):
    killer = Killer(seed=1, seconds=seconds / 2)
    assert story(ready, tmp_path / "run", whole, killer, list(KINDS)) >= 1, "a run may end before its moment has come"


@pytest.mark.soak
def test_runs_that_are_killed_twenty_times_end_with_the_tables_of_an_undisturbed_one(
    ready, whole, seconds, tmp_path, capsys
):
    killer, killed, stories = Killer(seed=20, seconds=seconds), 0, 0
    while killed < 20:
        stories += 1
        kinds = [killer.draw.choice(KINDS) for _ in range(min(5, 20 - killed))]
        killed += story(ready, tmp_path / f"run{stories}", whole, killer, kinds)
    with capsys.disabled():
        print(f"\n{killed} kills in {stories} directories; an undisturbed run takes {seconds:.0f} s")
        for what, count in sorted(killer.figures.items()):
            print(f"{count} x {what[0]} during {', '.join(what[1:]) or 'no job'}")
