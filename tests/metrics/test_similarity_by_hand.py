"""Components of the similarity metrics with fixed vectors and tokens; no encoder is loaded."""

import math
from importlib.metadata import version
from types import SimpleNamespace

import bert_score
import numpy as np
import ot
import pytest
import torch
from vernacular.core.model_record import ModelRecord
from vernacular.metrics.similarity import bertscore, compute, cosine, encoder, moverscore
from vernacular.metrics.similarity.encoder import Tokens

LN = math.log
X, Y, XY, NEGATIVE_X = [1.0, 0.0], [0.0, 2.0], [3.0, 3.0], [-1.0, 0.0]
VECTORS = {"x": [X], "xy": [X, Y], "diagonal": [XY], "against": [NEGATIVE_X], "long": [X, X, X, X, NEGATIVE_X]}
VECTORS = {text: np.array(vectors, np.float32) for text, vectors in VECTORS.items()}
UNIFORM_WEIGHTS = {text: np.ones(len(vectors)) for text, vectors in VECTORS.items()}
INVALID_VECTORS = {
    "nan": [[math.nan, 1.0], X],
    "infinite": [X, [math.inf, 0.0]],
    "zero": [[0.0, 0.0], X],
}
INVALID_VECTORS = {text: np.array(vectors, np.float32) for text, vectors in INVALID_VECTORS.items()}


def tokens(subwords, words, ids=None, surfaces=None):
    surfaces = surfaces or [subword.removeprefix("##") for subword in subwords]
    return Tokens(ids or list(range(len(subwords))), subwords, surfaces, words, False)


# BERTScore


def test_bertscore_of_simple_vectors():
    half = math.sqrt(0.5)
    pairs = [("x", "xy"), ("xy", "x"), ("x", "against"), ("diagonal", "x"), ("diagonal", "long"), ("x", "x")]
    # precision 1, recall ½; the reverse; -1; both √½; the last of five option tokens has a similarity of -√½
    recall = (4 * half - half) / 5
    expected = [2 / 3, 2 / 3, -1, half, 2 * half * recall / (half + recall), 1]
    for batch_size in (1, 2, 3, 256):
        np.testing.assert_allclose(
            bertscore.bertscore(pairs, VECTORS, UNIFORM_WEIGHTS, batch_size), expected, atol=1e-6
        )
    assert bertscore.bertscore([], VECTORS, UNIFORM_WEIGHTS).tolist() == []


def test_bertscore_is_independent_of_other_pairs():
    """The package matches a token to the padding, with a similarity of 0, if all other similarities are negative."""
    single = bertscore.bertscore([("x", "against")], VECTORS, UNIFORM_WEIGHTS)[0]
    batched = bertscore.bertscore([("xy", "long"), ("x", "against"), ("long", "xy")], VECTORS, UNIFORM_WEIGHTS)[1]
    assert single == batched == -1.0


def test_bertscore_uses_weights_of_each_text():
    weights = UNIFORM_WEIGHTS | {"xy": np.array([3.0, 1.0])}
    scores = bertscore.bertscore([("xy", "x"), ("x", "xy")], VECTORS, weights)
    np.testing.assert_allclose(scores, [2 * 0.75 / 1.75] * 2, atol=1e-6)


@pytest.mark.parametrize("invalid", INVALID_VECTORS)
@pytest.mark.parametrize("metric", [bertscore.bertscore, moverscore.moverscore])
def test_invalid_vectors_yield_nan_for_their_pairs_only(metric, invalid):
    """The bert-score package converts NaN to 0.0, and the solver of the earth mover's distance fails."""
    vectors = VECTORS | INVALID_VECTORS
    weights = {text: np.ones(len(v)) for text, v in vectors.items()}
    pairs = [("x", "xy"), ("x", invalid), (invalid, "x"), (invalid, invalid), ("x", "x")]
    scores = metric(pairs, vectors, weights)
    assert np.isnan(scores).tolist() == [False, True, True, True, False]
    assert scores[-1] == pytest.approx(1.0)


