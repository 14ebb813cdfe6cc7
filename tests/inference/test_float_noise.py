"""Choices within float noise: those that another batch changes are counted; deterministic models repeat every bit."""

import math

import numpy as np
import pyarrow as pa
import pytest
import torch
from support import encoder_decoders, tiny
from support.engines import generate, score
from support.sample_items import item
from support.scoring import build_requests, results_of
from vernacular.inference.job.work import evaluation_key
from vernacular.inference.model.load import load
from vernacular.inference.schema import SCORES
from vernacular.inference.scoring.outputs import merge_metadata
from vernacular.inference.scoring.strategy import noise_by_length
from vernacular.metrics.spans import Span, within_noise
from vernacular.protocols.schema import REQUESTS

WORDS = ["dog", "cat", "roof", "house", "street", "sea", "bird", "river", "bread", "stone", "wine", "rain"]


@pytest.fixture(scope="module")
def questions():
    rng = np.random.default_rng(0)
    return [
        item(item_id=f"i{i}", question=" ".join(rng.choice(WORDS, rng.integers(2, 10))) + "?", gold=[i % 3],
             choices=list("01234"))
        for i in range(300)
    ]  # fmt: skip


def scored(questions, dtype="float32", strategy="auto", architecture="llama", protocol="options", **settings):
    requests = build_requests(questions, "question", protocol)
    loaded = (encoder_decoders if architecture == "t5" else tiny).load_model(architecture, **settings)
    loaded.model.to(getattr(torch, dtype))
    table, metadata = score(loaded, pa.Table.from_pylist(requests, schema=REQUESTS.schema), strategy=strategy)
    return requests, table, metadata


def evaluated(questions, *arguments, **settings):
    """Return the scores of the options, the chosen ones, and whether float noise can change them, by item."""
    requests, table, metadata = scored(questions, *arguments, **settings)
    kind = {"masked": settings["architecture"] == "bert"}
    rows = results_of("options", questions, requests, table.to_pylist(), noise=metadata["engine"]["noise"], **kind)
    return {
        row["item_id"]: (row["option_scores"], row["predicted_indices"], row["metrics"]["within_noise"]) for row in rows
    }


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("architecture", ["llama", "bert", "t5"])
def test_every_choice_that_a_batch_changes_is_counted(questions, dtype, architecture):
    if architecture != "llama":  # whose vocabularies have no digits
        questions = [question | {"choices": WORDS[:5]} for question in questions]
    one, several = {"max_batch_tokens": 1}, {"max_batch_tokens": 32 * 48}
    runs = [evaluated(questions, dtype, way, architecture=architecture, **options)
            for way, options in (("plain", one), ("plain", several), ("auto", {}))]  # fmt: skip
    alone, *others = runs
    assert any(run[name][0] != scores for run in others for name, (scores, *_) in alone.items()), "noise exists"
    changed = {name for run in others for name, (_, chosen, _) in alone.items() if run[name][1] != chosen}
    counted = [{name for name, (_, chosen, noisy) in run.items() if noisy or len(chosen) > 1} for run in runs]
    assert all(changed <= each for each in counted), "beside ties"
    if dtype == "float32":
        assert all({*run[name][1]} & {*alone[name][1]} for run in others for name in alone), "no other choice"
        assert max(map(len, counted)) <= 5
    else:
        assert 0 < max(map(len, counted)) < len(questions) / 3, "most choices are no noise"


def test_noise_grows_with_the_length():
    rng = np.random.default_rng(0)
    noise = noise_by_length(rng.normal(0, 0.01, 5_000))
    assert list(noise) == ["1", "4", "16", "64"]
    for length, deviation in noise.items():
        assert deviation == pytest.approx(0.01 * int(length) ** 0.5, rel=0.15)
    drifting = noise_by_length(np.full(200, 0.01))  # in one direction
    assert drifting["64"] == pytest.approx(0.64)
    assert noise_by_length(np.array([0.5, np.nan, -0.5])) == {"1": 0.5}
    for equal in (np.array([]), np.zeros(1)):  # what a few texts do not show
        assert 0 < noise_by_length(equal)["1"] < 1e-5


def span(loglik: float, n_tokens: int) -> Span:
    return Span("", "", loglik, (loglik / n_tokens,) * n_tokens, None, None)


def test_noise_of_short_texts_extends_to_the_lengths_of_longer_chunks():
    """The texts of a chunk may be too short for spans whose noise another chunk states."""
    chunk = {"strategy": "plain", "self_check": {}, "fallback": [], "head": "rows", "batching": "padded"}
    long = {"1": 0.01, "4": 0.5, "16": 1.0}
    chunks = [chunk | {"noise": {"1": 0.1}}, chunk, chunk | {"noise": long}]
    assert merge_metadata(chunks)["noise"] == {"1": 0.1, "4": 0.5, "16": 1.0}
    assert merge_metadata([chunks[0], chunk | {"noise": {"1": 0.0, "16": 0.2}}])["noise"] == {"1": 0.1, "16": 0.4}


