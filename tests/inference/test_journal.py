"""Journal in memory, for runs without a store."""

from vernacular.inference.schema import MemoryJournal


def test_memory_journal_returns_added_rows():
    journal = MemoryJournal()
    assert journal.get("b1") is None
    journal.add("b1", [{"a": 1.5}])
    journal.flush()
    assert journal.get("b1") == [{"a": 1.5}]
