"""The next evaluation is prepared, and the last one written, while the device computes.

Each test makes the device wait for the event that must happen meanwhile; without overlap, it would never happen.
"""

import threading
import time

import pytest
import torch
from support import tiny
from support.engines import score
from vernacular.checkpoints.resolve import resolve
from vernacular.core import artifacts
from vernacular.core.processes import StopFlag, Task, TimeLimitExceeded, time_limit
from vernacular.inference.job.run import COMPUTED, run_group
from vernacular.inference.job.store import Store, StoreError
from vernacular.inference.model.loaded import LoadedModel
from vernacular.inference.schema import SCORES
from vernacular.inference.scoring import execute, head, strategy
from vernacular.inference.scoring import score as score_module
from vernacular.inference.scoring.token_scores import PendingScores
from vernacular.protocols.schema import REQUESTS

TIMEOUT = 120  # seconds; only a failing test waits for it


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """Return a model record and the requests files of three evaluations."""
    directory = tmp_path_factory.mktemp("job")
    tiny.save("llama", directory / "model")
    settings = {"dtype": "float32", "device": "cpu", "chat": False, "max_batch_tokens": 128}
    record = resolve("m", str(directory / "model"), directory / "converted") | settings
    paths = {}
    for name in ("a", "b", "c"):
        texts = [f"{name}{i} {line}" for i, line in enumerate(tiny.LINES[:9])]
        table = tiny.score_requests([(text, 0, len(text)) for text in texts])
        note = {"protocol": "acceptability", "request_kind": "score", "causal_only": False, "fingerprint": name}
        paths[name] = artifacts.write(directory / f"{name}.parquet", REQUESTS, table, note)
    return record, paths


class Events:
    """Order of what happens to each evaluation; `reached(name)` is set when it happens for the first time."""

    def __init__(self):
        self.order: list[str] = []
        self._events: dict[str, threading.Event] = {}

    def reached(self, name: str) -> threading.Event:
        return self._events.setdefault(name, threading.Event())

    def add(self, name: str) -> None:
        self.order.append(name)
        self.reached(name).set()


@pytest.fixture
def events(monkeypatch):
    """Record when evaluations are prepared, computed (each batch) and written; `before` runs code before an event."""
    recorded = Events()
    recorded.before = {}
    current = []

    def record(name):
        recorded.before.get(name, lambda: None)()
        recorded.add(name)

    original_init, original_compute = score_module.Scoring.__init__, score_module.Scoring.compute
    original_put, within_memory = Store.put, execute.within_memory

    def init(self, loaded, requests, **kwargs):
        original_init(self, loaded, requests, **kwargs)
        record(f"prepare {requests['text'][0].as_py()[0]}")

    def compute(self, journal):
        current.append(self.requests["text"][0].as_py()[0])
        original_compute(self, journal)

    def batch(*args):
        record(f"batch {current[-1]}")
        return within_memory(*args)

    def put(self, key, kind, table, metadata):
        name = "abc"[[name.startswith("write") for name in recorded.order].count(True)]
        record(f"write {name}")
        return original_put(self, key, kind, table, metadata)

    monkeypatch.setattr(score_module.Scoring, "__init__", init)
    monkeypatch.setattr(score_module.Scoring, "compute", compute)
    monkeypatch.setattr(execute, "within_memory", batch)
    monkeypatch.setattr(Store, "put", put)
    return recorded


@pytest.fixture(params=[False, True], ids=["synchronous", "asynchronous"])
def kind_of_device(request, monkeypatch):
    monkeypatch.setattr(LoadedModel, "is_asynchronous", request.param)


def wait_for(events, name):
    return lambda: events.reached(name).wait(TIMEOUT) or pytest.fail(f"the device waited in vain for: {name}")


def test_next_evaluation_is_prepared_while_device_computes(job, events, tmp_path):
    record, paths = job
    events.before = {"batch a": wait_for(events, "prepare b"), "batch b": wait_for(events, "prepare c")}
    assert run_group([record], paths, tmp_path)[0] == {"m": dict.fromkeys("abc", COMPUTED)}


def test_last_evaluation_is_written_while_device_computes(job, events, tmp_path):
    record, paths = job
    events.before = {"write a": wait_for(events, "batch b"), "write b": wait_for(events, "batch c")}
    assert run_group([record], paths, tmp_path)[0] == {"m": dict.fromkeys("abc", COMPUTED)}


