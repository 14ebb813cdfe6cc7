"""Protocol text: bits per byte and perplexities of plain texts; files of plain text."""

import math
import unicodedata

import pyarrow as pa
import pytest
import torch
from support import tiny
from support.engines import score as score_requests
from support.scoring import build_requests, item, metric_rows, score
from vernacular.data.load import make_items
from vernacular.data.readers import read_rows
from vernacular.protocols.evaluate import evaluate, signature_conditions
from vernacular.protocols.schema import REQUESTS

METADATA = {"protocol": "text", "shots": 0, "seed": 0, "style": "default"}


def values_of(items, outputs, requests, **options):
    rows, metrics = evaluate("text", items, requests, outputs, [], **options)
    return rows, {row["metric"]: row for row in metric_rows(rows, metrics, METADATA, {})}


def test_worked_example():
    text = item(context="O corazón")
    requests = build_requests([text], "text", "text")
    output = score(requests[0], [-2.0, -5.0, -1.0], offsets=[[0, 1], [1, 6], [6, 9]])
    _, values = values_of([text], [output], requests)
    expected = {
        "min_20": -5.0, "bits": 11.541560, "bits_per_byte": 1.154156, "bits_per_character": 1.282396, "byte_perplexity": 2.225541,
        "word_perplexity": 54.598150, "token_perplexity": 14.391916,
    }  # fmt: skip
    assert {name: row["value"] for name, row in values.items()} == pytest.approx(expected, abs=5e-7)
    assert values["byte_perplexity"]["value"] == pytest.approx(2 ** values["bits_per_byte"]["value"], rel=1e-12)
    assert [name for name, row in values.items() if row["headline"]] == ["bits_per_byte"]


@pytest.mark.parametrize("arch", ["gpt2", "llama"])
def test_values_equal_lm_evals_rolling_values(arch):
    """lm-eval: sums of all texts; words are separated by whitespace, bytes are those of the text."""
    style = "lm_eval" if arch == "llama" else "default"  # whose tokenizer adds BOS
    loaded = tiny.load_model(arch, max_length=24)
    texts = [
        "O gato dorme no tellado e a cadela ladra na rúa. Choveu toda a noite, e ninguén saíu da casa.",
        "Jutros smo otišli na pijacu.",
    ]
    items = [item(f"i{n}", context=text) for n, text in enumerate(texts)]
    requests = build_requests(items, "text", "text")
    if style == "lm_eval":
        requests = [request | {"extras": [*request["extras"], "score_bos"]} for request in requests]
    outputs = score_requests(loaded, pa.Table.from_pylist(requests, schema=REQUESTS.schema))[0].to_pylist()
    _, values = values_of(items, outputs, requests)
    total = 0.0
    for text in texts:
        tokens = [loaded.bos_id, *loaded.tokenizer(text)["input_ids"]]  # the tokenizer's own BOS included
        for start in range(1, len(tokens), 24):
            stop = min(len(tokens), start + 24)
            read = tokens[max(0, stop - 25) : stop]
            with torch.inference_mode():
                logprobs = loaded.model(torch.tensor([read[:-1]])).logits[0].double().log_softmax(-1)
            targets = torch.tensor(read[1:])
            total += float(logprobs[torch.arange(len(targets)), targets][-(stop - start) :].sum())
    n_words, n_bytes = sum(len(text.split()) for text in texts), sum(len(text.encode()) for text in texts)
    assert values["word_perplexity"]["value"] == pytest.approx(math.exp(-total / n_words), rel=1e-5)
    assert math.log(values["word_perplexity"]["value"]) == pytest.approx(-total / n_words, rel=1e-6)
    assert values["byte_perplexity"]["value"] == pytest.approx(math.exp(-total / n_bytes), rel=1e-6)
    assert values["bits_per_byte"]["value"] == pytest.approx(-total / n_bytes / math.log(2), rel=1e-6)


def test_masked_models_have_other_names():
    text = item(context="O corazón")
    requests = build_requests([text], "text", "text")
    output = score(requests[0], [-2.0, -6.0], offsets=[[0, 1], [2, 9]])
    _, values = values_of([text], [output], requests, masked=True)
    assert {name.removeprefix("pseudo_") for name in values} == {
        "bits", "bits_per_byte", "bits_per_character", "byte_perplexity", "word_perplexity", "token_perplexity"
    }  # fmt: skip
    assert all(name.startswith("pseudo_") for name in values)
    assert values["pseudo_bits_per_byte"]["value"] == pytest.approx(8 / math.log(2) / 10), "the space counts"


