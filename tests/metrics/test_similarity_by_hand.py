"""The pieces of the similarity metrics on vectors and tokens made by hand: no encoder is loaded."""

import math
from importlib.metadata import version
from types import SimpleNamespace

import bert_score
import numpy as np
import ot
import pytest
import torch
from vernacular.metrics.similarity import bertscore, cosine, encoder, moverscore
from vernacular.metrics.similarity import token_metrics as tokens_of_pairs
from vernacular.metrics.similarity.encoder import Tokens

LN = math.log
X, Y, XY, MINUS_X = [1.0, 0.0], [0.0, 2.0], [3.0, 3.0], [-1.0, 0.0]
VECTORS = {"x": [X], "xy": [X, Y], "diagonal": [XY], "against": [MINUS_X], "long": [X, X, X, X, MINUS_X]}
VECTORS = {text: np.array(vectors, np.float32) for text, vectors in VECTORS.items()}
EVEN = {text: np.ones(len(vectors)) for text, vectors in VECTORS.items()}
ODD = {
    "nan": [[math.nan, 1.0], X],
    "infinite": [X, [math.inf, 0.0]],
    "zero": [[0.0, 0.0], X],
}
ODD = {text: np.array(vectors, np.float32) for text, vectors in ODD.items()}


def tokens(pieces, words, ids=None, surfaces=None):
    surfaces = surfaces or [piece.removeprefix("##") for piece in pieces]
    return Tokens(ids or list(range(len(pieces))), pieces, surfaces, words, False)


# BERTScore


def test_bertscore_by_hand():
    half = math.sqrt(0.5)
    pairs = [("x", "xy"), ("xy", "x"), ("x", "against"), ("diagonal", "x"), ("diagonal", "long"), ("x", "x")]
    # precision 1, recall ½; the other way round; -1; √½ both; the last of five option tokens is matched by -√½
    recall = (4 * half - half) / 5
    expected = [2 / 3, 2 / 3, -1, half, 2 * half * recall / (half + recall), 1]
    for size in (1, 2, 3, 256):
        np.testing.assert_allclose(bertscore.bertscore(pairs, VECTORS, EVEN, size), expected, atol=1e-6)
    assert bertscore.bertscore([], VECTORS, EVEN).tolist() == []


def test_whom_a_pair_is_scored_with_changes_no_bertscore():
    """The package itself lets a token that is unlike all of the other text match the padding, with a similarity of 0."""
    alone = bertscore.bertscore([("x", "against")], VECTORS, EVEN)[0]
    together = bertscore.bertscore([("xy", "long"), ("x", "against"), ("long", "xy")], VECTORS, EVEN)[1]
    assert alone == together == -1.0


def test_bertscore_weighs_each_side_by_its_own_weights():
    weights = EVEN | {"xy": np.array([3.0, 1.0])}
    found = bertscore.bertscore([("xy", "x"), ("x", "xy")], VECTORS, weights)
    np.testing.assert_allclose(found, [2 * 0.75 / 1.75] * 2, atol=1e-6)


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("measure", [bertscore.bertscore, moverscore.moverscore])
def test_vectors_without_a_direction_have_no_score_and_spoil_no_other_pair(measure, odd):
    """The bert-score package makes 0.0 of a NaN, and the solver of the earth mover's distance gives up."""
    vectors = VECTORS | ODD
    weights = {text: np.ones(len(v)) for text, v in vectors.items()}
    pairs = [("x", "xy"), ("x", odd), (odd, "x"), (odd, odd), ("x", "x")]
    found = measure(pairs, vectors, weights)
    assert np.isnan(found).tolist() == [False, True, True, True, False]
    assert found[-1] == pytest.approx(1.0)


@pytest.mark.parametrize("measure", [bertscore.bertscore, moverscore.moverscore])
def test_a_text_without_weight_has_no_score(measure):
    weights = EVEN | {"xy": np.zeros(2)}
    found = measure([("xy", "x"), ("x", "xy"), ("xy", "xy"), ("x", "x")], VECTORS, weights)
    assert np.isnan(found).tolist() == [True, True, True, False]


