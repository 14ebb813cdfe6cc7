import unicodedata

import numpy as np
import pytest
import torch
from support import observed
from support import similarity_encoders as tiny
from support.result_rows import stored
from vernacular.core.errors import ConfigError
from vernacular.core.model_record import ModelRecord
from vernacular.metrics.schema import SIMILARITIES
from vernacular.metrics.similarity import bertscore, compute, cosine, moverscore
from vernacular.metrics.similarity.encoder import TokenEncoder

ALL = ["cosine", "moverscore", "bertscore"]


@pytest.fixture(scope="module")
def encoder_dir(tmp_path_factory):
    torch.set_num_threads(1)
    return tiny.bert(tmp_path_factory.mktemp("bert"))


def item(name, choices=("unha mazá", "os gatos"), gold=(0,), target=None):
    return {"item_id": name, "choices": list(choices), "gold": list(gold), "target": target}


def generation(name, output, flag=None):
    return {
        "item_id": name,
        "role": "response",
        "raw_output": output,
        "output": output,
        "rendered": None,
        "flags": flag,
    }


def similarities(items, generations, metrics=ALL, encoder_dir=None, **options):
    return compute.similarities(
        items,
        generations,
        metrics,
        {"default": tiny.record(encoder_dir)},
        requests=tiny.requests(generations),
        **options,
    )


def by_item(rows, metric):
    return {row["item_id"]: row["similarities"] for row in rows if row["metric"] == metric}


def test_empty_outputs_have_null_similarities_and_are_counted(encoder_dir):
    items = [item("a"), item("b"), item("c")]
    rows, metadata = similarities(
        items, [generation("a", "come"), generation("b", ""), generation("c", " \n")], encoder_dir=encoder_dir
    )
    stored(rows, SIMILARITIES)
    for metric in ALL:
        values = by_item(rows, metric)
        assert values["b"] == values["c"] == [None, None]
        assert all(isinstance(value, float) for value in values["a"])
    assert metadata["counts"]["empty_answers"] == 2


def test_failed_generation_is_not_counted_as_empty_output(encoder_dir):
    rows, metadata = similarities([item("a")], [generation("a", None, "error: too long")], encoder_dir=encoder_dir)
    assert by_item(rows, "cosine") == {"a": [None, None]}
    assert (metadata["counts"]["empty_answers"], metadata["counts"]["failed_generations"]) == (0, 1)


def test_empty_option_has_null_similarity(encoder_dir):
    rows, _ = similarities([item("a", ["unha mazá", "", " "])], [generation("a", "come")], encoder_dir=encoder_dir)
    for row in rows:
        assert row["similarities"][0] is not None
        assert row["similarities"][1:] == [None, None]


def test_punctuation_only_has_cosine_but_no_moverscore(encoder_dir):
    rows, _ = similarities([item("a", ["unha mazá", "..."])], [generation("a", "come")], encoder_dir=encoder_dir)
    assert by_item(rows, "moverscore")["a"][1] is None
    assert by_item(rows, "cosine")["a"][1] is not None


def test_item_without_choices_is_compared_with_target(encoder_dir):
    rows, _ = similarities([item("a", [], [], "o rapaz")], [generation("a", "o rapaz")], encoder_dir=encoder_dir)
    for row in rows:
        assert row["similarities"] == [pytest.approx(1.0, abs=1e-5)]
    rows, _ = similarities([item("a", [], [])], [generation("a", "o rapaz")], encoder_dir=encoder_dir)
    assert [row["similarities"] for row in rows] == [[], [], []], "nothing to be compared with"


def test_items_without_generation_have_no_row(encoder_dir):
    rows, _ = similarities([item("a"), item("few_shot")], [generation("a", "come")], encoder_dir=encoder_dir)
    assert {row["item_id"] for row in rows} == {"a"}


