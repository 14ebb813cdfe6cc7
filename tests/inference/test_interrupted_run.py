"""Jobs with an unwritable store, and memory use of many evaluations."""

import gc
import sys

import pytest
from support import observed, tiny
from vernacular.checkpoints.resolve import resolve
from vernacular.core import artifacts
from vernacular.inference.job.run import run_group
from vernacular.inference.job.store import Store, StoreError
from vernacular.protocols.schema import REQUESTS


def test_unwritable_store_stops_job_before_inference(tmp_path):
    tiny.save("llama", tmp_path / "model")
    record = resolve("m", str(tmp_path / "model"), tmp_path / "c") | {
        "dtype": "float32",
        "device": "cpu",
        "chat": False,
    }
    paths = {}
    for name in ("a", "b"):
        requests = tiny.score_requests([(f"A casa {name}", 0, 8)])
        metadata = {"protocol": "acceptability", "request_kind": "score", "causal_only": False, "fingerprint": name}
        paths[name] = artifacts.write(tmp_path / f"{name}.parquet", REQUESTS, requests, metadata)
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "journal").write_text("a file where a directory should be")
    with observed.calls(Store.journal) as opened, pytest.raises(StoreError, match="the store cannot be"):
        run_group([record], paths, tmp_path / "store")
    assert len(opened) == 1


@pytest.mark.skipif("coverage" in sys.modules, reason="coverage keeps objects for each thread")
def test_evaluations_do_not_accumulate_memory(tmp_path):
    tiny.save("llama", tmp_path / "model")
    record = resolve("m", str(tmp_path / "model"), tmp_path / "c") | {"dtype": "float32", "device": "cpu"}
    paths = {}
    for index in range(12):
        requests = tiny.score_requests([(f"A casa {index} é {i}", 0, 8) for i in range(4)])
        metadata = {
            "protocol": "acceptability",
            "request_kind": "score",
            "causal_only": False,
            "fingerprint": f"{index}",
        }
        paths[f"e{index}"] = artifacts.write(tmp_path / f"e{index}.parquet", REQUESTS, requests, metadata)

    def count_objects(_):
        gc.collect()
        return len(gc.get_objects())

    with observed.calls(Store.put, count_objects) as object_counts:
        # otherwise, the counts include the next evaluation
        run_group([record], paths, tmp_path / "store", overlaps=False)
    assert max(object_counts[4:]) - object_counts[3] < 50  # a running evaluation holds thousands of objects
    assert not list((tmp_path / "store" / "journal").rglob("*.part")), "journal parts found on disk"
