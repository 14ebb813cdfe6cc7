"""Unavailable or failing encoders disable only their own metrics, with a reason."""

import shutil
from pathlib import Path

import pytest
from support import observed
from support import similarity_encoders as tiny
from support.damaged import edit_weights, replace_file, set_json_keys, split_pattern, truncate_weights
from support.messages import assert_states
from transformers import AutoModel, AutoTokenizer
from vernacular.checkpoints.resolve import resolve
from vernacular.core.errors import MachineError
from vernacular.core.model_record import ModelRecord
from vernacular.metrics.similarity import compute

ALL = ["cosine", "moverscore", "bertscore"]


@pytest.fixture(scope="module")
def encoder_dir(tmp_path_factory):
    return tiny.bert(tmp_path_factory.mktemp("encoder"))


def measure(encoders: dict, metrics=ALL, answer="come") -> tuple[dict, dict]:
    """Return ({metric: similarities of the item}, metadata)."""
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


def remove_weights(part: str):
    return edit_weights(lambda tensors: {name: tensor for name, tensor in tensors.items() if part not in name})


def extend_tokenizer(directory: Path):
    tokenizer = AutoTokenizer.from_pretrained(directory)
    tokenizer.add_tokens(["com", "maz", "cas"])
    tokenizer.save_pretrained(directory)


UNLOADABLE = ("encoder", "loaded")

DAMAGES = {
    "weights cut short": (truncate_weights(900), UNLOADABLE),
    "no weights": (lambda directory: (directory / "model.safetensors").unlink(), UNLOADABLE),
    "an empty file": (replace_file("model.safetensors", b""), UNLOADABLE),
    "no config": (lambda directory: (directory / "config.json").unlink(), UNLOADABLE),
    "a config that is none": (replace_file("config.json", b"[]"), UNLOADABLE),
    "an unknown architecture": (set_json_keys("config.json", model_type="brt"), UNLOADABLE),
    "a tokenizer with half a regex": (
        set_json_keys("tokenizer.json", normalizer={"type": "Replace", "pattern": {"Regex": "("}, "content": ""}), ("encoder", "cannot be")
    ),
    "another width": (set_json_keys("config.json", hidden_size=48), UNLOADABLE),
    "a width that is a text": (set_json_keys("config.json", hidden_size="wide"), UNLOADABLE),
    "a tokenizer that is none": (replace_file("tokenizer.json", b"{}"), UNLOADABLE),
    "more layers than weights": (set_json_keys("config.json", num_hidden_layers=5), (" 32 of", "weights", "not found")),
    "a layer gone": (remove_weights("layer.1."), (" 16 of", "weights", "not found")),
    "another model's weights": (edit_weights(lambda tensors: {f"x.{name}": tensor for name, tensor in tensors.items()}), ("weights", "not found")),
    "weights of nothing": (edit_weights(lambda tensors: {name: tensor * float("nan") for name, tensor in tensors.items()}), ("NaN",)),
    "tokens the model does not know": (extend_tokenizer, ("tokenizer", "vocabulary")),
}  # fmt: skip


@pytest.mark.parametrize("case", DAMAGES)
def test_damaged_encoder_is_reported_for_each_metric(encoder_dir, tmp_path, case):
    corrupt, parts = DAMAGES[case]
    shutil.copytree(encoder_dir, tmp_path, dirs_exist_ok=True)
    corrupt(tmp_path)
    values, metadata = measure({"default": tiny.record(tmp_path)})
    assert values == {}
    assert set(metadata["outcome"].missing) == set(ALL)
    for reason in metadata["outcome"].missing.values():
        assert reason.startswith("tiny: ")
        assert_states(reason, *parts)
        assert "\n" not in reason


