"""Fingerprints change with meaning, and with nothing else."""

import pytest
from vernacular.core.fingerprint import file_fingerprint, fingerprint


def test_the_order_of_keys_does_not_matter_and_that_of_lists_does():
    assert fingerprint({"a": 1, "b": [1, 2]}) == fingerprint({"b": [1, 2], "a": 1})
    assert fingerprint([1, 2]) != fingerprint([2, 1])


def test_odd_text_has_a_fingerprint():
    texts = ["", "\ud800", "مرحبا", "a\0b", "é", "e\u0301"]
    assert len({fingerprint(text) for text in texts}) == len(texts)


def test_nan_is_refused_because_it_is_not_equal_to_itself():
    with pytest.raises(ValueError, match="JSON"):
        fingerprint(float("nan"))


def test_a_files_fingerprint_is_its_sha256(tmp_path):
    (tmp_path / "x").write_bytes(b"abc")
    expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert file_fingerprint(tmp_path / "x") == expected
