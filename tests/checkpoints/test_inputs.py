"""Which files a checkpoint is: every file that a library reads from it is fetched, fingerprinted and verified."""

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
from support import adapting, tiny
from support.hub_server import environment
from vernacular.checkpoints import inputs
from vernacular.checkpoints.adapters import resolve_adapter
from vernacular.checkpoints.resolve import resolve
from vernacular.core.errors import ModelError

# a file that this pattern alone matches, per pattern
ONE_EACH = {
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
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "llama"
    tiny.save("llama", folder)
    for name in [*ONE_EACH.values(), "vocab.txt", "spiece.model", "special_tokens_map.json", "generation_config.json"]:
        if not (folder / name).exists():
            (folder / name).write_text("{}")
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "rag.jinja").write_text("{{ messages }}")
    return folder


@pytest.fixture
def folder(whole, tmp_path):
    return Path(shutil.copytree(whole, tmp_path / "model"))


def edit(path: Path) -> None:
    """Change one byte, leaving size and modification time."""
    before = path.stat()
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    with open(path, "r+b") as file:
        file.write(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_every_pattern_has_a_file_that_it_alone_matches():
    assert ONE_EACH.keys() == set(inputs.PATTERNS)
    for pattern, name in ONE_EACH.items():
        assert [p for p in inputs.PATTERNS if fnmatchcase(name, p)] == [pattern]


@pytest.mark.parametrize(
    "name",
    [*ONE_EACH.values(), "vocab.txt", "spiece.model", "special_tokens_map.json", "tokenizer.json", "config.json",
     "tokenizer_config.json", "generation_config.json", "additional_chat_templates/rag.jinja"],
)  # fmt: skip
def test_an_edit_of_any_file_is_noticed_and_is_another_model(folder, name):
    before = inputs.record_of(folder)
    assert name in before["files"]
    edit(folder / name)
    assert inputs.stale({"contents": before}) == [str(folder / name)]
    after = inputs.record_of(folder, known=before)
    assert inputs.identity(after) != inputs.identity(before)
    assert {n for n in after["files"] if after["files"][n] is not before["files"][n]} == {name}


@pytest.mark.parametrize("name", ["vocab.txt", "chat_template.jinja", "additional_chat_templates/rag.jinja"])
def test_a_file_that_is_removed_or_added_is_noticed(folder, name):
    before = inputs.record_of(folder)
    (folder / name).rename(folder / "away")
    without = inputs.record_of(folder)
    assert inputs.differences(before) == [name]
    (folder / "away").rename(folder / name)
    assert inputs.differences(without) == [name]


def test_what_decides_nothing_is_not_hashed(folder):
    for name in (
        "optimizer.pt",
        "training_args.bin",
        "pytorch_model.bin",
        "README.md",
        "run.py",
        "checkpoint-5/x.json",
    ):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("{}")
    unread = {"optimizer.pt", "training_args.bin", "pytorch_model.bin", "README.md", "run.py", "checkpoint-5/x.json"}
    assert not unread & set(inputs.files_of(folder))
    assert "pytorch_model.bin" in inputs.files_of(folder, allow_pickle=True)
    assert {"run.py"} == set(inputs.files_of(folder, code=True)) & unread
    (folder / "model.safetensors").unlink()
    assert "pytorch_model.bin" in inputs.files_of(folder), "where there are no others, they may be read"


def test_code_in_packages_of_the_folder_counts_if_it_is_trusted(folder):
    (folder / "custom_generate").mkdir()
    (folder / "custom_generate" / "generate.py").touch()
    assert "custom_generate/generate.py" in inputs.files_of(folder, code=True)


def test_weights_that_an_index_or_the_config_names_elsewhere_count(folder):
    (folder / "part").mkdir()
    (folder / "part" / "1.dat").write_text("x")
    (folder / "part" / "2.dat").write_text("x")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "part/1.dat"}}))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"transformers_weights": "part/2.dat"}))
    assert {"part/1.dat", "part/2.dat"} <= set(inputs.files_of(folder))


def test_the_identity_is_of_names_and_contents_alone(folder, tmp_path):
    copy = Path(shutil.copytree(folder, tmp_path / "elsewhere"))
    os.utime(copy / "config.json", ns=(1, 1))
    assert inputs.identity(inputs.record_of(copy)) == inputs.identity(inputs.record_of(folder))
    (copy / "vocab.txt").rename(copy / "other.txt")
    assert inputs.identity(inputs.record_of(copy)) != inputs.identity(inputs.record_of(folder))


def test_hashes_of_another_folder_are_not_reused(folder, tmp_path):
    known = inputs.record_of(folder)
    copy = Path(shutil.copytree(folder, tmp_path / "elsewhere"))
    fresh = inputs.record_of(copy, known=known)
    assert all(fresh["files"][name] is not known["files"][name] for name in known["files"])