@pytest.mark.parametrize("metric", [bertscore.bertscore, moverscore.moverscore])
def test_text_without_weight_yields_nan(metric):
    weights = UNIFORM_WEIGHTS | {"xy": np.zeros(2)}
    scores = metric([("xy", "x"), ("x", "xy"), ("xy", "xy"), ("x", "x")], VECTORS, weights)
    assert np.isnan(scores).tolist() == [True, True, True, False]


def test_bertscore_token_weights_are_one_or_idf():
    text_tokens = tokens(["[CLS]", "a", "a", "[SEP]"], [None, 0, 1, None], ids=[2, 7, 7, 3])
    assert bertscore.token_weights(text_tokens, None, {2, 3}).tolist() == [0, 1, 1, 0]
    assert bertscore.token_weights(text_tokens, {2: 0.0, 7: 0.5, 3: 0.25}, {2, 3}).tolist() == [0, 0.5, 0.5, 0.25]


def test_idf_table():
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
def test_layer_is_configured_or_tuned_or_three_quarters(record, n_layers, layer):
    assert bertscore.layer_of(ModelRecord(**record), SimpleNamespace(n_layers=n_layers)) == layer


def test_rescale_offset_is_read_from_package_table(tmp_path, monkeypatch):
    monkeypatch.setattr(bert_score, "__file__", str(tmp_path / "__init__.py"))
    directory = tmp_path / "rescale_baseline" / "gl" / "org"
    directory.mkdir(parents=True)
    (directory / "own.tsv").write_text("LAYER,P,R,F\n0,0.1,0.2,0.25\n1,0.3,0.4,0.5\n")
    (directory.parent / "small.tsv").write_text("LAYER,P,R,F\n3,0,0,0.75\n")
    offsets = [
        bertscore.rescale_offset(ModelRecord(name=name), language, layer)
        for name, language, layer in [
            ("org/own", "gl", 1), ("org/own", "gl", 0), ("a/org/small", "gl", 3), ("small", "gl", 3),
            ("org/own", "gl", 2), ("own", "gl", 1), ("org/own", "es", 1), ("org/own", None, 1),
        ]
    ]  # fmt: skip
    assert offsets == [0.5, 0.25, 0.75, 0.75, None, None, None, None]


@pytest.mark.parametrize(
    ("record", "encoder_label"),
    [
        ({"name": "e", "revision": "0123456789abcdef", "fingerprint": "f" * 64}, "e@0123456789ab"),
        ({"name": "e", "revision": None, "fingerprint": "f" * 64}, "e@ffffffffffff"),
        ({"name": "e"}, "e@unknown"),
    ],
)
def test_signatures(record, encoder_label):
    record, versions = ModelRecord(**record), f"transformers:{version('transformers')}"
    for rescaled, expected in ((True, "yes"), (False, "no"), (None, "no (no baseline)")):
        assert bertscore.signature(record, layer=9, idf=rescaled is None, rescaled=rescaled) == (
            f"bertscore|encoder:{encoder_label}|layer:9|idf:{'yes' if rescaled is None else 'no'}|rescaled:{expected}"
            f"|bert-score:{version('bert-score')}|{versions}"
        )
    for idf, expected in ((True, "yes"), (False, "no")):
        assert moverscore.signature(record, variant="default", idf=idf) == (
            f"moverscore|variant:default|encoder:{encoder_label}|layer:last|idf:{expected}|pot:{version('pot')}|{versions}"
        )
    assert cosine.signature(record, "q: ") == (
        f"cosine|encoder:{encoder_label}|prefix:'q: '|sentence-transformers:{version('sentence-transformers')}"
    )


# MoverScore


