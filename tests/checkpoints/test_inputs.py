"""Files of a checkpoint: every file that a library reads is downloaded, fingerprinted and verified."""

import json
import os
import re
import shutil
import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
import torch
import transformers
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Pooling, Transformer
from support import lora_training, observed, tiny
from support.damaged import flip_byte
from support.hub_server import environment
from vernacular.checkpoints import inputs
from vernacular.checkpoints.adapters import resolve_adapter
from vernacular.checkpoints.resolve import resolve
from vernacular.core.errors import ModelError
from vernacular.core.model_record import ModelRecord

# for each pattern, a file name that matches only this pattern
PATTERN_EXAMPLES = {
    "*.json": "added_tokens.json",
    "*.safetensors": "model.safetensors",
    "*.model": "tokenizer.model",
    "*.model.*": "tokenizer.model.v3",
    "*.txt": "merges.txt",
    "*.jinja": "chat_template.jinja",
    "*.codes": "bpe.codes",
    "*.spm": "source.spm",
    "*.tiktoken": "qwen.tiktoken",
    "*.tokenizer": "prophetnet.tokenizer",
}


@pytest.fixture(scope="module")
def full_checkpoint(tmp_path_factory):
    directory = tmp_path_factory.mktemp("whole") / "llama"
    tiny.save("llama", directory)
    for name in [
        *PATTERN_EXAMPLES.values(),
        "vocab.txt",
        "spiece.model",
        "special_tokens_map.json",
        "generation_config.json",
    ]:
        if not (directory / name).exists():
            (directory / name).write_text("{}")
    (directory / "additional_chat_templates").mkdir()
    (directory / "additional_chat_templates" / "rag.jinja").write_text("{{ messages }}")
    return directory


@pytest.fixture
def checkpoint(full_checkpoint, tmp_path):
    return Path(shutil.copytree(full_checkpoint, tmp_path / "model"))


def test_pattern_examples_match_exactly_one_pattern():
    assert PATTERN_EXAMPLES.keys() == set(inputs.PATTERNS)
    for pattern, name in PATTERN_EXAMPLES.items():
        assert [p for p in inputs.PATTERNS if fnmatchcase(name, p)] == [pattern]


@pytest.mark.parametrize(
    "name",
    [*PATTERN_EXAMPLES.values(), "vocab.txt", "spiece.model", "special_tokens_map.json", "tokenizer.json", "config.json",
     "tokenizer_config.json", "generation_config.json", "additional_chat_templates/rag.jinja"],
)  # fmt: skip
def test_modified_file_is_stale_and_changes_identity(checkpoint, name):
    original = inputs.record_of(checkpoint)
    assert name in original.files
    flip_byte(checkpoint / name)
    assert inputs.stale(ModelRecord(name="m", contents=original)) == [str(checkpoint / name)]
    updated = inputs.record_of(checkpoint, known=original)
    assert inputs.identity(updated) != inputs.identity(original)
    assert {n for n in updated.files if updated.files[n] is not original.files[n]} == {name}


@pytest.mark.parametrize("name", ["vocab.txt", "chat_template.jinja", "additional_chat_templates/rag.jinja"])
def test_removed_or_added_file_is_a_difference(checkpoint, name):
    original = inputs.record_of(checkpoint)
    (checkpoint / name).rename(checkpoint / "away")
    reduced = inputs.record_of(checkpoint)
    assert inputs.differences(original) == [name]
    (checkpoint / "away").rename(checkpoint / name)
    assert inputs.differences(reduced) == [name]


def test_files_without_effect_are_excluded(checkpoint):
    for name in (
        "optimizer.pt",
        "training_args.bin",
        "pytorch_model.bin",
        "README.md",
        "run.py",
        "checkpoint-5/x.json",
    ):
        (checkpoint / name).parent.mkdir(exist_ok=True)
        (checkpoint / name).write_text("{}")
    ignored = {"optimizer.pt", "training_args.bin", "pytorch_model.bin", "README.md", "run.py", "checkpoint-5/x.json"}
    assert not ignored & set(inputs.files_of(checkpoint))
    assert "pytorch_model.bin" in inputs.files_of(checkpoint, allow_pickle=True)
    assert {"run.py"} == set(inputs.files_of(checkpoint, code=True)) & ignored
    (checkpoint / "model.safetensors").unlink()
    assert "pytorch_model.bin" in inputs.files_of(checkpoint), "pickled weights are included if there are no others"


