"""Sums and premiums per model and language: FLORES sums, common items only, each text once."""

import math

import openpyxl
import pyarrow as pa
import pytest
from vernacular.metrics.schema import TOKENIZERS, TOKENS
from vernacular.summary.tokenizers import ModelTokens, tokenizer_rows, write_tokenizers

SETTING = {"task": "belebele", "protocol": "options", "shots": 0, "seed": 0, "style": "default", "prompt": "default"}
EMPTY = dict.fromkeys(TOKENS.schema.names)


def item(item_id, tokens, **columns):
    counts = {"texts": 1, "tokens": tokens, "bytes": 10 * tokens, "characters": 5 * tokens, "words": 2 * tokens}
    counts |= {"countable_words": 2 * tokens, "split_words": tokens, "byte_tokens": 0, "unknown_tokens": 0}
    prompt = {"prompt_tokens": 3 * tokens, "prompt_characters": 9 * tokens}
    return EMPTY | counts | prompt | {"item_id": item_id, "bits": 4.0 * tokens} | columns


def model_of(languages, **settings):
    """Return the counts of one model from {language: its items}, or {(language, protocol): its items}."""
    rows, described = {}, {}
    for key, items in languages.items():
        language, protocol = key if isinstance(key, tuple) else (key, "options")
        evaluation = f"belebele.{language}.{protocol}.0shot"
        rows[evaluation] = pa.Table.from_pylist(items, schema=TOKENS.schema)
        described[evaluation] = SETTING | {"language": language, "protocol": protocol} | settings
    return ModelTokens("m", "abc", rows, described)


def row_of(rows, language, task="belebele"):
    return next(row for row in rows if (row["language"], row["task"]) == (language, task))


def test_flores_sums():
    """Petrov et al. 2023 on FLORES-200: tokens of GPT-2, bytes and characters of 2,009 sentences."""
    words = {"en": 42_856, "gl": 46_385, "sr": 40_433}  # fertility 1.2266, 2.1677, 6.9431
    tokens = {"en": 52_567, "gl": 100_549, "sr": 280_731}
    n_bytes = {"en": 259_396, "gl": 293_863, "sr": 466_463}
    rows = tokenizer_rows(
        [model_of({code: [item("all", tokens[code], bytes=n_bytes[code], words=words[code])] for code in tokens})],
        ["belebele"],
    )
    premiums = {code: row_of(rows, code) for code in ("gl", "sr")}
    assert [round(premiums[code]["premium"], 4) for code in ("gl", "sr")] == [1.9128, 5.3404]
    assert [round(premiums[code]["byte_premium"], 4) for code in ("gl", "sr")] == [1.1329, 1.7983]
    fertility = [round(row_of(rows, code)["tokens_per_word"], 4) for code in ("en", "gl", "sr")]
    assert fertility == [1.2266, 2.1677, 6.9431]


def test_premium_is_of_common_items_and_its_inverse_is_that_of_english():
    galician = [item("a", 3), item("b", 9), item("only gl", 100)]
    english = [item("b", 4), item("a", 2), item("only en", 50)]
    row = row_of(tokenizer_rows([model_of({"gl": galician, "en": english})], ["belebele"]), "gl")
    assert (row["parallel_items"], row["premium"], row["prompt_premium"]) == (2, 2.0, 2.0)
    assert (row["bits_ratio"], row["parallel_bits"], row["parallel_bits_en"]) == (2.0, 24.0, 12.0)
    assert row["tokens"] == 112, "the other columns are of all items"
    inverse = row_of(tokenizer_rows([model_of({"gl": english, "en": galician})], ["belebele"]), "gl")
    assert row["premium"] * inverse["premium"] == pytest.approx(1)


def test_prompts_without_text_have_no_premium():
    items = [item("a", 3, prompt_characters=0), item("b", 4, prompt_characters=0)]
    row = row_of(tokenizer_rows([model_of({"gl": items, "en": items})], ["belebele"]), "gl")
    assert row["premium"] == 1
    assert row["prompt_premium"] is None, "its only tokens are special ones"