def test_two_tokenizations_of_equal_log_likelihood_differ_in_token_perplexity_only():
    text = item(context="O corazón")
    requests = build_requests([text], "text", "text")
    coarse, fine = (
        values_of([text], [score(requests[0], logprobs, offsets=offsets)], requests)[1]
        for logprobs, offsets in (([-8.0], [[0, 9]]), ([-2.0, -6.0], [[0, 1], [1, 9]]))
    )
    equal = {name for name in coarse if coarse[name]["value"] == pytest.approx(fine[name]["value"], rel=1e-12)}
    assert coarse.keys() - equal == {"token_perplexity", "min_20"}


def test_windows_and_overlap_are_part_of_the_request():
    [request] = build_requests([item(context="a b")], "text", "text", overlap=4, window=16)
    assert request["extras"] == ["rolling", "pll:original", "overlap:4", "window:16"]
    assert (request["span_start"], request["span_end"]) == (0, 3)


def test_style_lm_eval_scores_a_bos_of_the_tokenizer():
    from support.request_builder import build_requests as build

    [request], _ = build([item(context="a b")], "text", "text", style="lm_eval")
    assert "score_bos" in request["extras"]


def test_empty_text_is_skipped_and_decomposed_text_flagged():
    items = [item("i1", context=" "), item("i2", context=unicodedata.normalize("NFD", "corazón"))]
    requests = build_requests(items, "text", "text")
    output = score(requests[1], [-8.0], offsets=[[0, 8]])
    rows, values = values_of(items, [output], requests)
    assert rows[0]["flags"] == "error: empty text"
    assert rows[1]["flags"].startswith("not NFC")
    assert values["bits_per_byte"]["n"] == 1
    assert values["bits_per_byte"]["n_flagged"] == 2


def test_ratio_of_perplexities_is_bytes_per_word():
    """Published by lm-eval for wikitext: ln(word perplexity) / ln(byte perplexity) does not depend on the model."""
    published = [
        (37.3698, 1.9682, 0.9769),
        (8.7921, 1.5016, 0.5865),
        (10.1131, 1.5414, 0.6243),
        (9.8183, 1.5329, 0.6163),
    ]
    for word, byte, bits in published:
        assert math.log(word) / math.log(byte) == pytest.approx(5.3475, abs=6e-4)
        assert math.log2(byte) == pytest.approx(bits, abs=1e-4)
    text = item(context="Unha frase de proba con sete palabras")
    requests = build_requests([text], "text", "text")
    for logprob in (-20.0, -35.0):
        output = score(requests[0], [logprob], offsets=[[0, len(text["context"])]])
        values = values_of([text], [output], requests)[1]
        ratio = math.log(values["word_perplexity"]["value"]) / math.log(values["byte_perplexity"]["value"])
        assert ratio == pytest.approx(len(text["context"].encode()) / 7)


def test_text_files(tmp_path):
    path = tmp_path / "conto.txt"
    path.write_bytes("\ufeffUnha casa.\r\nDúas casas.\r\n\r\n\r\nTres.\r\n".encode())
    whole = read_rows(path, "txt")
    paragraphs = read_rows(path, "paragraphs")
    assert whole == [{"text": "Unha casa.\nDúas casas.\n\n\nTres.\n"}]
    assert paragraphs == [{"text": "Unha casa.\nDúas casas."}, {"text": "Tres."}]
    items, counts = make_items(paragraphs, "text", {"context": "text"})
    assert [row["context"] for row in items] == ["Unha casa.\nDúas casas.", "Tres."]
    assert counts["kept"] == 2


def test_signature_states_windows_and_bos():
    text = item(context="O corazón")
    requests = build_requests([text], "text", "text", overlap=16)
    output = score(requests[0], [-8.0], offsets=[[0, 9]])
    rows, metrics = evaluate("text", [text], requests, [output], [])
    conditions = signature_conditions("text", {"overlap": 16}, "auto")
    [row] = [row for row in metric_rows(rows, metrics, METADATA, {}, conditions) if row["metric"] == "bits_per_byte"]
    assert "|overlap:16|window:model|bos:auto|length:span|" in row["signature"]
    assert signature_conditions("options", {"overlap": 16}, "auto") == {}