def test_code_in_subpackages_is_included_if_trusted(checkpoint):
    (checkpoint / "custom_generate").mkdir()
    (checkpoint / "custom_generate" / "generate.py").touch()
    assert "custom_generate/generate.py" in inputs.files_of(checkpoint, code=True)


def test_weights_referenced_by_index_or_config_are_included(checkpoint):
    (checkpoint / "part").mkdir()
    (checkpoint / "part" / "1.dat").write_text("x")
    (checkpoint / "part" / "2.dat").write_text("x")
    (checkpoint / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "part/1.dat"}}))
    config = json.loads((checkpoint / "config.json").read_text())
    (checkpoint / "config.json").write_text(json.dumps(config | {"transformers_weights": "part/2.dat"}))
    assert {"part/1.dat", "part/2.dat"} <= set(inputs.files_of(checkpoint))


def test_identity_depends_only_on_names_and_contents(checkpoint, tmp_path):
    copy = Path(shutil.copytree(checkpoint, tmp_path / "elsewhere"))
    os.utime(copy / "config.json", ns=(1, 1))
    assert inputs.identity(inputs.record_of(copy)) == inputs.identity(inputs.record_of(checkpoint))
    (copy / "vocab.txt").rename(copy / "other.txt")
    assert inputs.identity(inputs.record_of(copy)) != inputs.identity(inputs.record_of(checkpoint))


def test_hashes_of_another_directory_are_not_reused(checkpoint, tmp_path):
    known = inputs.record_of(checkpoint)
    copy = Path(shutil.copytree(checkpoint, tmp_path / "elsewhere"))
    record = inputs.record_of(copy, known=known)
    assert all(record.files[name] is not known.files[name] for name in known.files)


def test_all_vocab_file_names_of_transformers_match_a_pattern():
    vocab_files = set()
    root = Path(transformers.__file__).parent
    for path in [*root.glob("models/*/tokenization_*.py"), *root.glob("tokenization*.py")]:
        for block in re.findall(r"VOCAB_FILES_NAMES[^=\n]*=\s*\{(.*?)\}", path.read_text("utf-8"), re.DOTALL):
            vocab_files |= set(re.findall(r':\s*"([^"/]+)"', block))
    assert {"vocab.txt", "merges.txt", "bpe.codes", "spiece.model"} <= vocab_files
    uncovered = {n for n in vocab_files if not any(fnmatchcase(n, p) for p in inputs.PATTERNS)}
    assert uncovered == set()


def test_all_files_opened_by_loading_are_included(checkpoint, tmp_path):
    """Compare with the files that loading a model and its tokenizer opens, as reported by an audit hook."""
    encoder = tmp_path / "encoder"
    transformer = Transformer(str(checkpoint))
    width = transformer.get_embedding_dimension()
    SentenceTransformer(
        modules=[transformer, Pooling(width, "mean"), Dense(width, 4, activation_function=torch.nn.Tanh())],
        device="cpu",
    ).save(str(encoder))
    for root, load in ((checkpoint, load_model), (encoder, lambda path: SentenceTransformer(str(path), device="cpu"))):
        opened = files_opened_by(load, root)
        assert "config.json" in opened
        assert opened - set(inputs.files_of(root)) - {"README.md"} == set()  # a model card
    assert {"modules.json", "1_Pooling/config.json", "2_Dense/config.json", "2_Dense/model.safetensors"} <= set(
        inputs.files_of(encoder)
    )


def load_model(path):
    transformers.AutoTokenizer.from_pretrained(path)
    transformers.AutoModelForCausalLM.from_pretrained(path)


def files_opened_by(load, root: Path) -> set[str]:
    opened = set()
    active = True

    def record_open(event, arguments):
        if active and event == "open" and isinstance(arguments[0], str | os.PathLike):
            path = Path(arguments[0])
            if path.is_absolute() and path.is_relative_to(root) and path.is_file():
                opened.add(path.relative_to(root).as_posix())

    sys.addaudithook(record_open)  # for the rest of the process; idle after this
    try:
        load(root)
    finally:
        active = False
    return opened


def test_file_name_that_is_not_utf8_is_rejected(checkpoint):
    (checkpoint / os.fsdecode(b"\xff.json")).write_text("{}")
    with pytest.raises(ModelError, match=r"is not valid UTF-8. Rename it"):
        inputs.files_of(checkpoint)


