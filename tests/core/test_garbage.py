"""Garbage is searched for less often, and still found."""

import gc
import weakref

import pytest
from vernacular.core.garbage import collect_rarely


@pytest.fixture(autouse=True)
def default_collection():
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()


class Node:
    """An object in a reference cycle."""

    def __init__(self):
        self.itself = self


def test_garbage_is_found_before_it_fills_the_memory():
    collect_rarely()
    first = weakref.ref(Node())
    for _ in range(200_000):
        Node()
    assert first() is None
    assert gc.isenabled()


def test_existing_objects_are_not_searched_again():
    existing = [[] for _ in range(1000)]
    collect_rarely()
    assert gc.get_freeze_count() >= len(existing)
    before = gc.get_stats()[0]["collections"]
    created = [[] for _ in range(5000)]
    assert gc.get_stats()[0]["collections"] == before, created[-1]
