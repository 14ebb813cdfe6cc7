"""The same task files, rows, model and shots as lm-eval had them: the same texts to the byte, and the same numbers.

golden.json is that tool's own work; lm_eval_golden/make.py says how to make it anew.
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
from vernacular.protocols.verbatim.metrics import cut

GOLDEN = json.loads((Path(__file__).parent / "lm_eval_golden" / "golden.json").read_text("utf-8"))
OURS = {"acc": "accuracy", "acc_norm": "accuracy_char", "acc_bytes": "accuracy_byte", "acc_mutual_info": "accuracy_pmi",
        "perplexity": "perplexity", "exact_match": "verbatim_match"}  # fmt: skip
ASKED = sorted(GOLDEN["requests"])
ANSWERED = sorted(GOLDEN["answers"])


def ours_of(task: str, metric: str) -> str:
    """The name that a number of theirs has here."""
    return {("last", "acc"): "greedy", ("truth", "acc"): "probability"}.get((task, metric), OURS[metric])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lm_eval")
    lm_eval_cases.write(folder)
    for name in lm_eval_cases.TASKS:
        protocol = lm_eval_cases.PROTOCOL.get(name, "options")
        (folder / "ours").mkdir(exist_ok=True)
        (folder / "ours" / f"{name}.yaml").write_text(
            f"task: {name}\ntitle: t\ncitation: c\nprotocols: [{protocol}]\nitem_type: lm_eval\n"
            f"languages: {{gl: {{source: {{lm-eval: ../{name}.yaml, trust_functions: true}}}}}}\n"
        )
    return folder / "ours"


@functools.cache
def asked(folder: Path, name: str) -> tuple[str, list[dict], list[dict]]:
    """(protocol, items, requests) of "task.kshot"."""
    task = load_task(folder / f"{name.split('.')[0]}.yaml")
    items, _ = load_items(task, "gl")
    shots = int(name.split(".")[1].removesuffix("shot"))
    (protocol,) = task["protocols"]
    requests, _ = build(items, task, language="gl", protocol=protocol, shots=shots, seed=0, style="default", options={})
    return protocol, items, requests


@functools.cache
def model(kind: str):
    return tiny.loaded("llama", tokens=kind)


@functools.cache
def answered(folder: Path, name: str) -> tuple[list[dict], dict[str, float], list[dict]]:
    """(per-item results, values by metric, scores or generations) of "kind.task.kshot"."""
    kind, name = name.split(".", 1)
    protocol, items, requests = asked(folder, name)
    table = pa.Table.from_pylist(requests, schema=REQUESTS.schema)
    if protocol == "generation":
        table, _ = generate(model(kind), table, journal=MemoryJournal())
    else:
        table, _ = score(model(kind), table)
    rows, metrics = evaluate(protocol, items, requests, table.to_pylist(), [])
    found = aggregate(rows, metrics, seed=0, categories=False)
    return rows, {row["metric"]: row["value"] for row in found}, table.to_pylist()


def by_item(rows: list[dict]) -> list[list[dict]]:
    """Rows of each item, in their order."""
    groups: dict[str, list[dict]] = {}
    for row in rows:
        groups.setdefault(row["item_id"], []).append(row)
    return list(groups.values())


@pytest.mark.parametrize("name", ASKED)
def test_the_model_is_asked_the_same_texts_to_the_byte(folder, name):
    _, _, requests = asked(folder, name)
    theirs = GOLDEN["requests"][name]
    assert len(by_item(requests)) == len(theirs)
    for rows, pairs in zip(by_item(requests), theirs, strict=True):
        if rows[0]["kind"] == "generate":
            assert [row["prefix"] + row["text"] for row in rows] == [context for context, _ in pairs]
            assert [row["stop"] for row in rows] == [options["until"] for _, options in pairs]
            continue
        # ours come option by option, theirs first all options and then all without a context
        rows = sorted(rows, key=lambda row: row["role"].startswith("uncond"))
        assert [row["prefix"] + row["text"] for row in rows] == [context + option for context, option in pairs]
        starts = [len(context.rstrip()) for context, _ in pairs]  # they too score the blanks before an option with it
        assert [row["span_start"] for row in rows] == starts


@pytest.mark.parametrize("name", ANSWERED)
def test_every_number_is_theirs(folder, name):
    rows, values, _ = answered(folder, name)
    theirs = GOLDEN["answers"][name]
    task = name.split(".")[1]
    for metric, value in theirs["metrics"].items():
        assert math.isclose(values[ours_of(task, metric)], value, rel_tol=1e-5, abs_tol=1e-6), metric
    for row, item in zip(rows, theirs["items"], strict=True):
        for metric, value in item.items():
            found = -row["metrics"]["surprisal"] if metric == "perplexity" else row["metrics"][ours_of(task, metric)]
            assert math.isclose(found, value, rel_tol=1e-5, abs_tol=1e-6), (metric, row["item_id"])


@pytest.mark.parametrize("name", [name for name in ANSWERED if ".written." not in name])
def test_every_log_likelihood_is_theirs(folder, name):
    _, _, scores = answered(folder, name)
    for rows, theirs in zip(by_item(scores), GOLDEN["answers"][name]["answers"], strict=True):
        rows = sorted(rows, key=lambda row: row["role"].startswith("uncond"))
        assert [row["flags"] for row in rows] == [None] * len(theirs)
        np.testing.assert_allclose(
            [math.fsum(row["logprobs"]) for row in rows], [float(value) for value, _ in theirs], atol=2e-4
        )
        assert [all(row["is_greedy"]) for row in rows] == [str(greedy) == "True" for _, greedy in theirs]


@pytest.mark.parametrize("name", [name for name in ANSWERED if ".written." in name])
def test_every_generated_text_is_theirs(folder, name):
    _, _, generations = answered(folder, name)
    ours = [cut(row["raw_output"], ["Pregunta:", "a"]).lstrip() for row in generations]
    assert ours == [theirs[0] for theirs in GOLDEN["answers"][name]["answers"]]
