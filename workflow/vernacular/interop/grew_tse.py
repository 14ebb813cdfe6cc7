"""Grew-TSE's evaluation CSV, from target_word."""

import csv
import io
import json
import math

from vernacular.core.tables import TEXT_NOTE, csv_text
from vernacular.metrics.spans import extra

README = """\
Evaluation tables in the layout of Grew-TSE: Index, the columns of the data set, p_<form> and I_<form> for each column
of word forms, certainty. A last column, error, says why a row could not be scored.

evaluation.csv            token-level: p_ is the probability of the form in its sentence, I_ its surprisal in bits.
evaluation_sentence.csv   sentence-level: p_ is the log2-probability of the sentence, I_ its surprisal, both in bits.

Where a number differs from what Grew-TSE would have written, this is why:
- The sentence is tokenised as a whole and the form found by its characters; Grew-TSE tokenises the form alone. The
  tokenizer's own special tokens ([CLS], BOS, ...) are there; Grew-TSE leaves all of them out.
- A causal model scores a form at the start of the sentence too, and a sentence's first token where the model has a BOS;
  a blank in front of a form does not become two.
- A form of several pieces is scored by a masked model with its later pieces masked (Kauf & Ivanova 2023). Grew-TSE
  leaves them out, so that the first piece is predicted as if it were the whole word.
- At sentence level a masked model's score is its pseudo-log-likelihood. Grew-TSE's masks pile up and all tokens are
  read at the first of them; its unit there is nats, and bits for causal models. Here it is bits for both.
- Probabilities have no floor (1e-12 there), nothing is rounded, and words such as "null" and "NA" are words.
- certainty is 1 - H/ln 100, H the entropy of the 100 likeliest tokens at the form's first token, and lies between 0 and
  1. Grew-TSE divides by the logarithm of the whole vocabulary, so that it cannot fall below about 0.57.
- Incorrect forms that coincide are one form here: it counts once in the mean over the incorrect forms, and each of its
  columns has its scores. Grew-TSE treats each column as a form of its own.
- A row that cannot be scored is a row with an error; Grew-TSE stops and loses the rows before it.
- In the summaries, the normalised difference is (U - G)/G and not rounded to a whole number, and sentence-level
  differences exist (nan there).
"""
README += TEXT_NOTE


def files(pairs: list[tuple[dict, dict]]) -> dict[str, str]:
    """{file name: content}; `pairs` are items with their result rows. A level that was not asked has no file."""
    levels = {"token": "evaluation.csv", "sentence": "evaluation_sentence.csv"}
    asked = {level: any(f"loglik_{level}:0" in row["values"] for _, row in pairs) for level in levels}
    return {levels[level]: _table(pairs, level) for level in levels if asked[level] or not any(asked.values())}


def _table(pairs: list[tuple[dict, dict]], level: str) -> str:
    every = [_columns(item) for item, _ in pairs]
    forms = list(dict.fromkeys(name for held in sorted(every, key=len, reverse=True) for name in held))
    texts = ["original_text", "masked_text", "prompt_text"]
    texts = [name for name in texts if any(extra(item).get(name) for item, _ in pairs)]
    given = ["sentence_id", "match_id", *forms[:1], *texts, *forms[1:]]
    certainty = ["certainty"] if level == "token" else []
    columns = ["Index", *given, *(f"{name}_{form}" for form in forms for name in ("p", "I")), *certainty, "error"]
    rows = []
    for number, ((item, row), held) in enumerate(zip(pairs, every, strict=True)):
        cells = extra(item) | {name: item["choices"][i] for name, i in held.items()}
        logliks = {name: row["values"].get(f"loglik_{level}:{i}") for name, i in held.items()}
        scores = [cell for form in forms for cell in _scores(logliks.get(form), level)]
        certain = [row["values"].get(name) for name in certainty]
        rows.append([number, *(cells.get(name) for name in given), *scores, *certain, row["flag"]])
    return csv_text(columns, rows)


def _scores(loglik: float | None, level: str) -> tuple[float | None, float | None]:
    """(p_, I_) of a log-likelihood in nats."""
    if loglik is None:
        return None, None
    bits = -loglik / math.log(2)
    return (math.exp(loglik) if level == "token" else -bits), bits


def _columns(item: dict) -> dict[str, int]:
    """Return {form column: index of its form in the item's choices}; several columns where forms coincide."""
    names = json.loads(extra(item).get("form_columns", "[]"))
    if len(names) != len(item["choices"]):
        names = [f"form_{i}" for i in range(len(item["choices"]))]
    return {name: i for i, of_one in enumerate(names) for name in ([of_one] if isinstance(of_one, str) else of_one)}


_TEXTS = ["original_text", "masked_text", "prompt_text"]
_BESIDE = ["lemma", "upos", "features", "swapped", "deprel", "distance", "phenomenon", "pattern", "treebank"]


def pairs_csv(rows: list[dict]) -> str:
    """Rows as a CSV file in Grew-TSE's columns, ours behind them."""
    forms = _columns_of(rows, "form_ungrammatical")
    columns = ["sentence_id", "match_id", "form_grammatical", *_TEXTS, *forms]
    columns += [*_BESIDE, *_columns_of(rows, "ungrammatical_text")]
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _columns_of(rows: list[dict], start: str) -> list[str]:
    """The columns that begin so, as many as the row with most alternatives has."""
    return max(([name for name in row if name.startswith(start)] for row in rows), key=len, default=[start])