def test_what_is_within_noise():
    noise = {"1": 0.01, "4": 0.03}
    spans = {"choice:0": span(-1.0, 1), "choice:1": span(-1.02, 1), "choice:2": span(-9.0, 16)}
    assert within_noise([-1.0, -1.02], spans, noise) == {"within_noise": 1.0}  # 2 sqrt(2) 0.01 = 0.0283
    assert within_noise([-1.0, -1.02], spans, {"1": 0.005}) == {"within_noise": 0.0}
    far = spans | {"choice:1": span(-1.05, 1)}  # a long option does not widen the difference of two short ones
    assert within_noise([-1.0, -1.05, -9.0], far, noise) == {"within_noise": 0.0}
    # of 16 tokens, 0.06: 2 sqrt(0.01² + 0.06²) = 0.1217
    assert within_noise([-1.0, -1.05, -1.12], far | {"choice:2": span(-1.12, 16)}, noise) == {"within_noise": 1.0}
    assert within_noise([-1.0, -1.05, -1.13], far | {"choice:2": span(-1.13, 16)}, noise) == {"within_noise": 0.0}
    assert within_noise([0.5, 0.5 + 0.13], {"choice:0": span(-1.0, 4)}, {"4": 0.03}) == {"within_noise": 0.0}
    assert within_noise([0.5, 0.5 + 0.11], {"choice:0": span(-1.0, 4)}, {"4": 0.03}) == {"within_noise": 1.0}  # PMI
    assert within_noise([-1.0, -1.0], {"choice:0": span(-1.0, 1)}, noise) == {"within_noise": 0.0}, "a tie"
    impossible = spans | {"choice:3": span(-math.inf, 1)}
    assert within_noise([-1.0, -1.02, -math.inf], impossible, noise) == {"within_noise": 1.0}
    assert within_noise([-1.0, -math.inf], impossible, noise) == {"within_noise": 0.0}
    assert within_noise([-math.inf, -math.inf], impossible, noise) == {"within_noise": 0.0}, "a tie"
    for scores in (None, [], [-1.0], [-1.0, math.nan], [-1.0, None]):
        assert within_noise(scores, spans, noise) == {}
    assert within_noise([-1.0, -1.0 - 1e-5], spans, {"1": 5e-6}) == {"within_noise": 1.0}, "float32"
    assert within_noise([-1.0, -1.0 - 1e-5], spans, {"1": 0.0}) == {"within_noise": 0.0}, "deterministic"
    assert within_noise([-1.0, -1.02], spans, {}) == {}, "unknown"


def test_deterministic_runs_have_equal_bytes_whatever_the_batch(questions):
    tables = []
    for settings, part in (({"max_batch_tokens": 7}, questions), ({}, questions[:100])):
        _, table, metadata = scored(part, "bfloat16", deterministic=True, **settings)
        engine = metadata["engine"]
        assert (engine["strategy"], engine["batching"]) == ("plain", "single")
        assert any("deterministic" in reason for reason in engine["fallback"])
        assert set(engine["noise"].values()) == {0.0}
        tables.append(table.combine_chunks().slice(0, 500))
    assert tables[0].equals(tables[1])
    logprobs = [np.concatenate(table["logprobs"].to_numpy()).tobytes() for table in tables]
    assert logprobs[0] == logprobs[1]


def test_deterministic_texts_are_equal_whatever_the_batch(questions):
    requests = build_requests(questions[:12], "question", "generation")
    tables = []
    for settings, rows in (({"max_batch_tokens": 300}, requests), ({}, requests[:8])):
        loaded = tiny.load_model("llama", deterministic=True, **settings)
        loaded.model.to(torch.bfloat16)
        table, metadata = generate(loaded, pa.Table.from_pylist(rows, schema=REQUESTS.schema))
        assert {note["used"] for note in metadata["engine"]["strategies"]} == {"single"}
        tables.append(table.combine_chunks().slice(0, 8))
    assert len(tables[1]) == 8
    assert tables[0].equals(tables[1])


def test_a_deterministic_model_uses_one_thread(tmp_path):
    threads = torch.get_num_threads()
    try:
        loaded = load(tiny.save("llama", tmp_path) | {"deterministic": True}, threads=2)
        assert torch.get_num_threads() == 1
        assert loaded.depends_on_batch
        assert not loaded.rounds_by_batch
    finally:
        torch.set_num_threads(threads)


def test_keys_of_other_models_stay():
    record, table = tiny.record("llama"), tiny.score_requests([("a b", 0, 3)])
    key = evaluation_key(record, table, SCORES)
    assert evaluation_key(record | {"deterministic": False}, table, SCORES) == key
    assert evaluation_key(record | {"deterministic": True}, table, SCORES) != key
