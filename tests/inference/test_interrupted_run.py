"""A job whose store breaks under it."""

import gc

import pytest
from support import tiny
from vernacular.checkpoints.resolve import resolve
from vernacular.core import artifacts
from vernacular.inference.job.run import run_group
from vernacular.inference.job.store import Store, StoreError
from vernacular.protocols.schema import REQUESTS


def test_a_store_that_cannot_be_written_ends_the_job_before_more_is_asked_in_vain(tmp_path, monkeypatch):
    tiny.save("llama", tmp_path / "model")
    record = resolve("m", str(tmp_path / "model"), tmp_path / "c") | {
        "dtype": "float32",
        "device": "cpu",
        "chat": False,
    }
    paths = {}
    for name in ("a", "b"):
        requests = tiny.score_requests([(f"A casa {name}", 0, 8)])
        note = {"protocol": "acceptability", "request_kind": "score", "causal_only": False, "fingerprint": name}
        paths[name] = artifacts.write(tmp_path / f"{name}.parquet", REQUESTS, requests, note)
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "journal").write_text("a file where a folder should be")
    opened = []
    journal = Store.journal
    monkeypatch.setattr(Store, "journal", lambda self, key, **more: opened.append(key) or journal(self, key, **more))
    with pytest.raises(StoreError, match="the store cannot be"):
        run_group([record], paths, tmp_path / "store")
    assert len(opened) == 1


def test_many_evaluations_in_one_job_leave_nothing_behind_in_memory(tmp_path, monkeypatch):
    tiny.save("llama", tmp_path / "model")
    record = resolve("m", str(tmp_path / "model"), tmp_path / "c") | {"dtype": "float32", "device": "cpu"}
    paths = {}
    for number in range(12):
        requests = tiny.score_requests([(f"A casa {number} é {i}", 0, 8) for i in range(4)])
        note = {"protocol": "acceptability", "request_kind": "score", "causal_only": False, "fingerprint": f"{number}"}
        paths[f"e{number}"] = artifacts.write(tmp_path / f"e{number}.parquet", REQUESTS, requests, note)
    objects = []
    put = Store.put

    def counted(self, *given):
        path = put(self, *given)
        gc.collect()
        objects.append(len(gc.get_objects()))
        return path

    monkeypatch.setattr(Store, "put", counted)
    run_group([record], paths, tmp_path / "store")
    assert max(objects[4:]) - objects[3] < 50  # an evaluation holds thousands while it runs
    assert not list((tmp_path / "store" / "journal").rglob("*.part")), "nor journals on disk"
