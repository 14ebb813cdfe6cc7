"""The next evaluation is prepared, and the last one written, while the device computes.

Each test makes the device wait for the event that must happen meanwhile; without overlap, it would never happen.
"""

import contextlib
import dataclasses
import shutil
import threading
import time
from collections.abc import Callable

import pytest
import torch
from support import observed, tiny
from support.engines import score
from vernacular.core import artifacts
from vernacular.core.processes import Task, TimeLimitExceeded, time_limit
from vernacular.inference.engine import Local
from vernacular.inference.job.run import COMPUTED, run_group
from vernacular.inference.job.store import StoreError
from vernacular.inference.model.loaded import LoadedModel
from vernacular.inference.schema import SCORES, MemoryJournal
from vernacular.inference.scoring.score import split_into_chunks
from vernacular.inference.scoring.trie import build_trie

TIMEOUT = 120  # seconds; only a failing test waits for it


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """Return a model record and the requests files of three evaluations."""
    texts = {name: [f"{name}{i} {line}" for i, line in enumerate(tiny.LINES[:9])] for name in "abc"}
    settings = {"max_batch_tokens": 128, "engine_class": f"{__name__}:RecordedEngine"}
    return tiny.job(tmp_path_factory.mktemp("job"), texts, **settings)


class Events:
    """Order of what happens to each evaluation; `reached(name)` is set when it happens for the first time."""

    def __init__(self):
        self.order: list[str] = []
        self.before: dict[str, Callable[[], None]] = {}  # code that runs before an event
        self._events: dict[str, threading.Event] = {}

    def reached(self, name: str) -> threading.Event:
        return self._events.setdefault(name, threading.Event())

    def add(self, name: str) -> None:
        self.before.get(name, lambda: None)()
        self.order.append(name)
        self.reached(name).set()


class AsynchronousModel(LoadedModel):
    """A model whose device is used as one that returns before it has computed, which a CPU does not."""

    is_asynchronous = True

    @classmethod
    def of(cls, loaded: LoadedModel) -> "AsynchronousModel":
        return cls(**{field.name: getattr(loaded, field.name) for field in dataclasses.fields(loaded)})


class RecordedEngine(Local):
    """The local engine, which records when evaluations are prepared, computed (each forward pass) and written."""

    events: Events
    uses_gpu = False

    @contextlib.contextmanager
    def model(self, record):
        with super().model(record):
            if self.uses_gpu:
                self.loaded, self.is_asynchronous = AsynchronousModel.of(self.loaded), True
            hook = self.loaded.model.get_input_embeddings().register_forward_pre_hook(self._begin_batch)
            try:
                yield
            finally:
                hook.remove()

    def _begin_batch(self, *_):
        self.events.add(f"batch {self.current}")

    def prepare(self, kind, requests):
        prepared = super().prepare(kind, requests)
        self.events.add(f"prepare {first_letter(requests)}")
        return prepared

    def compute(self, prepared, journal):
        self.current = first_letter(prepared.requests)
        super().compute(prepared, journal)

    def finish(self, prepared):
        self.events.add(f"write {first_letter(prepared.requests)}")
        return super().finish(prepared)


def first_letter(requests) -> str:
    return requests["text"][0].as_py()[0]


@pytest.fixture
def events():
    RecordedEngine.events, RecordedEngine.uses_gpu = Events(), False
    return RecordedEngine.events


@pytest.fixture(params=[False, True], ids=["synchronous", "asynchronous"])
def kind_of_device(events, request):
    RecordedEngine.uses_gpu = request.param


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


def test_threads_begin_when_an_asynchronous_device_has_a_batch(job, events, tmp_path):
    RecordedEngine.uses_gpu = True
    record, paths = job
    events.before = {"batch a": lambda: time.sleep(0.2)}  # threads that began at once would be faster
    assert run_group([record], paths, tmp_path)[0] == {"m": dict.fromkeys("abc", COMPUTED)}
    position = {name: events.order.index(name) for name in events.order}  # of the first
    assert position["batch a"] < position["prepare b"]
    assert position["batch b"] < min(position["prepare c"], position["write a"])
    assert position["batch c"] < position["write b"]


