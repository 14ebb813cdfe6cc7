"""Bits per byte and per character: the formulas, which characters count, and the names of conditional values."""

import math
import unicodedata

import numpy as np
import pytest
from support import tiny
from support.scoring import build_requests, item, metric_rows, score
from tokenizers import Tokenizer, normalizers
from vernacular.metrics.aggregate import aggregate
from vernacular.metrics.bits import bits_metrics, ratio, scored_text, sizes
from vernacular.metrics.spans import by_item
from vernacular.protocols.evaluate import evaluate

TEXT = "O corazón"
METADATA = {"protocol": "p", "shots": 0, "seed": 0, "style": "default"}


def scored(text, logprobs, offsets, *, label="1", **fields):
    """Return (item, request, score) of a sentence."""
    row = item("i1", context=text, extra=[("label", label)])
    [request] = build_requests([row], "sentence", "acceptability")
    return row, request, score(request, logprobs, offsets=offsets, **fields)


def span_of(text, logprobs, offsets, **fields):
    _, request, row = scored(text, logprobs, offsets, **fields)
    return by_item([request], [row])["i1"]["sentence"]


def test_worked_example():
    values = sizes(span_of(TEXT, [-2.0, -5.0, -1.0], [[0, 1], [1, 6], [6, 9]]), "")
    assert values == {"bits": pytest.approx(11.541560, abs=5e-7), "bytes": 10, "characters": 9}
    rows = [
        {"metrics": values, "flags": None, "cluster_id": None, "category": None, "tie": None, "choices": [], "gold": []}
    ]
    by_name = {
        row["metric"]: row["value"] for row in aggregate(rows, bits_metrics("", masked=False), seed=0, categories=False)
    }
    assert by_name["bits_per_byte"] == pytest.approx(1.154156, abs=5e-7)
    assert by_name["bits_per_character"] == pytest.approx(1.282396, abs=5e-7)
    assert by_name["bits"] == pytest.approx(11.541560, abs=5e-7)
    assert 2 ** by_name["bits_per_byte"] == pytest.approx(math.exp(8 / 10), rel=1e-12)
    assert values["bits"] / 11 == pytest.approx(1.049233, abs=5e-7), "a leading space in the denominator"


def test_sums_are_divided_and_not_averaged():
    rows = [
        {"metrics": sizes(span_of(TEXT, [-8.0], [[0, 9]]), ""), "cluster_id": None},
        {"metrics": sizes(span_of("a" * 100, [-30.0], [[0, 100]]), ""), "cluster_id": None},
    ]
    common = {"flags": None, "category": None, "tie": None, "choices": [], "gold": []}
    values = aggregate([row | common for row in rows], bits_metrics("", masked=False), seed=0, categories=False)
    value = next(row for row in values if row["metric"] == "bits_per_byte")
    assert value["value"] == pytest.approx(0.498386, abs=5e-7)
    assert value["ci_low"] < value["value"] < value["ci_high"]
    assert value["n"] == 2


def test_tokenizations_with_equal_log_likelihood_have_equal_bits():
    coarse = sizes(span_of(TEXT, [-8.0], [[0, 9]]), "")
    fine = sizes(span_of(TEXT, [-1.0] * 8, [[0, 1], [1, 2], [2, 3], [3, 4], [4, 5], [5, 6], [6, 7], [7, 9]]), "")
    assert coarse == pytest.approx(fine, rel=1e-12)


def test_decomposed_text_has_other_values():
    text = unicodedata.normalize("NFD", TEXT)
    values = sizes(span_of(text, [-8.0], [[0, 10]]), "")
    assert (values["bytes"], values["characters"]) == (11, 10)


