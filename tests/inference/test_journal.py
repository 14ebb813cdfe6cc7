"""A journal for runs without a store."""

from vernacular.inference.journal import MemoryJournal


def test_a_journal_in_memory_gives_back_what_it_was_given():
    journal = MemoryJournal()
    assert journal.done("b1") is None
    journal.add("b1", [{"a": 1.5}])
    journal.flush()
    assert journal.done("b1") == [{"a": 1.5}]
