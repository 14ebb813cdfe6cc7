"""Simil-Eval's MoverScore: its tokens and weights by hand, and its values by that tool's definition."""

import string
from types import SimpleNamespace

import numpy as np
import ot
import pytest
import torch
from support import similarity_encoders as tiny
from transformers import AutoModel, AutoTokenizer
from vernacular.core.errors import ConfigError, ModelError
from vernacular.interop.simil_eval import moverscore as simil_eval
from vernacular.metrics.similarity.compute import similarities
from vernacular.metrics.similarity.encoder import TokenEncoder, Tokens

ANSWERS = ["O rapaz come", "a mazá é vermella!", "Мачка", "gatos 🐈", "The boy eats a red apple (at home) and sleeps."]
OPTIONS = ["unha mazá vermella", "The boy", "Os gatos dormen moito.", "A Coruña"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("encoders")
    build = {"bert": tiny.bert, "roberta": tiny.roberta}
    for name in build:
        (root / name).mkdir()
    return {name: make(root / name) for name, make in build.items()}


def run(metric, folder):
    """The similarities of every answer and option, and the metadata."""
    items = [{"item_id": str(i), "choices": OPTIONS, "gold": [0], "target": None} for i in range(len(ANSWERS))]
    texts = [{"raw_output": answer, "output": answer, "rendered": None, "flags": None} for answer in ANSWERS]
    generations = [{"item_id": str(i), "role": "response", **text} for i, text in enumerate(texts)]
    encoders, requests = {"default": tiny.record(folder)}, tiny.requests(generations)
    rows, metadata = similarities(items, generations, [metric], encoders, requests=requests)
    return np.array([row["similarities"] for row in rows], dtype=float), metadata


def sentence_score(tokenizer, model, hypothesis, reference):
    """The definition of Simil-Eval's MoverScore, one pair at a time (moverscore_v2.py, unigrams, weights 1)."""
    clouds = []
    for text in (reference, hypothesis):
        tokens = ["[CLS]", *tokenizer.tokenize(text), "[SEP]"]
        ids = [tokenizer.convert_tokens_to_ids(token) for token in tokens]
        ids = [tokenizer.unk_token_id if i is None else i for i in ids]
        with torch.no_grad():
            vectors = model(torch.tensor([ids])).last_hidden_state[0].clone()
        weight = np.array([0.0 if "##" in t or t in set(string.punctuation) else 1.0 for t in tokens])
        vectors[weight == 0] = 0
        clouds.append((vectors, weight))
    raw = torch.cat([vectors for vectors, _ in clouds])
    raw = raw / (torch.norm(raw, dim=-1, keepdim=True) + 1e-30)
    distances = torch.cdist(raw.double(), raw.double()).numpy()
    sizes = [len(weight) for _, weight in clouds]
    one = np.concatenate([clouds[0][1], np.zeros(sizes[1])])
    two = np.concatenate([np.zeros(sizes[0]), clouds[1][1]])
    return 1 / (1 + ot.emd2(one / one.sum(), two / two.sum(), distances))


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_the_variant_is_that_tools_definition(folders, family):
    ours, metadata = run({"metric": "moverscore", "variant": "simil-eval"}, folders[family])
    tokenizer, model = AutoTokenizer.from_pretrained(folders[family]), AutoModel.from_pretrained(folders[family])
    if family == "bert":  # what do_lower_case=True does to a cased BERT tokenizer; others ignore it
        tokenizer.backend_tokenizer.normalizer = type(tokenizer.backend_tokenizer.normalizer)(lowercase=True)
    for i, answer in enumerate(ANSWERS):
        for j, option in enumerate(OPTIONS):
            expected = sentence_score(tokenizer, model, option, answer)
            assert ours[i, j] == pytest.approx(expected, abs=1e-6)
    assert "variant:simil-eval" in metadata["signatures"]["moverscore"]


def test_a_variant_that_does_not_exist_is_named_with_the_nearest(folders):
    with pytest.raises(ConfigError, match='Did you mean "simil-eval"'):
        run({"metric": "moverscore", "variant": "simileval"}, folders["bert"])


def test_the_text_is_lower_cased_and_loses_its_accents_for_a_cased_bert(folders):
    encoder = TokenEncoder(tiny.record(folders["bert"]))
    (found,) = simil_eval.tokenize(encoder, ["A Coruña"])
    assert "".join(found.pieces[1:-1]).replace("##", "") == "acoruna"
    (ours,) = encoder.tokenize(["A Coruña"])  # and leaves the tokenizer as it was
    assert "".join(ours.pieces[1:-1]).replace("##", "") == "ACoruña"


def test_special_tokens_have_weight(folders):
    encoder = TokenEncoder(tiny.record(folders["bert"]))
    (found,) = simil_eval.tokenize(encoder, ["..."])
    assert simil_eval.token_weights(found).tolist() == [1.0, 0.0, 0.0, 0.0, 1.0]


def tokens(pieces, words):
    return Tokens(list(range(len(pieces))), pieces, [piece.removeprefix("##") for piece in pieces], words, False)


def test_pieces_of_words_and_ascii_punctuation_have_no_weight():
    """ "…" is not ASCII punctuation."""
    made = tokens(["[CLS]", "com", "##e", ",", "…", "[SEP]"], [None] * 6)
    idf = {i: i / 8 for i in range(6)}
    assert simil_eval.token_weights(made).tolist() == [1, 1, 0, 0, 1, 1]
    assert simil_eval.token_weights(made, idf).tolist() == [0, 1 / 8, 0, 0, 4 / 8, 5 / 8]


def stub(pieces, words, vocabulary, unknown=None):
    """An encoder of four tokens whose tokenizer gives every text these pieces."""
    tokenizer = SimpleNamespace(convert_tokens_to_ids=lambda pieces: [vocabulary.get(p, unknown) for p in pieces])
    made = tokens(pieces, words)
    return SimpleNamespace(
        name="stub", max_tokens=4, tokenizer=tokenizer, tokenize=lambda texts, lower_case: [made] if lower_case else []
    )


def test_tokens_stand_between_literal_cls_and_sep_and_are_cut_to_fit():
    encoder = stub(["<s>", "a", "b", "c", "</s>"], [None, 0, 1, 2, None], {"a": 5, "b": 6}, unknown=1)
    assert simil_eval.tokenize(encoder, ["a b c"]) == [
        Tokens([1, 5, 6, 1], ["[CLS]", "a", "b", "[SEP]"], [""] * 4, [None] * 4, False)
    ]


def test_a_vocabulary_without_the_special_tokens_is_named():
    encoder = stub(["a"], [0], {"a": 5})
    with pytest.raises(ModelError) as error:
        simil_eval.tokenize(encoder, ["a"])
    for part in ("stub: ", "[CLS] and [SEP]", 'variant "simil-eval"'):
        assert part in str(error.value)