@pytest.mark.parametrize(
    ("logprobs", "flags"),
    [([None], None), ([math.nan], None), ([], "empty"), ([-1.0], "error: out of memory")],
)
def test_unscored_text_has_no_bits_and_is_counted(logprobs, flags):
    row, request, output = scored(TEXT, logprobs, [[0, 9]] * len(logprobs), flags=flags)
    rows, metrics = evaluate("acceptability", [row], [request], [output], [])
    assert not rows[0]["metrics"].keys() & {"bits", "bytes", "characters"}
    assert rows[0]["flags"].startswith("error: ")
    values = {value["metric"]: value for value in metric_rows(rows, metrics, METADATA, {})}
    assert all(value["value"] is None and value["n_flagged"] == 1 for value in values.values())


def test_infinite_surprisal_is_no_value():
    row, request, output = scored(TEXT, [-math.inf, -1.0], [[0, 1], [1, 9]])
    rows, metrics = evaluate("acceptability", [row], [request], [output], [])
    values = {value["metric"]: value for value in metric_rows(rows, metrics, METADATA, {})}
    assert values["bits_per_byte"]["value"] is None
    assert values["bits_per_byte"]["n"] == 1
    assert rows[0]["flags"] == "infinite surprisal"


@pytest.mark.parametrize(
    ("offsets", "logprobs", "expected"),
    [
        ([[5, 8], [8, 14]], [-1.0, -1.0], " é grande"),
        ([[6, 7], [8, 14]], [-1.0, -1.0], " é grande"),  # offsets without spaces: the same text
        ([[5, 8], [8, 14]], [None, -1.0], "grande"),  # the first token is not scored
        ([[4, 8], [8, 14]], [-1.0, -1.0], "s é grande"),  # a token across the edge is scored as a whole
        ([[5, 8], [8, 14], [8, 14]], [-1.0, -1.0, -1.0], " é grande"),  # two bytes of one character
    ],
)
def test_scored_characters_do_not_depend_on_the_tokenizer(offsets, logprobs, expected):
    row = item("i1", context="Casa", choices=[" é grande", " no"], gold=[0])
    request = {"item_id": "i1", "role": "choice:0", "request_id": "r", "prefix": "A ", "text": "cas é grande"}
    request |= {"span_start": 5, "span_end": 14}
    output = score(request, logprobs, offsets=offsets)
    span = by_item([request], [output])[row["item_id"]]["choice:0"]
    assert scored_text(span) == expected


def test_chat_text_is_read_from_the_rendered_prompt():
    span = span_of(TEXT, [-1.0], [[6, 15]], rendered="<user>O corazón")
    assert scored_text(span) == TEXT


# what a normalizer composes or removes has no token, or one that begins or ends within it
NORMALIZED = {
    "composed at the end": (normalizers.NFC(), "cafe\u0301"),
    "composed at both ends": (normalizers.NFC(), "e\u0301 cafe\u0301"),
    "ligature": (normalizers.NFKC(), "ﬁn dun ﬁ"),
    "marks removed": (normalizers.BertNormalizer(lowercase=True), "كَتَبَ الوَلَدُ"),
    "removed at both ends": (normalizers.Replace("\u200b", ""), "\u200bgato\u200b"),
    "stripped accents": (normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()]), "नमस्ते क़ि"),
}


@pytest.mark.parametrize("rendered", [False, True])
@pytest.mark.parametrize("name", NORMALIZED)
def test_characters_without_a_token_belong_to_the_text(name, rendered):
    normalizer, text = NORMALIZED[name]
    core = Tokenizer.from_str(tiny.tokenizer("bytes").backend_tokenizer.to_str())
    core.normalizer = normalizer
    prefix = "<user>" if rendered else ""
    encoding = core.encode(prefix + text, add_special_tokens=False)
    offsets = [list(pair) for pair in encoding.offsets if pair[1] > len(prefix)]
    span = span_of(text, [-1.0] * len(offsets), offsets, rendered=prefix + text if rendered else None)
    assert scored_text(span) == text
    assert sizes(span, "")["bytes"] == len(text.encode())


