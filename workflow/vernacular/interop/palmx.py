"""Result files in the format of PalmX 2025 (predictions.csv, scores.txt, outputs_log.csv), from letters."""

import math
from string import ascii_uppercase

from vernacular.core.tables import TEXT_NOTE, csv_text
from vernacular.metrics.spans import probabilities

README = """\
Files in the format of the PalmX 2025 evaluation script (predictions.csv, scores.txt, outputs_log.csv).

Differences from the values that the script writes:
- For a tie, `prediction` is empty. The script predicts the first of the tied letters, which is usually A.
- An item that could not be scored has no prediction and no scores. The script assigns -inf to all four letters and
  predicts A; this occurs with tokenizers that pad on the left, for all prompts of a batch except the longest one, and
  with prompts that are truncated at the model's maximum length.
- With SentencePiece tokenizers that insert a separate space token before a letter (Llama 2, Mistral), the script scores
  this token instead of the letter, so that all letters have the same score and A is predicted. Here, prompt and letter
  are tokenized together, and the letter is located by its characters.
- The model's dtype is configured and recorded; that of the script depends on the version of transformers.
- accuracy is over the items that have a known answer and could be scored. If no answer is known, it is not available;
  the script writes accuracy=0.000000.
- Options after D have separate columns; the script prints a fifth option as "5." and never scores it.
- outputs_log.csv is overwritten. The script appends to the output of earlier runs, and reads the words "NA" and "None"
  as missing values.
"""
README += TEXT_NOTE


def files(pairs: list[tuple[dict, dict]]) -> dict[str, str]:
    """Return {file name: content}; `pairs`: items with their result rows, whose options are in the letters' order."""
    letters = ascii_uppercase[: max([4, *(len(row["choices"]) for _, row in pairs)])]
    correct = [row["correct"] for _, row in pairs if row["correct"] is not None]
    accuracy = (
        f"accuracy={sum(correct) / len(correct):.6f}" if correct else "accuracy is not available: no answer is known"
    )
    columns = ["id", "question", *letters, "answer_label", "pred_label", "correct"]
    columns += [f"{name}_{letter}" for letter in letters for name in ("score", "prob")]
    return {
        "predictions.csv": csv_text(
            ["id", "prediction"],
            [[item["item_id"], _predicted_letter(row["predicted_indices"])] for item, row in pairs],
        ),
        "scores.txt": accuracy + "\n",
        "outputs_log.csv": csv_text(columns, [_log_row(item, row, len(letters)) for item, row in pairs]),
    }


def _predicted_letter(predicted_indices: list[int] | None) -> str | None:
    return ascii_uppercase[predicted_indices[0]] if predicted_indices and len(predicted_indices) == 1 else None


def _log_row(item: dict, row: dict, n: int) -> list:
    scores = row["option_scores"] or []
    probs = [prob if math.isfinite(prob) else None for prob in probabilities(scores).tolist()] if scores else []
    score_cells = [cell for pair in zip(_pad(scores, n), _pad(probs, n), strict=True) for cell in pair]
    gold = "|".join(ascii_uppercase[i] for i in row["gold"])
    return [
        item["item_id"],
        item["question"],
        *_pad(row["choices"], n),
        gold,
        _predicted_letter(row["predicted_indices"]),
        row["correct"],
        *score_cells,
    ]


def _pad(cells: list, n: int) -> list:
    return [*cells, *[None] * (n - len(cells))]
