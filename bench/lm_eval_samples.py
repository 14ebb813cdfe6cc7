"""The project's samples as plain questions, sentences and stories, from which `lm_eval_rows` makes rows of datasets."""

import csv
import json
from pathlib import Path

SAMPLES = Path(__file__).parent.parent / "workflow" / "samples"


def sample(path: str) -> list[dict]:
    """Return the rows of a sample file."""
    file = SAMPLES / path
    with file.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines, delimiter="\t")) if file.suffix == ".tsv" else [*map(json.loads, lines)]


def questions(language: str) -> list[dict]:
    """Return questions with `stem`, `options` and `gold`, an index."""
    rows = sample(f"openbookqa/{language}/test.jsonl") + sample(f"openbookqa/{language}/validation.jsonl")
    return [
        {
            "stem": row["question_stem"],
            "options": row["choices"]["text"],
            "gold": row["choices"]["label"].index(row["answerKey"]),
        }
        for row in rows
    ]


def sentences(language: str) -> list[tuple[str, int]]:
    """Return sentences and whether each is acceptable (1 or 0)."""
    rows = sample(f"cola/{language}/" + ("test.tsv" if language == "gl" else "validation.jsonl"))
    return [
        (row.get("sentence") or row["Sentence"], int(row["label"] if "label" in row else row["Label"])) for row in rows
    ]


def stories(language: str) -> list[dict]:
    return sample(f"xstorycloze/{language}/" + ("test.tsv" if language == "gl" else "eval.tsv"))


def exam(language: str, n: int = 24) -> list[dict]:
    """Return questions in the columns of MMLU and its relatives."""
    return [
        {
            "subject": "nature",
            "question": row["stem"],
            "choices": row["options"],
            "answer": row["gold"],
            "letter": "ABCD"[row["gold"]],
        }
        for row in questions(language)[:n]
    ]


def arithmetic(n: int, text: str) -> list[dict]:
    """Return word problems; `text` has places for two numbers."""
    return [
        {"question": text.format(i + 3, 2 * i + 1), "answer": f"{i + 3} + {2 * i + 1} = {3 * i + 4}\n#### {3 * i + 4}",
         "answer_number": 3 * i + 4}
        for i in range(n)
    ]  # fmt: skip
