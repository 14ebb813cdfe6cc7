"""Signals at any moment of a job: the current batch is finished, finished batches are stored, no new one begins."""

import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest
from support import observed, stages, tiny
from transformers import AutoModelForCausalLM, AutoTokenizer
from vernacular.checkpoints.inputs import record_of
from vernacular.core import artifacts
from vernacular.core.errors import ArtifactError
from vernacular.core.model_record import write_model
from vernacular.core.processes import StopFlag, Stopped, stop_on_signals
from vernacular.inference.generation.decode import decode
from vernacular.inference.generation.generate import make_batches
from vernacular.inference.generation.prepare import encode_all
from vernacular.inference.generation.self_check import select_batching
from vernacular.inference.job.run import CACHED, COMPUTED, run_group
from vernacular.inference.job.store import Journal, Store
from vernacular.inference.job.work import work_units
from vernacular.inference.model.load import load
from vernacular.inference.schema import SCORES
from vernacular.inference.scoring.execute import score_causal
from vernacular.inference.scoring.head import score_batch
from vernacular.inference.scoring.plan import plan
from vernacular.inference.scoring.prepare import prepare_all
from vernacular.inference.scoring.strategy import check, select_strategy
from vernacular.inference.scoring.trie import build_trie
from vernacular.protocols.schema import REQUESTS

pytestmark = pytest.mark.usefixtures("default_signals")

LINES = [f"{number}. {line}" for number in range(6) for line in tiny.LINES[:3]]


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """Return a model record and the requests files of two evaluations."""
    directory = tmp_path_factory.mktemp("job")
    record, paths = tiny.job(directory, {"a": LINES}, max_batch_tokens=128)
    generate_requests = artifacts.read(paths["a"], REQUESTS)
    for name, value in (("kind", "generate"), ("max_new_tokens", 3), ("span_start", None), ("span_end", None)):
        index = REQUESTS.schema.get_field_index(name)
        column = pa.array([value] * len(LINES), REQUESTS.schema.field(name).type)
        generate_requests = generate_requests.set_column(index, REQUESTS.schema.field(name), column)
    metadata = {"protocol": "generation", "request_kind": "generate"}
    return record, paths | {"b": tiny.write_requests(directory / "b.parquet", generate_requests, **metadata)}


def signal_on_call(function, *, signum: int = signal.SIGINT, on_call: int = 1, on_interruption=None):
    """Send a signal at call number `on_call` of a function; `on_interruption` replaces raising the interruption."""
    numbers = itertools.count(1)

    def send(_):
        if next(numbers) == on_call:
            try:
                os.kill(os.getpid(), signum)
            except BaseException:  # whatever the handler of the signal raises: Stopped, KeyboardInterrupt, SystemExit
                if on_interruption is None:
                    raise
                on_interruption()

    return observed.calls(function, send)


BATCH = {"a": Journal.get, "b": decode}  # called for each batch
FUNCTIONS_BEFORE_BATCH = {
    "a": [
        work_units,
        load,
        AutoModelForCausalLM.from_pretrained,
        prepare_all,
        build_trie,
        select_strategy,
        check,
        plan,
    ],
    "b": [encode_all, select_batching, make_batches],
}


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    ("evaluation", "function"),
    [(evaluation, function) for evaluation, functions in FUNCTIONS_BEFORE_BATCH.items() for function in functions],
)
def test_signal_before_first_batch_stops_job(job, evaluation, function, signum, tmp_path):
    record, paths = job
    handlers = [signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)]
    message = f"^stopped by {signum.name}: .* stored; the next run resumes from there.$"
    with (
        observed.calls(BATCH[evaluation]) as batches_begun,
        signal_on_call(function, signum=signum),
        pytest.raises(Stopped, match=message),
    ):
        run_group([record], {evaluation: paths[evaluation]}, tmp_path)
    assert not batches_begun
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)] == handlers


def test_signal_during_batch_finishes_and_stores_it(job, tmp_path):
    record, paths = job
    for evaluation in paths:
        with (
            signal_on_call(BATCH[evaluation], signum=signal.SIGTERM) as batches_begun,
            pytest.raises(Stopped, match="stopped by SIGTERM: 1 finished batch is stored; the next"),
        ):
            run_group([record], {evaluation: paths[evaluation]}, tmp_path)
        assert len(batches_begun) == 1
    assert len(list((tmp_path / "journal").glob("*/*.part"))) == 2
    assert run_group([record], paths, tmp_path) == ({"m": {"a": COMPUTED, "b": COMPUTED}}, {"m": {}})


