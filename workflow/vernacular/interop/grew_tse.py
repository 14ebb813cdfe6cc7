"""Evaluation CSV files in the format of Grew-TSE, from target_word; and its minimal pairs."""

import csv
import io
import json
import math

from vernacular.core.tables import TEXT_NOTE, csv_text
from vernacular.metrics.spans import extra

README = """\
Evaluation tables in the format of Grew-TSE: Index, the columns of the dataset, p_<form> and I_<form> for each column of
word forms, certainty. The last column, error, contains the reason why a row could not be scored.

evaluation.csv            token-level: p_ is the probability of the form in its sentence, I_ its surprisal in bits.
evaluation_sentence.csv   sentence-level: p_ is the log2-probability of the sentence, I_ its surprisal, both in bits.

Differences from the values that Grew-TSE writes:
- The complete sentence is tokenized, and the form is located by its characters; Grew-TSE tokenizes the form alone. The
  tokenizer's special tokens ([CLS], BOS, ...) are included; Grew-TSE omits them.
- A causal model also scores a form at the start of the sentence, and a sentence's first token if the model has a BOS.
  A space before a form is not doubled.
- A masked model scores a form of several subword tokens with its later tokens masked (Kauf & Ivanova 2023). Grew-TSE
  omits them, so that the first token is predicted as if it were the complete word.
- At sentence level, a masked model's score is its pseudo-log-likelihood, in bits, as for causal models. In Grew-TSE,
  masks accumulate and all tokens are predicted at the first mask; its unit is nats, and bits for causal models.
- Probabilities have no lower limit (1e-12 in Grew-TSE), no value is rounded, and "null" and "NA" are ordinary words.
- certainty is 1 - H/ln 100, with H the entropy of the 100 most probable tokens at the form's first token; it is between
  0 and 1. Grew-TSE divides by the logarithm of the vocabulary size, so that it is at least about 0.57.
- Equal incorrect forms are one form: it counts once in the mean over the incorrect forms, and each of its columns has
  its scores. Grew-TSE treats each column as a separate form.
- A row that cannot be scored has an error; Grew-TSE stops and loses the preceding rows.
- In the summaries, the normalized difference is (U - G)/G, not rounded to an integer, and sentence-level differences
  have values (nan in Grew-TSE).
"""
README += TEXT_NOTE


def files(pairs: list[tuple[dict, dict]]) -> dict[str, str]:
    """Return {file name: content}; `pairs`: items with their result rows. A level without scores has no file."""
    levels = {"token": "evaluation.csv", "sentence": "evaluation_sentence.csv"}
    has_scores = {level: any(f"loglik_{level}:0" in row["metrics"] for _, row in pairs) for level in levels}
    return {
        levels[level]: _table(pairs, level) for level in levels if has_scores[level] or not any(has_scores.values())
    }


def _table(pairs: list[tuple[dict, dict]], level: str) -> str:
    indices_by_item = [_form_indices(item) for item, _ in pairs]
    forms = list(
        dict.fromkeys(name for form_indices in sorted(indices_by_item, key=len, reverse=True) for name in form_indices)
    )
    text_columns = ["original_text", "masked_text", "prompt_text"]
    text_columns = [name for name in text_columns if any(extra(item).get(name) for item, _ in pairs)]
    item_columns = ["sentence_id", "match_id", *forms[:1], *text_columns, *forms[1:]]
    certainty_columns = ["certainty"] if level == "token" else []
    columns = [
        "Index",
        *item_columns,
        *(f"{name}_{form}" for form in forms for name in ("p", "I")),
        *certainty_columns,
        "error",
    ]
    rows = []
    for index, ((item, row), form_indices) in enumerate(zip(pairs, indices_by_item, strict=True)):
        cells = extra(item) | {name: item["choices"][i] for name, i in form_indices.items()}
        logliks = {name: row["metrics"].get(f"loglik_{level}:{i}") for name, i in form_indices.items()}
        scores = [cell for form in forms for cell in _scores(logliks.get(form), level)]
        certainty = [row["metrics"].get(name) for name in certainty_columns]
        rows.append([index, *(cells.get(name) for name in item_columns), *scores, *certainty, row["flags"]])
    return csv_text(columns, rows)


def _scores(loglik: float | None, level: str) -> tuple[float | None, float | None]:
    """Return (p_, I_) of a log-likelihood in nats."""
    if loglik is None:
        return None, None
    bits = -loglik / math.log(2)
    return (math.exp(loglik) if level == "token" else -bits), bits


def _form_indices(item: dict) -> dict[str, int]:
    """Return {form column: index of its form in the item's choices}; equal forms have several columns."""
    columns_by_form = json.loads(extra(item).get("form_columns", "[]"))
    if len(columns_by_form) != len(item["choices"]):
        columns_by_form = [f"form_{i}" for i in range(len(item["choices"]))]
    return {
        column: i
        for i, columns in enumerate(columns_by_form)
        for column in ([columns] if isinstance(columns, str) else columns)
    }


_TEXT_COLUMNS = ["original_text", "masked_text", "prompt_text"]
_ADDED_COLUMNS = ["lemma", "upos", "features", "swapped", "deprel", "distance", "phenomenon", "pattern", "treebank"]


def pairs_csv(rows: list[dict]) -> str:
    """Return rows as CSV text, with Grew-TSE's columns first and Vernacular's after them."""
    forms = _columns_with_prefix(rows, "form_ungrammatical")
    columns = ["sentence_id", "match_id", "form_grammatical", *_TEXT_COLUMNS, *forms]
    columns += [*_ADDED_COLUMNS, *_columns_with_prefix(rows, "ungrammatical_text")]
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _columns_with_prefix(rows: list[dict], prefix: str) -> list[str]:
    """Return the columns that begin with `prefix`, from the row that has the most of them."""
    return max(([column for column in row if column.startswith(prefix)] for row in rows), key=len, default=[prefix])
