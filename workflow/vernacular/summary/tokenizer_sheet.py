"""Spreadsheet `tokenizers.xlsx`: a row per model, language and task."""

import io
from pathlib import Path

from openpyxl import Workbook

from vernacular.core.artifacts import replacing
from vernacular.summary.cells import put_text
from vernacular.summary.columns import EXCEL, SheetSize
from vernacular.summary.rows import Column, write_rows

_INTERVAL = "95 % interval: bootstrap of the common items"
_COLUMNS = [
    Column("model", "model", 30),
    Column("tokenizer", "tokenizer", 14, "hash of the tokenizer's files: equal for models with the same tokenizer"),
    Column("language", "language", 10),
    Column("task", lambda row: row["task"] or "all tasks", 22),
    Column("premium", "premium", 10, "tokens / tokens of the same items in English", "0.000"),
    Column("low", "premium_low", 9, _INTERVAL, "0.000"),
    Column("high", "premium_high", 9, _INTERVAL, "0.000"),
    Column("byte premium", "byte_premium", 10, "UTF-8 bytes / bytes of the same items in English", "0.000"),
    Column("character premium", "character_premium", 11, "characters / characters in English", "0.000"),
    Column("common items", "parallel_items", 10, "parallel items: also in English", "0"),
    Column("tokens per word", "tokens_per_word", 10, "fertility; words are separated by whitespace", "0.000"),
    Column("words split", "split_share", 10, "share of words with two or more tokens", "0.0%"),
    Column("tokens per character", "tokens_per_character", 11, cell_format="0.000"),
    Column("tokens per byte", "tokens_per_byte", 10, cell_format="0.000"),
    Column("byte tokens", "byte_share", 10, "share of tokens that are a part of a character", "0.0%"),
    Column("unknown tokens", "unknown_share", 10, "share of tokens that stand for unknown text", "0.0%"),
    Column("prompt tokens", "prompt_tokens", 10, "mean per item, few-shot and special tokens included", "0.0"),
    Column("prompt premium", "prompt_premium", 10, "tokens of prompts / those of the same items in English", "0.000"),
    Column("low", "prompt_premium_low", 9, _INTERVAL, "0.000"),
    Column("high", "prompt_premium_high", 9, _INTERVAL, "0.000"),
    Column("bits per item", "parallel_bits", 10, "of the correct text of the common items", "0.00"),
    Column("in English", "parallel_bits_en", 10, "bits per item of the same items", "0.00"),
    Column("bits ratio", "bits_ratio", 10, "bits / bits of the same items in English", "0.000"),
    Column("low", "bits_ratio_low", 9, _INTERVAL, "0.000"),
    Column("high", "bits_ratio_high", 9, _INTERVAL, "0.000"),
    Column("items", "items", 9, cell_format="#,##0"),
    Column("texts", "texts", 9, "scored texts whose tokens are counted", "#,##0"),
    Column("tokens", "tokens", 10, cell_format="#,##0"),
    Column("words", "words", 10, cell_format="#,##0"),
    Column("characters", "characters", 11, cell_format="#,##0"),
    Column("bytes", "bytes", 10, "UTF-8", "#,##0"),
]


def write_tokenizers(path, rows: list[dict], size: SheetSize = EXCEL) -> Path:
    """Write the rows of TOKENIZERS, in their order, to a workbook."""
    book = Workbook()
    book.properties.title = "Tokenizers"
    book.properties.creator = "Vernacular"
    book.active.title = "tokenizers"
    if rows:
        write_rows(book.active, _COLUMNS, rows, 5, size)
    else:
        put_text(book.active, 1, 1, "No scored texts.")
    content = io.BytesIO()
    book.save(content)
    with replacing(path) as temporary:
        temporary.write_bytes(content.getvalue())
    return Path(path)