def test_signal_during_write_completes_it_and_stops_job(job, tmp_path):
    record, paths = job
    with signal_on_call(artifacts.write, signum=signal.SIGTERM), pytest.raises(Stopped):
        run_group([record], paths, tmp_path)
    assert run_group([record], paths, tmp_path)[0] == {"m": {"a": CACHED, "b": COMPUTED}}


def test_batches_of_earlier_chunk_are_stored(job, tmp_path, low_limits):
    record, paths = job
    low_limits("inference.scoring.score", CHUNK_CHARACTERS=6 * 2_600)
    with (
        observed.calls(Journal.get) as batches_begun,
        signal_on_call(score_causal, on_call=3),
        pytest.raises(Stopped) as error_info,
    ):
        run_group([record], {"a": paths["a"]}, tmp_path)
    assert len(batches_begun) > 1
    assert f"{len(batches_begun)} finished batch" in str(error_info.value)
    run_group([record], {"a": paths["a"]}, tmp_path)
    [path] = (tmp_path / SCORES.name).glob("*/*.parquet")
    assert artifacts.metadata(path, allow_moved=True)["counters"]["batches_resumed"] == len(batches_begun)


def raise_os_error():
    raise OSError("interrupted system call")


@pytest.mark.parametrize("on_interruption", [lambda: None, raise_os_error])
@pytest.mark.parametrize("function", [AutoModelForCausalLM.from_pretrained, AutoTokenizer.from_pretrained, score_batch])
def test_interruption_wrapped_by_library_is_not_model_failure(job, function, on_interruption, tmp_path):
    record, paths = job
    with (
        observed.calls(Journal.get) as batches_begun,
        signal_on_call(function, on_interruption=on_interruption),
        pytest.raises(Stopped, match="stopped by SIGINT"),
    ):
        run_group([record], {"a": paths["a"]}, tmp_path)
    assert not batches_begun


def test_error_without_signal_is_unchanged():
    with stop_on_signals() as stop, pytest.raises(ZeroDivisionError), stop.interruptible():
        1 / 0  # noqa: B018


def run_until_stopped(action) -> None:
    """Call `action` with a StopFlag while signals interrupt immediately."""
    with stop_on_signals() as stop, stop.interruptible():
        action(stop)


def test_store_error_takes_precedence_over_signal(tmp_path):
    def action(stop):
        journal = Store(tmp_path).journal("k" * 40, stop=stop)
        with journal.defer_signals():
            os.kill(os.getpid(), signal.SIGTERM)
            journal.add("b1", [])

    (tmp_path / "journal").write_text("a file where a directory should be")
    with pytest.raises(ArtifactError, match="the store cannot be"):
        run_until_stopped(action)


def test_second_signal_does_not_interrupt_write_after_first(tmp_path):
    def action(stop):
        journal = Journal(tmp_path / "j", "key", stop=stop, seconds=1e9)
        journal.add("b1", [])
        journal.add("b2", [])
        os.kill(os.getpid(), signal.SIGUSR1)

    with (
        signal_on_call(artifacts.replacing, signum=signal.SIGTERM),
        pytest.raises(Stopped, match="SIGUSR1: 2 finished batches are stored"),
    ):
        run_until_stopped(action)
    assert Journal(tmp_path / "j", "key").n_batches == 2


def test_stop_flag_records_first_signal():
    stop = StopFlag()
    stop.record_signal("SIGTERM")
    stop.record_signal("SIGUSR1")
    with stop.defer_signals():
        assert (bool(stop), stop.name) == (True, "SIGTERM")


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_signal_during_torch_import_stops_job(job, signum, tmp_path):
    """A torch package that takes minutes to import simulates a slow disk."""
    record, paths = job
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("import time\nopen('held', 'w').close()\ntime.sleep(300)\n")
    write_model(tmp_path / "m.json", record | {"contents": record_of(Path(record.directory))})
    files = {"models": ["m.json"], "requests": [paths["a"]], "out": "asked.json", "store": "store"}
    (tmp_path / "fields.json").write_text(stages.text("infer", spec={"models": {"m": {}}}, **files))
    command = [sys.executable, "-m", "vernacular", "infer"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])}
    with open(tmp_path / "fields.json") as fields:
        process = subprocess.Popen(
            command, cwd=tmp_path, env=environment, stdin=fields, stderr=subprocess.PIPE, text=True
        )
    try:
        deadline = time.monotonic() + 120
        while not (tmp_path / "held").exists():
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signum)
        _, stderr = process.communicate(timeout=120)  # otherwise, it sleeps for minutes
    finally:
        process.kill()
    assert process.returncode == 1
    assert stderr == f"infer: stopped by {signum.name}: finished outputs are stored; the next run resumes from there.\n"
    assert not (tmp_path / "asked.json").exists()