@pytest.mark.usefixtures("kind_of_device")
def test_store_error_ends_job_at_next_batch(job, events, tmp_path):
    record, paths = job
    second_batch, writers = threading.Event(), []

    def spoil_store():
        writers.append(threading.current_thread())
        events.reached("writing").set()
        assert second_batch.wait(TIMEOUT)
        shutil.rmtree(tmp_path / SCORES.name)
        (tmp_path / SCORES.name).write_text("a file where a directory should be")

    def wait_for_error():
        if "batch b" in events.order:
            assert events.reached("writing").wait(TIMEOUT)
            second_batch.set()
            writers[0].join(TIMEOUT)

    events.before = {"write a": spoil_store, "batch b": wait_for_error}
    with pytest.raises(StoreError, match="the store cannot be"):
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


@pytest.fixture(params=["llama"])
def ahead(request):
    """Return (a model on an asynchronous device, checked, with batches of few tokens; its requests and their outputs)."""
    loaded = tiny.load_model(request.param, max_batch_tokens=64)
    requests = tiny.score_requests([(line, 0, len(line)) for line in tiny.LINES])
    expected, _ = score(loaded, requests)
    return AsynchronousModel.of(loaded), requests, expected


def test_device_has_the_next_batch_before_outputs_are_read(ahead):
    loaded, requests, _ = ahead
    order = []

    class RecordedJournal(MemoryJournal):
        def add(self, batch, rows):
            order.append("read")
            super().add(batch, rows)

    loaded.model.get_input_embeddings().register_forward_pre_hook(lambda *_: order.append("start") and None)
    score(loaded, requests, journal=RecordedJournal())
    n_batches = order.count("start")
    assert n_batches > 2
    assert order == ["start", *["start", "read"] * (n_batches - 1), "read"]


@pytest.mark.parametrize("ahead", ["llama", "bert"], indirect=True)
def test_outputs_do_not_depend_on_when_they_are_read(ahead):
    loaded, requests, expected = ahead
    assert score(loaded, requests)[0].equals(expected)


def test_out_of_memory_keeps_the_batch_that_is_still_computed(ahead):
    loaded, requests, expected = ahead
    calls = []

    def fail_once(*_):
        calls.append(1)
        if len(calls) == 3:
            raise torch.OutOfMemoryError("out of memory")

    loaded.model.get_input_embeddings().register_forward_pre_hook(fail_once)
    table, metadata = score(loaded, requests)
    assert metadata["counters"]["oom_retries"] == 1
    assert table["request_id"].equals(expected["request_id"])
    for row, other in zip(table["logprobs"].to_pylist(), expected["logprobs"].to_pylist(), strict=True):
        assert row == pytest.approx(other, abs=1e-4)


def test_next_chunk_is_prepared_while_device_computes(low_limits):
    loaded = tiny.load_model()
    requests = tiny.score_requests([(f"{i} {line}", 0, 9) for i, line in enumerate(tiny.LINES[:8])])
    expected, _ = score(loaded, requests)
    low_limits("inference.scoring.score", CHUNK_CHARACTERS=3 * 2_600)  # each chunk is one batch
    n_chunks, n_batches, in_thread = len(split_into_chunks(requests)), [], threading.Semaphore(0)

    def count_in_thread(_):
        if threading.current_thread() is not threading.main_thread():
            in_thread.release()

    def wait_for_next_chunk(*_):
        n_batches.append(1)
        assert len(n_batches) == n_chunks or in_thread.acquire(timeout=TIMEOUT), "the next chunk is not prepared"

    loaded.model.get_input_embeddings().register_forward_pre_hook(wait_for_next_chunk)
    with observed.calls(build_trie, count_in_thread):
        table, metadata = score(loaded, requests)
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
