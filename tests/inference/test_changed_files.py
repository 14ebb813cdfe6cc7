"""A job computes nothing with files that are not those of the record: whatever changed, and whenever."""

import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import transformers as tf
from support import adapting, tiny
from vernacular.checkpoints.adapters import resolve_adapter
from vernacular.checkpoints.resolve import resolve
from vernacular.commands import fetch, infer
from vernacular.core import artifacts
from vernacular.core.errors import ArtifactError, ModelError
from vernacular.core.records import read_record, write_record
from vernacular.inference.job import run
from vernacular.inference.model import load as loading
from vernacular.inference.model.adapter import adapted
from vernacular.inference.model.load import load
from vernacular.protocols.schema import REQUESTS

HOW = {"dtype": "float32", "device": "cpu", "chat": False, "allow_pickle": False, "quantization": None}
ENDS = 65536
TEMPLATES = "additional_chat_templates/rag.jinja"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A llama that is larger than both ends that were hashed once, and an adapter of it."""
    folder = tmp_path_factory.mktemp("whole")
    tok = tf.AutoTokenizer.from_pretrained(tiny.save("llama", folder / "tokenizer")["folder"])
    config = tiny.CONFIGS["llama"](len(tok))
    config.update({"hidden_size": 64, "intermediate_size": 128})
    tf.LlamaForCausalLM(config).save_pretrained(folder / "llama")
    assert (folder / "llama" / "model.safetensors").stat().st_size > 3 * ENDS
    tok.chat_template = {"default": "{{ messages[0].content }}", "rag": "{{ messages }}"}
    tok.save_pretrained(folder / "llama")
    assert (folder / "llama" / TEMPLATES).exists()
    for name in ("vocab.txt", "merges.txt"):
        (folder / "llama" / name).write_text("casa\n")
    adapting.train(folder / "llama", folder / "adapter", steps=1)
    tok.save_pretrained(folder / "adapter")
    return folder


@pytest.fixture
def place(whole, tmp_path):
    for name in ("llama", "adapter"):
        shutil.copytree(whole / name, tmp_path / name)
    note = {"protocol": "options", "request_kind": "score", "causal_only": False, "fingerprint": "s"}
    artifacts.write(tmp_path / "s.options.parquet", REQUESTS, tiny.score_requests([("A casa é grande", 7, 15)]), note)
    return tmp_path


@pytest.fixture
def base(place):
    return resolve("m", str(place / "llama"), place / "c") | HOW


def edit(path: Path) -> None:
    """Change one byte in the middle, and set the modification time back: as merging a LoRA in place leaves a file."""
    before, content = path.stat(), bytearray(path.read_bytes())
    ends = content[:ENDS], content[-ENDS:]
    if path.suffix == ".json":  # JSON as before
        content = content.replace(b": ", b":\n", 1)
    else:
        content[len(content) // 2] ^= 1
    assert len(content) < 2 * ENDS or (content[:ENDS], content[-ENDS:]) == ends
    with open(path, "r+b") as file:
        file.write(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)


def ask(place, *records) -> dict:
    """{model: {evaluation: why it failed}}"""
    _, failed = run.run_group(list(records), {"s.options": place / "s.options.parquet"}, place / "store", threads=1)
    return failed


EVERY = ["model.safetensors", "config.json", "vocab.txt", "merges.txt", "tokenizer.json", "tokenizer_config.json",
         "chat_template.jinja", TEMPLATES]  # fmt: skip


@pytest.mark.parametrize("name", EVERY)
def test_a_file_changed_after_the_record_is_refused_by_name(place, base, name):
    edit(place / "llama" / name)
    [reason] = ask(place, base)["m"].values()
    assert f"{place / 'llama' / name} changed since the model was recorded. Run snakemake again" in reason
    assert not list(place.glob("store/scores/*/*"))
    again = resolve("m", str(place / "llama"), place / "c", known=base)
    assert again["fingerprint"] != base["fingerprint"]


def test_unchanged_and_touched_files_are_asked(place, base, monkeypatch):
    for name in EVERY:
        os.utime(place / "llama" / name, ns=(1, 1))
    assert ask(place, base) == {"m": {}}
    assert len(list(place.glob("store/scores/*/*"))) == 1


@pytest.mark.parametrize("name", ["adapter_model.safetensors", "adapter_config.json", "chat_template.jinja"])
def test_a_changed_adapter_costs_its_own_values_and_not_its_bases(place, base, name):
    adapter = resolve_adapter("a", str(place / "adapter"), base) | HOW
    edit(place / "adapter" / name)
    failed = ask(place, base, adapter)
    assert failed["m"] == {}
    assert f"{place / 'adapter' / name} changed since" in failed["a"]["s.options"]
    assert resolve_adapter("a", str(place / "adapter"), base)["fingerprint"] != adapter["fingerprint"]


def test_a_file_changed_while_it_is_loaded_is_refused(place, base, monkeypatch):
    def meddle(*given):
        result = read_weights(*given)
        edit(place / "llama" / "model.safetensors")
        return result

    read_weights = loading._read_weights
    monkeypatch.setattr(loading, "_read_weights", meddle)
    with pytest.raises(ModelError, match=r"model\.safetensors changed since the model was recorded"):
        load(base)


def test_an_adapter_changed_while_it_is_loaded_is_refused(place, base, monkeypatch):
    record = resolve_adapter("a", str(place / "adapter"), base) | HOW
    loaded = load(base)
    template = place / "adapter" / "chat_template.jinja"
    tokenizer = tf.AutoTokenizer.from_pretrained

    def meddle(*given, **options):
        edit(template)
        return tokenizer(*given, **options)

    monkeypatch.setattr("vernacular.inference.model.adapter.AutoTokenizer.from_pretrained", meddle)
    with pytest.raises(ModelError, match=r"chat_template\.jinja changed since"), adapted(loaded, record):
        pass


@pytest.mark.parametrize("when", ["before", "after"])
def test_weights_changed_during_an_evaluation_leave_no_numbers(place, base, monkeypatch, when):
    """Weights on a CPU are pages of their file: the model in memory changes with it."""

    def meddle(loaded, question, journal):
        if when == "before":
            edit(place / "llama" / "model.safetensors")
        result = answer(loaded, question, journal)
        journal.add("batch", [])
        journal.flush()
        if when == "after":
            edit(place / "llama" / "model.safetensors")
        return result

    answer = run._answer
    monkeypatch.setattr(run, "_answer", meddle)
    [reason] = ask(place, base)["m"].values()
    assert "model.safetensors changed since" in reason
    assert not [path for path in place.glob("store/*/**/*") if path.is_file()], "neither outputs nor a journal of them"


def command(place, **spec):
    defaults = {"kind": "auto", "allow_pickle": False, "trust_remote_code": False}
    spec = {"name": "m", "source": str(place / "llama"), **defaults, **spec}
    return SimpleNamespace(spec=spec, out=place / "models" / "m.json", base=None, verb="model")


def test_the_model_rule_reads_nothing_anew_though_snakemake_deletes_its_output(place, monkeypatch):
    fetch.model(command(place))
    first = (place / "models" / "m.json").read_bytes()
    (place / "models" / "m.json").unlink()
    monkeypatch.setattr("vernacular.core.contents._hashed", None)
    fetch.model(command(place))
    assert (place / "models" / "m.json").read_bytes() == first


def test_the_model_rule_notices_a_change_between_two_runs(place):
    fetch.model(command(place))
    first = read_record(place / "models" / "m.json")
    edit(place / "llama" / "model.safetensors")
    fetch.model(command(place))
    assert read_record(place / "models" / "m.json")["fingerprint"] != first["fingerprint"]


def test_a_record_of_an_earlier_version_is_not_asked(place, base):
    old = {key: value for key, value in base.items() if key != "contents"}
    write_record(place / "m.json", old)
    args = SimpleNamespace(models=[place / "m.json"], spec={"models": {"m": HOW}}, shard="1of1", requests=[])
    args.out, args.attempt = place / "1of1.json", (1, 1)
    with pytest.raises(ArtifactError, match=r"m\.json: hashes of the model's files not found"):
        infer.infer(args)


def test_records_hold_the_contents_as_documented(place, base):
    assert base["contents"]["root"] == str(place / "llama")
    assert base["contents"]["files"]["config.json"].keys() == {"sha256", "size", "mtime_ns", "ctime_ns", "inode"}
    assert json.loads(json.dumps(base)) == base
