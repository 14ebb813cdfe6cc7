import pytest
import torch
from support import tiny
from support.messages import assert_states
from vernacular.core.errors import ModelError
from vernacular.inference.model.load import load


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return tiny.save("llama", tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return tiny.save("bert", tmp_path_factory.mktemp("bert"))


def test_load_from_directory(llama):
    loaded = load(llama, threads=1)
    assert (loaded.kind, loaded.max_length, loaded.bos_id, loaded.adds_bos) == ("causal", 512, 1, True)
    assert loaded.dtype is torch.float32
    assert not loaded.model.training
    assert torch.get_num_threads() == 1
    assert loaded.metadata()["architecture"] == "LlamaForCausalLM"


def test_dtype_defaults_to_checkpoint(llama):
    assert load(llama | {"dtype": "auto"}).dtype is torch.float32
    assert load(llama | {"dtype": "bfloat16"}).dtype is torch.bfloat16


def test_max_length_setting_limits_context(llama):
    assert load(llama | {"max_length": 100}).max_length == 100


def test_roberta_max_length_excludes_padding_positions(tmp_path):
    assert load(tiny.save("roberta", tmp_path)).max_length == 510


@pytest.mark.parametrize(
    ("record_change", "parts"),
    [
        ({"directory": "/does/not/exist"}, ("directory", "not found", "/does/not/exist")),
        ({"kind": "masked"}, ("loaded", "LlamaConfig", "AutoModelForMaskedLM")),
    ],
)
def test_invalid_record_raises_model_error(llama, record_change, parts):
    with pytest.raises(ModelError) as error_info:
        load(llama | {**record_change})
    assert_states(error_info.value, *parts)


def test_checkpoint_without_head_raises(bert, tmp_path):
    loaded = load(bert)
    loaded.model.bert.save_pretrained(tmp_path)
    loaded.tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ModelError) as raised:
        load(bert | {"directory": str(tmp_path)})
    assert_states(raised.value, "weights", "BertForMaskedLM", "not found", str(tmp_path))


def test_pickled_weights_require_allow_pickle(llama, tmp_path):
    loaded = load(llama)
    loaded.model.config.save_pretrained(tmp_path)
    loaded.tokenizer.save_pretrained(tmp_path)
    torch.save(loaded.model.state_dict(), tmp_path / "pytorch_model.bin")
    record = llama | {"directory": str(tmp_path)}
    with pytest.raises(ModelError, match="allow_pickle: true"):
        load(record)
    assert load(record | {"allow_pickle": True}).kind == "causal"


def test_directory_without_tokenizer_raises(llama, tmp_path):
    load(llama).model.save_pretrained(tmp_path)
    with pytest.raises(ModelError) as raised:
        load(llama | {"directory": str(tmp_path)})
    assert_states(raised.value, "tokenizer", str(tmp_path), "loaded")


@pytest.mark.parametrize(("has_json", "expected"), [(True, None), (False, "spiece.model")])
def test_metadata_name_the_tokenizer_that_transformers_converts(tmp_path, has_json, expected):
    (tmp_path / "spiece.model").write_bytes(b"")
    if has_json:
        (tmp_path / "tokenizer.json").write_text("{}")
    assert tiny.load_model(directory=str(tmp_path)).metadata()["converted_tokenizer"] == expected
