"""Two whole runs at a time, in two directories, on one store: each ends with the tables of a run that was alone."""

import os
import signal

import pytest
from support.faults import Place, end, parent_of

pytestmark = [pytest.mark.usefixtures("heard_signals"), pytest.mark.slow]


@pytest.fixture
def places(ready, tmp_path):
    places = [Place(ready, tmp_path / name) for name in ("one", "two")]
    for place in places:
        place.share(tmp_path / "lab")
    yield places
    for place in places:
        end(place)


def finish_both(places) -> None:
    for place in places:
        place.let_go()
    assert [place.wait() for place in places] == [0] * len(places), [place.said() for place in places]


def start_both(places) -> list[int]:
    """Both are in the middle of the same evaluation: each has journaled a part, and has more that it has not."""
    for place in places:
        place.hold()
        place.start_locally("results/summary/results.csv", pause=0.15)  # long enough for a part
    return [place.until_held() for place in places]


def test_two_runs_at_a_time_on_one_store_end_with_the_tables_of_one_that_was_alone(places, whole, ready, tmp_path):
    start_both(places)
    assert len(places[0].parts()) >= 2
    finish_both(places)
    for place in places:
        assert place.differs_from(whole) == []
        assert place.batches(), "both computed"
        assert not (place.folder / "results" / "store").exists()
    assert not list(places[0].store.rglob("*.part"))
    assert not list(places[0].store.rglob("*.tmp"))

    third = Place(ready, tmp_path / "three")
    third.share(places[0].store)
    third.finish()
    assert third.differs_from(whole) == []
    assert not third.batches(), "what others have computed is not computed again"


def test_a_run_whose_neighbor_is_killed_goes_on_from_what_both_have_journaled(places, whole):
    pids = start_both(places)
    os.kill(parent_of(pids[0]), signal.SIGKILL)
    assert places[0].wait() == 1
    finish_both([places[1]])
    assert places[1].differs_from(whole) == []
    answered = len(places[0].batches())
    places[0].finish()
    assert places[0].differs_from(whole) == []
    assert len(places[0].batches()) == answered, "the neighbor has finished it all"


def test_another_path_of_the_store_reruns_nothing(places):
    place = places[0]
    place.finish()
    known = len(place.batches())
    place.share(place.folder / "elsewhere")
    place.start_locally("results/summary/results.csv", pause=0)
    assert place.wait() == 0
    assert "Nothing to be done" in place.said()
    assert len(place.batches()) == known
    assert not (place.folder / "elsewhere").exists()