def test_moverscore_uses_weights_of_both_texts():
    weights = UNIFORM_WEIGHTS | {"xy": np.array([3.0, 1.0]), "x": np.array([5.0])}
    scores = moverscore.moverscore([("xy", "x"), ("x", "xy"), ("x", "against")], VECTORS, weights)
    quarter = 1 / (1 + math.sqrt(2) / 4)
    np.testing.assert_allclose(scores, [quarter, quarter, 1 / 3], atol=1e-12)
    assert moverscore.moverscore([], VECTORS, weights).tolist() == []


def test_moverscore_ignores_tokens_without_weight():
    weights = UNIFORM_WEIGHTS | {"xy": np.array([1.0, 0.0])}
    assert moverscore.moverscore([("xy", "x")], VECTORS, weights)[0] == 1.0


def test_idf_weights_first_subword_tokens():
    text_tokens = tokens(["[CLS]", "com", "##e", ",", "pan", "[SEP]"], [None, 0, 0, 1, 2, None])
    text_tokens.surfaces[0] = text_tokens.surfaces[-1] = ""
    idf = {i: i / 8 for i in range(6)}
    assert moverscore.token_weights(text_tokens).tolist() == [0, 1, 0, 0, 1, 0]
    assert moverscore.token_weights(text_tokens, idf).tolist() == [0, 1 / 8, 0, 0, 4 / 8, 0]


def test_each_token_of_a_script_without_spaces_has_weight():
    text_tokens = tokens(["[CLS]", "แมว", "นอน", "。", "O", "gato", "[SEP]"], [None, 0, 0, 0, 1, 1, None])
    text_tokens.surfaces[0] = text_tokens.surfaces[-1] = ""
    assert moverscore.token_weights(text_tokens).tolist() == [0, 1, 1, 0, 1, 0, 0]


def test_unconverged_solver_raises_arithmetic_error(monkeypatch):
    monkeypatch.setattr(ot, "emd2", lambda *args, **kwargs: (0.0, {"warning": "numItermax reached"}))
    with pytest.raises(ArithmeticError, match=r"^exact earth mover's distance of \(2, 1\) tokens: numItermax reached$"):
        moverscore.moverscore([("xy", "x")], VECTORS, UNIFORM_WEIGHTS)


# chunks of pairs


@pytest.mark.parametrize(
    ("budget", "chunks"),
    [
        (1, [[0], [1], [2], [3], [4], [5]]),  # one pair each, regardless of its length
        (5, [[0], [1], [2], [3, 4], [5]]),
        (7, [[0], [1, 2], [3, 4], [5]]),  # (b, c) alone has 7 tokens
        (9, [[0, 1, 2, 3, 4, 5]]),  # all pairs
    ],
)
def test_pairs_are_chunked_by_sizes_of_distinct_texts(budget, chunks):
    sizes = {"a": 2, "b": 3, "c": 4}
    pairs = [("a", "b"), ("a", "c"), ("c", "a"), ("b", "b"), ("a", "a"), ("b", "c")]
    assert list(compute.chunks(range(6), pairs, sizes, budget)) == chunks
    assert list(compute.chunks([], pairs, sizes, budget)) == []


def test_metrics_are_grouped_by_encoder_and_variant():
    def spec(metric, **options):
        return {"metric": metric} | options

    cosine, mover, bert = spec("cosine"), spec("moverscore", variant="default"), spec("bertscore")
    other_mover = spec("moverscore", variant="other")
    records = {name: ModelRecord(name="e", directory="f") for name in ("cosine", "moverscore", "bertscore")}
    assert compute.group_by_encoder([mover, cosine, bert], records) == [[mover, bert], [cosine]]
    assert compute.group_by_encoder([other_mover, bert], records) == [[other_mover], [bert]]
    assert compute.group_by_encoder([mover, bert], records | {"bertscore": ModelRecord(name="e", directory="g")}) == [
        [mover],
        [bert],
    ]


# cosine


class Encoder:
    """Return sentence vectors from a table, and record the calls."""

    def __init__(self, vectors, device="cpu", prompts=None, default=None):
        self.vectors, self.device, self.calls = vectors, torch.device(device), []
        self.prompts, self.default_prompt_name = prompts or {}, default

    def encode(self, texts, **options):
        self.calls.append((texts, options))
        return np.array([self.vectors[text] for text in texts], np.float32)