def test_each_distinct_text_is_embedded_once(encoder_dir):
    items = [item("a"), item("b"), item("c", ["come", "unha mazá"])]
    generations = [generation(name, "come") for name in "abc"]
    with observed.calls(TokenEncoder.embed, lambda arguments: len(arguments["rows"])) as n_texts:
        similarities(items, generations, ["moverscore", "bertscore"], encoder_dir)
    assert sum(n_texts) == 3  # "come", "unha mazá", "os gatos"; both metrics from one pass


@pytest.mark.parametrize("budget", [1, 20, 200_000])
def test_chunk_and_batch_sizes_do_not_change_values(encoder_dir, low_limits, budget):
    outputs = ["come", "a mazá vermella!", "The boy eats a red apple and sleeps", "🐈", "قطة", "come come come"]
    items = [item(str(i)) for i in range(len(outputs))]
    generations = [generation(str(i), output) for i, output in enumerate(outputs)]
    expected, expected_metadata = similarities(items, generations, encoder_dir=encoder_dir)
    low_limits("metrics.similarity.compute", CHUNK_TOKENS=budget)
    low_limits("metrics.similarity.encoder", TOKEN_BUDGET={"cpu": budget, "cuda": budget}, TEXTS_AT_ONCE=budget)
    values, metadata = similarities(items, generations, encoder_dir=encoder_dir)
    assert metadata == expected_metadata
    for expected_row, row in zip(expected, values, strict=True):
        np.testing.assert_allclose(row["similarities"], expected_row["similarities"], atol=1e-6)


@pytest.mark.parametrize("n_bytes", [1, 5_000, 20_000])
def test_bytes_of_vectors_in_memory_change_no_digit(encoder_dir, low_limits, n_bytes):
    items = [item(str(i), tiny.LINES[i:] or tiny.LINES) for i in range(6)]
    generations = [generation(str(i), "come a mazá vermella " * (i + 1)) for i in range(6)]
    expected = similarities(items, generations, encoder_dir=encoder_dir)
    for module in ("compute", "cosine"):
        low_limits(f"metrics.similarity.{module}", VECTOR_BYTES=n_bytes)
    with observed.calls(TokenEncoder.embed, lambda arguments: len(arguments["rows"])) as n_texts:
        assert similarities(items, generations, encoder_dir=encoder_dir) == expected
    assert len(n_texts) == {1: 20, 5_000: 17, 20_000: 2}[n_bytes]


def test_long_output_is_truncated_and_counted(encoder_dir):
    rows, metadata = similarities([item("a")], [generation("a", "come a mazá " * 500)], encoder_dir=encoder_dir)
    assert all(value is not None for row in rows for value in row["similarities"])
    for metric in ALL:
        assert metadata["encoders"][metric]["truncated_texts"] == 1


def test_unusual_texts_have_similarities(encoder_dir):
    outputs = ["🐈‍⬛🍎", "مرحبا بالعالم", "\u200b\u200b", "a\x00b", "NaN"]
    items = [item(str(i)) for i in range(len(outputs))]
    rows, _ = similarities(
        items, [generation(str(i), output) for i, output in enumerate(outputs)], encoder_dir=encoder_dir
    )
    assert all(value is None or -1 <= value <= 1 + 1e-5 for row in rows for value in row["similarities"])


def test_only_first_subword_token_of_a_word_has_weight(encoder_dir):
    encoder = TokenEncoder(tiny.record(encoder_dir))
    (tokens,) = encoder.tokenize(["Galiciavermella (casa), x!"])
    weights = moverscore.token_weights(tokens)
    weighted = [subword for subword, weight in zip(tokens.subwords, weights, strict=True) if weight]
    assert len(weighted) == 3  # the long word, casa, x
    assert not any("##" in subword or subword in "(),!" for subword in weighted)


def test_leading_bracket_does_not_replace_its_word():
    tokens = moverscore.Tokens([1, 2, 3], ["▁(", "casa", ")"], ["(", "casa", ")"], [0, 0, 0], False)
    assert moverscore.token_weights(tokens).tolist() == [0.0, 1.0, 0.0]


