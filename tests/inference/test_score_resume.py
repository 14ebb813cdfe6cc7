"""Interrupted scoring: out of memory, kill, signal, and resumed runs."""

import os
import signal

import pytest
import torch
from support import tiny
from support.engines import score
from support.simulated_crash import SimulatedKill, crashing_journal
from vernacular.core.processes import Stopped, stop_on_signals
from vernacular.inference.job.store import Journal

pytestmark = pytest.mark.usefixtures("default_signals")

STEM = "Question: Which animal sleeps on the roof, and which in the house?\nAnswer:"
TEXTS = [
    (f"{number}. {STEM}{continuation}", len(STEM) + len(f"{number}. "), len(f"{number}. {STEM}{continuation}"))
    for number in range(12)
    for continuation in (" the cat", " the dog", " the bird on the table")
]


def run_score(loaded, **kwargs):
    table, metadata = score(loaded, tiny.score_requests(TEXTS), **kwargs)
    return table.to_pylist(), metadata["counters"]


def all_logprobs(rows):
    return [value for row in rows for value in row["logprobs"]]


class LimitedMemory:
    """Make the forward of a body raise an out-of-memory error above `limit` input tokens."""

    def __init__(self, loaded, limit, monkeypatch):
        self.n_failures, forward = 0, loaded.body.forward

        def limited(*args, **kwargs):
            if (args or [kwargs["input_ids"]])[0].numel() > limit:
                self.n_failures += 1
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
            return forward(*args, **kwargs)

        monkeypatch.setattr(loaded.body, "forward", limited)


@pytest.mark.parametrize("arch", ["llama", "bloom", "mamba", "bert"])
def test_out_of_memory_halves_budget_without_losing_rows(arch, monkeypatch):
    loaded = tiny.load_model(arch)
    expected, _ = run_score(loaded)
    memory = LimitedMemory(loaded, 110, monkeypatch)
    rows, counters = run_score(loaded)
    assert all_logprobs(rows) == pytest.approx(all_logprobs(expected), abs=1e-4)
    assert counters["oom_retries"] == memory.n_failures > 0
    assert counters["budget"] <= 256
    assert not any(row["flags"] for row in rows)


def test_request_exceeding_memory_is_flagged(monkeypatch):
    loaded = tiny.load_model("mamba")
    texts = [("O gato dorme.", 0, 13), ("A choiva cae amodo sobre a vila." * 5, 0, 160)]
    score(loaded, tiny.score_requests(texts))  # the self-check runs without a memory limit
    LimitedMemory(loaded, 60, monkeypatch)
    table, metadata = score(loaded, tiny.score_requests(texts))
    short_row, long_row = table.to_pylist()
    assert short_row["flags"] is None
    assert long_row["flags"] == "error: out of memory"
    assert long_row["logprobs"] is None
    assert metadata["counters"]["out_of_memory"] == 1


def test_other_model_errors_are_not_treated_as_out_of_memory(monkeypatch):
    loaded = tiny.load_model("mamba")
    run_score(loaded)
    monkeypatch.setattr(loaded.body, "forward", lambda **_: (_ for _ in ()).throw(RuntimeError("mat1 and mat2 shapes")))
    with pytest.raises(RuntimeError, match="shapes"):
        run_score(loaded)


@pytest.mark.parametrize("arch", ["llama", "bloom", "bert"])
@pytest.mark.parametrize("n_batches", [1, 3])
def test_killed_run_resumes_with_identical_scores(arch, n_batches, tmp_path, monkeypatch):
    expected, full_counters = run_score(tiny.load_model(arch, max_batch_tokens=128))
    loaded = tiny.load_model(arch, max_batch_tokens=128)
    journal = crashing_journal(tmp_path / "j", monkeypatch, n_batches=n_batches)
    with pytest.raises(SimulatedKill):
        run_score(loaded, journal=journal)
    rows, counters = run_score(tiny.load_model(arch, max_batch_tokens=128), journal=Journal(tmp_path / "j", "key"))
    assert rows == expected
    assert counters["batches_resumed"] == n_batches
    assert counters["forwards"] < full_counters["forwards"]


def test_resumed_run_reuses_batches_after_out_of_memory(tmp_path, monkeypatch):
    expected, _ = run_score(tiny.load_model("llama"))
    for attempt in (0, 1):
        loaded = tiny.load_model("llama")
        LimitedMemory(loaded, 110, monkeypatch)
        rows, counters = run_score(loaded, journal=Journal(tmp_path / "j", "key", seconds=0))
        assert all_logprobs(rows) == pytest.approx(all_logprobs(expected), abs=1e-4)
        assert (counters["batches_resumed"] > 0) == bool(attempt)
    assert counters["batches_resumed"] >= 3


def test_sigterm_between_batches_stores_finished_batches(tmp_path):
    loaded = tiny.load_model("llama", max_batch_tokens=128)
    expected, _ = run_score(loaded)
    with stop_on_signals() as stop:
        journal = Journal(tmp_path / "j", "key", stop=stop, seconds=1e9)
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(Stopped, match="stopped by SIGTERM: 1 finished batch is stored"):
            run_score(loaded, journal=journal)
    rows, counters = run_score(loaded, journal=Journal(tmp_path / "j", "key"))
    assert counters["batches_resumed"] == 1
    assert rows == expected
