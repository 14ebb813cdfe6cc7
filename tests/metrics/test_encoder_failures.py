"""An encoder that is unavailable or fails costs the metrics that it measures, with a reason, and nothing else."""

import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file
from support import similarity_encoders as tiny
from transformers import AutoTokenizer
from vernacular.checkpoints.resolve import resolve
from vernacular.core.errors import MachineError
from vernacular.metrics.similarity import compute, cosine, token_metrics

ALL = ["cosine", "moverscore", "bertscore"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return tiny.bert(tmp_path_factory.mktemp("whole"))


@pytest.fixture(autouse=True)
def _nothing_kept():
    cosine._load.cache_clear()
    token_metrics._encoder.cache_clear()


def measured(encoders: dict, metrics=ALL, answer="come") -> tuple[dict, dict]:
    """({metric: similarities of the one item}, metadata)"""
    item = {"item_id": "a", "choices": ["mazá", "casa"], "target": None, "gold": [0]}
    row = {
        "item_id": "a",
        "role": "generation",
        "raw_output": answer,
        "output": answer,
        "flags": None,
        "rendered": None,
    }
    rows, metadata = compute.similarities([item], [row], metrics, encoders, requests=tiny.requests([row]))
    return {row["metric"]: row["similarities"] for row in rows}, metadata


def key(name: str, **keys):
    def spoil(folder: Path):
        path = folder / name
        path.write_text(json.dumps(json.loads(path.read_text()) | keys))

    return spoil


def content(name: str, text: bytes):
    return lambda folder: (folder / name).write_bytes(text)


def weights(change):
    def spoil(folder: Path):
        tensors = load_file(folder / "model.safetensors")
        save_file(change(tensors), folder / "model.safetensors", metadata={"format": "pt"})

    return spoil


def without(part: str):
    return weights(lambda tensors: {name: tensor for name, tensor in tensors.items() if part not in name})


def more_tokens(folder: Path):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(["com", "maz", "cas"])
    tokenizer.save_pretrained(folder)


BROKEN = {
    "weights cut short": (lambda f: content("model.safetensors", (f / "model.safetensors").read_bytes()[:900])(f), "cannot be loaded"),
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), "cannot be loaded"),
    "an empty file": (content("model.safetensors", b""), "cannot be loaded"),
    "no config": (lambda folder: (folder / "config.json").unlink(), "cannot be loaded"),
    "a config that is none": (content("config.json", b"[]"), "cannot be loaded"),
    "an unknown architecture": (key("config.json", model_type="brt"), "cannot be loaded"),
    "a tokenizer with half a regex": (
        key("tokenizer.json", normalizer={"type": "Replace", "pattern": {"Regex": "("}, "content": ""}), "the encoder cannot be "
    ),
    "another width": (key("config.json", hidden_size=48), "cannot be loaded"),
    "a width that is a text": (key("config.json", hidden_size="wide"), "cannot be loaded"),
    "a tokenizer that is none": (content("tokenizer.json", b"{}"), "cannot be loaded"),
    "more layers than weights": (key("config.json", num_hidden_layers=5), "32 of the encoder's weights"),
    "a layer gone": (without("layer.1."), "16 of the encoder's weights"),
    "another model's weights": (weights(lambda tensors: {f"x.{n}": t for n, t in tensors.items()}), "weights not found"),
    "weights of nothing": (weights(lambda tensors: {n: t * float("nan") for n, t in tensors.items()}), "returns NaN"),
    "tokens the model does not know": (more_tokens, "outside its model's vocabulary"),
}  # fmt: skip


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_encoder_is_the_reason_for_each_metric_and_never_a_number(whole, tmp_path, what):
    spoil, sentence = BROKEN[what]
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    spoil(tmp_path)
    found, metadata = measured({"default": tiny.record(tmp_path)})
    assert found == {}
    assert set(metadata["without"]) == set(ALL)
    for reason in metadata["without"].values():
        assert reason.startswith("tiny: ")
        assert sentence in reason
        assert "\n" not in reason


@pytest.mark.parametrize("metric", ALL)
def test_files_changed_after_the_record_measure_nothing_even_if_the_encoder_is_in_memory(whole, tmp_path, metric):
    folder = Path(shutil.copytree(whole, tmp_path / "tiny"))
    record = resolve("tiny", str(folder), tmp_path, kind="encoder")
    assert measured({"default": record}, [metric])[1]["without"] == {}
    weights(lambda tensors: {name: tensor * 1.5 for name, tensor in tensors.items()})(folder)
    found, metadata = measured({"default": record}, [metric])
    assert found == {}
    assert f"{folder / 'model.safetensors'} changed since the model was recorded" in metadata["without"][metric]


def panicking(regex: str):
    def spoil(folder: Path):
        content = json.loads((folder / "tokenizer.json").read_text())
        split = {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}
        (folder / "tokenizer.json").write_text(json.dumps(content | {"pre_tokenizer": split}))

    return spoil


@pytest.mark.parametrize(
    "spoil",
    [
        lambda folder: key("tokenizer.json", normalizer={"type": "Precompiled", "precompiled_charsmap": None})(folder),
        panicking("(a+)+$"),  # tries every way to split a text, until the library gives up
    ],
)
@pytest.mark.parametrize("metric", ALL)
def test_a_tokenizer_that_makes_its_library_panic_costs_its_metrics(whole, tmp_path, spoil, metric):
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    spoil(tmp_path)
    found, metadata = measured({"default": tiny.record(tmp_path)}, [metric], answer="a" * 40 + "!")
    assert found == {}
    assert f"the tokenizer in {tmp_path} cannot be used: panic in a Rust library" in metadata["without"][metric]
    assert "\n" not in metadata["without"][metric]


def test_the_pooler_that_no_metric_reads_may_be_missing(whole, tmp_path):
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    without("pooler")(tmp_path)
    assert measured({"default": tiny.record(tmp_path)})[0] == measured({"default": tiny.record(whole)})[0]


def test_one_that_could_not_be_fetched_costs_its_own_metric_alone(whole):
    gone = {"name": "gone", "source": "nobody/gone", "unavailable": "nobody/gone: there is no such repository."}
    found, metadata = measured({"cosine": gone, "default": tiny.record(whole)})
    assert set(found) == {"moverscore", "bertscore"}
    assert metadata["without"] == {"cosine": "gone: encoder unavailable: nobody/gone: there is no such repository."}
    assert found == measured({"default": tiny.record(whole)}, ALL[1:])[0]


def test_a_layer_that_is_not_there_concerns_the_metric_that_reads_it(whole):
    found, metadata = measured({"default": tiny.record(whole, layer=11)})
    assert set(found) == {"cosine", "moverscore"}
    assert metadata["without"] == {"bertscore": "tiny: expected a layer from 0 to 3, got 11."}


def test_an_encoder_that_brings_code_is_not_run(whole, tmp_path):
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    key("config.json", model_type="own", auto_map={"AutoConfig": "own.Config", "AutoModel": "own.Model"})(tmp_path)
    (tmp_path / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Config: pass\nclass Model: pass\n")
    assert {"it requires custom code, which is not run" in reason for reason in
            measured({"default": tiny.record(tmp_path)})[1]["without"].values()} == {True}  # fmt: skip
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("metric", ALL)
def test_too_little_memory_is_the_machines_fault_and_fails_the_job(whole, monkeypatch, metric):
    def short(*args, **options):
        raise MemoryError

    monkeypatch.setattr("transformers.AutoModel.from_pretrained", short)
    with pytest.raises(MachineError, match="tiny: the encoder does not fit in memory"):
        measured({"default": tiny.record(whole)}, [metric])
