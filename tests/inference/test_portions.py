"""Evaluations too large to be asked at once: portion after portion, the answers of one piece."""

import gc

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import tiny
from support.killing import Killed, dying_journal
from support.soak import examples
from vernacular.inference.job.store import Journal
from vernacular.inference.journal import MemoryJournal
from vernacular.inference.scoring import prepare as cutting
from vernacular.inference.scoring.prepare import Prepared, portions, together
from vernacular.inference.scoring.score import score

SHOTS = "Question: Which animal sleeps on the roof?\nAnswer: the cat\nQuestion: And who barks?\nAnswer: the dog\n"
OPTIONS = (" the cat", " the dog", " the bird on the table", " 🐦", " القطة")


def few_shot(items: int) -> list[tuple]:
    """Options after few-shot block and question, and after the cue alone, as the options protocol asks them."""
    texts = []
    for number in range(items):
        stem = f"Question {number}: who?\nAnswer:"
        for option in OPTIONS:
            start = len(SHOTS) + len(stem)
            texts += [(SHOTS, stem + option, start, start + len(option)), ("", "A:" + option, 2, 2 + len(option))]
    return texts


def sentences(count: int) -> list[tuple]:
    return [(f"{number} {line}", 0, len(f"{number} {line}")) for number in range(count) for line in tiny.LINES[:2]]


def small(monkeypatch, requests: pa.Table, parts: float) -> None:
    """Portions that make about so many of the requests."""
    characters = sum(len(r["prefix"]) + len(r["text"]) + cutting._OWN for r in requests.to_pylist())
    monkeypatch.setattr(cutting, "PORTION", characters / parts + 1)


@pytest.mark.parametrize("arch", ["llama", "bloom", "mamba", "bert"])
def test_portions_give_the_answers_of_one_piece(arch, monkeypatch):
    texts = sentences(8) if arch == "bert" else few_shot(12)
    requests = tiny.score_requests(texts, extras=["entropy", "rank"] if arch == "llama" else [])
    loaded = tiny.loaded(arch)
    whole, facts = score(loaded, requests)
    small(monkeypatch, requests, 4.5)
    table, found = score(loaded, requests)
    assert found["counters"].pop("portions") >= 5
    assert facts["counters"].pop("portions") == 1
    for name in table.column_names:
        one, many = whole[name].to_pylist(), table[name].to_pylist()
        if name in ("logprobs", "entropy", "topk_entropy"):
            one, many = ([v for values in column for v in values or ()] for column in (one, many))
            assert many == pytest.approx(one, abs=1e-4)
        else:
            assert many == one
    assert found["flags"] == facts["flags"]
    assert found["tokenizer"] == facts["tokenizer"]
    assert found["engine"]["strategy"] == facts["engine"]["strategy"]
    assert found["engine"]["fallback"] == facts["engine"]["fallback"]
    assert found["counters"]["requests"] == facts["counters"]["requests"] == len(set(texts))
    assert found["counters"]["tokens_computed"] < 2 * facts["counters"]["tokens_computed"]  # portions of some dozen


def test_no_more_requests_are_objects_than_a_portion_has(monkeypatch):
    requests = tiny.score_requests(few_shot(40))
    small(monkeypatch, requests, 8)
    largest = max(map(len, portions(requests)))
    others = [each for each in gc.get_objects() if type(each) is Prepared]  # what tests before this one left
    alive = []
    add = MemoryJournal.add

    def counted(self, *given):
        alive.append(sum(type(each) is Prepared for each in gc.get_objects()) - len(others))
        add(self, *given)

    monkeypatch.setattr(MemoryJournal, "add", counted)
    score(tiny.loaded(), requests)
    assert 0 < max(alive) <= largest < requests.num_rows / 4


def test_a_kill_in_a_later_portion_resumes_to_the_very_same_numbers(tmp_path, monkeypatch):
    requests = tiny.score_requests(few_shot(12))
    small(monkeypatch, requests, 4)
    expected, whole = score(tiny.loaded(max_batch_tokens=128), requests)
    after = whole["counters"]["forwards"] * 2 // 3
    journal = dying_journal(tmp_path / "j", monkeypatch, after=after)
    with pytest.raises(Killed):
        score(tiny.loaded(max_batch_tokens=128), requests, journal=journal)
    found, resumed = score(tiny.loaded(max_batch_tokens=128), requests, journal=Journal(tmp_path / "j", "key"))
    assert found.to_pylist() == expected.to_pylist()
    assert resumed["counters"]["batches_resumed"] == after


def test_one_id_for_two_requests_is_refused_across_portions(monkeypatch):
    requests = tiny.score_requests([("A casa é", 0, 8), ("O can", 0, 5)])
    column = requests.schema.get_field_index("request_id")
    twins = requests.set_column(column, "request_id", [["same", "same"]])
    monkeypatch.setattr(cutting, "PORTION", 1)
    assert len(portions(twins)) == 2
    with pytest.raises(Exception, match="request same: two rows with this ID have different content"):
        score(tiny.loaded(), twins)


TEXTS = st.sampled_from(["", "a", "ab", "b", "é", "🐦🐦", "x" * 3000, "א"])


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.tuples(TEXTS, TEXTS), max_size=30), st.integers(1, 60_000), st.booleans(), st.booleans())
def test_each_row_is_in_one_portion_with_its_equals_and_none_is_too_large(texts, limit, masked, coded):
    table = tiny.score_requests([(*text, 0, 1) for text in texts])
    if coded:  # as it is read from a file
        place = table.schema.get_field_index("prefix")
        table = table.set_column(place, "prefix", table["prefix"].dictionary_encode())
    before, cutting.PORTION = cutting.PORTION, limit
    try:
        cut = portions(table, masked=masked)
    finally:
        cutting.PORTION = before
    assert sorted(np.concatenate(cut).tolist()) == list(range(len(texts)))
    assert all(rows.tolist() == sorted(rows.tolist()) for rows in cut)
    of = {(len(texts[row][0]), texts[row][1]): part for part, rows in enumerate(cut) for row in rows}
    assert all(of[len(texts[row][0]), texts[row][1]] == part for part, rows in enumerate(cut) for row in rows)
    one = [sum(map(len, texts[row])) + cutting._OWN for row in range(len(texts))]
    for rows in cut:
        kinds = {(len(texts[row][0]), texts[row][1]) for row in rows}
        assert sum(one[row] for row in rows) <= limit or len(kinds) == 1
    assert together([table.take(rows) for rows in cut], cut).to_pylist() == table.to_pylist()