def test_tokens_of_a_bertscore_weigh_one_or_their_idf():
    found = tokens(["[CLS]", "a", "a", "[SEP]"], [None, 0, 1, None], ids=[2, 7, 7, 3])
    assert bertscore.token_weights(found, None, {2, 3}).tolist() == [0, 1, 1, 0]
    assert bertscore.token_weights(found, {2: 0.0, 7: 0.5, 3: 0.25}, {2, 3}).tolist() == [0, 0.5, 0.5, 0.25]


def test_idf_by_hand():
    documents = [tokens(["a", "a"], [0, 1], ids=[1, 1]), tokens(["a", "b"], [0, 1], ids=[1, 2])]
    table = bertscore.idf_table(documents)
    assert (table[1], table[2], table[3]) == (LN(3 / 3), LN(3 / 2), LN(3 / 1))
    assert bertscore.idf_table([])[5] == 0.0


@pytest.mark.parametrize(
    ("record", "n_layers", "layer"),
    [
        ({"name": "roberta-large", "layer": 0}, 24, 0),
        ({"name": "roberta-large", "layer": None}, 24, 17),
        ({"name": "someone/somewhere/roberta-large"}, 24, 17),
        ({"name": "microsoft/deberta-xlarge-mnli"}, 48, 40),
        ({"name": "nobody/nothing"}, 12, 9),
        ({"name": "nobody/nothing"}, 6, 5),
    ],
)
def test_the_layer_is_the_one_asked_for_or_the_packages_or_three_quarters_up(record, n_layers, layer):
    assert bertscore.layer_of(record, SimpleNamespace(n_layers=n_layers)) == layer


def test_the_baseline_is_that_of_the_layer_in_the_packages_table(tmp_path, monkeypatch):
    monkeypatch.setattr(bert_score, "__file__", str(tmp_path / "__init__.py"))
    folder = tmp_path / "rescale_baseline" / "gl" / "org"
    folder.mkdir(parents=True)
    (folder / "own.tsv").write_text("LAYER,P,R,F\n0,0.1,0.2,0.25\n1,0.3,0.4,0.5\n")
    (folder.parent / "small.tsv").write_text("LAYER,P,R,F\n3,0,0,0.75\n")
    found = [
        bertscore.baseline({"name": name}, language, layer)
        for name, language, layer in [
            ("org/own", "gl", 1), ("org/own", "gl", 0), ("a/org/small", "gl", 3), ("small", "gl", 3),
            ("org/own", "gl", 2), ("own", "gl", 1), ("org/own", "es", 1), ("org/own", None, 1),
        ]
    ]  # fmt: skip
    assert found == [0.5, 0.25, 0.75, 0.75, None, None, None, None]


@pytest.mark.parametrize(
    ("record", "described"),
    [
        ({"name": "e", "revision": "0123456789abcdef", "fingerprint": "f" * 64}, "e@0123456789ab"),
        ({"name": "e", "revision": None, "fingerprint": "f" * 64}, "e@ffffffffffff"),
        ({"name": "e"}, "e@unknown"),
    ],
)
def test_signatures_to_the_letter(record, described):
    versions = f"transformers:{version('transformers')}"
    for rescaled, said in ((True, "yes"), (False, "no"), (None, "no (no baseline)")):
        assert bertscore.signature(record, layer=9, idf=rescaled is None, rescaled=rescaled) == (
            f"bertscore|encoder:{described}|layer:9|idf:{'yes' if rescaled is None else 'no'}|rescaled:{said}"
            f"|bert-score:{version('bert-score')}|{versions}"
        )
    for idf, said in ((True, "yes"), (False, "no")):
        assert moverscore.signature(record, variant="default", idf=idf) == (
            f"moverscore|variant:default|encoder:{described}|layer:last|idf:{said}|pot:{version('pot')}|{versions}"
        )
    assert cosine.signature(record, "q: ") == (
        f"cosine|encoder:{described}|prefix:'q: '|sentence-transformers:{version('sentence-transformers')}"
    )


