"""Conversion of rows to items: one function per `item_type` of a task file, which defines the fields of an item.

Each function takes the cells of a row and returns the item's context, question, choices, gold, target and extra. It
raises `RowRejected`, with the reason, for a row that cannot be evaluated, and records repairs in `cells.repaired`.
"""

import json
import re
import string

from vernacular.data.columns import Cells, RowRejected, as_text, find

_FINAL_PUNCTUATION = ".,;:!?…。؟ "
_MASK = "[MASK]"
_GAP = "__"
# 1.0: pandas writes integers as floats if a cell of the column is empty
_LABELS = {"1": "1", "1.0": "1", "true": "1", "0": "0", "0.0": "0", "false": "0"}


def question(cells: Cells) -> dict:
    """Return the item of a question, story or unfinished text with options whose order and letters are meaningful."""
    options = cells.texts("choices")
    for field in ("context", "question"):
        if cells.requires(field) and not cells.text(field):
            raise RowRejected(f"empty {field}")
    if len(options) < 2:
        raise RowRejected("fewer than two options")
    if not all(options):
        raise RowRejected("empty option")
    if len(set(options)) < len(options):
        raise RowRejected("duplicated options")
    gold = _gold(cells, options)
    return _item(context=cells.text("context"), question=cells.text("question"), choices=options, gold=gold)


def multi_answer(cells: Cells) -> dict:
    """Return the item of a question with several correct and incorrect answers: correct ones first, without repeats."""
    if not cells.text("question"):
        raise RowRejected("empty question")
    target = cells.text("target")
    if cells.has("correct_answers"):
        correct, incorrect = cells.texts("correct_answers"), cells.texts("incorrect_answers")
    else:
        options = cells.texts("choices")
        gold = set(_gold(cells, options))
        correct = [option for i, option in enumerate(options) if i in gold]
        incorrect = [option for i, option in enumerate(options) if i not in gold]
    if not any(correct) and target:
        correct = [target]
    if not any(correct):
        raise RowRejected("no correct answer")
    if "" in (*correct, *incorrect):
        cells.repaired.add("empty answers removed")
    correct, incorrect = list(dict.fromkeys(filter(None, correct))), list(filter(None, incorrect))
    overlap = set(correct) & set(incorrect)
    if overlap:
        cells.repaired.add("answers both correct and incorrect: used as correct")
    choices = list(dict.fromkeys(correct + incorrect))
    if len(choices) < len(correct) + len(incorrect) - len(overlap):
        cells.repaired.add("repeated answers removed")
    if target and target not in correct:
        cells.repaired.add("best answer not among the correct ones: not used as an option")
    return _item(
        question=cells.text("question"), choices=choices, gold=list(range(len(correct))), target=target or correct[0]
    )


def target(cells: Cells) -> dict:
    """Return the item of a text and its expected output: a last word, or a summary."""
    if not cells.text("context"):
        raise RowRejected("empty context")
    if not cells.text("target"):
        raise RowRejected("empty target")
    return _item(context=cells.text("context"), target=cells.text("target"))


def pair(cells: Cells) -> dict:
    """Return the item of good and bad sentences, or of a context with its continuations."""
    if cells.has("choices"):
        return _choice_item(cells, cells.texts("choices"))
    return _choice_item(cells, [*cells.texts("good"), *cells.texts("bad")]) | {"gold": [0]}


def sentence(cells: Cells) -> dict:
    """Return the item of a sentence with an acceptability judgment, 1 or 0."""
    label = _LABELS.get(as_text(cells.value("label")).lower())
    if not cells.text("context"):
        raise RowRejected("empty sentence")
    if label is None:
        raise RowRejected("label is neither 1 nor 0")
    return _item(context=cells.text("context"), extra={"label": label})


def cloze(cells: Cells) -> dict:
    """Return the item of a text with one gap, written `__`, and candidates for the gap."""
    context = re.sub("_{2,}", _GAP, cells.text("context").replace(cells.columns.get("mask", _GAP), _GAP))
    if context.count(_GAP) != 1:
        raise RowRejected("no gap" if _GAP not in context else "more than one gap")
    options = cells.texts("choices")
    if not all(options):
        raise RowRejected("empty option")
    gold = _gold(cells, options)
    candidates = list(dict.fromkeys(options))
    if len(candidates) < len(options):
        cells.repaired.add("repeated candidates removed")
    if len(candidates) < 2:
        raise RowRejected("fewer than two options")
    return _item(context=context, choices=candidates, gold=sorted({candidates.index(options[i]) for i in gold}))