def test_emoji_has_weight():
    assert not moverscore.is_punctuation("🐈")
    assert all(map(moverscore.is_punctuation, ["«", "…", "+", "", " ", "؟", "—"]))


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        ("cosin", 'unknown similarity metric "cosin". Did you mean "cosine"'),
        ({"metric": "bertscore", "idff": True}, 'Did you mean "idf"'),
        ({"metric": "moverscore", "variant": "defalt"}, 'Did you mean "default"'),
    ],
)
def test_unknown_metric_or_option_error_suggests_closest(encoder_dir, metric, message):
    with pytest.raises(ConfigError, match=message):
        similarities([item("a")], [generation("a", "come")], [metric], encoder_dir)


def test_evaluation_with_only_empty_outputs_has_metadata(encoder_dir):
    rows, metadata = similarities([item("a")], [generation("a", "")], encoder_dir=encoder_dir)
    assert len(rows) == 3
    assert set(metadata["signatures"]) == set(ALL)
    assert metadata["signatures"]["cosine"].startswith("cosine|encoder:tiny@ffffffffffff|prefix:''|sentence-transf")
    assert "|variant:default|" in metadata["signatures"]["moverscore"]
    assert "|rescaled:no|" in metadata["signatures"]["bertscore"]
    assert all("|idf:no|" in metadata["signatures"][name] for name in ("moverscore", "bertscore"))
    assert [metadata["encoders"][name]["truncated_texts"] for name in ALL] == [0, 0, 0]
    zero_counts = {"failed_generations": 0, "distinct_pairs": 0, "distinct_texts": 0}
    assert metadata["counts"] == {"items": 1, "empty_answers": 1} | zero_counts


def test_text_shared_by_evaluations_is_embedded_once(encoder_dir):
    """With another number of shots, the options are the same and only the outputs are new."""
    from sentence_transformers import SentenceTransformer
    from vernacular.metrics.similarity.encoder import TokenEncoder

    n_rows = []

    def count_rows(module, inputs):
        n_rows.append(len(inputs[0]))

    encoder = TokenEncoder(ModelRecord(name="e", directory=str(encoder_dir)))
    encoder.model.get_input_embeddings().register_forward_pre_hook(count_rows)
    first = encoder.tokenize(["o gato negro", "a casa"])
    encoder.embed([tokens.ids for tokens in first], (1,))
    second = encoder.tokenize(["a casa", "o can"])
    states = encoder.embed([tokens.ids for tokens in second], (1,))
    assert [state[1].shape[0] for state in states] == [len(tokens.ids) for tokens in second]
    sentences = cosine.load(ModelRecord(name="e", directory=str(encoder_dir)))
    with observed.calls(SentenceTransformer.encode, lambda arguments: len(arguments["inputs"])) as n_sentences:
        original = cosine.cosine(sentences, [("a casa", "o can")])
        cosine.cosine(sentences, [("a casa", "o gato")])
        repeated = cosine.cosine(sentences, [("a casa", "o can")])
    assert (n_rows, n_sentences) == ([2, 1], [2, 1])
    assert (original == repeated).all()


def test_encoders_of_a_directory_share_their_weights(encoder_dir):
    record = ModelRecord(name="e", directory=str(encoder_dir))
    sentences, tokens = cosine.load(record), TokenEncoder(record)
    shared = dict(sentences[0].model.named_parameters())
    for name, weight in tokens.model.named_parameters():
        assert weight.data_ptr() == shared[name].data_ptr(), name


def test_surrounding_whitespace_is_ignored(encoder_dir):
    with tiny.encoded_texts() as texts:
        rows, metadata = similarities(
            [item("a", [" mazá", "casa "])], [generation("a", " mazá")], ["cosine"], encoder_dir
        )
    assert texts == {"mazá", "casa"}
    assert rows[0]["similarities"][0] == pytest.approx(1.0, abs=1e-6)
    assert metadata["counts"]["distinct_texts"] == 2