def test_every_file_that_transformers_knows_a_tokenizer_by_is_covered():
    named = set()
    root = Path(transformers.__file__).parent
    for path in [*root.glob("models/*/tokenization_*.py"), *root.glob("tokenization*.py")]:
        for block in re.findall(r"VOCAB_FILES_NAMES[^=\n]*=\s*\{(.*?)\}", path.read_text("utf-8"), re.DOTALL):
            named |= set(re.findall(r':\s*"([^"/]+)"', block))
    assert {"vocab.txt", "merges.txt", "bpe.codes", "spiece.model"} <= named
    uncovered = {n for n in named if not any(fnmatchcase(n, p) for p in inputs.PATTERNS)}
    assert uncovered == set()


def test_every_file_that_loading_opens_is_covered(folder, tmp_path):
    """The files that loading a model and its tokenizer opens, as the interpreter reports them."""
    encoder = tmp_path / "encoder"
    whole = Transformer(str(folder))
    width = whole.get_embedding_dimension()
    SentenceTransformer(
        modules=[whole, Pooling(width, "mean"), Dense(width, 4, activation_function=torch.nn.Tanh())], device="cpu"
    ).save(str(encoder))
    for root, load in ((folder, read_model), (encoder, lambda path: SentenceTransformer(str(path), device="cpu"))):
        opened = opened_by(load, root)
        assert "config.json" in opened
        assert opened - set(inputs.files_of(root)) - {"README.md"} == set()  # a model card
    assert {"modules.json", "1_Pooling/config.json", "2_Dense/config.json", "2_Dense/model.safetensors"} <= set(
        inputs.files_of(encoder)
    )


def read_model(path):
    transformers.AutoTokenizer.from_pretrained(path)
    transformers.AutoModelForCausalLM.from_pretrained(path)


def opened_by(load, root: Path) -> set[str]:
    opened = set()
    watching = True

    def watch(event, arguments):
        if watching and event == "open" and isinstance(arguments[0], str | os.PathLike):
            path = Path(arguments[0])
            if path.is_absolute() and path.is_relative_to(root) and path.is_file():
                opened.add(path.relative_to(root).as_posix())

    sys.addaudithook(watch)  # for the rest of the process; idle after this
    try:
        load(root)
    finally:
        watching = False
    return opened


def test_a_name_that_no_record_can_hold_is_refused(folder):
    (folder / os.fsdecode(b"\xff.json")).write_text("{}")
    with pytest.raises(ModelError, match=r"is not valid UTF-8. Rename it"):
        inputs.files_of(folder)


def test_modules_outside_of_the_folder_are_refused(folder):
    (folder / "modules.json").write_text(json.dumps([{"path": "../"}]))
    with pytest.raises(ModelError, match=r"modules\.json: .* is outside the model's directory"):
        inputs.files_of(folder)


def test_a_model_that_is_recorded_again_is_not_read_again(folder, tmp_path, monkeypatch):
    first = resolve("m", str(folder), tmp_path)
    monkeypatch.setattr("vernacular.core.contents._hashed", None)
    assert resolve("m", str(folder), tmp_path, known=first) == first


def test_an_adapter_is_its_files(folder, tmp_path, monkeypatch):
    adapter = adapting.train(folder, tmp_path / "adapter", steps=1)
    base = resolve("b", str(folder), tmp_path)
    before = resolve_adapter("a", str(adapter), base)
    assert before["contents"] == base["contents"]
    assert inputs.stale(before) == []
    edit(adapter / "adapter_model.safetensors")
    assert inputs.stale(before) == [str(adapter / "adapter_model.safetensors")]
    after = resolve_adapter("a", str(adapter), base, known=before)
    assert after["fingerprint"] != before["fingerprint"]
    monkeypatch.setattr("vernacular.core.contents._hashed", None)
    assert resolve_adapter("a", str(adapter), base, known=after) == after


def test_the_files_of_every_pattern_and_no_others_are_fetched_from_the_hub(hub, tmp_path):
    names = {**ONE_EACH, "*.bin": "pytorch_model.bin", "*.py": "modeling.py", "in": "additional_chat_templates/a.jinja"}
    assert set(inputs.wanted(allow_pickle=True, code=True)) == names.keys() - {"in"}
    hub.add("owner/model", {name: "x" for name in [*names.values(), "README.md", "optimizer.pt"]})
    code = (
        "from vernacular.checkpoints.resolve import locate\n"
        "for given in ({}, {'allow_pickle': True, 'code': True}):\n"
        "    where, _, _ = locate('owner/model', **given)\n"
        "    print(*sorted(str(f.relative_to(where)) for f in where.rglob('*') if f.is_file()))"
    )
    own = environment(hub.address, tmp_path)
    done = subprocess.run([sys.executable, "-c", code], env=own, capture_output=True, text=True, check=True)
    plain, everything = (set(line.split()) for line in done.stdout.splitlines())
    assert everything == set(names.values())
    assert plain == everything - {"pytorch_model.bin", "modeling.py"}
