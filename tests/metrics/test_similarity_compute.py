import numpy as np
import pytest
import torch
from support import similarity_encoders as tiny
from vernacular.core.artifacts import _as_table
from vernacular.core.errors import ConfigError
from vernacular.metrics.schema import SIMILARITIES
from vernacular.metrics.similarity import bertscore, compute, moverscore, token_metrics
from vernacular.metrics.similarity.encoder import TokenEncoder

ALL = ["cosine", "moverscore", "bertscore"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    torch.set_num_threads(1)
    return tiny.bert(tmp_path_factory.mktemp("bert"))


def item(name, choices=("unha mazá", "os gatos"), gold=(0,), target=None):
    return {"item_id": name, "choices": list(choices), "gold": list(gold), "target": target}


def generation(name, answer, flag=None):
    return {
        "item_id": name,
        "role": "response",
        "raw_output": answer,
        "output": answer,
        "rendered": None,
        "flags": flag,
    }


def similarities(items, generations, metrics=ALL, folder=None, **more):
    return compute.similarities(
        items, generations, metrics, {"default": tiny.record(folder)}, requests=tiny.requests(generations), **more
    )


def by_item(rows, metric):
    return {row["item_id"]: row["similarities"] for row in rows if row["metric"] == metric}


def test_empty_answers_are_null_and_counted(folder):
    items = [item("a"), item("b"), item("c")]
    rows, metadata = similarities(
        items, [generation("a", "come"), generation("b", ""), generation("c", " \n")], folder=folder
    )
    _as_table(rows, SIMILARITIES)
    for metric in ALL:
        found = by_item(rows, metric)
        assert found["b"] == found["c"] == [None, None]
        assert all(isinstance(v, float) for v in found["a"])
    assert metadata["counts"]["empty_answers"] == 2


def test_a_failed_generation_is_not_an_empty_answer(folder):
    rows, metadata = similarities([item("a")], [generation("a", None, "error: too long")], folder=folder)
    assert by_item(rows, "cosine") == {"a": [None, None]}
    assert (metadata["counts"]["empty_answers"], metadata["counts"]["failed_generations"]) == (0, 1)


def test_an_empty_option_is_similar_to_nothing(folder):
    rows, _ = similarities([item("a", ["unha mazá", "", " "])], [generation("a", "come")], folder=folder)
    for row in rows:
        assert row["similarities"][0] is not None
        assert row["similarities"][1:] == [None, None]


def test_punctuation_alone_has_no_moverscore_but_a_cosine(folder):
    rows, _ = similarities([item("a", ["unha mazá", "..."])], [generation("a", "come")], folder=folder)
    assert by_item(rows, "moverscore")["a"][1] is None
    assert by_item(rows, "cosine")["a"][1] is not None


def test_an_item_without_choices_is_compared_with_its_target(folder):
    rows, _ = similarities([item("a", [], [], "o rapaz")], [generation("a", "o rapaz")], folder=folder)
    for row in rows:
        assert row["similarities"] == [pytest.approx(1.0, abs=1e-5)]
    rows, _ = similarities([item("a", [], [])], [generation("a", "o rapaz")], folder=folder)
    assert [row["similarities"] for row in rows] == [[], [], []], "nothing to be compared with"


def test_items_that_were_not_asked_have_no_row(folder):
    rows, _ = similarities([item("a"), item("few_shot")], [generation("a", "come")], folder=folder)
    assert {row["item_id"] for row in rows} == {"a"}


def test_each_distinct_text_meets_the_encoder_once(folder, monkeypatch):
    seen = []
    whole = TokenEncoder.embed
    monkeypatch.setattr(
        TokenEncoder, "embed", lambda self, ids, layers: (seen.extend(ids), whole(self, ids, layers))[1]
    )
    items = [item("a"), item("b"), item("c", ["come", "unha mazá"])]
    generations = [generation(name, "come") for name in "abc"]
    similarities(items, generations, ["moverscore", "bertscore"], folder)
    assert len(seen) == 3  # "come", "unha mazá", "os gatos"; both metrics from one pass


@pytest.mark.parametrize("budget", [1, 20, 200_000])
def test_chunks_and_batches_change_no_number(folder, monkeypatch, budget):
    answers = ["come", "a mazá vermella!", "The boy eats a red apple and sleeps", "🐈", "قطة", "come come come"]
    items = [item(str(i)) for i in range(len(answers))]
    generations = [generation(str(i), answer) for i, answer in enumerate(answers)]
    expected, _ = similarities(items, generations, ["moverscore", "bertscore"], folder)
    monkeypatch.setattr(token_metrics, "CHUNK_TOKENS", budget)
    monkeypatch.setattr("vernacular.metrics.similarity.encoder.TOKEN_BUDGET", {"cpu": budget, "cuda": budget})
    found, _ = similarities(items, generations, ["moverscore", "bertscore"], folder)
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_allclose(one["similarities"], other["similarities"], atol=1e-6)


def test_a_runaway_answer_is_cut_at_the_encoders_end_and_counted(folder):
    rows, metadata = similarities([item("a")], [generation("a", "come a mazá " * 500)], folder=folder)
    assert all(value is not None for row in rows for value in row["similarities"])
    for metric in ALL:
        assert metadata["encoders"][metric]["truncated_texts"] == 1


def test_odd_texts_have_similarities(folder):
    answers = ["🐈‍⬛🍎", "مرحبا بالعالم", "\u200b\u200b", "a\x00b", "NaN"]
    items = [item(str(i)) for i in range(len(answers))]
    rows, _ = similarities(items, [generation(str(i), a) for i, a in enumerate(answers)], folder=folder)
    assert all(v is None or -1 <= v <= 1 + 1e-5 for row in rows for v in row["similarities"])


def test_only_the_first_piece_of_a_word_has_weight(folder):
    encoder = TokenEncoder(tiny.record(folder))
    (found,) = encoder.tokenize(["Galiciavermella (casa), x!"])
    weighted = [p for p, w in zip(found.pieces, moverscore.token_weights(found), strict=True) if w]
    assert len(weighted) == 3  # the long word, casa, x
    assert not any("##" in piece or piece in "(),!" for piece in weighted)


def test_a_bracket_does_not_stand_for_the_word_it_opens():
    glued = moverscore.Tokens([1, 2, 3], ["▁(", "casa", ")"], ["(", "casa", ")"], [0, 0, 0], False)
    assert moverscore.token_weights(glued).tolist() == [0.0, 1.0, 0.0]


def test_an_emoji_has_weight():
    assert not moverscore.is_punctuation("🐈")
    assert all(map(moverscore.is_punctuation, ["«", "…", "+", "", " ", "؟", "—"]))


@pytest.mark.parametrize(
    ("metric", "sentence"),
    [
        ("cosin", 'unknown similarity metric "cosin". Did you mean "cosine"'),
        ({"metric": "bertscore", "idff": True}, 'Did you mean "idf"'),
        ({"metric": "moverscore", "variant": "defalt"}, 'Did you mean "default"'),
    ],
)
def test_a_metric_we_do_not_have_is_named_with_the_nearest(folder, metric, sentence):
    with pytest.raises(ConfigError, match=sentence):
        similarities([item("a")], [generation("a", "come")], [metric], folder)


def test_an_evaluation_of_empty_answers_alone_needs_no_number(folder):
    rows, metadata = similarities([item("a")], [generation("a", "")], folder=folder)
    assert len(rows) == 3
    assert set(metadata["signatures"]) == set(ALL)
    assert metadata["signatures"]["cosine"].startswith("cosine|encoder:tiny@ffffffffffff|prefix:''|sentence-transf")
    assert "|variant:default|" in metadata["signatures"]["moverscore"]
    assert "|rescaled:no|" in metadata["signatures"]["bertscore"]
    assert all("|idf:no|" in metadata["signatures"][name] for name in ("moverscore", "bertscore"))
    assert [metadata["encoders"][name]["truncated_texts"] for name in ALL] == [0, 0, 0]
    nothing = {"failed_generations": 0, "distinct_pairs": 0, "distinct_texts": 0}
    assert metadata["counts"] == {"items": 1, "empty_answers": 1} | nothing


def test_a_text_that_two_evaluations_share_is_embedded_once(folder, monkeypatch):
    """The options stay the same at another number of shots; only what the model answered is new."""
    from sentence_transformers import SentenceTransformer
    from vernacular.metrics.similarity import cosine
    from vernacular.metrics.similarity.encoder import TokenEncoder

    embedded: dict[str, list[int]] = {"tokens": [], "sentences": []}
    forward, encode = TokenEncoder._embed, SentenceTransformer.encode

    def count_rows(self, rows, layers):
        embedded["tokens"].append(len(rows))
        return forward(self, rows, layers)

    def count_texts(self, texts, **options):
        embedded["sentences"].append(len(texts))
        return encode(self, texts, **options)

    monkeypatch.setattr(TokenEncoder, "_embed", count_rows)
    monkeypatch.setattr(SentenceTransformer, "encode", count_texts)
    encoder = TokenEncoder({"name": "e", "folder": str(folder)})
    first = encoder.tokenize(["o gato negro", "a casa"])
    encoder.embed([t.ids for t in first], (1,))
    second = encoder.tokenize(["a casa", "o can"])
    states = encoder.embed([t.ids for t in second], (1,))
    assert [state[1].shape[0] for state in states] == [len(t.ids) for t in second]
    sentences = cosine.load({"name": "e", "folder": str(folder)})
    alone = cosine.cosine(sentences, [("a casa", "o can")])
    cosine.cosine(sentences, [("a casa", "o gato")])
    again = cosine.cosine(sentences, [("a casa", "o can")])
    assert embedded == {"tokens": [2, 1], "sentences": [2, 1]}
    assert (alone == again).all()


def test_texts_are_compared_without_the_whitespace_around_them(folder, monkeypatch):
    from sentence_transformers import SentenceTransformer
    from vernacular.metrics.similarity import cosine

    cosine._kept.cache_clear()
    encode, texts = SentenceTransformer.encode, set()

    def note(self, sentences, **options):
        texts.update(sentences)
        return encode(self, sentences, **options)

    monkeypatch.setattr(SentenceTransformer, "encode", note)
    rows, metadata = similarities([item("a", [" mazá", "casa "])], [generation("a", " mazá")], ["cosine"], folder)
    assert texts == {"mazá", "casa"}
    assert rows[0]["similarities"][0] == pytest.approx(1.0, abs=1e-6)
    assert metadata["counts"]["distinct_texts"] == 2


def test_bertscore_is_rescaled_by_the_baseline_of_the_language(folder):
    """The package ships one of RoBERTa in English, and none in Galician."""
    encoders = {"default": tiny.record(folder, name="roberta-base", layer=1)}
    asked = [item("a")], [generation("a", "come")], [{"metric": "bertscore", "rescale": True}], encoders
    requests = tiny.requests(asked[1])
    plain, said = compute.similarities(*asked, requests=requests, language="gl")
    rescaled, english = compute.similarities(*asked, requests=requests, language="en")
    base = bertscore.baseline(encoders["default"], "en", 1)
    assert 0 < base < 1
    assert rescaled[0]["similarities"] == pytest.approx([(f - base) / (1 - base) for f in plain[0]["similarities"]])
    assert "rescaled:no (no baseline)" in said["signatures"]["bertscore"]
    assert "rescaled:yes" in english["signatures"]["bertscore"]
    about = {"name": "roberta-base", "revision": None, "fingerprint": "f" * 64, "layer": 1, "truncated_texts": 0}
    assert english["encoders"] == {"bertscore": about}


def test_the_prefix_of_an_encoder_stands_before_every_text_and_counts(folder):
    """E5 was trained with "query: " (Wang et al. 2022)."""
    long = "come " * 58  # 60 tokens with [CLS] and [SEP], of the 64 that the encoder reads
    items, generations = [item("a", ["a casa", long])], [generation("a", "o rapaz")]
    encoder = tiny.record(folder, prefix="unha mazá vermella na ")
    rows, metadata = compute.similarities(
        items, generations, ["cosine"], {"default": encoder}, requests=tiny.requests(generations)
    )
    spelt = [item("a", [encoder["prefix"] + text for text in items[0]["choices"]])]
    written, _ = similarities(spelt, [generation("a", encoder["prefix"] + "o rapaz")], ["cosine"], folder)
    bare, plain = similarities(items, generations, ["cosine"], folder)
    assert rows[0]["similarities"] == pytest.approx(written[0]["similarities"], abs=1e-6)
    assert rows[0]["similarities"][0] != pytest.approx(bare[0]["similarities"][0], abs=1e-3)
    assert "|prefix:'unha mazá vermella na '|" in metadata["signatures"]["cosine"]
    assert metadata["encoders"]["cosine"]["truncated_texts"] == 1
    assert plain["encoders"]["cosine"]["truncated_texts"] == 0


def test_a_metric_without_an_encoder_is_named(folder):
    with pytest.raises(ConfigError, match=r'similarity metric "cosine"\. Set similarity\.encoders\.default'):
        compute.similarities([item("a")], [], ["cosine"], {"bertscore": tiny.record(folder)}, requests=[])