@pytest.mark.usefixtures("kind_of_device")
def test_overlapped_outputs_equal_those_computed_one_after_the_other(job, events, tmp_path):
    record, paths = job
    run_group([record], paths, tmp_path / "overlapped")
    events.order.clear()
    run_group([record], paths, tmp_path / "alone", overlaps=False)
    assert list(dict.fromkeys(events.order)) == [
        f"{step} {name}" for name in "abc" for step in ("prepare", "batch", "write")
    ]
    files = sorted(path.relative_to(tmp_path / "alone") for path in (tmp_path / "alone").rglob("*.parquet"))
    assert len(files) == 3
    for path in files:
        alone, overlapped = (artifacts.read(tmp_path / name / path, SCORES, allow_moved=True)
                             for name in ("alone", "overlapped"))  # fmt: skip
        assert alone.equals(overlapped)


def test_threads_begin_when_an_asynchronous_device_has_a_batch(job, events, tmp_path, monkeypatch):
    monkeypatch.setattr(LoadedModel, "is_asynchronous", True)
    record, paths = job
    # the self-check, once per model, is work of the device, too: without it, batch a is the first
    monkeypatch.setattr(strategy, "within_memory", lambda loaded, compute: compute())
    events.before = {"batch a": lambda: time.sleep(0.2)}  # threads that began at once would be faster
    assert run_group([record], paths, tmp_path)[0] == {"m": dict.fromkeys("abc", COMPUTED)}
    position = {name: events.order.index(name) for name in events.order}  # of the first
    assert position["batch a"] < position["prepare b"]
    assert position["batch b"] < min(position["prepare c"], position["write a"])
    assert position["batch c"] < position["write b"]


@pytest.mark.usefixtures("kind_of_device")
def test_store_error_ends_job_at_next_batch(job, events, tmp_path, monkeypatch):
    record, paths = job
    second_batch, reported, fail = threading.Event(), threading.Event(), StopFlag.fail

    def write():
        assert second_batch.wait(TIMEOUT)
        raise StoreError("the store cannot be written: disk full.")

    def wait_for_error():
        if "batch b" in events.order:
            second_batch.set()
            assert reported.wait(TIMEOUT)

    monkeypatch.setattr(StopFlag, "fail", lambda self, error: (fail(self, error), reported.set()))
    events.before = {"write a": write, "batch b": wait_for_error}
    with pytest.raises(StoreError, match="disk full"):
        run_group([record], paths, tmp_path)
    assert events.order.count("batch b") == 2
    assert not {"write b", "batch c"} & set(events.order)


@pytest.mark.usefixtures("kind_of_device")
def test_error_while_preparing_affects_its_evaluation_only(job, events, tmp_path):
    record, paths = job

    def fail():
        raise ZeroDivisionError("in the next evaluation")

    events.before = {"prepare b": fail, "batch a": lambda: None}
    done, failed = run_group([record], paths, tmp_path)
    assert done == {"m": {"a": COMPUTED, "c": COMPUTED}}
    assert failed == {"m": {"b": "ZeroDivisionError: in the next evaluation"}}


@pytest.mark.usefixtures("kind_of_device")
def test_error_while_writing_affects_its_evaluation_only(job, events, tmp_path):
    record, paths = job

    def fail():
        events.order.append("write a")
        raise ZeroDivisionError("in the rows")

    events.before = {"write a": fail}
    done, failed = run_group([record], paths, tmp_path)
    assert done == {"m": {"b": COMPUTED, "c": COMPUTED}}
    assert failed == {"m": {"a": "ZeroDivisionError: in the rows"}}


@pytest.fixture
def order(monkeypatch):
    """Make the device asynchronous, and record when batches are started and when their outputs are read."""
    order, started, result = [], head.score_batch, PendingScores.result
    numbers = {}

    def start(*args):
        scores = started(*args)
        numbers[id(scores)] = len(numbers), scores  # kept, so that no other has its id
        order.append(("start", numbers[id(scores)][0]))
        return scores

    def read(scores):
        if id(scores) in numbers:  # not a self-check
            order.append(("read", numbers[id(scores)][0]))
        return result(scores)

    monkeypatch.setattr(LoadedModel, "is_asynchronous", True)
    monkeypatch.setattr(execute, "score_batch", start)
    monkeypatch.setattr(PendingScores, "result", read)
    return order


