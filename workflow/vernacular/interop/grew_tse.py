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
    asked = {level: any(f"loglik_{level}:0" in row["metrics"] for _, row in pairs) for level in levels}
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
        logliks = {name: row["metrics"].get(f"loglik_{level}:{i}") for name, i in held.items()}
        scores = [cell for form in forms for cell in _scores(logliks.get(form), level)]
        certain = [row["metrics"].get(name) for name in certainty]
        rows.append([number, *(cells.get(name) for name in given), *scores, *certain, row["flags"]])
    return csv_text(columns, rows)


def _scores(loglik: float | None, level: str) -> tuple[float | None, float | None]:
    """Return (p_, I_) of a log-likelihood in nats."""
    if loglik is None:
        return None, None
    bits = -loglik / math.log(2)
    return (math.exp(loglik) if level == "token" else -bits), bits


def _columns(item: dict) -> dict[str, int]:
    """Return {form column: index of its form in the item's choices}; equal forms have several columns."""
    names = json.loads(extra(item).get("form_columns", "[]"))
    if len(names) != len(item["choices"]):
        names = [f"form_{i}" for i in range(len(item["choices"]))]
    return {name: i for i, of_one in enumerate(names) for name in ([of_one] if isinstance(of_one, str) else of_one)}


_TEXTS = ["original_text", "masked_text", "prompt_text"]
_BESIDE = ["lemma", "upos", "features", "swapped", "deprel", "distance", "phenomenon", "pattern", "treebank"]


def pairs_csv(rows: list[dict]) -> str:
    """Return rows as CSV text, with Grew-TSE's columns first and Vernacular's after them."""
    forms = _columns_of(rows, "form_ungrammatical")
    columns = ["sentence_id", "match_id", "form_grammatical", *_TEXTS, *forms]
    columns += [*_BESIDE, *_columns_of(rows, "ungrammatical_text")]
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _columns_of(rows: list[dict], start: str) -> list[str]:
    """Return the columns that begin with `start`, from the row that has the most of them."""
    return max(([name for name in row if name.startswith(start)] for row in rows), key=len, default=[start])
