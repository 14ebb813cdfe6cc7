"""Jobs reject model files that changed since they were recorded, at any moment."""

import json
import os
import shutil
from pathlib import Path

import pytest
import transformers as tf
from support import lora_training, observed, stages, tiny
from support.damaged import flip_byte
from support.messages import assert_states
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from vernacular.checkpoints.adapters import resolve_adapter
from vernacular.checkpoints.resolve import resolve
from vernacular.core.errors import ArtifactError, ModelError
from vernacular.core.model_record import ModelRecord, read_model, write_model
from vernacular.inference.job import run
from vernacular.inference.model.load import load, use_adapter
from vernacular.stages import fetch, infer

SETTINGS = {"dtype": "float32", "device": "cpu", "chat": False, "allow_pickle": False, "quantization": None}
HASHED_BYTES = 65536
TEMPLATES = "additional_chat_templates/rag.jinja"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A Llama model larger than the first and last 64 KiB, and an adapter of it."""
    directory = tmp_path_factory.mktemp("whole")
    tokenizer = tf.AutoTokenizer.from_pretrained(tiny.save("llama", directory / "tokenizer").directory)
    config = tiny.CONFIGS["llama"](len(tokenizer))
    config.update({"hidden_size": 64, "intermediate_size": 128})
    tf.LlamaForCausalLM(config).save_pretrained(directory / "llama")
    assert (directory / "llama" / "model.safetensors").stat().st_size > 3 * HASHED_BYTES
    tokenizer.chat_template = {"default": "{{ messages[0].content }}", "rag": "{{ messages }}"}
    tokenizer.save_pretrained(directory / "llama")
    assert (directory / "llama" / TEMPLATES).exists()
    for name in ("vocab.txt", "merges.txt"):
        (directory / "llama" / name).write_text("casa\n")
    lora_training.train(directory / "llama", directory / "adapter", steps=1)
    tokenizer.save_pretrained(directory / "adapter")
    return directory


@pytest.fixture
def workspace(checkpoint, tmp_path):
    for name in ("llama", "adapter"):
        shutil.copytree(checkpoint / name, tmp_path / name)
    tiny.write_requests(tmp_path / "s.options.parquet", tiny.score_requests([("A casa é grande", 7, 15)]))
    return tmp_path


@pytest.fixture
def base(workspace):
    return resolve("m", str(workspace / "llama"), workspace / "c") | SETTINGS


def run_job(workspace, *records) -> dict:
    """Return the reason by evaluation and model of each failed evaluation."""
    _, failed = run.run_group(
        list(records), {"s.options": workspace / "s.options.parquet"}, workspace / "store", threads=1
    )
    return failed


FILES = ["model.safetensors", "config.json", "vocab.txt", "merges.txt", "tokenizer.json", "tokenizer_config.json",
         "chat_template.jinja", TEMPLATES]  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_file_changed_after_recording_raises(workspace, base, name):
    flip_byte(workspace / "llama" / name)
    [message] = run_job(workspace, base)["m"].values()
    assert_states(message, "model m", str(workspace / "llama" / name), "changed", "workflow")
    assert not list(workspace.glob("store/scores/*/*"))
    re_resolved = resolve("m", str(workspace / "llama"), workspace / "c", known=base)
    assert re_resolved.fingerprint != base.fingerprint


def test_touched_files_are_evaluated(workspace, base):
    for name in FILES:
        os.utime(workspace / "llama" / name, ns=(1, 1))
    assert run_job(workspace, base) == {"m": {}}
    assert len(list(workspace.glob("store/scores/*/*"))) == 1


@pytest.mark.parametrize("name", ["adapter_model.safetensors", "adapter_config.json", "chat_template.jinja"])
def test_changed_adapter_fails_without_affecting_base(workspace, base, name):
    adapter = resolve_adapter("a", str(workspace / "adapter"), base) | SETTINGS
    flip_byte(workspace / "adapter" / name)
    failed = run_job(workspace, base, adapter)
    assert failed["m"] == {}
    assert_states(failed["a"]["s.options"], "model a", str(workspace / "adapter" / name), "changed")
    assert resolve_adapter("a", str(workspace / "adapter"), base).fingerprint != adapter.fingerprint


def edit_once(path: Path):
    """Return a function whose first call edits `path`."""
    edited = []

    def edit_if_first(*_):
        if not edited:
            edited.append(path)
            flip_byte(path)

    return edit_if_first


def test_file_changed_during_load_raises(workspace, base):
    """When the tokenizer is read, which follows the weights."""
    weights = workspace / "llama" / "model.safetensors"
    with observed.calls(tf.AutoTokenizer.from_pretrained, edit_once(weights)), pytest.raises(ModelError) as raised:
        load(base)
    assert_states(raised.value, "model m", str(weights), "changed")


def test_adapter_changed_during_load_raises(workspace, base):
    record = resolve_adapter("a", str(workspace / "adapter"), base) | SETTINGS
    loaded = load(base)
    template = workspace / "adapter" / "chat_template.jinja"
    with (
        observed.calls(tf.AutoTokenizer.from_pretrained, edit_once(template)),
        pytest.raises(ModelError) as raised,
        use_adapter(loaded, record),
    ):
        pass
    assert_states(raised.value, "model a", str(template), "changed")


@pytest.mark.parametrize("register", [register_module_forward_pre_hook, register_module_forward_hook])
def test_weights_changed_during_evaluation_discard_outputs(workspace, base, register):
    """Weights on a CPU are memory-mapped: the model in memory changes with its file."""
    edit_weights = edit_once(workspace / "llama" / "model.safetensors")
    hook = register(lambda module, *_: edit_weights() if isinstance(module, tf.LlamaModel) else None)
    try:
        [message] = run_job(workspace, base)["m"].values()
    finally:
        hook.remove()
    assert_states(message, "model m", str(workspace / "llama" / "model.safetensors"), "changed")
    assert not [path for path in workspace.glob("store/*/**/*") if path.is_file()], "outputs or journal parts found"


def build_args(workspace, **spec):
    defaults = {"kind": "auto", "allow_pickle": False, "trust_remote_code": False}
    spec = {"name": "m", "source": str(workspace / "llama"), **defaults, **spec}
    return stages.arguments(fetch.model, spec=spec, out=workspace / "models" / "m.json")


def test_model_rule_reuses_hashes_after_output_is_deleted(workspace):
    with observed.opened_files(workspace / "llama") as opened:
        fetch.model(build_args(workspace))
        n_opened = opened.count("merges.txt")
        first_result = (workspace / "models" / "m.json").read_bytes()
        (workspace / "models" / "m.json").unlink()
        fetch.model(build_args(workspace))
    assert opened.count("merges.txt") == 2 * n_opened - 1, "its known hash is reused"
    assert (workspace / "models" / "m.json").read_bytes() == first_result


def test_model_rule_detects_changed_files(workspace):
    fetch.model(build_args(workspace))
    first_result = read_model(workspace / "models" / "m.json")
    flip_byte(workspace / "llama" / "model.safetensors")
    fetch.model(build_args(workspace))
    assert read_model(workspace / "models" / "m.json").fingerprint != first_result.fingerprint


def test_record_without_hashes_raises(workspace, base):
    write_model(workspace / "m.json", base | {"contents": None})
    files = {"models": [workspace / "m.json"], "out": workspace / "1of1.json", "store": workspace / "store"}
    args = stages.arguments(infer.infer, spec={"models": {"m": SETTINGS}}, **files)
    with pytest.raises(ArtifactError) as raised:
        infer.infer(args)
    assert_states(raised.value, str(workspace / "m.json"), "hashes", "not found")


def test_record_contents_format(workspace, base):
    assert base.contents.root == str(workspace / "llama")
    assert base.contents.files["config.json"].keys() == {"sha256", "size", "mtime_ns", "ctime_ns", "inode"}
    assert ModelRecord.parse(json.loads(json.dumps(base.as_dict())), "m") | SETTINGS == base | SETTINGS