def test_device_has_the_next_batch_before_outputs_are_read(order):
    loaded = tiny.load_model("llama", max_batch_tokens=64)
    score(loaded, tiny.score_requests([(line, 0, len(line)) for line in tiny.LINES]))
    n_batches = order.count(("start", 0)) + max(number for _, number in order)
    assert n_batches > 2
    expected = [("start", 0)]
    for number in range(1, n_batches):
        expected += [("start", number), ("read", number - 1)]
    assert order == [*expected, ("read", n_batches - 1)]


@pytest.mark.parametrize("kind", ["llama", "bert"])
def test_outputs_do_not_depend_on_when_they_are_read(order, monkeypatch, kind):
    requests = tiny.score_requests([(line, 0, len(line)) for line in tiny.LINES])
    ahead, _ = score(tiny.load_model(kind, max_batch_tokens=64), requests)
    assert order or kind == "bert"
    monkeypatch.setattr(LoadedModel, "is_asynchronous", False)
    plain, _ = score(tiny.load_model(kind, max_batch_tokens=64), requests)
    assert ahead.equals(plain)


def test_out_of_memory_keeps_the_batch_that_is_still_computed(order, monkeypatch):
    requests = tiny.score_requests([(line, 0, len(line)) for line in tiny.LINES])
    expected, _ = score(tiny.load_model("llama", max_batch_tokens=64), requests)
    start, calls = execute.score_batch, []

    def fails_once(*args):
        calls.append(args)
        if len(calls) == 3:
            raise torch.OutOfMemoryError("out of memory")
        return start(*args)

    monkeypatch.setattr(execute, "score_batch", fails_once)
    table, metadata = score(tiny.load_model("llama", max_batch_tokens=64), requests)
    assert metadata["counters"]["oom_retries"] == 1
    assert table["request_id"].equals(expected["request_id"])
    for row, other in zip(table["logprobs"].to_pylist(), expected["logprobs"].to_pylist(), strict=True):
        assert row == pytest.approx(other, abs=1e-4)


def test_next_chunk_is_prepared_while_device_computes(monkeypatch):
    requests = tiny.score_requests([(f"{i} {line}", 0, 9) for i, line in enumerate(tiny.LINES[:8])])
    expected, _ = score(tiny.load_model(), requests)
    monkeypatch.setattr(score_module, "CHUNK_CHARACTERS", 3 * 2_600)
    prepared, n_batches = [threading.Event() for _ in range(9)], []
    prepare, within_memory = score_module.Scoring._prepare, execute.within_memory
    first_batches = []

    def prepare_chunk(self, index):
        chunk = prepare(self, index)
        prepared[index].set()
        return chunk

    def run_batch(*args):
        n_batches.append(1)
        assert prepared[min(len(n_batches), len(first_batches) - 1)].wait(TIMEOUT), "the next chunk is not prepared"
        return within_memory(*args)

    first_batches.extend(score_module.split_into_chunks(requests))  # each chunk is one batch
    monkeypatch.setattr(score_module.Scoring, "_prepare", prepare_chunk)
    monkeypatch.setattr(execute, "within_memory", run_batch)
    table, metadata = score(tiny.load_model(), requests)
    assert metadata["counters"]["chunks"] == len(n_batches) >= 3
    for name in ("tokens", "offsets", "is_greedy", "flags"):
        assert table[name].equals(expected[name])


def test_time_limit_ends_python_code_in_a_thread():
    def loop():
        with time_limit(0.05):
            while True:
                pass

    with pytest.raises(TimeLimitExceeded):
        Task(loop).result()


def test_time_limit_that_is_kept_has_no_effect_in_a_thread():
    def sum_up():
        with time_limit(TIMEOUT):
            return sum(range(1000))

    assert Task(sum_up).result() == 499_500


def test_cancelled_task_ends():
    started, ended = threading.Event(), threading.Event()

    def loop():
        try:
            started.set()
            while True:
                pass
        finally:
            ended.set()

    task = Task(loop)
    started.wait(TIMEOUT)
    task.cancel()
    assert ended.wait(TIMEOUT)