@pytest.mark.parametrize("metric", ALL)
def test_files_changed_after_the_record_disable_metric_despite_cache(encoder_dir, tmp_path, metric):
    directory = Path(shutil.copytree(encoder_dir, tmp_path / "tiny"))
    record = resolve("tiny", str(directory), tmp_path, kind="encoder")
    assert measure({"default": record}, [metric])[1]["outcome"].missing == {}
    edit_weights(lambda tensors: {name: tensor * 1.5 for name, tensor in tensors.items()})(directory)
    values, metadata = measure({"default": record}, [metric])
    assert values == {}
    assert_states(metadata["outcome"].missing[metric], str(directory / "model.safetensors"), "changed")


@pytest.mark.parametrize(
    "corrupt",
    [
        lambda directory: set_json_keys(
            "tokenizer.json", normalizer={"type": "Precompiled", "precompiled_charsmap": None}
        )(directory),
        split_pattern("(a+)+$"),  # exponential backtracking, until the library fails
    ],
)
@pytest.mark.parametrize("metric", ALL)
def test_panic_of_tokenizer_library_disables_metric(encoder_dir, tmp_path, corrupt, metric):
    shutil.copytree(encoder_dir, tmp_path, dirs_exist_ok=True)
    corrupt(tmp_path)
    values, metadata = measure({"default": tiny.record(tmp_path)}, [metric], answer="a" * 40 + "!")
    assert values == {}
    assert_states(metadata["outcome"].missing[metric], "tokenizer", str(tmp_path), "used", "panic")
    assert "\n" not in metadata["outcome"].missing[metric]


def test_pooler_weights_may_be_missing(encoder_dir, tmp_path):
    shutil.copytree(encoder_dir, tmp_path, dirs_exist_ok=True)
    remove_weights("pooler")(tmp_path)
    assert measure({"default": tiny.record(tmp_path)})[0] == measure({"default": tiny.record(encoder_dir)})[0]


def test_unavailable_encoder_disables_its_metric_only(encoder_dir):
    unavailable = ModelRecord(name="gone", unavailable="nobody/gone: there is no such repository.")
    values, metadata = measure({"cosine": unavailable, "default": tiny.record(encoder_dir)})
    assert set(values) == {"moverscore", "bertscore"}
    assert metadata["outcome"].missing.keys() == {"cosine"}
    assert_states(metadata["outcome"].missing["cosine"], "gone: ", unavailable.unavailable)
    assert values == measure({"default": tiny.record(encoder_dir)}, ALL[1:])[0]


def test_missing_layer_disables_its_metric_only(encoder_dir):
    values, metadata = measure({"default": tiny.record(encoder_dir, layer=11)})
    assert set(values) == {"cosine", "moverscore"}
    assert metadata["outcome"].missing.keys() == {"bertscore"}
    assert_states(metadata["outcome"].missing["bertscore"], "tiny: ", "layer", "0 to 3", "11")


def test_custom_code_of_encoder_is_not_run(encoder_dir, tmp_path):
    shutil.copytree(encoder_dir, tmp_path, dirs_exist_ok=True)
    set_json_keys("config.json", model_type="own", auto_map={"AutoConfig": "own.Config", "AutoModel": "own.Model"})(
        tmp_path
    )
    (tmp_path / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Config: pass\nclass Model: pass\n")
    missing = measure({"default": tiny.record(tmp_path)})[1]["outcome"].missing
    assert missing
    for reason in missing.values():
        assert_states(reason, "tiny: ", "custom code", "not run")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("metric", ALL)
def test_out_of_memory_raises_machine_error(encoder_dir, tmp_path, metric):
    def raise_memory_error(_):
        raise MemoryError

    directory = shutil.copytree(encoder_dir, tmp_path / "new")  # not in a cache
    with observed.calls(AutoModel.from_pretrained, raise_memory_error), pytest.raises(MachineError) as raised:
        measure({"default": tiny.record(directory)}, [metric])
    assert (
        str(raised.value)
        == "tiny: the encoder does not fit in memory. Use a smaller one, or a machine with more memory."
    )  # the complete sentence, once
