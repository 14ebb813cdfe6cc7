"""Jobs with an unwritable store, and memory use of many evaluations."""

import gc
import sys

import pytest
from support import observed, tiny
from vernacular.inference.job.run import run_group
from vernacular.inference.job.store import Store, StoreError


def test_unwritable_store_stops_job_before_inference(tmp_path):
    record, paths = tiny.job(tmp_path, {name: [f"A casa {name}"] for name in "ab"})
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "journal").write_text("a file where a directory should be")
    with observed.calls(Store.journal) as opened, pytest.raises(StoreError, match="the store cannot be"):
        run_group([record], paths, tmp_path / "store")
    assert len(opened) == 1


@pytest.mark.skipif("coverage" in sys.modules, reason="coverage keeps objects for each thread")
def test_evaluations_do_not_accumulate_memory(tmp_path):
    texts = {f"e{index}": [f"A casa {index} é {i}" for i in range(4)] for index in range(12)}
    record, paths = tiny.job(tmp_path, texts)

    def count_objects(_):
        gc.collect()
        return len(gc.get_objects())

    gc.freeze()  # what exists already, of all tests before, is neither collected nor counted
    try:
        with observed.calls(Store.put, count_objects) as object_counts:
            # otherwise, the counts include the next evaluation
            run_group([record], paths, tmp_path / "store", overlaps=False)
    finally:
        gc.unfreeze()
    assert max(object_counts[4:]) - object_counts[3] < 50  # a running evaluation holds thousands of objects
    assert not list((tmp_path / "store" / "journal").rglob("*.part")), "journal parts found on disk"
