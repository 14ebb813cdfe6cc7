"""Conversion of rows to items: one function per `item_type` of a task file, which defines the fields of an item.

Each function takes the cells of a row and returns the item's context, question, choices, gold, target and extra. It
raises `Dropped`, with the reason, for a row that cannot be evaluated, and records repairs in `cells.repaired`.
"""

import json
import re
import string

from vernacular.data.columns import Cells, Dropped, as_text, find

_FINAL = ".,;:!?…。؟ "
_MASK = "[MASK]"
_GAP = "__"
# 1.0: pandas writes integers as floats if a cell of the column is empty
_JUDGEMENT = {"1": "1", "1.0": "1", "true": "1", "0": "0", "0.0": "0", "false": "0"}


def question(cells: Cells) -> dict:
    """Return the item of a question, story or unfinished text with options whose order and letters are meaningful."""
    options = cells.texts("choices")
    for field in ("context", "question"):
        if cells.needs(field) and not cells.text(field):
            raise Dropped(f"empty {field}")
    if len(options) < 2:
        raise Dropped("fewer than two options")
    if not all(options):
        raise Dropped("empty option")
    if len(set(options)) < len(options):
        raise Dropped("duplicated options")
    gold = _gold(cells, options)
    return _item(context=cells.text("context"), question=cells.text("question"), choices=options, gold=gold)


def multi_answer(cells: Cells) -> dict:
    """Return the item of a question with several correct and incorrect answers: correct ones first, without repeats."""
    if not cells.text("question"):
        raise Dropped("empty question")
    target = cells.text("target")
    if cells.has("correct_answers"):
        right, wrong = cells.texts("correct_answers"), cells.texts("incorrect_answers")
    else:
        options = cells.texts("choices")
        gold = set(_gold(cells, options))
        right = [option for i, option in enumerate(options) if i in gold]
        wrong = [option for i, option in enumerate(options) if i not in gold]
    if not any(right) and target:
        right = [target]
    if not any(right):
        raise Dropped("no correct answer")
    if "" in (*right, *wrong):
        cells.repaired.add("empty answers removed")
    right, wrong = list(dict.fromkeys(filter(None, right))), list(filter(None, wrong))
    both = set(right) & set(wrong)
    if both:
        cells.repaired.add("answers both correct and incorrect: used as correct")
    choices = list(dict.fromkeys(right + wrong))
    if len(choices) < len(right) + len(wrong) - len(both):
        cells.repaired.add("repeated answers removed")
    if target and target not in right:
        cells.repaired.add("best answer not among the correct ones: not used as an option")
    return _item(
        question=cells.text("question"), choices=choices, gold=list(range(len(right))), target=target or right[0]
    )


def target(cells: Cells) -> dict:
    """Return the item of a text and its expected output: a last word, or a summary."""
    if not cells.text("context"):
        raise Dropped("empty context")
    if not cells.text("target"):
        raise Dropped("empty target")
    return _item(context=cells.text("context"), target=cells.text("target"))


def pair(cells: Cells) -> dict:
    """Return the item of good and bad sentences, or of a context with its continuations."""
    if cells.has("choices"):
        return _two(cells, cells.texts("choices"))
    return _two(cells, [*cells.texts("good"), *cells.texts("bad")]) | {"gold": [0]}


def sentence(cells: Cells) -> dict:
    """Return the item of a sentence with an acceptability judgment, 1 or 0."""
    label = _JUDGEMENT.get(as_text(cells.value("label")).lower())
    if not cells.text("context"):
        raise Dropped("empty sentence")
    if label is None:
        raise Dropped("label is neither 1 nor 0")
    return _item(context=cells.text("context"), extra={"label": label})


def cloze(cells: Cells) -> dict:
    """Return the item of a text with one gap, written `__`, and candidates for the gap."""
    context = re.sub("_{2,}", _GAP, cells.text("context").replace(cells.columns.get("mask", _GAP), _GAP))
    if context.count(_GAP) != 1:
        raise Dropped("no gap" if _GAP not in context else "more than one gap")
    options = cells.texts("choices")
    if not all(options):
        raise Dropped("empty option")
    gold = _gold(cells, options)
    kept = list(dict.fromkeys(options))
    if len(kept) < len(options):
        cells.repaired.add("repeated candidates removed")
    if len(kept) < 2:
        raise Dropped("fewer than two options")
    return _item(context=context, choices=kept, gold=sorted({kept.index(options[i]) for i in gold}))


