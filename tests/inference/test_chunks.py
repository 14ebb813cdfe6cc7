"""Chunked scoring of large evaluations: scores equal those of a single pass."""

import gc

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import tiny
from support.engines import score
from support.simulated_crash import CrashingJournal, SimulatedKill
from support.soak import examples
from vernacular.inference.job.store import Journal
from vernacular.inference.job.work import work_units
from vernacular.inference.schema import MemoryJournal
from vernacular.inference.scoring.prepare import PreparedRequest
from vernacular.inference.scoring.score import ChunkedRows, split_into_chunks
from vernacular.protocols.schema import REQUESTS

SHOTS = "Question: Which animal sleeps on the roof?\nAnswer: the cat\nQuestion: And who barks?\nAnswer: the dog\n"
REQUEST = 2_500  # characters as which a request counts, in addition to its text
SCORED = 32  # the same for a scored character
CHOICES = (" the cat", " the dog", " the bird on the table", " 🐦", " القطة")


def few_shot(items: int) -> list[tuple]:
    """Return choices after few-shot examples and question, and after the cue alone, as in the options protocol."""
    texts = []
    for number in range(items):
        stem = f"Question {number}: who?\nAnswer:"
        for choice in CHOICES:
            start = len(SHOTS) + len(stem)
            texts += [(SHOTS, stem + choice, start, start + len(choice)), ("", "A:" + choice, 2, 2 + len(choice))]
    return texts


def sentences(count: int) -> list[tuple]:
    return [(f"{number} {line}", 0, len(f"{number} {line}")) for number in range(count) for line in tiny.LINES[:2]]


@pytest.fixture
def set_chunk_size(low_limits):
    """Return a function that sets the chunk size so that requests are split into about `n_chunks` chunks."""

    def set_size(requests: pa.Table, n_chunks: float) -> None:
        characters = sum(len(r["prefix"]) + len(r["text"]) + REQUEST for r in requests.to_pylist())
        low_limits("inference.scoring.score", CHUNK_CHARACTERS=characters / n_chunks + 1)

    return set_size


@pytest.mark.parametrize("arch", ["llama", "bloom", "mamba", "bert"])
def test_chunked_scores_equal_single_pass(arch, set_chunk_size):
    texts = sentences(8) if arch == "bert" else few_shot(12)
    requests = tiny.score_requests(texts, extras=["entropy", "rank"] if arch == "llama" else [])
    loaded = tiny.load_model(arch)
    expected_table, expected_metadata = score(loaded, requests)
    set_chunk_size(requests, 4.5)
    table, metadata = score(loaded, requests)
    assert metadata["counters"].pop("chunks") >= 5
    assert expected_metadata["counters"].pop("chunks") == 1
    for name in table.column_names:
        expected, values = expected_table[name].to_pylist(), table[name].to_pylist()
        if name in ("logprobs", "entropy", "topk_entropy"):
            expected, values = ([v for row in column for v in row or ()] for column in (expected, values))
            assert values == pytest.approx(expected, abs=1e-4)
        else:
            assert values == expected
    assert metadata["flags"] == expected_metadata["flags"]
    assert metadata["tokenizer"] == expected_metadata["tokenizer"]
    assert metadata["engine"]["strategy"] == expected_metadata["engine"]["strategy"]
    assert metadata["engine"]["fallback"] == expected_metadata["engine"]["fallback"]
    assert metadata["counters"]["requests"] == expected_metadata["counters"]["requests"] == len(set(texts))
    assert metadata["counters"]["tokens_computed"] < 2 * expected_metadata["counters"]["tokens_computed"]


def test_memory_holds_requests_of_three_chunks(set_chunk_size):
    """While a chunk is computed, the rows of the previous one are built, and the next one is prepared."""
    requests = tiny.score_requests(few_shot(40))
    set_chunk_size(requests, 12)
    max_chunk_rows = max(map(len, split_into_chunks(requests)))
    existing = [obj for obj in gc.get_objects() if type(obj) is PreparedRequest]  # left by earlier tests
    n_alive = []

    class CountingJournal(MemoryJournal):
        def add(self, *args):
            n_alive.append(sum(type(obj) is PreparedRequest for obj in gc.get_objects()) - len(existing))
            super().add(*args)

    score(tiny.load_model(), requests, journal=CountingJournal())
    assert 0 < max(n_alive) <= 3 * max_chunk_rows < requests.num_rows / 2