def test_modules_outside_of_the_directory_are_rejected(checkpoint):
    (checkpoint / "modules.json").write_text(json.dumps([{"path": "../"}]))
    with pytest.raises(ModelError, match=r"modules\.json: .* is outside the model's directory"):
        inputs.files_of(checkpoint)


def test_known_hashes_are_reused_on_second_resolve(checkpoint, tmp_path):
    with observed.opened_files(checkpoint) as opened:
        first = resolve("m", str(checkpoint), tmp_path)
        n_opened = opened.count("merges.txt")
        assert resolve("m", str(checkpoint), tmp_path, known=first) == first
    assert opened.count("merges.txt") == 2 * n_opened - 1, "its known hash is reused"


def test_adapter_fingerprint_changes_with_its_files(checkpoint, tmp_path):
    adapter = lora_training.train(checkpoint, tmp_path / "adapter", steps=1)
    base = resolve("b", str(checkpoint), tmp_path)
    original = resolve_adapter("a", str(adapter), base)
    assert original.contents == base.contents
    assert inputs.stale(original) == []
    flip_byte(adapter / "adapter_model.safetensors")
    assert inputs.stale(original) == [str(adapter / "adapter_model.safetensors")]
    with observed.opened_files(adapter) as opened:
        updated = resolve_adapter("a", str(adapter), base, known=original)
        assert updated.fingerprint != original.fingerprint
        n_opened = opened.count("adapter_model.safetensors")
        assert resolve_adapter("a", str(adapter), base, known=updated) == updated
    assert opened.count("adapter_model.safetensors") == 2 * n_opened - 1, "its known hash is reused"


def test_hub_download_fetches_exactly_the_pattern_files(hub, tmp_path):
    names = {
        **PATTERN_EXAMPLES,
        "*.bin": "pytorch_model.bin",
        "*.py": "modeling.py",
        "in": "additional_chat_templates/a.jinja",
    }
    assert set(inputs.download_patterns(allow_pickle=True, code=True)) == names.keys() - {"in"}
    hub.add("owner/model", {name: "x" for name in [*names.values(), "README.md", "optimizer.pt"]})
    code = (
        "from vernacular.checkpoints.resolve import locate\n"
        "for options in ({}, {'allow_pickle': True, 'code': True}):\n"
        "    directory, _, _ = locate('owner/model', **options)\n"
        "    print(*sorted(str(f.relative_to(directory)) for f in directory.rglob('*') if f.is_file()))"
    )
    env = environment(hub.address, tmp_path)
    process = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    default_files, all_files = (set(line.split()) for line in process.stdout.splitlines())
    assert all_files == set(names.values())
    assert default_files == all_files - {"pytorch_model.bin", "modeling.py"}


def test_changed_single_file_is_stale(tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF" + bytes(100))
    record = inputs.record_of(path)
    assert record.root == str(path.resolve())
    assert inputs.differences(record) == []
    identity = inputs.identity(record)
    flip_byte(path)
    assert inputs.stale(ModelRecord(name="m", contents=record)) == [str(path)]
    assert inputs.identity(inputs.record_of(path)) != identity
    path.unlink()
    assert inputs.differences(record) == ["."]


@pytest.mark.parametrize(
    ("listing", "name"), [({"code": True}, "modeling_custom.py"), ({"allow_pickle": True}, "pytorch_model.bin")]
)
def test_record_includes_code_and_pickled_weights_if_allowed(checkpoint, listing, name):
    (checkpoint / name).write_text("first")
    assert name not in inputs.record_of(checkpoint).files
    record = inputs.record_of(checkpoint, **listing)
    assert name in record.files
    assert inputs.differences(record) == []
    (checkpoint / name).write_text("other")
    assert inputs.differences(record) == [name]


def test_source_of_a_converted_checkpoint_is_stale_if_it_changed(checkpoint, tmp_path):
    source = tmp_path / "source.e5s1"
    source.write_bytes(b"source")
    contents = {"contents": inputs.record_of(checkpoint), "source_contents": inputs.record_of(source)}
    record = ModelRecord(name="m", **contents)
    assert inputs.stale(record) == []
    source.write_bytes(b"Source")
    assert inputs.stale(record) == [str(source)]
