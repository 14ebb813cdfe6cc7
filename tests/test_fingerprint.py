"""Fingerprints change with meaning, and with nothing else."""

import pytest
from vernacular.fingerprint import code_fingerprint, file_fingerprint, fingerprint


def test_the_order_of_keys_does_not_matter_and_that_of_lists_does():
    assert fingerprint({"a": 1, "b": [1, 2]}) == fingerprint({"b": [1, 2], "a": 1})
    assert fingerprint([1, 2]) != fingerprint([2, 1])


def test_odd_text_has_a_fingerprint():
    texts = ["", "\ud800", "مرحبا", "a\0b", "é", "e\u0301"]
    assert len({fingerprint(text) for text in texts}) == len(texts)


def test_nan_is_refused_because_it_is_not_equal_to_itself():
    with pytest.raises(ValueError, match="JSON"):
        fingerprint(float("nan"))


def test_comments_docstrings_and_layout_are_no_change_of_code(tmp_path):
    plain = tmp_path / "scorer.py"
    plain.write_text("def f(x):\n    return x + 1\n")
    before = code_fingerprint(plain)
    plain.write_text('"""Says more."""\n# why\ndef f(x):\n    """Adds one."""\n\n    return (x + 1)  # one\n')
    assert code_fingerprint(plain) == before
    plain.write_text("def f(x):\n    return x + 2\n")
    assert code_fingerprint(plain) != before


def test_a_folder_of_code_is_all_its_modules(tmp_path):
    (tmp_path / "a.py").write_text("A = 1\n")
    before = code_fingerprint(tmp_path)
    (tmp_path / "notes.txt").write_text("not code")
    assert code_fingerprint(tmp_path) == before
    (tmp_path / "b.py").write_text("B = 1\n")
    assert code_fingerprint(tmp_path) != before


def test_a_files_fingerprint_is_its_sha256(tmp_path):
    (tmp_path / "x").write_bytes(b"abc")
    expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert file_fingerprint(tmp_path / "x") == expected
