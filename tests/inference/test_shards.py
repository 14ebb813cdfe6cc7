"""A model's work cut up among jobs: nothing lost, nothing twice, the same numbers."""

import pyarrow as pa
import pytest
from support import tiny
from vernacular.checkpoints.resolve import resolve
from vernacular.core import artifacts
from vernacular.inference.job.collect import lay_out
from vernacular.inference.job.run import run_group
from vernacular.inference.job.work import cut
from vernacular.inference.schema import SCORES
from vernacular.protocols.schema import REQUESTS


def table(lengths: list[int]) -> pa.Table:
    count = len(lengths)
    nothing = [None] * count
    return pa.table(
        {"item_id": [str(i) for i in range(count)], "text": ["x" * n for n in lengths], "prefix": [""] * count,
         "max_new_tokens": nothing, "longest_target": nothing}
    )  # fmt: skip


def test_shards_hold_every_item_once_in_order_and_are_of_like_size():
    parts = cut({"a": table([35] * 30), "b": table([350] * 9)}, 3)
    assert [int(i) for part in parts["a"] for i in part["item_id"].to_pylist()] == list(range(30))
    assert [int(i) for part in parts["b"] for i in part["item_id"].to_pylist()] == list(range(9))
    work = [
        sum(len(t) for t in [*a["text"].to_pylist(), *b["text"].to_pylist()])
        for a, b in zip(*parts.values(), strict=True)
    ]
    assert max(work) - min(work) <= 350


def test_what_is_asked_about_one_item_stays_together():
    one = table([50, 50, 50, 50]).set_column(0, "item_id", pa.array(["a", "a", "b", "b"]))
    assert [part["item_id"].to_pylist() for part in cut({"e": one}, 2)["e"]] == [["a", "a"], ["b", "b"]]


def test_more_shards_than_items_leave_some_empty():
    assert sum(part.num_rows for part in cut({"e": table([10])}, 5)["e"]) == 1


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    tiny.save("llama", folder / "model")
    record = resolve("m", str(folder / "model"), folder / "c") | {"dtype": "float32", "device": "cpu", "chat": False}
    paths = {}
    for name, texts in (("a", ["A casa é", "O can", "As flores son azuis"]), ("b", ["Un neno come pan e queixo"])):
        requests = tiny.score_requests([(text, 0, len(text)) for text in texts])
        note = {"protocol": "acceptability", "request_kind": "score", "causal_only": False, "fingerprint": name}
        paths[name] = artifacts.write(folder / f"{name}.parquet", REQUESTS, requests, note)
    return record, paths


def rows(folder, evaluation: str) -> dict:
    found = artifacts.read(folder / "scores" / f"{evaluation}.parquet", SCORES).to_pylist()
    return {row["item_id"]: row["logprobs"] for row in found}


def test_shards_give_the_numbers_of_one_job_and_are_found_whole_later(asked, tmp_path):
    record, paths = asked
    run_group([record], paths, tmp_path / "whole")
    lay_out(record, paths, tmp_path / "one", tmp_path / "whole")
    for k in range(2):
        run_group([record], paths, tmp_path / "store", shard=(k, 2))
    assert lay_out(record, paths, tmp_path / "two", tmp_path / "store", shards=2) == (
        {"answered": 2, "not possible": 0},
        {},
    )
    for evaluation in paths:
        alone, together = rows(tmp_path / "one", evaluation), rows(tmp_path / "two", evaluation)
        assert alone.keys() == together.keys()
        for item in alone:
            assert together[item] == pytest.approx(alone[item], abs=1e-5)
    assert artifacts.metadata(tmp_path / "two" / "scores" / "a.parquet")["counters"]["requests"] == 3
    done, _ = run_group([record], paths, tmp_path / "store")
    assert done == {"m": {"a": "found in the store", "b": "found in the store"}}


def test_what_was_answered_whole_is_not_asked_again_in_shards(asked, tmp_path):
    record, paths = asked
    run_group([record], paths, tmp_path / "store")
    for k in range(3):
        done, _ = run_group([record], paths, tmp_path / "store", shard=(k, 3))
        assert set(done["m"].values()) <= {"found in the store", "nothing to ask"}
    assert lay_out(record, paths, tmp_path / "out", tmp_path / "store", shards=3)[0]["answered"] == 2


def test_a_share_that_is_not_there_is_lost_with_a_reason_and_no_shorter_table(asked, tmp_path):
    record, paths = asked
    run_group([record], paths, tmp_path / "store", shard=(0, 2))
    counts, lost = lay_out(record, paths, tmp_path / "out", tmp_path / "store", shards=2)
    assert lost
    assert counts["answered"] == len(paths) - len(lost)
    for evaluation, reason in lost.items():
        assert f"outputs not found in {tmp_path / 'store'}" in reason
        assert artifacts.metadata(tmp_path / "out" / "scores" / f"{evaluation}.parquet")["unavailable"] == reason
        assert rows(tmp_path / "out", evaluation) == {}


def test_an_evaluation_that_failed_does_not_lend_its_shares_to_the_next(asked, tmp_path):
    record, paths = asked
    paths = {"b": paths["b"], "a": paths["a"]}
    for k in range(2):
        run_group([record], paths, tmp_path / "store", shard=(k, 2))
    counts, _ = lay_out(record, paths, tmp_path / "out", tmp_path / "store", shards=2, failed={"b": "no memory"})
    assert counts == {"answered": 1, "not possible": 0, "failed": 1}
    assert artifacts.metadata(tmp_path / "out" / "scores" / "b.parquet")["unavailable"] == "no memory"
    run_group([record], {"a": paths["a"]}, tmp_path / "alone")
    lay_out(record, {"a": paths["a"]}, tmp_path / "a", tmp_path / "alone")
    alone, found = rows(tmp_path / "a", "a"), rows(tmp_path / "out", "a")
    assert {item: pytest.approx(values, abs=1e-5) for item, values in alone.items()} == found
