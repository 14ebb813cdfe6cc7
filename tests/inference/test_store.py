import os
import signal

import pyarrow as pa
import pytest
import tiny
from vernacular.core.errors import ArtifactError
from vernacular.core.signals import Stopped, stoppable
from vernacular.inference import keys
from vernacular.inference.keys import evaluation_key
from vernacular.inference.schema import GENERATIONS, SCORES
from vernacular.inference.store import Journal, Store

pytestmark = pytest.mark.usefixtures("heard_signals")

REQUESTS = pa.table({"item_id": ["a", "b"], "role": ["choice:0", "choice:0"], "request_id": ["r1", "r2"]})
ROW = {"logprobs": [-0.1, -12.345678710937500, None], "flag": None}


def finished_table() -> pa.Table:
    row = {name: None for name in SCORES.schema.names}
    return pa.Table.from_pylist(
        [{**row, "request_id": "r1", "item_id": "a", "role": "good", "logprobs": [-1.5]}], schema=SCORES.schema
    )


def test_key_ignores_row_order_and_options_that_change_no_number():
    key = evaluation_key(tiny.record("llama"), REQUESTS, SCORES)
    assert key == evaluation_key(tiny.record("llama", device="cuda", batch_tokens=8), REQUESTS.take([1, 0]), SCORES)


@pytest.mark.parametrize(
    "option",
    [{"trust_remote_code": True}, {"dtype": "bfloat16"}, {"bos": "never"}, {"fingerprint": "x"}, {"chat": True}],
)
def test_key_changes_with_an_option_that_changes_numbers(option):
    key = evaluation_key(tiny.record("llama"), REQUESTS, SCORES)
    assert key != evaluation_key(tiny.record("llama", **option), REQUESTS, SCORES)
    assert key != evaluation_key(tiny.record("llama"), REQUESTS, GENERATIONS)


@pytest.mark.parametrize(
    ("library", "kind", "option"),
    [
        ("vllm", GENERATIONS, {"engine": "vllm"}),
        ("peft", SCORES, {"adapter": {"folder": "a"}}),
        ("bitsandbytes", SCORES, {"quantization": {"load_in_8bit": True}}),
    ],
)
def test_key_changes_with_the_version_of_a_library_that_this_model_needs(library, kind, option, monkeypatch):
    installed = keys.version

    def both(number):
        monkeypatch.setattr(keys, "version", lambda name: number if name == library else installed(name))
        return [evaluation_key(tiny.record("llama", **more), REQUESTS, kind) for more in (option, {})]

    (old, plain), (new, same) = both("1.0"), both("1.1")
    assert old != new
    assert plain == same, "a model that needs it not is not asked again"


def test_finished_evaluation_comes_back_and_its_journal_is_gone(tmp_path):
    store = Store(tmp_path)
    store.journal("k" * 40).add("b1", [ROW])
    store.put("k" * 40, SCORES, finished_table(), {"counters": {"forwards": 2}})
    table, metadata = store.get("k" * 40, SCORES)
    assert table.column("logprobs").to_pylist() == [[-1.5]]
    assert metadata["counters"] == {"forwards": 2}
    assert not (tmp_path / "journal" / ("k" * 40)).exists()


def test_damaged_or_foreign_evaluation_counts_as_none(tmp_path, caplog):
    store = Store(tmp_path)
    path = store.put("k" * 40, SCORES, finished_table(), {})
    other = store.path("f" * 40, SCORES)
    other.parent.mkdir(parents=True)
    other.write_bytes(path.read_bytes())
    assert store.get("f" * 40, SCORES) is None
    path.write_bytes(path.read_bytes()[:-20])
    assert store.get("k" * 40, SCORES) is None
    assert "another evaluation" in caplog.text
    assert "damaged" in caplog.text


def test_journal_gives_batches_back_bit_for_bit(tmp_path):
    journal = Journal(tmp_path / "j", "key", seconds=0)
    journal.add("b1", [ROW])
    journal.add("b2", [])
    again = Journal(tmp_path / "j", "key")
    assert again.done("b1") == [ROW]
    assert again.done("b2") == []
    assert again.done("b3") is None


def test_unwritten_batches_are_lost_and_the_written_kept(tmp_path):
    journal = Journal(tmp_path / "j", "key", seconds=1e9)
    journal.add("b1", [ROW])
    journal.flush()
    journal.add("b2", [ROW])
    again = Journal(tmp_path / "j", "key")
    assert (again.done("b1"), again.done("b2")) == ([ROW], None)


def test_parts_are_written_after_1_2_4_seconds_and_then_at_the_usual_pace(tmp_path, monkeypatch):
    now = 0.0
    monkeypatch.setattr("vernacular.inference.store.time.monotonic", lambda: now)
    journal = Journal(tmp_path / "j", "key", seconds=5)
    written = []
    for second in range(1, 20):
        now = float(second)
        parts = len(list((tmp_path / "j").glob("*.part")))
        journal.add(f"b{second}", [])
        if len(list((tmp_path / "j").glob("*.part"))) > parts:
            written.append(second)
    assert written == [1, 3, 7, 12, 17]


@pytest.mark.parametrize("cut", [0, 10, 32, -1])
def test_torn_part_is_dropped_with_a_note(tmp_path, cut):
    journal = Journal(tmp_path / "j", "key", seconds=0)
    journal.add("b1", [ROW])
    journal.add("b2", [ROW])
    last = sorted((tmp_path / "j").iterdir())[-1]
    last.write_bytes(last.read_bytes()[:cut])
    again = Journal(tmp_path / "j", "key")
    assert (again.done("b1"), again.done("b2")) == ([ROW], None)
    assert "torn or damaged" in again.notes[0]


def test_part_of_another_key_is_dropped_with_a_note(tmp_path):
    Journal(tmp_path / "j", "other", seconds=0).add("b1", [ROW])
    again = Journal(tmp_path / "j", "key")
    assert again.done("b1") is None
    assert "of another evaluation" in again.notes[0]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_signal_writes_everything_down_and_stops(tmp_path, number):
    handler = signal.getsignal(number)
    with stoppable() as stop:
        journal = Journal(tmp_path / "j", "key", stop=stop, seconds=1e9)
        journal.add("b1", [ROW])
        os.kill(os.getpid(), number)
        with pytest.raises(Stopped, match="2 finished batches are kept"):
            journal.add("b2", [ROW])
    assert signal.getsignal(number) == handler
    assert Journal(tmp_path / "j", "key").done("b2") == [ROW]


def test_a_second_signal_does_not_end_what_writes_down_its_answers_but_ctrl_c_does(tmp_path):
    with stoppable() as stop:
        for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGTERM):
            os.kill(os.getpid(), number)
        with pytest.raises(Stopped, match="stopped by SIGUSR1: 1 finished batches are kept"):
            Journal(tmp_path / "j", "key", stop=stop, seconds=1e9).add("b1", [ROW])
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_store_that_cannot_be_written_is_a_plain_sentence(tmp_path):
    (tmp_path / "store").write_text("a file where a folder should be")
    with pytest.raises(ArtifactError, match="the store cannot be written"):
        Store(tmp_path / "store").put("k" * 40, SCORES, finished_table(), {})
    with pytest.raises(ArtifactError, match="the store cannot be written"):
        Store(tmp_path / "store").journal("k", seconds=0).add("b", [ROW])