def test_interval_resamples_items():
    galician = [item(str(n), 10 + n % 3) for n in range(60)]
    english = [item(str(n), 8) for n in range(60)]
    row = row_of(tokenizer_rows([model_of({"gl": galician, "en": english})], ["belebele"]), "gl")
    assert row["premium_low"] < row["premium"] < row["premium_high"]
    assert row["premium_high"] - row["premium_low"] < 0.2
    one_passage = [row | {"cluster_id": "p"} for row in galician]
    clustered = row_of(tokenizer_rows([model_of({"gl": one_passage, "en": english})], ["belebele"]), "gl")
    assert clustered["premium"] == row["premium"]
    assert clustered["premium_low"] is None, "the items of one passage are one observation"


@pytest.mark.parametrize(
    ("languages", "parallel", "items"),
    [
        ({"gl": [item("a", 3)], "en": [item("b", 3)]}, ["belebele"], 0),  # no common items
        ({"gl": [item("a", 3)]}, ["belebele"], 0),  # English is not evaluated
        ({"gl": [item("a", 3)], ("en", "letters"): [item("a", 3)]}, ["belebele"], 0),  # with another protocol only
        ({"gl": [item("a", 3)], "en": [item("a", 3)]}, [], None),  # equal IDs of unrelated items
    ],
)
def test_no_premium_without_parallel_items(languages, parallel, items):
    row = row_of(tokenizer_rows([model_of(languages)], parallel), "gl")
    assert row["parallel_items"] == items
    assert row["premium"] is row["bits_ratio"] is row["byte_premium"] is None


def test_missing_counts_are_null_and_not_zero():
    items = [item("a", 3), EMPTY | {"item_id": "b", "prompt_tokens": 5}]
    row = row_of(tokenizer_rows([model_of({"gl": items})], []), "gl")
    assert (row["items"], row["texts"], row["prompt_tokens"]) == (2, 1, 7.0)
    unknown = [item("a", 3, unknown_tokens=None), item("b", 3)]
    assert row_of(tokenizer_rows([model_of({"gl": unknown})], []), "gl")["unknown_share"] is None
    prompts_only = [EMPTY | {"item_id": "b", "prompt_tokens": 5}]
    row = row_of(tokenizer_rows([model_of({"gl": prompts_only})], []), "gl")
    assert row["tokens"] is row["tokens_per_byte"] is None


def test_languages_without_spaces_have_no_words():
    row = row_of(tokenizer_rows([model_of({"th": [item("a", 3)]})], []), "th")
    assert row["words"] is row["tokens_per_word"] is row["split_share"] is None
    assert row["tokens_per_byte"] == pytest.approx(0.1)


def test_texts_of_several_evaluations_are_counted_once():
    options = [item("a", 3), item("b", 3)]
    letters = [EMPTY | {"item_id": key, "prompt_tokens": 50} for key in "ab"]
    rows = tokenizer_rows([model_of({("gl", "letters"): letters, ("gl", "options"): options})], [])
    assert row_of(rows, "gl")["evaluation"] == "belebele.gl.options.0shot"
    assert row_of(rows, "gl", "")["tokens"] == 6


def test_sheet_has_a_row_per_task_and_formats(tmp_path):
    models = [model_of({"gl": [item("a", 4), item("b", 5)], "en": [item("a", 2), item("b", 3)]})]
    rows = tokenizer_rows(models, ["belebele"])
    assert [set(row) for row in rows] == [set(TOKENIZERS.schema.names)] * 4
    sheet = openpyxl.load_workbook(write_tokenizers(tmp_path / "tokenizers.xlsx", rows)).active
    header = [cell.value for cell in sheet[1]]
    gl = [cell.value for cell in sheet[5]]
    assert gl[:4] == ["m", "gl", "belebele", "abc"]
    assert math.isclose(gl[header.index("premium")], 1.8)
    assert sheet.max_row == 5


def test_empty_sheet_says_so(tmp_path):
    sheet = openpyxl.load_workbook(write_tokenizers(tmp_path / "tokenizers.xlsx", [])).active
    assert sheet["A1"].value == "No scored texts."
