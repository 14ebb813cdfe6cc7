"""A signal at any moment of a job: no new batch is begun, what is in work is finished, what is finished is kept."""

import importlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest
from support import tiny
from vernacular.checkpoints.inputs import record_of
from vernacular.checkpoints.resolve import resolve
from vernacular.core import artifacts
from vernacular.core.errors import ArtifactError
from vernacular.core.processes import StopFlag, Stopped, _Interruption, stoppable
from vernacular.core.records import write_record
from vernacular.inference.job.run import COMPUTED, FOUND, run_group
from vernacular.inference.job.store import Journal, Store
from vernacular.inference.schema import SCORES
from vernacular.inference.scoring import prepare as cutting
from vernacular.protocols.schema import REQUESTS

pytestmark = pytest.mark.usefixtures("heard_signals")

LINES = [f"{number}. {line}" for number in range(6) for line in tiny.LINES[:3]]


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """A model's record, and the requests of two evaluations."""
    folder = tmp_path_factory.mktemp("job")
    tiny.save("llama", folder / "model")
    options = {"dtype": "float32", "device": "cpu", "chat": False, "max_batch_tokens": 128}
    record = resolve("m", str(folder / "model"), folder / "converted") | options
    scored = tiny.score_requests([(line, 0, len(line)) for line in LINES])
    generated = scored
    for name, value in (("kind", "generate"), ("max_new_tokens", 3), ("span_start", None), ("span_end", None)):
        place = REQUESTS.schema.get_field_index(name)
        column = pa.array([value] * len(LINES), REQUESTS.schema.field(name).type)
        generated = generated.set_column(place, REQUESTS.schema.field(name), column)
    paths = {}
    for name, table, protocol in (("a", scored, "acceptability"), ("b", generated, "generation")):
        note = {
            "protocol": protocol,
            "request_kind": "generate" if protocol == "generation" else "score",
            "causal_only": False,
            "fingerprint": name,
        }
        paths[name] = artifacts.write(folder / f"{name}.parquet", REQUESTS, table, note)
    return record, paths


def strike(monkeypatch, place: str, *, number: int = signal.SIGINT, on_call: int = 1, swallowed=None):
    """A signal when `place` is called for the `on_call`th time; `swallowed` says what becomes of an interruption."""
    module, _, name = place.rpartition(".")
    holder = importlib.import_module(module)
    real, calls = getattr(holder, name), []

    def struck(*given, **more):
        calls.append(name)
        if len(calls) == on_call:
            try:
                os.kill(os.getpid(), number)
            except _Interruption:
                if swallowed is None:
                    raise
                swallowed()
        return real(*given, **more)

    monkeypatch.setattr(holder, name, struck)
    return calls


def batches(monkeypatch) -> list:
    """Of all batches that the model is asked from now on, a mark each."""
    begun = []
    for module, name in (("scoring.execute", "within_memory"), ("generation.generate", "decode")):
        holder = importlib.import_module(f"vernacular.inference.{module}")
        real = getattr(holder, name)
        monkeypatch.setattr(holder, name, lambda *given, _real=real: begun.append(1) or _real(*given))
    return begun


BEFORE_A_BATCH = {
    "a": ["job.run.questions", "model.base.load", "model.load._read_weights", "scoring.score.prepare", "scoring.score.grow", "scoring.strategy.check",
          "scoring.strategy._compare", "scoring.execute.plan"],
    "b": ["generation.prepare.prompt_of", "generation.generate.strategy", "generation.generate.batches"],
}  # fmt: skip


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(("evaluation", "place"), [(e, place) for e, all_ in BEFORE_A_BATCH.items() for place in all_])
def test_before_a_batch_a_signal_ends_the_job_there(job, evaluation, place, number, tmp_path, monkeypatch):
    record, paths = job
    handlers = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)]
    with monkeypatch.context() as patched:
        begun = batches(patched)
        strike(patched, f"vernacular.inference.{place}", number=number)
        with pytest.raises(Stopped, match=f"^stopped by {number.name}: .* stored; the next run resumes from there.$"):
            run_group([record], {evaluation: paths[evaluation]}, tmp_path)
    assert not begun
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)] == handlers


def test_a_batch_in_work_is_finished_and_kept(job, tmp_path, monkeypatch):
    record, paths = job
    for evaluation, place in (("a", "scoring.execute.within_memory"), ("b", "generation.generate.decode")):
        with monkeypatch.context() as patched:
            calls = strike(patched, f"vernacular.inference.{place}", number=signal.SIGTERM)
            with pytest.raises(Stopped, match="stopped by SIGTERM: 1 finished batch is stored; the next"):
                run_group([record], {evaluation: paths[evaluation]}, tmp_path)
        assert len(calls) == 1
    assert len(list((tmp_path / "journal").glob("*/*.part"))) == 2
    assert run_group([record], paths, tmp_path) == ({"m": {"a": COMPUTED, "b": COMPUTED}}, {"m": {}})