# MoverScore


def test_moverscore_moves_the_mass_of_either_side():
    weights = EVEN | {"xy": np.array([3.0, 1.0]), "x": np.array([5.0])}
    found = moverscore.moverscore([("xy", "x"), ("x", "xy"), ("x", "against")], VECTORS, weights)
    quarter = 1 / (1 + math.sqrt(2) / 4)
    np.testing.assert_allclose(found, [quarter, quarter, 1 / 3], atol=1e-12)
    assert moverscore.moverscore([], VECTORS, weights).tolist() == []


def test_what_has_no_weight_moves_nothing():
    weights = EVEN | {"xy": np.array([1.0, 0.0])}
    assert moverscore.moverscore([("xy", "x")], VECTORS, weights)[0] == 1.0


def test_idf_weighs_the_first_pieces_of_words():
    found = tokens(["[CLS]", "com", "##e", ",", "pan", "[SEP]"], [None, 0, 0, 1, 2, None])
    found.surfaces[0] = found.surfaces[-1] = ""
    idf = {i: i / 8 for i in range(6)}
    assert moverscore.token_weights(found).tolist() == [0, 1, 0, 0, 1, 0]
    assert moverscore.token_weights(found, idf).tolist() == [0, 1 / 8, 0, 0, 4 / 8, 0]


def test_a_solver_that_gives_up_is_no_number(monkeypatch):
    monkeypatch.setattr(ot, "emd2", lambda *given, **options: (0.0, {"warning": "numItermax reached"}))
    with pytest.raises(ArithmeticError, match=r"^exact earth mover's distance of \(2, 1\) tokens: numItermax reached$"):
        moverscore.moverscore([("xy", "x")], VECTORS, EVEN)


# many pairs


@pytest.mark.parametrize(
    ("budget", "runs"),
    [
        (1, [[0], [1], [2], [3], [4], [5]]),  # one pair each, however long
        (5, [[0], [1], [2], [3, 4], [5]]),
        (7, [[0], [1, 2], [3, 4], [5]]),  # (b, c) has 7 alone
        (9, [[0, 1, 2, 3, 4, 5]]),  # all there is
    ],
)
def test_pairs_are_held_in_runs_by_the_tokens_of_their_distinct_texts(monkeypatch, budget, runs):
    monkeypatch.setattr(tokens_of_pairs, "CHUNK_TOKENS", budget)
    sizes = {text: tokens(["x"] * n, [0] * n) for text, n in (("a", 2), ("b", 3), ("c", 4))}
    pairs = [("a", "b"), ("a", "c"), ("c", "a"), ("b", "b"), ("a", "a"), ("b", "c")]
    assert list(tokens_of_pairs._chunks(pairs, sizes)) == runs
    assert list(tokens_of_pairs._chunks([], sizes)) == []


def test_metrics_that_one_pass_serves_stand_together():
    def spec(metric, **options):
        return {"metric": metric} | options

    cosine, mover, bert = spec("cosine"), spec("moverscore", variant="default"), spec("bertscore")
    other = spec("moverscore", variant="other")
    one = {name: {"folder": "f"} for name in ("cosine", "moverscore", "bertscore")}
    assert tokens_of_pairs.sharing([mover, cosine, bert], one) == [[mover, bert], [cosine]]
    assert tokens_of_pairs.sharing([other, bert], one) == [[other], [bert]]
    assert tokens_of_pairs.sharing([mover, bert], one | {"bertscore": {"folder": "g"}}) == [[mover], [bert]]


# cosine


class Encoder:
    """Sentence vectors from a table; keeps what it was asked."""

    def __init__(self, vectors, device="cpu", prompts=None, default=None):
        self.vectors, self.device, self.asked = vectors, torch.device(device), []
        self.prompts, self.default_prompt_name = prompts or {}, default

    def encode(self, texts, **options):
        self.asked.append((texts, options))
        return np.array([self.vectors[text] for text in texts], np.float32)


