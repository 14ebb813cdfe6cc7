"""Interruptions: out of memory, kill, signal, and what a resumed run gives."""

import os
import signal

import pytest
import torch
from support import tiny
from support.killing import Killed, dying_journal
from vernacular.core.processes import Stopped, stoppable
from vernacular.inference.job.store import Journal
from vernacular.inference.scoring.score import score

pytestmark = pytest.mark.usefixtures("heard_signals")

STEM = "Question: Which animal sleeps on the roof, and which in the house?\nAnswer:"
TEXTS = [
    (f"{number}. {STEM}{tail}", len(STEM) + len(f"{number}. "), len(f"{number}. {STEM}{tail}"))
    for number in range(12)
    for tail in (" the cat", " the dog", " the bird on the table")
]


def run(loaded, **more):
    table, metadata = score(loaded, tiny.score_requests(TEXTS), **more)
    return table.to_pylist(), metadata["counters"]


def values(rows):
    return [value for row in rows for value in row["logprobs"]]


class Memory:
    """Lets a body's forward run out of memory above `limit` tokens of input."""

    def __init__(self, loaded, limit, monkeypatch):
        self.refused, forward = 0, loaded.body.forward

        def limited(*args, **kwargs):
            if (args or [kwargs["input_ids"]])[0].numel() > limit:
                self.refused += 1
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
            return forward(*args, **kwargs)

        monkeypatch.setattr(loaded.body, "forward", limited)


@pytest.mark.parametrize("arch", ["llama", "bloom", "mamba", "bert"])
def test_running_out_of_memory_halves_the_budget_and_loses_nothing(arch, monkeypatch):
    loaded = tiny.loaded(arch)
    expected, _ = run(loaded)
    memory = Memory(loaded, 110, monkeypatch)
    rows, counters = run(loaded)
    assert values(rows) == pytest.approx(values(expected), abs=1e-4)
    assert counters["oom_retries"] == memory.refused > 0
    assert counters["budget"] <= 256
    assert not any(row["flags"] for row in rows)


def test_what_fits_no_memory_is_flagged_and_the_rest_scored(monkeypatch):
    loaded = tiny.loaded("mamba")
    texts = [("O gato dorme.", 0, 13), ("A choiva cae amodo sobre a vila." * 5, 0, 160)]
    score(loaded, tiny.score_requests(texts))  # the self-check has memory enough
    Memory(loaded, 60, monkeypatch)
    table, metadata = score(loaded, tiny.score_requests(texts))
    short, long = table.to_pylist()
    assert short["flags"] is None
    assert long["flags"] == "error: out of memory"
    assert long["logprobs"] is None
    assert metadata["counters"]["given_up"] == 1


def test_other_errors_of_the_model_are_not_taken_for_memory(monkeypatch):
    loaded = tiny.loaded("mamba")
    run(loaded)
    monkeypatch.setattr(loaded.body, "forward", lambda **_: (_ for _ in ()).throw(RuntimeError("mat1 and mat2 shapes")))
    with pytest.raises(RuntimeError, match="shapes"):
        run(loaded)


@pytest.mark.parametrize("arch", ["llama", "bloom", "bert"])
@pytest.mark.parametrize("after", [1, 3])
def test_killed_run_resumes_to_the_very_same_numbers(arch, after, tmp_path, monkeypatch):
    expected, whole = run(tiny.loaded(arch, max_batch_tokens=128))
    loaded = tiny.loaded(arch, max_batch_tokens=128)
    journal = dying_journal(tmp_path / "j", monkeypatch, after=after)
    with pytest.raises(Killed):
        run(loaded, journal=journal)
    rows, counters = run(tiny.loaded(arch, max_batch_tokens=128), journal=Journal(tmp_path / "j", "key"))
    assert rows == expected
    assert counters["batches_resumed"] == after
    assert counters["forwards"] < whole["forwards"]


def test_resumed_run_meets_the_batches_of_after_an_out_of_memory(tmp_path, monkeypatch):
    expected, _ = run(tiny.loaded("llama"))
    for resumed in (0, 1):
        loaded = tiny.loaded("llama")
        Memory(loaded, 110, monkeypatch)
        rows, counters = run(loaded, journal=Journal(tmp_path / "j", "key", seconds=0))
        assert values(rows) == pytest.approx(values(expected), abs=1e-4)
        assert (counters["batches_resumed"] > 0) == bool(resumed)
    assert counters["batches_resumed"] >= 3


def test_sigterm_between_batches_keeps_what_is_finished(tmp_path):
    loaded = tiny.loaded("llama", max_batch_tokens=128)
    expected, _ = run(loaded)
    with stoppable() as stop:
        journal = Journal(tmp_path / "j", "key", stop=stop, seconds=1e9)
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(Stopped, match="stopped by SIGTERM: 1 finished batch is stored"):
            run(loaded, journal=journal)
    rows, counters = run(loaded, journal=Journal(tmp_path / "j", "key"))
    assert counters["batches_resumed"] == 1
    assert rows == expected