def target_word(cells: Cells) -> dict:
    """Return the item of a sentence with one masked word and two or more forms of it, the correct one first.

    Its `extra` has the columns of Grew-TSE.
    """
    extra = {name: as_text(find(cells.row, column)) for name, column in cells.columns.get("extra", {}).items()}
    mask, masked, prompt = cells.columns.get("mask", _MASK), cells.text("context"), extra.get("prompt_text", "")
    if not masked and prompt:
        masked = f"{prompt} {mask}"
    if masked.count(mask) != 1:
        raise Dropped("no masked word" if mask not in masked else "more than one masked word")
    forms, columns = _merged(cells, [*cells.texts("good"), *cells.texts("bad")])
    item = _two(cells, forms)
    masked = masked.replace(mask, _MASK)
    extra |= {
        "masked_text": masked,
        "prompt_text": prompt or masked.split(_MASK)[0].rstrip(),
        "original_text": extra.get("original_text") or masked.replace(_MASK, item["choices"][0]),
        "form_columns": json.dumps(columns),
    }
    return item | {"context": masked, "gold": [0], "extra": extra}


LAYOUTS = {
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


def _two(cells: Cells, options: list[str]) -> dict:
    """Return an item of options without a question: sentences, or forms of a word."""
    if len(options) < 2 or not all(options):
        raise Dropped("empty option" if len(options) > 1 else "fewer than two options")
    if len(set(options)) < len(options):
        raise Dropped("duplicated options")
    gold = _gold(cells, options) if cells.has("gold") else []
    return _item(context=cells.text("context"), choices=options, gold=gold)


def _merged(cells: Cells, forms: list[str]) -> tuple[list[str], list[str | list[str]]]:
    """Return (distinct forms of a word, the correct one first; the column of each, or its columns if they coincide).

    Incorrect forms may coincide, for example cases with the same spelling.

    Raises:
        Dropped: An incorrect form equals the correct one.
    """
    names = cells.names("good") + cells.names("bad")
    distinct = list(dict.fromkeys(forms))
    if len(distinct) == len(forms) or not all(forms):
        return forms, names
    if forms[0] in forms[1:]:
        raise Dropped("an incorrect form equals the correct one")
    cells.repaired.add("repeated incorrect forms merged")
    if len(names) != len(forms):  # a column that holds a list of forms, or one that may be missing
        return distinct, []
    columns = [[name for name, form in zip(names, forms, strict=True) if form == one] for one in distinct]
    return distinct, [of_one[0] if len(of_one) == 1 else of_one for of_one in columns]


def _gold(cells: Cells, options: list[str]) -> list[int]:
    """Return the indices of the correct options; [] if the dataset withholds them.

    Raises:
        Dropped: The value does not identify an option.
    """
    value = cells.value("gold")
    kind = cells.columns.get("gold_format")
    if kind == "labels" and as_text(value):
        marks = value if isinstance(value, list) else cells.texts("gold")
        marks = [_JUDGEMENT.get(as_text(mark).lower()) for mark in marks]
        if len(marks) != len(options) or None in marks:
            raise Dropped("answer not among the options")
        return [i for i, mark in enumerate(marks) if mark == "1"]
    found = []
    for one in value if isinstance(value, list) else [value]:
        text = as_text(one)
        if not text or (kind == "index" and text in ("-1", "-1.0")):
            continue  # withheld, as in the test split of a shared task
        index = _index(text, kind, options, cells.labels("choices"))
        if index is None or not 0 <= index < len(options):
            raise Dropped("answer not among the options")
        found.append(index)
    if not found and cells.has("gold"):
        cells.repaired.add("answer withheld by the dataset")
    return sorted(set(found))


def _index(text: str, kind: str, options: list[str], labels: list[str] | None) -> int | None:
    if kind in ("number", "index"):
        digits = re.fullmatch(r"(\d{1,4})(\.0+)?", text)
        return int(digits[1]) - (kind == "number") if digits else None
    if kind == "letter":
        letter = text.strip("().:").strip().upper()
        names = [label.upper() for label in labels] if labels else list(string.ascii_uppercase[: len(options)])
        return names.index(letter) if letter in names else None
    if text in options:
        return options.index(text)
    bare, sought = [option.rstrip(_FINAL) for option in options], text.rstrip(_FINAL)
    return bare.index(sought) if sought and bare.count(sought) == 1 else None