def test_cosine_by_hand_in_double_precision_and_never_beyond_one():
    longest = [1.0, 1.0, 2.0]  # over its own norm, its square is 1.0000000000000002
    encoder = Encoder({"a": longest, "b": [-v for v in longest], "c": [1.0, -1.0, 0.0], "d": [1.0, 2.0, 2.0]})
    found = cosine.cosine(encoder, [("a", "a"), ("a", "b"), ("a", "c"), ("d", "c"), ("c", "d")])
    assert (found[0], found[1], found[2]) == (1.0, -1.0, 0.0)
    assert found[3:] == pytest.approx([-1 / (3 * math.sqrt(2))] * 2, abs=1e-15)


@pytest.mark.parametrize(("device", "size"), [("cpu", 16), ("cuda", 256)])
def test_each_text_is_embedded_once_behind_its_prefix_in_batches_for_the_device(device, size):
    encoder = Encoder({"a": [1.0], "b": [2.0], "c": [3.0]}, device)
    cosine.cosine(encoder, [("a", "b"), ("b", "a")], "q: ")
    cosine.cosine(encoder, [("b", "c")], "q: ")
    cosine.cosine(encoder, [("a", "a")])  # without the prefix it is another text
    options = {"batch_size": size, "show_progress_bar": False}
    assert encoder.asked == [
        (["a", "b"], {"prompt": "q: "} | options), (["c"], {"prompt": "q: "} | options), (["a"], {"prompt": ""} | options)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("record", "prefix"),
    [({}, "query: "), ({"prefix": None}, "query: "), ({"prefix": ""}, ""), ({"prefix": "x"}, "x")],
)
def test_the_prefix_is_the_records_or_the_encoders_own(record, prefix):
    encoder = Encoder({}, prompts={"query": "query: "}, default="query")
    assert cosine.prefix_of(record, encoder) == prefix
    assert cosine.prefix_of({}, Encoder({}, prompts={"query": "query: "})) == ""


@pytest.mark.parametrize(("own", "tokenizers", "count"), [(3, 9, 1), (None, 3, 1), (4, 3, 0), (2, 9, 2)])
def test_texts_longer_than_the_encoder_reads_are_counted(own, tokenizers, count):
    def tokenizer(texts):
        return {"input_ids": [text.split() for text in texts]}

    tokenizer.model_max_length = tokenizers
    encoder = SimpleNamespace(max_seq_length=own, tokenizer=tokenizer)
    assert cosine.n_truncated(encoder, ["a", "a b"], "p p ") == count
    assert cosine.n_truncated(encoder, ["a a a a a"]) == 1


# what is kept from one evaluation to the next


def test_what_was_used_longest_ago_goes_first_and_all_that_is_asked_comes_back():
    made = []

    def make(keys):
        made.append(keys)
        return [key * 10 for key in keys]

    values = encoder.EmbeddingCache(lambda value: value, limit=60)
    assert values.all([1, 2, 1], make) == {1: 10, 2: 20}
    assert values.all([1, 3], make) == {1: 10, 3: 30}  # 60 in all: just fits
    assert values.all([1, 2, 3], make) == {1: 10, 2: 20, 3: 30}
    assert made == [[1, 2], [3]]
    assert list(values.all([3, 4], make)) == [3, 4]  # 100: 1, 2 and 3 go, by when they were last used
    assert values.all([4], make) == {4: 40}
    assert values.all([1], make) == {1: 10}
    assert made == [[1, 2], [3], [4], [1]]
    assert values.all([9, 4], make) == {9: 90, 4: 40}  # larger than all that may be kept: given, not kept
    assert values.all([4], make) == {4: 40}
    assert made[4:] == [[9]]
    with pytest.raises(ValueError, match="zip"):
        values.all([7], lambda keys: [])
