"""What a job asks a cluster for: the formulas, by hand."""

import json

import pytest
from vernacular.config import resources as estimates
from vernacular.core import artifacts
from vernacular.protocols.schema import REQUESTS, request_size

SEVEN = {"parameters": 7_000_000_000, "bytes": 28_000_000_000}
SETTINGS = {"dtype": "bfloat16", "quantization": "none", "device": "auto", "shards": 1}


def record(folder, **facts):
    path = folder / "model.json"
    path.write_text(json.dumps({"name": "m", **facts}))
    return path


def asked(folder, **size):
    return artifacts.write(folder / "e.parquet", REQUESTS, [], {"fingerprint": "e", "size": size})


@pytest.mark.parametrize(
    ("settings", "megabytes"),
    [
        ({}, 4000 + 1.3 * 14_000 + 500),
        ({"dtype": "float32"}, 4000 + 1.3 * 28_000 + 500),
        ({"quantization": "8bit"}, 4000 + 1.3 * 7_000 + 500),
        ({"quantization": "4bit"}, 4000 + 1.3 * 3_850 + 500),
        ({"dtype": "auto"}, 4000 + 1.3 * 28_000 + 500),  # as the files are
    ],
)
def test_memory_follows_from_the_weights_as_they_are_loaded(tmp_path, settings, megabytes):
    path = record(tmp_path, **SEVEN)
    assert estimates.memory_mb(path, SETTINGS | settings, 1) == pytest.approx(megabytes, abs=1)


def test_the_second_try_gets_twice_the_memory_and_time(tmp_path):
    path, requests = record(tmp_path, **SEVEN), asked(tmp_path, characters=3.5e6, new_tokens=0)
    once, twice = (estimates.memory_mb(path, SETTINGS, attempt) - 500 for attempt in (1, 2))
    assert twice == 2 * once
    once, twice = (estimates.minutes([path], [requests], SETTINGS, attempt) for attempt in (1, 2))
    assert twice == 2 * once


def test_minutes_count_what_is_read_and_what_is_written(tmp_path):
    path = record(tmp_path, **SEVEN)
    # a million tokens read: 1.4e16 operations, 700 s
    assert estimates.minutes([path], [asked(tmp_path, characters=3.5e6, new_tokens=0)], SETTINGS, 1) == 22
    # and 50,000 written count as another million
    assert estimates.minutes([path], [asked(tmp_path, characters=3.5e6, new_tokens=50_000)], SETTINGS, 1) == 34


def test_adapters_add_to_the_time_and_shards_divide_it(tmp_path):
    path, requests = record(tmp_path, **SEVEN), asked(tmp_path, characters=3.5e6, new_tokens=0)
    assert estimates.minutes([path] * 3, [requests], SETTINGS, 1) == 45
    assert estimates.minutes([path] * 3, [requests], SETTINGS | {"shards": 3}, 1) == 22


def test_a_week_is_the_longest_that_is_asked_for(tmp_path):
    path, requests = record(tmp_path, **SEVEN), asked(tmp_path, characters=3.5e9, new_tokens=0)
    assert estimates.minutes([path], [requests], SETTINGS | {"device": "cpu"}, 1) == 7 * 24 * 60


@pytest.mark.parametrize(
    ("parameters", "settings", "memory", "gpus"),
    [
        (7e9, {}, 40, 1),
        (70e9, {}, 40, 5),
        (70e9, {}, 80, 3),
        (70e9, {"gpus": 2}, 40, 2),
        (70e9, {"device": "cpu"}, 40, 0),
        (1e8, {}, 40, 1),
    ],
)
def test_as_many_gpus_as_hold_the_weights(tmp_path, parameters, settings, memory, gpus):
    path = record(tmp_path, parameters=parameters, bytes=2 * parameters)
    assert estimates.gpus(path, SETTINGS | settings, memory) == gpus


def test_a_model_or_prompts_that_are_not_there_yet_are_no_estimate(tmp_path):
    with pytest.raises(FileNotFoundError):
        estimates.memory_mb(tmp_path / "none.json", SETTINGS, 1)
    with pytest.raises(FileNotFoundError):
        estimates.minutes([record(tmp_path, **SEVEN)], [tmp_path / "none.parquet"], SETTINGS, 1)


def test_size_counts_a_shared_block_once_and_written_tokens_by_what_is_known():
    request = {
        "kind": "generate",
        "prefix": "x" * 100,
        "text": "y" * 10,
        "max_new_tokens": None,
        "longest_target": "z" * 35,
    }
    assert request_size([request, {**request, "max_new_tokens": 4}]) == {"characters": 120, "new_tokens": 14}
