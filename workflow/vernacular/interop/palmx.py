"""PalmX 2025's predictions.csv, scores.txt and outputs_log.csv, from letters."""

import math
from string import ascii_uppercase

from vernacular.core.tables import TEXT_NOTE, csv_text
from vernacular.metrics.choice import probabilities

README = """\
Files in the layout of the PalmX 2025 evaluation script (predictions.csv, scores.txt, outputs_log.csv).

Where a number here differs from what the script would have written, this is why:
- A tie is nobody's: `prediction` is empty. The script gives it to the first letter, A most of the time.
- An item that could not be scored has no prediction and no scores. The script scores it -inf four times and predicts A;
  that happens to it with tokenizers that pad on the left, for all but the longest prompt of a batch, and with prompts
  that are cut at the model's length.
- With SentencePiece tokenizers that write a lone blank before a letter tokenised by itself (Llama 2, Mistral) the
  script scores that blank instead of the letter, so that all letters get one score and A wins. Here prompt and letter
  are tokenised together and the letter is found by its characters.
- The model's number type is chosen and recorded; the script's depends on the version of transformers.
- accuracy is over the items that have a known answer and could be scored. Where no answer is known it is not available;
  the script writes accuracy=0.000000.
- Options beyond D have columns of their own; the script prints a fifth option as "5." and never scores it.
- outputs_log.csv is written anew. The script adds to what an earlier run left, and reads the words "NA" and "None" as
  missing.
"""
README += TEXT_NOTE


def files(pairs: list[tuple[dict, dict]]) -> dict[str, str]:
    """{file name: content}; `pairs` are items with their result rows, whose options stand in the letters' order."""
    letters = ascii_uppercase[: max([4, *(len(row["options"]) for _, row in pairs)])]
    known = [row["correct"] for _, row in pairs if row["correct"] is not None]
    accuracy = f"accuracy={sum(known) / len(known):.6f}" if known else "accuracy is not available: no answer is known"
    columns = ["id", "question", *letters, "answer_label", "pred_label", "correct"]
    columns += [f"{name}_{letter}" for letter in letters for name in ("score", "prob")]
    return {
        "predictions.csv": csv_text(
            ["id", "prediction"], [[item["item_id"], _letters(row["predicted"])] for item, row in pairs]
        ),
        "scores.txt": accuracy + "\n",
        "outputs_log.csv": csv_text(columns, [_logged(item, row, len(letters)) for item, row in pairs]),
    }


def _letters(places: list[int] | None) -> str | None:
    return ascii_uppercase[places[0]] if places and len(places) == 1 else None


def _logged(item: dict, row: dict, n: int) -> list:
    scores = row["option_scores"] or []
    shares = [share if math.isfinite(share) else None for share in probabilities(scores).tolist()] if scores else []
    both = [cell for pair in zip(_padded(scores, n), _padded(shares, n), strict=True) for cell in pair]
    gold = "|".join(ascii_uppercase[i] for i in row["gold"])
    return [
        item["item_id"],
        item["question"],
        *_padded(row["options"], n),
        gold,
        _letters(row["predicted"]),
        row["correct"],
        *both,
    ]


def _padded(cells: list, n: int) -> list:
    return [*cells, *[None] * (n - len(cells))]
