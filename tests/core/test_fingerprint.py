"""Fingerprints of values and files."""

import pytest
from vernacular.core.fingerprint import file_fingerprint, fingerprint


def test_key_order_is_ignored_and_list_order_is_not():
    assert fingerprint({"a": 1, "b": [1, 2]}) == fingerprint({"b": [1, 2], "a": 1})
    assert fingerprint([1, 2]) != fingerprint([2, 1])


def test_unusual_texts_have_distinct_fingerprints():
    texts = ["", "\ud800", "مرحبا", "a\0b", "é", "e\u0301"]
    assert len({fingerprint(text) for text in texts}) == len(texts)


def test_nan_is_rejected():
    with pytest.raises(ValueError, match="JSON"):
        fingerprint(float("nan"))


def test_file_fingerprint_is_sha256(tmp_path):
    (tmp_path / "x").write_bytes(b"abc")
    expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert file_fingerprint(tmp_path / "x") == expected