def target_word(cells: Cells) -> dict:
    """Return the item of a sentence with one masked word and two or more forms of it, the correct one first.

    Its `extra` has the columns of Grew-TSE.
    """
    extra = {name: as_text(find(cells.row, column)) for name, column in cells.columns.get("extra", {}).items()}
    mask, masked_text, prompt = cells.columns.get("mask", _MASK), cells.text("context"), extra.get("prompt_text", "")
    if not masked_text and prompt:
        masked_text = f"{prompt} {mask}"
    if masked_text.count(mask) != 1:
        raise RowRejected("no masked word" if mask not in masked_text else "more than one masked word")
    forms, columns = _merge_forms(cells, [*cells.texts("good"), *cells.texts("bad")])
    item = _choice_item(cells, forms)
    masked_text = masked_text.replace(mask, _MASK)
    extra |= {
        "masked_text": masked_text,
        "prompt_text": prompt or masked_text.split(_MASK)[0].rstrip(),
        "original_text": extra.get("original_text") or masked_text.replace(_MASK, item["choices"][0]),
        "form_columns": json.dumps(columns),
    }
    return item | {"context": masked_text, "gold": [0], "extra": extra}


def text(cells: Cells) -> dict:
    """Return the item of a plain text, without outer whitespace."""
    if not cells.text("context"):
        raise RowRejected("empty text")
    return _item(context=cells.text("context"))


CONVERTERS = {
    "question": question,
    "passage": question,
    "story": question,
    "multi_answer": multi_answer,
    "summary": target,
    "continuation": target,
    "pair": pair,
    "sentence": sentence,
    "cloze": cloze,
    "target_word": target_word,
    "text": text,
}


def _item(*, context="", question="", choices=(), gold=(), target=None, extra=None) -> dict:
    return {
        "context": context,
        "question": question,
        "choices": list(choices),
        "gold": list(gold),
        "target": target,
        "extra": extra or {},
    }


def _choice_item(cells: Cells, options: list[str]) -> dict:
    """Return an item of options without a question: sentences, or forms of a word."""
    if len(options) < 2 or not all(options):
        raise RowRejected("empty option" if len(options) > 1 else "fewer than two options")
    if len(set(options)) < len(options):
        raise RowRejected("duplicated options")
    gold = _gold(cells, options) if cells.has("gold") else []
    return _item(context=cells.text("context"), choices=options, gold=gold)


def _merge_forms(cells: Cells, forms: list[str]) -> tuple[list[str], list[str | list[str]]]:
    """Return (distinct forms of a word, the correct one first; the column of each, or its columns if they coincide).

    Incorrect forms may coincide, for example cases with the same spelling.

    Raises:
        RowRejected: An incorrect form equals the correct one.
    """
    names = cells.column_names("good") + cells.column_names("bad")
    distinct_forms = list(dict.fromkeys(forms))
    if len(distinct_forms) == len(forms) or not all(forms):
        return forms, names
    if forms[0] in forms[1:]:
        raise RowRejected("an incorrect form equals the correct one")
    cells.repaired.add("repeated incorrect forms merged")
    if len(names) != len(forms):  # a column that holds a list of forms, or one that may be missing
        return distinct_forms, []
    columns = [[name for name, other in zip(names, forms, strict=True) if other == form] for form in distinct_forms]
    return distinct_forms, [group[0] if len(group) == 1 else group for group in columns]


def _gold(cells: Cells, options: list[str]) -> list[int]:
    """Return the indices of the correct options; [] if the dataset withholds them.

    Raises:
        RowRejected: The value does not identify an option.
    """
    value = cells.value("gold")
    gold_format = cells.columns.get("gold_format")
    if gold_format == "labels" and as_text(value):
        labels = value if isinstance(value, list) else cells.texts("gold")
        labels = [_LABELS.get(as_text(label).lower()) for label in labels]
        if len(labels) != len(options) or None in labels:
            raise RowRejected("answer not among the options")
        return [i for i, label in enumerate(labels) if label == "1"]
    indices = []
    for entry in value if isinstance(value, list) else [value]:
        text = as_text(entry)
        if not text or (gold_format == "index" and text in ("-1", "-1.0")):
            continue  # withheld, as in the test split of a shared task
        index = _index(text, gold_format, options, cells.labels("choices"))
        if index is None or not 0 <= index < len(options):
            raise RowRejected("answer not among the options")
        indices.append(index)
    if not indices and cells.has("gold"):
        cells.repaired.add("answer withheld by the dataset")
    return sorted(set(indices))


def _index(text: str, gold_format: str, options: list[str], labels: list[str] | None) -> int | None:
    if gold_format in ("number", "index"):
        digits = re.fullmatch(r"(\d{1,4})(\.0+)?", text)
        return int(digits[1]) - (gold_format == "number") if digits else None
    if gold_format == "letter":
        letter = text.strip("().:").strip().upper()
        letters = [label.upper() for label in labels] if labels else list(string.ascii_uppercase[: len(options)])
        return letters.index(letter) if letter in letters else None
    if text in options:
        return options.index(text)
    stripped_options, stripped_text = (
        [option.rstrip(_FINAL_PUNCTUATION) for option in options],
        text.rstrip(_FINAL_PUNCTUATION),
    )
    return (
        stripped_options.index(stripped_text) if stripped_text and stripped_options.count(stripped_text) == 1 else None
    )
