"""The adapter of the quickstart: its size, and that its training text shares nothing with the samples."""

import re
from pathlib import Path

from support.workspace import ROOT

SAMPLES = ROOT / "workflow" / "samples"
ADAPTER = SAMPLES / "galician_adapter"
LENGTH = 5  # words of a shared sequence


def sequences(text: str) -> set[tuple[str, ...]]:
    words = re.findall(r"\w+", text.lower())
    return {tuple(words[i : i + LENGTH]) for i in range(len(words) - LENGTH + 1)}


def sample_files() -> list[Path]:
    return [path for path in SAMPLES.rglob("*") if path.parent.name == "gl" and path.is_file()]


def test_training_text_shares_no_word_sequence_with_galician_samples():
    training = sequences((ADAPTER / "text.txt").read_text("utf-8"))
    assert len(training) > 15_000
    files = sample_files()
    assert len(files) > 5
    for path in files:
        assert not training & sequences(path.read_text("utf-8")), path


def test_adapter_has_at_most_a_megabyte():
    assert sum(path.stat().st_size for path in ADAPTER.glob("adapter_*")) < 1_000_000