def test_bertscore_is_rescaled_by_offset_of_the_language(encoder_dir):
    """The package has an offset for RoBERTa in English, and none in Galician."""
    encoders = {"default": tiny.record(encoder_dir, name="roberta-base", layer=1)}
    args = [item("a")], [generation("a", "come")], [{"metric": "bertscore", "rescale": True}], encoders
    requests = tiny.requests(args[1])
    plain, metadata = compute.similarities(*args, requests=requests, language="gl")
    rescaled, rescaled_metadata = compute.similarities(*args, requests=requests, language="en")
    offset = bertscore.rescale_offset(encoders["default"], "en", 1)
    assert 0 < offset < 1
    assert rescaled[0]["similarities"] == pytest.approx(
        [(score - offset) / (1 - offset) for score in plain[0]["similarities"]]
    )
    assert "rescaled:no (no baseline)" in metadata["signatures"]["bertscore"]
    assert "rescaled:yes" in rescaled_metadata["signatures"]["bertscore"]
    info = {"name": "roberta-base", "revision": None, "fingerprint": "f" * 64, "layer": 1, "truncated_texts": 0}
    assert rescaled_metadata["encoders"] == {"bertscore": info}


def test_encoder_prefix_precedes_every_text_and_counts_in_length(encoder_dir):
    """E5 was trained with "query: " (Wang et al. 2022)."""
    long_text = "come " * 58  # 60 tokens with [CLS] and [SEP], of the encoder's maximum of 64
    items, generations = [item("a", ["a casa", long_text])], [generation("a", "o rapaz")]
    encoder = tiny.record(encoder_dir, prefix="unha mazá vermella na ")
    rows, metadata = compute.similarities(
        items, generations, ["cosine"], {"default": encoder}, requests=tiny.requests(generations)
    )
    prefixed = [item("a", [encoder.prefix + text for text in items[0]["choices"]])]
    expected, _ = similarities(prefixed, [generation("a", encoder.prefix + "o rapaz")], ["cosine"], encoder_dir)
    unprefixed, unprefixed_metadata = similarities(items, generations, ["cosine"], encoder_dir)
    assert rows[0]["similarities"] == pytest.approx(expected[0]["similarities"], abs=1e-6)
    assert rows[0]["similarities"][0] != pytest.approx(unprefixed[0]["similarities"][0], abs=1e-3)
    assert "|prefix:'unha mazá vermella na '|" in metadata["signatures"]["cosine"]
    assert metadata["encoders"]["cosine"]["truncated_texts"] == 1
    assert unprefixed_metadata["encoders"]["cosine"]["truncated_texts"] == 0


def test_metric_without_encoder_raises_config_error(encoder_dir):
    with pytest.raises(ConfigError, match=r'similarity metric "cosine"\. Set similarity\.encoders\.default'):
        compute.similarities([item("a")], [], ["cosine"], {"bertscore": tiny.record(encoder_dir)}, requests=[])


def test_decomposed_texts_are_composed_before_they_are_encoded(encoder_dir):
    """An encoder may drop the marks of decomposed text; Simil-Eval's texts stay as that tool has them."""
    words = ["ọkọ̀", "ọkọ́", "tiếng Việt"]
    items = [item(str(n), choices=[unicodedata.normalize("NFC", word)], gold=[0]) for n, word in enumerate(words)]
    outputs = [generation(str(n), unicodedata.normalize("NFD", word)) for n, word in enumerate(words)]
    with tiny.encoded_texts() as texts:
        rows, _ = similarities(items, outputs, ["cosine"], encoder_dir=encoder_dir)
    assert texts == {unicodedata.normalize("NFC", word) for word in words}
    assert [value for values in by_item(rows, "cosine").values() for value in values] == pytest.approx([1, 1, 1])
    with tiny.encoded_texts() as texts:
        similarities(items, outputs, ["cosine"], encoder_dir=encoder_dir, style="simil-eval")
    assert any(unicodedata.normalize("NFC", text) != text for text in texts)
