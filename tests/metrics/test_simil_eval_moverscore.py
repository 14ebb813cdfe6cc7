"""MoverScore of Simil-Eval: tokens and weights, and values computed from its definition."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from oracles import similarity
from support import similarity_encoders as tiny
from transformers import AutoModel, AutoTokenizer
from vernacular.core.errors import ConfigError, ModelError
from vernacular.metrics.similarity import moverscore
from vernacular.metrics.similarity.compute import similarities
from vernacular.metrics.similarity.encoder import TokenEncoder, Tokens

ANSWERS = ["O rapaz come", "a mazá é vermella!", "Мачка", "gatos 🐈", "The boy eats a red apple (at home) and sleeps."]
OPTIONS = ["unha mazá vermella", "The boy", "Os gatos dormen moito.", "A Coruña"]


@pytest.fixture(scope="module")
def encoder_dirs(tmp_path_factory):
    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("encoders")
    builders = {"bert": tiny.bert, "roberta": tiny.roberta}
    for name in builders:
        (root / name).mkdir()
    return {name: build(root / name) for name, build in builders.items()}


def compute_similarities(metric, encoder_dir):
    """Return the similarities of each answer to each option, and the metadata."""
    items = [{"item_id": str(i), "choices": OPTIONS, "gold": [0], "target": None} for i in range(len(ANSWERS))]
    texts = [{"raw_output": answer, "output": answer, "rendered": None, "flags": None} for answer in ANSWERS]
    generations = [{"item_id": str(i), "role": "response", **text} for i, text in enumerate(texts)]
    encoders, requests = {"default": tiny.record(encoder_dir)}, tiny.requests(generations)
    rows, metadata = similarities(items, generations, [metric], encoders, requests=requests)
    return np.array([row["similarities"] for row in rows], dtype=float), metadata


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_moverscore_matches_simil_eval(encoder_dirs, family):
    scores, metadata = compute_similarities({"metric": "moverscore", "variant": "simil-eval"}, encoder_dirs[family])
    tokenizer, model = (
        AutoTokenizer.from_pretrained(encoder_dirs[family]),
        AutoModel.from_pretrained(encoder_dirs[family]),
    )
    if family == "bert":  # the effect of do_lower_case=True on a cased BERT tokenizer; other tokenizers ignore it
        tokenizer.backend_tokenizer.normalizer = type(tokenizer.backend_tokenizer.normalizer)(lowercase=True)
    for i, answer in enumerate(ANSWERS):
        for j, option in enumerate(OPTIONS):
            expected = similarity.moverscore_simil_eval(tokenizer, model, option, answer)
            assert scores[i, j] == pytest.approx(expected, abs=1e-6)
    assert "variant:simil-eval" in metadata["signatures"]["moverscore"]


def test_unknown_variant_raises_config_error(encoder_dirs):
    with pytest.raises(ConfigError, match='Did you mean "simil-eval"'):
        compute_similarities({"metric": "moverscore", "variant": "simileval"}, encoder_dirs["bert"])


def test_tokenize_lowercases_and_strips_accents_for_bert(encoder_dirs):
    encoder = TokenEncoder(tiny.record(encoder_dirs["bert"]))
    (text_tokens,) = moverscore.tokenize_as_simil_eval(encoder, ["A Coruña"])
    assert "".join(text_tokens.subwords[1:-1]).replace("##", "") == "acoruna"
    (cased_tokens,) = encoder.tokenize(["A Coruña"])  # the tokenizer itself is unchanged
    assert "".join(cased_tokens.subwords[1:-1]).replace("##", "") == "ACoruña"


def test_special_tokens_have_nonzero_weight(encoder_dirs):
    encoder = TokenEncoder(tiny.record(encoder_dirs["bert"]))
    (text_tokens,) = moverscore.tokenize_as_simil_eval(encoder, ["..."])
    assert moverscore.simil_eval_weights(text_tokens).tolist() == [1.0, 0.0, 0.0, 0.0, 1.0]


def tokens(subwords, words):
    return Tokens(
        list(range(len(subwords))), subwords, [subword.removeprefix("##") for subword in subwords], words, False
    )


def test_word_continuations_and_punctuation_have_zero_weight():
    """ "…" is not ASCII punctuation."""
    fixed_tokens = tokens(["[CLS]", "com", "##e", ",", "…", "[SEP]"], [None] * 6)
    idf = {i: i / 8 for i in range(6)}
    assert moverscore.simil_eval_weights(fixed_tokens).tolist() == [1, 1, 0, 0, 1, 1]
    assert moverscore.simil_eval_weights(fixed_tokens, idf).tolist() == [0, 1 / 8, 0, 0, 4 / 8, 5 / 8]


def stub(subwords, words, vocabulary, unknown=None):
    """Return an encoder with max_tokens 4 whose tokenizer returns the same subwords for each text."""
    tokenizer = SimpleNamespace(
        convert_tokens_to_ids=lambda subwords: [vocabulary.get(subword, unknown) for subword in subwords]
    )
    fixed_tokens = tokens(subwords, words)
    return SimpleNamespace(
        name="stub",
        max_tokens=4,
        tokenizer=tokenizer,
        tokenize=lambda texts, lower_case: [fixed_tokens] if lower_case else [],
    )


def test_tokenize_adds_cls_and_sep_and_truncates():
    encoder = stub(["<s>", "a", "b", "c", "</s>"], [None, 0, 1, 2, None], {"a": 5, "b": 6}, unknown=1)
    assert moverscore.tokenize_as_simil_eval(encoder, ["a b c"]) == [
        Tokens([1, 5, 6, 1], ["[CLS]", "a", "b", "[SEP]"], [""] * 4, [None] * 4, False)
    ]


def test_vocabulary_without_special_tokens_raises_model_error():
    encoder = stub(["a"], [0], {"a": 5})
    with pytest.raises(ModelError) as error:
        moverscore.tokenize_as_simil_eval(encoder, ["a"])
    for part in ("stub: ", "[CLS] and [SEP]", 'variant "simil-eval"'):
        assert part in str(error.value)
