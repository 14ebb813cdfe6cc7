"""The adapter of the quickstart: its size, and that its training text shares nothing with the samples."""

import re
from pathlib import Path

import pytest
import yaml
from support.workspace import ROOT
from vernacular.checkpoints.files import find_in_package
from vernacular.core.errors import ModelError

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


def test_config_of_the_quickstart_names_the_adapter_wherever_the_workflow_is_installed():
    models = yaml.safe_load((ROOT / "config" / "config.yaml").read_text("utf-8"))["models"]
    [source] = [model["adapter"] for model in models.values() if "adapter" in model]
    assert find_in_package(source) == ADAPTER
    with pytest.raises(ModelError, match="samples/other not found in the Python package vernacular"):
        find_in_package("package:vernacular/samples/other")


def test_adapter_has_at_most_a_megabyte():
    assert sum(path.stat().st_size for path in ADAPTER.glob("adapter_*")) < 1_000_000