def test_what_is_being_written_is_written_and_the_next_evaluation_is_not_begun(job, tmp_path, monkeypatch):
    record, paths = job
    with monkeypatch.context() as patched:
        strike(patched, "vernacular.core.artifacts.write", number=signal.SIGTERM)
        with pytest.raises(Stopped):
            run_group([record], paths, tmp_path)
    assert run_group([record], paths, tmp_path)[0] == {"m": {"a": FOUND, "b": COMPUTED}}


def test_batches_of_an_earlier_portion_are_kept(job, tmp_path, monkeypatch):
    record, paths = job
    monkeypatch.setattr(cutting, "PORTION", 6 * 2_600)
    with monkeypatch.context() as patched:
        strike(patched, "vernacular.inference.scoring.execute.plan", on_call=3)
        begun = batches(patched)
        with pytest.raises(Stopped) as stopped:
            run_group([record], {"a": paths["a"]}, tmp_path)
    assert len(begun) > 1
    assert f"{len(begun)} finished batch" in str(stopped.value)
    run_group([record], {"a": paths["a"]}, tmp_path)
    [path] = (tmp_path / SCORES.name).glob("*/*.parquet")
    assert artifacts.metadata(path, anywhere=True)["counters"]["batches_resumed"] == len(begun)


def refuse():
    raise OSError("interrupted system call")


@pytest.mark.parametrize("swallowed", [lambda: None, refuse])
@pytest.mark.parametrize(
    "place", ["model.load._read_weights", "model.load._refuse_bidirectional", "scoring.strategy._by_strategy"]
)
def test_what_a_library_makes_of_an_interruption_is_no_failure_of_the_model(
    job, place, swallowed, tmp_path, monkeypatch
):
    record, paths = job
    begun = batches(monkeypatch)
    strike(monkeypatch, f"vernacular.inference.{place}", swallowed=swallowed)
    with pytest.raises(Stopped, match="stopped by SIGINT"):
        run_group([record], {"a": paths["a"]}, tmp_path)
    assert not begun


def test_an_error_without_a_signal_stays_what_it_is():
    with stoppable() as stop, pytest.raises(ZeroDivisionError), stop.at_once():
        1 / 0  # noqa: B018


def stopped_while(work) -> None:
    """`work`, given a StopFlag, where a signal acts at once."""
    with stoppable() as stop, stop.at_once():
        work(stop)


def test_a_store_that_cannot_be_written_is_told_rather_than_the_signal(tmp_path):
    def work(stop):
        journal = Store(tmp_path).journal("k" * 40, stop=stop)
        with journal.finishing():
            os.kill(os.getpid(), signal.SIGTERM)
            journal.add("b1", [])

    (tmp_path / "journal").write_text("a file where a folder should be")
    with pytest.raises(ArtifactError, match="the store cannot be"):
        stopped_while(work)


def test_the_second_signal_does_not_interrupt_the_writing_that_the_first_began(tmp_path, monkeypatch):
    def work(stop):
        journal = Journal(tmp_path / "j", "key", stop=stop, seconds=1e9)
        journal.add("b1", [])
        journal.add("b2", [])
        os.kill(os.getpid(), signal.SIGUSR1)

    strike(monkeypatch, "vernacular.core.artifacts.replacing", number=signal.SIGTERM)
    with pytest.raises(Stopped, match="SIGUSR1: 2 finished batches are stored"):
        stopped_while(work)
    assert Journal(tmp_path / "j", "key").known == 2


def test_a_flag_alone_only_remembers():
    stop = StopFlag()
    stop.remember("SIGTERM")
    stop.remember("SIGUSR1")
    with stop.finishing():
        assert (bool(stop), stop.name) == (True, "SIGTERM")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_torch_is_imported_ends_the_job_with_the_line_of_any_other(job, number, tmp_path):
    """A torch that takes minutes to import stands for a slow disk."""
    record, paths = job
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("import time\nopen('held', 'w').close()\ntime.sleep(300)\n")
    record = {k: v for k, v in record.items() if k not in ("dtype", "device", "chat")}
    write_record(tmp_path / "m.json", record | {"contents": record_of(Path(record["folder"]))})
    command = [sys.executable, "-m", "vernacular", "infer", "--spec", '{"models": {"m": {}}}', "--models", "m.json"]
    command += ["--requests", str(paths["a"]), "--out", "asked.json", "--store", "store"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])}
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 120
        while not (tmp_path / "held").exists():
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(number)
        _, said = process.communicate(timeout=120)  # it would sleep on for minutes
    finally:
        process.kill()
    assert process.returncode == 1
    assert said == f"infer: stopped by {number.name}: finished outputs are stored; the next run resumes from there.\n"
    assert not (tmp_path / "asked.json").exists()