def test_killed_run_resumes_in_later_chunk(tmp_path, set_chunk_size):
    requests = tiny.score_requests(few_shot(12))
    set_chunk_size(requests, 4)
    expected, expected_metadata = score(tiny.load_model(max_batch_tokens=128), requests)
    n_batches = expected_metadata["counters"]["forwards"] * 2 // 3
    journal = CrashingJournal(tmp_path / "j", n_batches)
    with pytest.raises(SimulatedKill):
        score(tiny.load_model(max_batch_tokens=128), requests, journal=journal)
    table, resumed_metadata = score(
        tiny.load_model(max_batch_tokens=128), requests, journal=Journal(tmp_path / "j", "key")
    )
    assert table.to_pylist() == expected.to_pylist()
    assert resumed_metadata["counters"]["batches_resumed"] == n_batches


def test_duplicate_request_id_across_chunks_raises(low_limits):
    requests = tiny.score_requests([("A casa é", 0, 8), ("O can", 0, 5)])
    column = requests.schema.get_field_index("request_id")
    duplicates = requests.set_column(column, "request_id", [["same", "same"]])
    low_limits("inference.scoring.score", CHUNK_CHARACTERS=1)
    assert len(split_into_chunks(duplicates)) == 2
    with pytest.raises(Exception, match="request same: two rows with this ID have different content"):
        score(tiny.load_model(), duplicates)


TEXTS = st.sampled_from(["", "a", "ab", "b", "é", "🐦🐦", "x" * 3000, "א"])


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(TEXTS, TEXTS), max_size=30), st.integers(1, 60_000), st.booleans(), st.booleans())
def test_equal_texts_share_a_chunk_within_the_size_limit(
    low_limits, texts, chunk_characters, masked, dictionary_encoded
):
    table = tiny.score_requests([(*text, 0, 1) for text in texts])
    if dictionary_encoded:  # as when read from a file
        column = table.schema.get_field_index("prefix")
        table = table.set_column(column, "prefix", table["prefix"].dictionary_encode())
    low_limits("inference.scoring.score", CHUNK_CHARACTERS=chunk_characters)
    chunks = split_into_chunks(table, masked=masked)
    assert sorted(np.concatenate(chunks).tolist()) == list(range(len(texts)))
    assert all(rows.tolist() == sorted(rows.tolist()) for rows in chunks)
    chunk_of_text = {(len(texts[row][0]), texts[row][1]): chunk for chunk, rows in enumerate(chunks) for row in rows}
    assert all(
        chunk_of_text[len(texts[row][0]), texts[row][1]] == chunk for chunk, rows in enumerate(chunks) for row in rows
    )
    sizes = [sum(map(len, texts[row])) + REQUEST + SCORED for row in range(len(texts))]
    for rows in chunks:
        distinct_texts = {(len(texts[row][0]), texts[row][1]) for row in rows}
        assert sum(sizes[row] for row in rows) <= chunk_characters or len(distinct_texts) == 1


@pytest.mark.parametrize("batch_rows", [1, 2, 3, 100])
def test_rows_of_chunks_are_read_in_parts_in_the_order_of_the_requests(low_limits, batch_rows):
    low_limits("inference.scoring.score", BATCH_ROWS=batch_rows)
    table = tiny.score_requests([(f"{number}", 0, 1) for number in range(10)])
    rows = ChunkedRows()
    for numbers in ([2, 3, 4, 8], [0, 9], [1, 5, 6, 7]):
        parts = pa.concat_tables([table.take(numbers[:1]), table.take(numbers[1:])])  # of more than one piece
        rows.append(parts, np.array(numbers))
    assert len(rows) == 10
    for size in (1, 3, 4, 10):
        read = [rows[start : start + size].to_pylist() for start in range(0, 10, size)]
        assert [row for part in read for row in part] == table.to_pylist()
    assert rows.slice(3, 4).to_pylist() == rows[3:7].to_pylist() == table.slice(3, 4).to_pylist()
    assert rows.slice().to_pylist() == table.to_pylist()
    assert rows.slice(10).num_rows == 0


def test_repeated_texts_of_requests_are_dictionary_encoded_when_read(tmp_path):
    requests = tiny.score_requests(few_shot(2))
    path = tiny.write_requests(tmp_path / "e.parquet", requests)
    [unit] = work_units(tiny.record("llama"), {"e": path})
    table = unit.requests()
    assert table.to_pylist() == requests.to_pylist()
    encoded = {field.name for field in table.schema if pa.types.is_dictionary(field.type)}
    assert {"role", "kind", "prefix"} <= encoded < {*REQUESTS.schema.names}
