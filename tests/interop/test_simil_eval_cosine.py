"""The cosine of the `simil-eval` styles is Simil-Eval's own function, whatever the tokenizer's files say of chats."""

import json
import shutil

import numpy as np
import pytest
import torch
from peft import PeftModel
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from support import adapting, tiny
from support import similarity_encoders as encoders
from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer
from vernacular.metrics.similarity import cosine
from vernacular.metrics.similarity.compute import similarities

TEMPLATE = "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}"
TEXTS = ["A casa é grande.", "o gato dorme no tellado e a cadela ladra na rúa", "x", " mazá", "https://a.gal/b.png"]
PAIRS = [(one, other) for one in TEXTS for other in TEXTS if one != other]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("evaluated")
    for arch in ("llama", "gpt2", "qwen3"):
        tiny.save(arch, root / arch)
    return root


def with_tokenizer(folder, copy, **settings):
    """A copy of a model's folder whose tokenizer_config.json has these settings too."""
    shutil.copytree(folder, copy)
    path = copy / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))
    return copy


def simil_eval(tokenizer, model, pairs) -> list[float]:
    """Simil-Eval's cosine (utils/metrics.py), written out: one text at a time, mean over all positions, BOS included."""

    def embedded(text):
        with torch.no_grad():
            ids = tokenizer(text, return_tensors="pt", truncation=True)["input_ids"]
            return model(ids).last_hidden_state[0].double().mean(0)

    return [torch.cosine_similarity(embedded(one), embedded(other), dim=0).item() for one, other in pairs]


def oracle(folder, pairs=PAIRS) -> list[float]:
    model = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    return simil_eval(AutoTokenizer.from_pretrained(folder), model, pairs)


def found(folder, pairs=PAIRS, **more) -> np.ndarray:
    return cosine.cosine(cosine.load(encoders.record(folder, **more)), pairs)


@pytest.mark.parametrize("template", [None, TEMPLATE], ids=["no-template", "template"])
@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("arch", ["llama", "gpt2", "qwen3"])
def test_the_evaluated_model_embeds_the_text_itself_as_simil_eval_does(folders, tmp_path, arch, side, template):
    """No chat template around it; and no text depends on the padding of a longer one in its batch."""
    settings = {"padding_side": side} | ({"chat_template": template} if template else {})
    folder = with_tokenizer(folders / arch, tmp_path / "model", **settings)
    assert AutoTokenizer.from_pretrained(folder).chat_template == template
    np.testing.assert_allclose(found(folder), oracle(folder), atol=1e-6)


@pytest.mark.parametrize(("arch", "targets"), [("llama", ["q_proj", "v_proj"]), ("gpt2", ["c_attn"])])
def test_with_an_adapter_too(folders, tmp_path, arch, targets):
    folder = with_tokenizer(folders / arch, tmp_path / "base", chat_template=TEMPLATE, padding_side="left")
    adapting.train(folder, tmp_path / "adapter", steps=2, target_modules=targets)
    adapted = PeftModel.from_pretrained(
        AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32), tmp_path / "adapter"
    )
    expected = simil_eval(AutoTokenizer.from_pretrained(folder), adapted.get_base_model().base_model.eval(), PAIRS)
    ours = found(folder, adapter={"folder": str(tmp_path / "adapter")})
    np.testing.assert_allclose(ours, expected, atol=1e-6)
    assert not np.allclose(ours, found(folder), atol=1e-3)


def test_as_many_texts_are_truncated_as_simil_eval_truncates(folders, tmp_path):
    """The tokens of a template would fill a short window with texts that fit, and leave less of those that do not."""
    folder = with_tokenizer(folders / "qwen3", tmp_path / "model", chat_template=TEMPLATE, model_max_length=12)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    longer = sum(len(tokenizer(text)["input_ids"]) > 12 for text in TEXTS)
    assert 0 < longer < len(TEXTS)
    encoder = cosine.load(encoders.record(folder))
    assert cosine.n_truncated(encoder, TEXTS) == longer
    np.testing.assert_allclose(cosine.cosine(encoder, PAIRS), oracle(folder), atol=1e-6)


def test_an_encoder_whose_own_modules_ask_for_the_template_keeps_it(folders, tmp_path):
    """sentence-transformers 6 writes "message" into `modality_config`: such an encoder was trained on templates."""
    folder = with_tokenizer(folders / "qwen3", tmp_path / "model", chat_template=TEMPLATE, pad_token="<eos>")
    module = Transformer(str(folder))
    SentenceTransformer(modules=[module, Pooling(32, "mean")]).save(str(tmp_path / "encoder"))
    config = tmp_path / "encoder" / "sentence_bert_config.json"
    assert "message" in json.loads(config.read_text())["modality_config"]
    published = SentenceTransformer(str(tmp_path / "encoder")).encode(TEXTS[:2])
    expected = float(np.dot(*(vector / np.linalg.norm(vector) for vector in published)))
    templated = found(tmp_path / "encoder", [tuple(TEXTS[:2])])[0]
    assert templated == pytest.approx(expected, abs=1e-6)
    assert abs(templated - oracle(folder, [tuple(TEXTS[:2])])[0]) > 1e-3

    # files of an older version, as those of Qwen3-Embedding, have no such key: their texts were embedded as they are
    shutil.copytree(tmp_path / "encoder", tmp_path / "older")
    (tmp_path / "older" / config.name).write_text(json.dumps({"max_seq_length": 512, "do_lower_case": False}))
    np.testing.assert_allclose(found(tmp_path / "older"), oracle(folder), atol=1e-6)


@pytest.mark.parametrize("metric", ["moverscore", "bertscore", "cosine"])
def test_a_template_in_the_folder_of_an_encoder_changes_no_metric(tmp_path, metric):
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
    plain, template = (
        similarities(
            items,
            generations,
            [metric],
            {"default": encoders.record(tmp_path / name)},
            requests=encoders.requests(generations),
        )[0]
        for name in ("plain", "template")
    )
    assert len(plain) == 1
    assert template == plain