def test_same_surprisal_in_two_scripts():
    cyrillic, latin = (sizes(span_of(text, [-8.0], [[0, 4]]), "") for text in ("срце", "srce"))
    assert [round(values["bits"] / values["bytes"], 4) for values in (cyrillic, latin)] == [1.4427, 2.8854]
    assert [round(values["bits"] / values["characters"], 4) for values in (cyrillic, latin)] == [2.8854, 2.8854]
    assert cyrillic["bits"] == latin["bits"], "per item, the script does not matter"


def test_only_acceptable_sentences_count():
    rows = [
        evaluate("acceptability", *([part] for part in scored(TEXT, [-8.0], [[0, 9]], label=label)), [])[0][0]
        for label in ("1", "0", "")
    ]
    assert ["bits" in row["metrics"] for row in rows] == [True, False, False]


@pytest.mark.parametrize(
    ("protocol", "item_type", "fields", "prefixes"),
    [
        ("options", "question", {"question": "Que?", "choices": ["si", "non"], "gold": [1]}, {"answer_"}),
        ("minimal_pair", "pair", {"choices": ["ela canta", "ela cantan"], "gold": [0]}, {""}),
        ("minimal_pair", "pair", {"context": "Chove.", "choices": ["Si", "Non"], "gold": [0]}, {"", "answer_"}),
        ("cloze", "cloze", {"context": "A __ é.", "choices": ["casa", "can"], "gold": [0]}, {""}),
        (
            "target_word",
            "target_word",
            {"context": "[MASK] é.", "choices": ["Ela", "El"], "gold": [0]},
            {"", "answer_"},
        ),
        ("last_word", "continuation", {"context": "Fun á", "target": "praia"}, {"answer_"}),
    ],
)
@pytest.mark.parametrize("masked", [False, True])
def test_text_after_a_prompt_and_masked_models_have_other_names(protocol, item_type, fields, prefixes, masked):
    row = item("i1", **fields)
    requests = build_requests([row], item_type, protocol)
    outputs = [score(request, [-2.0], offsets=[[request["span_start"], request["span_end"]]]) for request in requests]
    rows, metrics = evaluate(protocol, [row], requests, outputs, [], masked=masked)
    pseudo = "pseudo_" if masked else ""
    assert {name for name in rows[0]["metrics"] if name.endswith("bytes")} == {f"{pseudo}{p}bytes" for p in prefixes}
    names = {value["metric"] for value in metric_rows(rows, metrics, METADATA, {}) if "bits" in value["metric"]}
    if not masked or protocol not in ("options", "last_word"):  # which masked models do not support
        assert names == {f"{pseudo}{p}bits{unit}" for p in prefixes for unit in ("", "_per_byte", "_per_character")}


def test_the_most_probable_correct_option_counts():
    row = item("i1", question="Que?", choices=["un", "dous", "tres"], gold=[0, 1])
    requests = build_requests([row], "question", "options")
    logprobs = {"choice:0": -3.0, "choice:1": -2.0, "choice:2": -1.0}
    outputs = [
        score(request, [logprobs.get(request["role"], -9.0)], offsets=[[request["span_start"], request["span_end"]]])
        for request in requests
    ]
    values = evaluate("options", [row], requests, outputs, [])[0][0]["metrics"]
    assert values["answer_bits"] == pytest.approx(2 / math.log(2))
    assert values["answer_bytes"] == len(" dous")


def test_ratio_of_resamples():
    bits, lengths = np.array([[2.0, 4.0], [1.0, 1.0]]), np.array([[1.0, 2.0], [4.0, 4.0]])
    assert ratio(bits, lengths).tolist() == [2.0, 0.25]


def test_signature_states_what_is_counted():
    row, request, output = scored(TEXT, [-8.0], [[0, 9]])
    rows, metrics = evaluate("acceptability", [row], [request], [output], [])
    signatures = {value["metric"]: value["signature"] for value in metric_rows(rows, metrics, METADATA, {})}
    assert "|length:span|" in signatures["bits_per_byte"]
    assert "length" not in signatures["auc"]
