"""Sharded inference jobs: complete, without duplicates, with the scores of a single job."""

import pyarrow as pa
import pytest
from support import tiny
from vernacular.core import artifacts
from vernacular.inference.job.run import run_group
from vernacular.inference.job.work import split_into_shards
from vernacular.inference.schema import SCORES
from vernacular.stages.collect import write_outputs


def build_table(lengths: list[int]) -> pa.Table:
    count = len(lengths)
    nulls = [None] * count
    return pa.table(
        {"item_id": [str(i) for i in range(count)], "text": ["x" * n for n in lengths], "prefix": [""] * count,
         "max_new_tokens": nulls, "longest_target": nulls}
    )  # fmt: skip


def test_shards_partition_items_in_order_with_similar_cost():
    shards = split_into_shards({"a": build_table([35] * 30), "b": build_table([350] * 9)}, 3)
    assert [int(i) for part in shards["a"] for i in part["item_id"].to_pylist()] == list(range(30))
    assert [int(i) for part in shards["b"] for i in part["item_id"].to_pylist()] == list(range(9))
    costs = [
        sum(len(table) for table in [*a["text"].to_pylist(), *b["text"].to_pylist()])
        for a, b in zip(*shards.values(), strict=True)
    ]
    assert max(costs) - min(costs) <= 350


def test_shards_share_reasoning():
    tables = {"scored": build_table([35] * 30), "chats": build_table([35] * 8)}
    assert [part.num_rows for part in split_into_shards(tables, 4)["chats"]] == [0, 0, 0, 8]
    assert [part.num_rows for part in split_into_shards(tables, 4, {"chats": 8192})["chats"]] == [2, 2, 2, 2]


def test_requests_of_one_item_stay_in_one_shard():
    requests = build_table([50, 50, 50, 50]).set_column(0, "item_id", pa.array(["a", "a", "b", "b"]))
    assert [part["item_id"].to_pylist() for part in split_into_shards({"e": requests}, 2)["e"]] == [
        ["a", "a"],
        ["b", "b"],
    ]


def test_more_shards_than_items_leave_empty_shards():
    assert sum(part.num_rows for part in split_into_shards({"e": build_table([10])}, 5)["e"]) == 1


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    texts = {"a": ["A casa é", "O can", "As flores son azuis"], "b": ["Un neno come pan e queixo"]}
    return tiny.job(tmp_path_factory.mktemp("shards"), texts)


def read_logprobs(directory, evaluation: str) -> dict:
    rows = artifacts.read(directory / "scores" / f"{evaluation}.parquet", SCORES).to_pylist()
    return {row["item_id"]: row["logprobs"] for row in rows}


def test_sharded_scores_equal_single_job_and_are_stored_merged(job, tmp_path):
    record, paths = job
    run_group([record], paths, tmp_path / "whole")
    write_outputs(record, paths, tmp_path / "one", tmp_path / "whole")
    for shard in range(2):
        run_group([record], paths, tmp_path / "store", shard=(shard, 2))
    assert write_outputs(record, paths, tmp_path / "two", tmp_path / "store", shards=2) == (
        {"collected": 2, "not applicable": 0},
        {},
    )
    for evaluation in paths:
        single_job, sharded = read_logprobs(tmp_path / "one", evaluation), read_logprobs(tmp_path / "two", evaluation)
        assert single_job.keys() == sharded.keys()
        for item in single_job:
            assert sharded[item] == pytest.approx(single_job[item], abs=1e-5)
    assert artifacts.metadata(tmp_path / "two" / "scores" / "a.parquet")["counters"]["requests"] == 3
    statuses, _ = run_group([record], paths, tmp_path / "store")
    assert statuses == {"m": {"a": "found in the store", "b": "found in the store"}}


def test_complete_evaluation_is_not_recomputed_in_shards(job, tmp_path):
    record, paths = job
    run_group([record], paths, tmp_path / "store")
    for shard in range(3):
        statuses, _ = run_group([record], paths, tmp_path / "store", shard=(shard, 3))
        assert set(statuses["m"].values()) <= {"found in the store", "without requests"}
    assert write_outputs(record, paths, tmp_path / "out", tmp_path / "store", shards=3)[0]["collected"] == 2


def test_missing_shard_makes_evaluation_unavailable(job, tmp_path):
    record, paths = job
    run_group([record], paths, tmp_path / "store", shard=(0, 2))
    counts, missing = write_outputs(record, paths, tmp_path / "out", tmp_path / "store", shards=2)
    assert missing
    assert counts["collected"] == len(paths) - len(missing)
    for evaluation, reason in missing.items():
        assert f"outputs not found in {tmp_path / 'store'}" in reason
        assert artifacts.metadata(tmp_path / "out" / "scores" / f"{evaluation}.parquet")["outcome"].reason == reason
        assert read_logprobs(tmp_path / "out", evaluation) == {}


def test_failed_evaluation_does_not_affect_other_evaluations(job, tmp_path):
    record, paths = job
    paths = {"b": paths["b"], "a": paths["a"]}
    for shard in range(2):
        run_group([record], paths, tmp_path / "store", shard=(shard, 2))
    counts, _ = write_outputs(record, paths, tmp_path / "out", tmp_path / "store", shards=2, failed={"b": "no memory"})
    assert counts == {"collected": 1, "not applicable": 0, "failed": 1}
    assert artifacts.metadata(tmp_path / "out" / "scores" / "b.parquet")["outcome"].reason == "no memory"
    run_group([record], {"a": paths["a"]}, tmp_path / "alone")
    write_outputs(record, {"a": paths["a"]}, tmp_path / "a", tmp_path / "alone")
    single_job, rows = read_logprobs(tmp_path / "a", "a"), read_logprobs(tmp_path / "out", "a")
    assert {item: pytest.approx(values, abs=1e-5) for item, values in single_job.items()} == rows


def test_progress_of_shards_can_be_told_apart(job, tmp_path, low_limits, capfd):
    record, paths = job
    low_limits("core.logs", INTERVAL=0.001)
    for shard in ((1, 2), (0, 1)):
        run_group([record], paths, tmp_path / str(shard[1]), shard=shard)
    labels = {line.partition(":")[0] for line in capfd.readouterr().err.splitlines() if line.startswith("infer ")}
    assert labels == {"infer m (shard 2of2)", "infer m"}
