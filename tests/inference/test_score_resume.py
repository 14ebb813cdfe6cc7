"""Interrupted scoring: out of memory, kill, signal, and resumed runs."""

import os
import signal

import pytest
from support import tiny
from support.engines import score
from support.simulated_crash import CrashingJournal, SimulatedKill
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


@pytest.mark.parametrize("arch", ["llama", "bloom", "mamba", "bert"])
def test_out_of_memory_halves_budget_without_losing_rows(arch):
    loaded = tiny.load_model(arch)
    expected, _ = run_score(loaded)
    memory = tiny.Memory(loaded, tokens=110)
    rows, counters = run_score(loaded)
    assert all_logprobs(rows) == pytest.approx(all_logprobs(expected), abs=1e-4)
    assert counters["oom_retries"] == len(memory.failures) > 0
    assert counters["budget"] <= 256
    assert not any(row["flags"] for row in rows)


def test_request_exceeding_memory_is_flagged():
    loaded = tiny.load_model("mamba")
    texts = [("O gato dorme.", 0, 13), ("A choiva cae amodo sobre a vila." * 5, 0, 160)]
    score(loaded, tiny.score_requests(texts))  # the self-check runs without a memory limit
    tiny.Memory(loaded, tokens=60)
    table, metadata = score(loaded, tiny.score_requests(texts))
    short_row, long_row = table.to_pylist()
    assert short_row["flags"] is None
    assert long_row["flags"] == "error: out of memory"
    assert long_row["logprobs"] is None
    assert metadata["counters"]["out_of_memory"] == 1


def test_other_model_errors_are_not_treated_as_out_of_memory():
    loaded = tiny.load_model("mamba")
    run_score(loaded)

    def fail(ids):
        raise RuntimeError("mat1 and mat2 shapes")

    tiny.on_forward(loaded, fail)
    with pytest.raises(RuntimeError, match="shapes"):
        run_score(loaded)


@pytest.mark.parametrize("arch", ["llama", "bloom", "bert"])
@pytest.mark.parametrize("n_batches", [1, 3])
def test_killed_run_resumes_with_identical_scores(arch, n_batches, tmp_path):
    expected, full_counters = run_score(tiny.load_model(arch, max_batch_tokens=128))
    loaded = tiny.load_model(arch, max_batch_tokens=128)
    journal = CrashingJournal(tmp_path / "j", n_batches)
    with pytest.raises(SimulatedKill):
        run_score(loaded, journal=journal)
    rows, counters = run_score(tiny.load_model(arch, max_batch_tokens=128), journal=Journal(tmp_path / "j", "key"))
    assert rows == expected
    assert counters["batches_resumed"] == n_batches
    assert counters["forwards"] < full_counters["forwards"]


def test_resumed_run_reuses_batches_after_out_of_memory(tmp_path):
    expected, _ = run_score(tiny.load_model("llama"))
    for attempt in (0, 1):
        loaded = tiny.load_model("llama")
        tiny.Memory(loaded, tokens=110)
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
