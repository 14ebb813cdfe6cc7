"""Cosine of the `simil-eval` styles: equal to Simil-Eval's, with and without a chat template in the tokenizer files."""

import json
import shutil

import numpy as np
import pytest
import torch
from oracles import similarity
from peft import PeftModel
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from support import lora_training, tiny
from support import similarity_encoders as encoders
from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer
from vernacular.metrics.similarity import cosine
from vernacular.metrics.similarity.compute import similarities

TEMPLATE = "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}"
TEXTS = ["A casa é grande.", "o gato dorme no tellado e a cadela ladra na rúa", "x", " mazá", "https://a.gal/b.png"]
PAIRS = [(first, second) for first in TEXTS for second in TEXTS if first != second]


@pytest.fixture(scope="module")
def model_dirs(tmp_path_factory):
    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("evaluated")
    for arch in ("llama", "gpt2", "qwen3"):
        tiny.save(arch, root / arch)
    return root


def with_tokenizer(model_dir, destination, **settings):
    """Copy a model directory and add `settings` to its tokenizer_config.json."""
    shutil.copytree(model_dir, destination)
    path = destination / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))
    return destination


def simil_eval(tokenizer, model, pairs) -> list[float]:
    return [similarity.cosine(tokenizer, model, first, second) for first, second in pairs]


def expected_cosines(model_dir, pairs=PAIRS) -> list[float]:
    model = AutoModel.from_pretrained(model_dir, dtype=torch.float32).eval()
    return simil_eval(AutoTokenizer.from_pretrained(model_dir), model, pairs)


def compute_cosines(model_dir, pairs=PAIRS, **fields) -> np.ndarray:
    return cosine.cosine(cosine.load(encoders.record(model_dir, **fields)), pairs)


@pytest.mark.parametrize("template", [None, TEMPLATE], ids=["no-template", "template"])
@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("arch", ["llama", "gpt2", "qwen3"])
def test_cosine_matches_simil_eval(model_dirs, tmp_path, arch, side, template):
    """The text has no chat template and does not depend on padding in its batch."""
    settings = {"padding_side": side} | ({"chat_template": template} if template else {})
    model_dir = with_tokenizer(model_dirs / arch, tmp_path / "model", **settings)
    assert AutoTokenizer.from_pretrained(model_dir).chat_template == template
    np.testing.assert_allclose(compute_cosines(model_dir), expected_cosines(model_dir), atol=1e-6)


@pytest.mark.parametrize(("arch", "targets"), [("llama", ["q_proj", "v_proj"]), ("gpt2", ["c_attn"])])
def test_cosine_with_adapter_matches_simil_eval(model_dirs, tmp_path, arch, targets):
    model_dir = with_tokenizer(model_dirs / arch, tmp_path / "base", chat_template=TEMPLATE, padding_side="left")
    lora_training.train(model_dir, tmp_path / "adapter", steps=2, target_modules=targets)
    adapted = PeftModel.from_pretrained(
        AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32), tmp_path / "adapter"
    )
    expected = simil_eval(AutoTokenizer.from_pretrained(model_dir), adapted.get_base_model().base_model.eval(), PAIRS)
    cosines = compute_cosines(model_dir, adapter=encoders.adapter(tmp_path / "adapter"))
    np.testing.assert_allclose(cosines, expected, atol=1e-6)
    assert not np.allclose(cosines, compute_cosines(model_dir), atol=1e-3)


def test_truncation_matches_simil_eval(model_dirs, tmp_path):
    """Tokens of a chat template would increase the number of truncated texts."""
    model_dir = with_tokenizer(model_dirs / "qwen3", tmp_path / "model", chat_template=TEMPLATE, model_max_length=12)
    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    n_too_long = sum(len(tokenizer(text)["input_ids"]) > 12 for text in TEXTS)
    assert 0 < n_too_long < len(TEXTS)
    encoder = cosine.load(encoders.record(model_dir))
    assert cosine.n_truncated(encoder, TEXTS) == n_too_long
    np.testing.assert_allclose(cosine.cosine(encoder, PAIRS), expected_cosines(model_dir), atol=1e-6)


def test_encoder_with_message_modality_uses_chat_template(model_dirs, tmp_path):
    """sentence-transformers 6 writes "message" into `modality_config` if an encoder was trained on chat templates."""
    model_dir = with_tokenizer(model_dirs / "qwen3", tmp_path / "model", chat_template=TEMPLATE, pad_token="<eos>")
    module = Transformer(str(model_dir))
    SentenceTransformer(modules=[module, Pooling(32, "mean")]).save(str(tmp_path / "encoder"))
    config = tmp_path / "encoder" / "sentence_bert_config.json"
    assert "message" in json.loads(config.read_text())["modality_config"]
    published = SentenceTransformer(str(tmp_path / "encoder")).encode(TEXTS[:2])
    expected = float(np.dot(*(vector / np.linalg.norm(vector) for vector in published)))
    templated = compute_cosines(tmp_path / "encoder", [tuple(TEXTS[:2])])[0]
    assert templated == pytest.approx(expected, abs=1e-6)
    assert abs(templated - expected_cosines(model_dir, [tuple(TEXTS[:2])])[0]) > 1e-3

    # files of older versions (Qwen3-Embedding) do not have the key: texts were embedded without a template
    shutil.copytree(tmp_path / "encoder", tmp_path / "older")
    (tmp_path / "older" / config.name).write_text(json.dumps({"max_seq_length": 512, "do_lower_case": False}))
    np.testing.assert_allclose(compute_cosines(tmp_path / "older"), expected_cosines(model_dir), atol=1e-6)


@pytest.mark.parametrize("metric", ["moverscore", "bertscore", "cosine"])
def test_chat_template_file_does_not_change_metrics(tmp_path, metric):
    (tmp_path / "plain").mkdir()
    encoders.bert(tmp_path / "plain")
    with_tokenizer(tmp_path / "plain", tmp_path / "template", chat_template=TEMPLATE)
    items = [{"item_id": "i", "choices": ["unha mazá", "os gatos comen pouco"], "gold": [0], "target": None}]
    generations = [
        {
            "item_id": "i",
            "role": "response",
            "raw_output": "come",
            "output": "come mazá",
            "rendered": None,
            "flags": None,
        }
    ]
    without_template, with_template = (
        similarities(
            items,
            generations,
            [metric],
            {"default": encoders.record(tmp_path / name)},
            requests=encoders.requests(generations),
        )[0]
        for name in ("plain", "template")
    )
    assert len(without_template) == 1
    assert with_template == without_template
