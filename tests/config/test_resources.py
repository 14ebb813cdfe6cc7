"""Resource estimates of a cluster job, against hand-computed values."""

import json
import math

import pytest
from vernacular.config import resources as estimates
from vernacular.core import artifacts
from vernacular.protocols.schema import REQUESTS, request_size

MODEL_7B = {"parameters": 7_000_000_000, "bytes": 28_000_000_000}
SETTINGS = {"dtype": "bfloat16", "quantization": "none", "device": "auto", "shards": 1}


def record(directory, **fields):
    path = directory / "model.json"
    path.write_text(json.dumps({"name": "m", **fields}))
    return path


def requests_file(directory, **size):
    metadata = {"protocol": "letters", "request_kind": "score", "causal_only": True, "fingerprint": "e"}
    return artifacts.write(directory / "e.parquet", REQUESTS, [], metadata | size)


@pytest.mark.parametrize(
    ("settings", "megabytes"),
    [
        ({}, 4000 + 1.3 * 14_000 + 500),
        ({"dtype": "float32"}, 4000 + 1.3 * 28_000 + 500),
        ({"quantization": "8bit"}, 4000 + 1.3 * 7_000 + 500),
        ({"quantization": "4bit"}, 4000 + 1.3 * 3_850 + 500),
        ({"dtype": "auto"}, 4000 + 1.3 * 28_000 + 500),  # the dtype of the files
    ],
)
def test_memory_depends_on_dtype_and_quantization(tmp_path, settings, megabytes):
    path = record(tmp_path, **MODEL_7B)
    assert estimates.memory_mb(path, SETTINGS | settings, 1) == pytest.approx(megabytes, abs=1)


def test_second_attempt_doubles_memory_and_time(tmp_path):
    path, requests = record(tmp_path, **MODEL_7B), requests_file(tmp_path, characters=3.5e6, new_tokens=0)
    first, second = (estimates.memory_mb(path, SETTINGS, attempt) - 500 for attempt in (1, 2))
    assert second == 2 * first
    first, second = (estimates.minutes([path], [requests], SETTINGS, attempt) for attempt in (1, 2))
    assert second == 2 * first


def test_minutes_count_prompt_and_generated_tokens(tmp_path):
    path = record(tmp_path, **MODEL_7B)
    # one million prompt tokens: 1.4e16 operations, 700 s
    assert estimates.minutes([path], [requests_file(tmp_path, characters=3.5e6, new_tokens=0)], SETTINGS, 1) == 22
    # 50,000 generated tokens count as another million
    assert estimates.minutes([path], [requests_file(tmp_path, characters=3.5e6, new_tokens=50_000)], SETTINGS, 1) == 34


def test_adapters_multiply_and_shards_divide_time(tmp_path):
    path, requests = record(tmp_path, **MODEL_7B), requests_file(tmp_path, characters=3.5e6, new_tokens=0)
    assert estimates.minutes([path] * 3, [requests], SETTINGS, 1) == 45
    assert estimates.minutes([path] * 3, [requests], SETTINGS | {"shards": 3}, 1) == 22
    assert estimates.minutes([path], [requests], SETTINGS | {"quantization": "8bit"}, 1) == 57


def test_walltime_is_at_most_one_week(tmp_path):
    path, requests = record(tmp_path, **MODEL_7B), requests_file(tmp_path, characters=3.5e9, new_tokens=0)
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
def test_gpu_count_depends_on_weights_and_gpu_memory(tmp_path, parameters, settings, memory, gpus):
    path = record(tmp_path, parameters=parameters, bytes=2 * parameters)
    assert estimates.gpus(path, SETTINGS | settings, memory) == gpus


def test_missing_record_or_requests_raise_file_not_found(tmp_path):
    with pytest.raises(FileNotFoundError):
        estimates.memory_mb(tmp_path / "none.json", SETTINGS, 1)
    with pytest.raises(FileNotFoundError):
        estimates.minutes([record(tmp_path, **MODEL_7B)], [tmp_path / "none.parquet"], SETTINGS, 1)


def test_request_size_counts_shared_prefix_once():
    request = {
        "kind": "generate",
        "prefix": "x" * 100,
        "text": "y" * 10,
        "max_new_tokens": None,
        "longest_target": "z" * 35,
    }
    size = request_size([request, {**request, "max_new_tokens": 4}, {**request, "kind": "score"}])
    assert size == {"characters": 130, "new_tokens": 24, "reasoning_tokens": 0, "default_budgets": 2}


@pytest.mark.parametrize(
    ("fields", "settings", "tokens"),
    [
        ({}, {}, 0),
        ({"reasons": False}, {}, 0),
        ({"reasons": True}, {}, 100 + 2 * 8192),  # of evaluations that set it, and by default
        ({"reasons": True}, {"gen_kwargs": {"think_max_toks": 1000}}, 100 + 2 * 1000),
        ({"reasons": True}, {"gen_kwargs": "recommended"}, 100 + 2 * 8192),
        ({"reasons": True}, {"chat": False}, 0),
        ({"reasons": True}, {"enable_thinking": False}, 0),
        ({"reasons": False}, {"enable_thinking": True}, 100 + 2 * 8192),
        ({"reasons": False}, {"chat_template_args": {"thinking": True}}, 100 + 2 * 8192),
        ({"reasons": True}, {"chat_template_args": {"reasoning_effort": "none"}}, 0),
        ({"reasons": True}, {"think_end_token": "none"}, 0),
    ],
)
def test_minutes_contain_the_budget_of_reasoning(tmp_path, fields, settings, tokens):
    path, size = (
        record(tmp_path, **MODEL_7B, **fields),
        {"characters": 0, "reasoning_tokens": 100, "default_budgets": 2},
    )
    requests = requests_file(tmp_path, new_tokens=10, has_turns=True, **size)
    operations = 2 * MODEL_7B["parameters"] * 20 * (10 + tokens)
    expected = math.ceil(10 + operations / estimates.OPERATIONS["cpu"] / 60)
    assert estimates.minutes([path], [requests], SETTINGS | {"device": "cpu"} | settings, 1) == expected
    requests = requests_file(tmp_path, new_tokens=10, **size)  # plain text
    assert estimates.minutes([path], [requests], SETTINGS | settings, 1) == 11
