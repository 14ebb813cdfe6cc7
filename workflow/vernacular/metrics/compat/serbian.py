"""The result lines of the Serbian cloze scripts (ClozeTaskEvaluation), from cloze."""

import json

from vernacular.metrics.choosing import choose, right_options

README = """\
Result lines in the layout of the Serbian cloze scripts: prompt, predicted, correct, is_correct.

results.jsonl          the gap is filled with each candidate and the sentence scored.
results_legacy.jsonl   only with `legacy: true`: the candidate follows the unfilled prompt, gap and full stop included,
                       without a blank ("... kupila __ knjigu.novu"), as the scripts score it.

Where a line differs from what the scripts would have written, this is why:
- The scripts never fill the gap: they ask how likely the candidate is after the whole sentence.
- They find the candidate by the length of the prompt tokenised alone. Where its first letters join the full stop in one
  token, those letters are not scored, and a candidate that is joined whole scores 0, the highest score there is. With
  the Llama 3 tokenizer that holds for 48 of the 440 candidates, and each of the 23 items with such a candidate is
  answered with it, whatever the model. Here the candidate is found by its characters, and one without a token of its
  own is an error of that item.
- A tie has no prediction (null) and is not correct. The scripts give it to the first candidate, which is the right one
  in 106 of their 110 items.
- An item that could not be scored has no prediction (null).
"""


def files(pairs: list[tuple[dict, dict]]) -> dict[str, str]:
    """{file name: content}; `pairs` are items with their result rows."""
    found = {"results.jsonl": "".join(_line(item, row["option_scores"]) for item, row in pairs)}
    if any("loglik_legacy:0" in row["values"] for _, row in pairs):
        found["results_legacy.jsonl"] = "".join(_line(item, _legacy(item, row)) for item, row in pairs)
    return found


def _line(item: dict, scores: list[float] | None) -> str:
    choice = choose(scores, right_options(item))
    texts = {item["choices"][i] for i in choice.predicted}
    line = {
        "prompt": item["context"],
        "predicted": texts.pop() if len(texts) == 1 else None,
        "correct": item["choices"][item["gold"][0]] if item["gold"] else None,
        "is_correct": bool(choice.correct),
    }
    return json.dumps(line, ensure_ascii=False) + "\n"


def _legacy(item: dict, row: dict) -> list[float] | None:
    scores = [row["values"].get(f"loglik_legacy:{i}") for i in range(len(item["choices"]))]
    return None if None in scores else scores