def test_cosine_is_in_double_precision_and_clipped():
    longest = [1.0, 1.0, 2.0]  # divided by its norm, its square is 1.0000000000000002
    encoder = Encoder({"a": longest, "b": [-v for v in longest], "c": [1.0, -1.0, 0.0], "d": [1.0, 2.0, 2.0]})
    values = cosine.cosine(encoder, [("a", "a"), ("a", "b"), ("a", "c"), ("d", "c"), ("c", "d")])
    assert (values[0], values[1], values[2]) == (1.0, -1.0, 0.0)
    assert values[3:] == pytest.approx([-1 / (3 * math.sqrt(2))] * 2, abs=1e-15)


@pytest.mark.parametrize(("device", "batch_size"), [("cpu", 16), ("cuda", 256)])
def test_texts_are_embedded_once_with_prefix_and_device_batch_size(device, batch_size):
    encoder = Encoder({"a": [1.0], "b": [2.0], "c": [3.0]}, device)
    cosine.cosine(encoder, [("a", "b"), ("b", "a")], "q: ")
    cosine.cosine(encoder, [("b", "c")], "q: ")
    cosine.cosine(encoder, [("a", "a")])  # without the prefix, the text is different
    options = {"batch_size": batch_size, "show_progress_bar": False}
    assert encoder.calls == [
        (["a", "b"], {"prompt": "q: "} | options), (["c"], {"prompt": "q: "} | options), (["a"], {"prompt": ""} | options)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("record", "prefix"),
    [({}, "query: "), ({"prefix": None}, "query: "), ({"prefix": ""}, ""), ({"prefix": "x"}, "x")],
)
def test_prefix_is_of_record_or_encoder(record, prefix):
    encoder = Encoder({}, prompts={"query": "query: "}, default="query")
    assert cosine.prefix_of(ModelRecord(name="e", **record), encoder) == prefix
    assert cosine.prefix_of(ModelRecord(name="e"), Encoder({}, prompts={"query": "query: "})) == ""


@pytest.mark.parametrize(
    ("max_seq_length", "model_max_length", "count"), [(3, 9, 1), (None, 3, 1), (4, 3, 0), (2, 9, 2)]
)
def test_texts_exceeding_max_length_are_counted(max_seq_length, model_max_length, count):
    def tokenizer(texts):
        return {"input_ids": [text.split() for text in texts]}

    tokenizer.model_max_length = model_max_length
    encoder = SimpleNamespace(max_seq_length=max_seq_length, tokenizer=tokenizer)
    assert cosine.n_truncated(encoder, ["a", "a b"], "p p ") == count
    assert cosine.n_truncated(encoder, ["a a a a a"]) == 1


# vectors of texts, shared by evaluations


def test_store_returns_what_was_stored_and_is_emptied_only_for_new_keys(low_limits):
    low_limits("metrics.similarity.encoder", LIMIT=24)
    store = encoder.VectorStore()
    assert store.missing([1, 2, 1]) == [1, 2]
    store[1], store[2] = np.float32([[1, 2]]), np.float32([0.1])
    assert store.missing([1, 2, 3]) == [3]  # 12 bytes: below the limit
    store[3] = np.float32([[3, 4], [5, 6]])
    assert store.missing([2, 3, 1]) == []
    assert [store[key].tolist() for key in (1, 2, 3)] == [[[1, 2]], [np.float32(0.1)], [[3, 4], [5, 6]]]
    assert [store.n_bytes(key) for key in (1, 2, 3)] == [8, 4, 16]
    assert store.missing([3, 4]) == [3, 4]  # 28 bytes: everything is embedded again
    store[4] = np.float32([7])
    assert store[4].tolist() == [7]
    assert store.missing([1, 4]) == [1]
