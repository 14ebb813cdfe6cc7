"""Comparison with lm-eval on the same task files, rows, model and shots: identical texts, and equal metrics.

golden.json is the output of lm-eval; lm_eval_golden/make.py regenerates it.
"""

import functools
import json
import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from support import lm_eval_cases, tiny
from vernacular.data.load import load_items
from vernacular.data.tasks import load_task
from vernacular.inference.generation.generate import generate
from vernacular.inference.journal import MemoryJournal
from vernacular.inference.scoring.score import score
from vernacular.metrics.aggregate import aggregate
from vernacular.protocols.build import build
from vernacular.protocols.evaluate import evaluate
from vernacular.protocols.schema import REQUESTS
from vernacular.protocols.verbatim.metrics import truncate_at_stop

GOLDEN = json.loads((Path(__file__).parent / "lm_eval_golden" / "golden.json").read_text("utf-8"))
METRIC_NAMES = {"acc": "accuracy", "acc_norm": "accuracy_char", "acc_bytes": "accuracy_byte", "acc_mutual_info": "accuracy_pmi",
        "perplexity": "perplexity", "exact_match": "verbatim_match"}  # fmt: skip
REQUEST_NAMES = sorted(GOLDEN["requests"])
RESULT_NAMES = sorted(GOLDEN["answers"])


def metric_name(task: str, metric: str) -> str:
    """Return the name of lm-eval's metric in Vernacular."""
    return {("last", "acc"): "greedy", ("truth", "acc"): "probability"}.get((task, metric), METRIC_NAMES[metric])


@pytest.fixture(scope="module")
def task_directory(tmp_path_factory):
    directory = tmp_path_factory.mktemp("lm_eval")
    lm_eval_cases.write(directory)
    for name in lm_eval_cases.TASKS:
        protocol = lm_eval_cases.PROTOCOL.get(name, "options")
        (directory / "ours").mkdir(exist_ok=True)
        (directory / "ours" / f"{name}.yaml").write_text(
            f"task: {name}\ntitle: t\ncitation: c\nprotocols: [{protocol}]\nitem_type: lm_eval\n"
            f"languages: {{gl: {{source: {{lm-eval: ../{name}.yaml, trust_functions: true}}}}}}\n"
        )
    return directory / "ours"


@functools.cache
def build_requests(task_directory: Path, name: str) -> tuple[str, list[dict], list[dict]]:
    """Return (protocol, items, requests) of "task.kshot"."""
    task = load_task(task_directory / f"{name.split('.')[0]}.yaml")
    items, _ = load_items(task, "gl")
    shots = int(name.split(".")[1].removesuffix("shot"))
    (protocol,) = task["protocols"]
    requests, _ = build(items, task, language="gl", protocol=protocol, shots=shots, seed=0, style="default", options={})
    return protocol, items, requests


@functools.cache
def load_model(tokenizer: str):
    return tiny.load_model("llama", tokens=tokenizer)


@functools.cache
def evaluate_model(task_directory: Path, name: str) -> tuple[list[dict], dict[str, float], list[dict]]:
    """Return (per-item results, values by metric, scores or generations) of "tokenizer.task.kshot"."""
    tokenizer, name = name.split(".", 1)
    protocol, items, requests = build_requests(task_directory, name)
    table = pa.Table.from_pylist(requests, schema=REQUESTS.schema)
    if protocol == "generation":
        table, _ = generate(load_model(tokenizer), table, journal=MemoryJournal())
    else:
        table, _ = score(load_model(tokenizer), table)
    rows, metrics = evaluate(protocol, items, requests, table.to_pylist(), [])
    aggregates = aggregate(rows, metrics, seed=0, categories=False)
    return rows, {row["metric"]: row["value"] for row in aggregates}, table.to_pylist()


def group_by_item(rows: list[dict]) -> list[list[dict]]:
    """Return the rows of each item in order."""
    groups: dict[str, list[dict]] = {}
    for row in rows:
        groups.setdefault(row["item_id"], []).append(row)
    return list(groups.values())


@pytest.mark.parametrize("name", REQUEST_NAMES)
def test_request_texts_equal_lm_eval(task_directory, name):
    _, _, requests = build_requests(task_directory, name)
    golden = GOLDEN["requests"][name]
    assert len(group_by_item(requests)) == len(golden)
    for rows, pairs in zip(group_by_item(requests), golden, strict=True):
        if rows[0]["kind"] == "generate":
            assert [row["prefix"] + row["text"] for row in rows] == [context for context, _ in pairs]
            assert [row["stop"] for row in rows] == [arguments["until"] for _, arguments in pairs]
            continue
        # Vernacular orders requests by option; lm-eval has all options first, then all without context
        rows = sorted(rows, key=lambda row: row["role"].startswith("uncond"))
        assert [row["prefix"] + row["text"] for row in rows] == [
            context + continuation for context, continuation in pairs
        ]
        starts = [
            len(context.rstrip()) for context, _ in pairs
        ]  # lm-eval, too, scores the spaces before an option with it
        assert [row["span_start"] for row in rows] == starts


@pytest.mark.parametrize("name", RESULT_NAMES)
def test_metrics_equal_lm_eval(task_directory, name):
    rows, values, _ = evaluate_model(task_directory, name)
    golden = GOLDEN["answers"][name]
    task = name.split(".")[1]
    for metric, value in golden["metrics"].items():
        assert math.isclose(values[metric_name(task, metric)], value, rel_tol=1e-5, abs_tol=1e-6), metric
    for row, item in zip(rows, golden["items"], strict=True):
        for metric, value in item.items():
            actual = (
                -row["metrics"]["surprisal"] if metric == "perplexity" else row["metrics"][metric_name(task, metric)]
            )
            assert math.isclose(actual, value, rel_tol=1e-5, abs_tol=1e-6), (metric, row["item_id"])


@pytest.mark.parametrize("name", [name for name in RESULT_NAMES if ".written." not in name])
def test_log_likelihoods_equal_lm_eval(task_directory, name):
    _, _, scores = evaluate_model(task_directory, name)
    for rows, golden in zip(group_by_item(scores), GOLDEN["answers"][name]["answers"], strict=True):
        rows = sorted(rows, key=lambda row: row["role"].startswith("uncond"))
        assert [row["flags"] for row in rows] == [None] * len(golden)
        np.testing.assert_allclose(
            [math.fsum(row["logprobs"]) for row in rows], [float(value) for value, _ in golden], atol=2e-4
        )
        assert [all(row["is_greedy"]) for row in rows] == [str(is_greedy) == "True" for _, is_greedy in golden]


@pytest.mark.parametrize("name", [name for name in RESULT_NAMES if ".written." in name])
def test_generated_texts_equal_lm_eval(task_directory, name):
    _, _, generations = evaluate_model(task_directory, name)
    texts = [truncate_at_stop(row["raw_output"], ["Pregunta:", "a"]).lstrip() for row in generations]
    assert texts == [responses[0] for responses in GOLDEN["answers"][name]["answers"]]
