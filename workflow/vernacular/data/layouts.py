"""Conversion of rows to items: one function per `item_type` of a task file, which defines the fields of an item.

Each function takes the cells of a row and returns the item's context, question, choices, gold, target and extra. It
raises `RowRejected`, with the reason, for a row that cannot be evaluated, and records repairs in `cells.repaired`.
"""

import itertools
import json
import re
import string
import unicodedata
from collections.abc import Iterable

from vernacular.core.errors import DataError
from vernacular.core.languages import script_name
from vernacular.data.columns import Cells, RowRejected, as_text, comparable, find, location_of, quote
from vernacular.data.readers import is_document_marker
from vernacular.types import last_number

_FINAL_PUNCTUATION = ".,;:!?…。؟ "
_MASK = "[MASK]"
_GAP = "__"
_NO_OPTION = "answer not among the options"
# 1.0: pandas writes integers as floats if a cell of the column is empty
_LABELS = {"1": "1", "1.0": "1", "true": "1", "0": "0", "0.0": "0", "false": "0"}


def question(cells: Cells) -> dict:
    """Return the item of a question, story or unfinished text with options whose order and letters are meaningful."""
    options = cells.texts("choices")
    for field in ("context", "question"):
        if cells.requires(field) and not cells.text(field):
            raise RowRejected(f"empty {field}", *options[:1])
    _check_options(options)
    gold = _gold(cells, options)
    item = _item(context=cells.text("context"), question=cells.text("question"), choices=options, gold=gold)
    if classes := cells.class_names():
        item["extra"] = {"class_names": json.dumps(classes, ensure_ascii=False)}
    return item


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
        raise RowRejected("no correct answer", cells.text("question"))
    if "" in (*correct, *incorrect):
        cells.repaired.add("empty answers removed")
    correct, incorrect = _distinct(filter(None, correct)), list(filter(None, incorrect))
    overlap = set(map(comparable, correct)) & set(map(comparable, incorrect))
    if overlap:
        cells.repaired.add("answers both correct and incorrect: used as correct")
    choices = _distinct(correct + incorrect)
    if len(choices) < len(correct) + len(incorrect) - len(overlap):
        cells.repaired.add("repeated answers removed")
    target = next((answer for answer in correct if comparable(answer) == comparable(target)), target)
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
        raise RowRejected("empty target", cells.text("context"))
    return _item(context=cells.text("context"), target=cells.text("target"))


def open_question(cells: Cells) -> dict:
    """Return the item of a question with one or more accepted answers; with `number`, each is a number."""
    if not cells.text("question"):
        raise RowRejected("empty question")
    if cells.requires("context") and not cells.text("context"):
        raise RowRejected("empty context", cells.text("question"))
    targets = _distinct(filter(None, cells.texts("targets")))
    if not targets:
        raise RowRejected("no accepted answer", cells.text("question"))
    is_number = cells.columns.get("number", False)
    if is_number and (text := next((target for target in targets if last_number(target) is None), None)):
        raise RowRejected("answer is not a number", text)
    extra = {"targets": json.dumps(targets, ensure_ascii=False), "number": "1" if is_number else ""}
    return _item(context=cells.text("context"), question=cells.text("question"), target=targets[0], extra=extra)


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
        raise RowRejected("label is neither 1 nor 0", cells.value("label"))
    return _item(context=cells.text("context"), extra={"label": label})


def cloze(cells: Cells) -> dict:
    """Return the item of a text with one gap, written `__`, and candidates for the gap."""
    context = re.sub("_{2,}", _GAP, cells.text("context").replace(cells.columns.get("mask", _GAP), _GAP))
    if context.count(_GAP) != 1:
        raise RowRejected("no gap" if _GAP not in context else "more than one gap", context)
    options = cells.texts("choices")
    if not all(options):
        raise RowRejected("empty option", *options)
    gold = _gold(cells, options)
    candidates = _distinct(options)
    if len(candidates) < len(options):
        cells.repaired.add("repeated candidates removed")
    if len(candidates) < 2:
        raise RowRejected("fewer than two options", *candidates)
    positions = list(map(comparable, candidates))
    return _item(
        context=context, choices=candidates, gold=sorted({positions.index(comparable(options[i])) for i in gold})
    )


def target_word(cells: Cells) -> dict:
    """Return the item of a sentence with a masked word and its forms, the correct one first; `extra` as Grew-TSE."""
    extra = {name: as_text(find(cells.row, column)) for name, column in cells.columns.get("extra", {}).items()}
    mask, masked_text, prompt = cells.columns.get("mask", _MASK), cells.text("context"), extra.get("prompt_text", "")
    if not masked_text and prompt:
        masked_text = f"{prompt} {mask}"
    if masked_text.count(mask) != 1:
        raise RowRejected("no masked word" if mask not in masked_text else "more than one masked word", masked_text)
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


def translation(cells: Cells) -> dict:
    """Return the item of a text and its translation, with the tags of both languages."""
    item = target(cells)
    return item | {"extra": {key: cells.columns[key] for key in ("source_language", "target_language")}}


def entities(cells: Cells) -> dict:
    """Return the item of a sentence and its named entities: `target` is {type: [texts]}, with all types, as JSON.

    Tags are in IOB2. An I- that continues no entity of its type begins one, as in conlleval and seqeval.
    """
    tokens, tags, joiner = cells.texts("tokens"), cells.texts("tags"), cells.columns["joiner"]
    if len(tokens) != len(tags):
        raise RowRejected("not one tag for each token", detail=f"{len(tokens)} tokens and {len(tags)} tags")
    if any(map(is_document_marker, tokens)):
        pairs = [pair for pair in zip(tokens, tags, strict=True) if not is_document_marker(pair[0])]
        if not pairs:
            raise RowRejected("document marker of CoNLL, no sentence", *tokens)
        cells.repaired.add("document marker of CoNLL removed from a sentence")
        tokens, tags = zip(*pairs, strict=True)
    found: list[tuple[str, list[str]]] = []
    previous = None  # type of the entity that the token before belongs to
    for token, tag in zip(tokens, tags, strict=True):
        prefix, _, name = tag.partition("-")
        if tag != "O" and (prefix not in ("B", "I") or name not in cells.columns["types"]):
            names = ", ".join(cells.columns["types"])
            detail = f"tag {quote(tag)} is neither O, nor B- or I- with a type of the task file ({names})"
            raise RowRejected("tag not in IOB2, or of another type", detail=detail)
        if prefix == "I" and name != previous:
            cells.repaired.add("I- without B- begins an entity")
        if prefix == "B" or (prefix == "I" and name != previous):
            found.append((name, []))
        if tag != "O":
            found[-1][1].append(token)
        previous = name or None
    answer = {name: [] for name in cells.columns["types"]}
    for name, parts in found:
        answer[name].append(joiner.join(filter(None, parts)))
    context = joiner.join(filter(None, tokens))
    if not context:
        raise RowRejected("empty sentence")
    if not all(all(texts) for texts in answer.values()):
        raise RowRejected("entity without text", context)
    return _item(context=context, target=json.dumps(answer, ensure_ascii=False))


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
    "open_question": open_question,
    "summary": target,
    "continuation": target,
    "pair": pair,
    "sentence": sentence,
    "cloze": cloze,
    "target_word": target_word,
    "text": text,
    "translation": translation,
    "entities": entities,
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
    _check_options(options)
    gold = _gold(cells, options) if cells.has("gold") else []
    return _item(context=cells.text("context"), choices=options, gold=gold)


def _distinct(texts: Iterable[str]) -> list[str]:
    """Return the texts in order, each once; of those that look the same, the first."""
    first: dict[str, str] = {}
    for text in texts:
        first.setdefault(comparable(text), text)
    return list(first.values())


def _check_options(options: list[str]) -> None:
    """Raise RowRejected unless there are at least two options, none is empty, and all look different."""
    if len(options) < 2:
        raise RowRejected("fewer than two options", *options)
    if not all(options):
        raise RowRejected("empty option", *options)
    first: dict[str, str] = {}
    for option in options:
        twin = first.get(comparable(option))
        if twin == option:
            raise RowRejected("duplicated options", *options)
        if twin is not None:
            start = sum(
                1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(twin, option, strict=False))
            )
            codes = [" ".join(f"U+{ord(char):04X}" for char in text[start : start + 3]) for text in (twin, option)]
            difference = " and ".join(code or "the end of the text" for code in codes)
            detail = f"{quote(twin)} and {quote(option)} differ in invisible characters only, from {difference} on"
            raise RowRejected("options that look the same", detail=detail)
        first[comparable(option)] = option


def _merge_forms(cells: Cells, forms: list[str]) -> tuple[list[str], list[str | list[str]]]:
    """Return (distinct forms of a word, the correct one first; the column of each, or its columns).

    Raises RowRejected if an incorrect form equals the correct one; incorrect ones may coincide.
    """
    names = cells.column_names("good") + cells.column_names("bad")
    distinct_forms = _distinct(forms)
    if len(distinct_forms) == len(forms) or not all(forms):
        return forms, names
    keys = list(map(comparable, forms))
    if keys[0] in keys[1:]:
        raise RowRejected("an incorrect form equals the correct one", forms[0])
    cells.repaired.add("repeated incorrect forms merged")
    if len(names) != len(forms):  # a column that holds a list of forms, or one that may be missing
        return distinct_forms, []
    columns = [
        [name for name, key in zip(names, keys, strict=True) if key == comparable(form)] for form in distinct_forms
    ]
    return distinct_forms, [group[0] if len(group) == 1 else group for group in columns]


def _gold(cells: Cells, options: list[str]) -> list[int]:
    """Return the indices of the correct options, [] if withheld; raise RowRejected if the value identifies none."""
    value = cells.value("gold")
    gold_format = cells.columns.get("gold_format")
    if gold_format == "labels" and as_text(value):
        labels = value if isinstance(value, list) else cells.texts("gold")
        labels = [_LABELS.get(as_text(label).lower()) for label in labels]
        if len(labels) != len(options) or None in labels:
            detail = f"labels {quote(value)} are not a 1 or 0 for each of {len(options)} options"
            raise RowRejected(_NO_OPTION, detail=detail)
        return [i for i, label in enumerate(labels) if label == "1"]
    value = value if gold_format == "text" else cells.literal(value)
    labels = cells.labels("choices") if gold_format == "letter" else None
    names = cells.class_names() or options
    indices = []
    for entry in value if isinstance(value, list) else [value]:
        text = as_text(entry)
        if not text or (gold_format == "index" and text in ("-1", "-1.0")):
            continue  # withheld, as in the test split of a shared task
        if isinstance(entry, bool) and text not in names:
            text = text.lower()  # as a task file writes it
        index = _index(text, gold_format, names, labels, cells.alphabet)
        if index is None or not 0 <= index < len(options):
            if gold_format == "letter":
                names = labels or list(string.ascii_uppercase[: len(options)])
            elif gold_format != "text":
                names = [str(i + (gold_format == "number")) for i in range(len(options))]
            foreign = next((char for char in text if char.isalpha() and not char.isascii()), None)
            script = f" ({script_name(foreign)})" if foreign and gold_format == "letter" else ""
            listed = ", ".join(map(quote, names))
            is_letter = gold_format in ("index", "number") and _letter(text) in string.ascii_lowercase[: len(options)]
            hint = f" (gold_format: {gold_format}); for letters, set gold_format: letter" if is_letter else ""
            raise RowRejected(
                _NO_OPTION, detail=f"answer {quote(text)}{script} is not among the options {listed}{hint}"
            )
        indices.append(index)
    if not indices and cells.has("gold"):
        cells.repaired.add("answer withheld by the dataset")
    return sorted(set(indices))


def _index(
    text: str, gold_format: str, options: list[str], labels: list[str] | None, alphabet: dict[str, int]
) -> int | None:
    if gold_format in ("number", "index"):
        digits = re.fullmatch(r"(\d{1,4})(\.0+)?", text)
        return int(digits[1]) - (gold_format == "number") if digits else None
    if gold_format == "letter":
        letter = _letter(text)
        if labels is None:
            return (alphabet or _LATIN).get(letter)
        letters = [_letter(label) for label in labels]
        return letters.index(letter) if letter in letters else None
    for key in (str, comparable):
        if key(text) in (keys := [key(option) for option in options]):
            return keys.index(key(text))
    stripped_text, *stripped_options = (comparable(each).rstrip(_FINAL_PUNCTUATION) for each in (text, *options))
    return (
        stripped_options.index(stripped_text) if stripped_text and stripped_options.count(stripped_text) == 1 else None
    )


_LATIN = {letter: index for index, letter in enumerate(string.ascii_lowercase)}
# how options are lettered: Cyrillic, as far as its languages agree; Greek, Georgian, Armenian, Hebrew; Arabic in its
# two orders; Devanagari, Bengali
_ALPHABETS = ("абвгд", "αβγδε", "აბგდევ", "աբգդեզ", "אבגדהו", "ابجدهو", "ابتثجح", "कखगघङ", "কখগঘঙ")
_LOOK_ALIKES = str.maketrans("авсеαβε", "abceabe")  # capitals that look like those of Latin


def _letter(text: str) -> str:
    """Return a letter without its decoration, in lower case.

    >>> _letter("(B)."), _letter("Ｂ"), _letter("أ")
    ('b', 'b', 'ا')
    """
    return unicodedata.normalize("NFKC", text).strip("().:[]ـ").strip().casefold().replace("أ", "ا")


def answer_alphabet(rows: list[dict], columns: dict) -> dict[str, int]:
    """Return the letters with which a dataset numbers its options, with their indices; {} if they are Latin.

    Of the known alphabets, it is the one that has most of the letters in the column of answers: А Б В are Cyrillic, and
    А В С (Cyrillic) are meant to be A B C. If two have equally many, and number them differently, it is Latin.

    >>> columns = {"choices": "o", "gold": "a", "gold_format": "letter"}
    >>> answer_alphabet([{"a": "А", "o": ["x", "y"]}, {"a": "Б", "o": ["x", "y"]}], columns)["б"]
    1
    """
    if columns.get("gold_format") != "letter":
        return {}
    letters = {_letter(as_text(_gold_value(row, columns))) for row in rows} - {""}
    if all(letter.isascii() for letter in letters):
        return {}
    n_options = max(_count_options(row, columns) for row in rows)
    look_alikes = {chr(code): _LATIN[chr(latin)] for code, latin in _LOOK_ALIKES.items()}
    alphabets = [_LATIN | look_alikes]
    for alphabet in _ALPHABETS:
        indices = {letter: index for index, letter in enumerate(alphabet)}
        alphabets.append({letter.translate(_LOOK_ALIKES): index for letter, index in indices.items()} | indices)
    readings = [
        {letter: alphabet[letter] for letter in letters if alphabet.get(letter, 26) < n_options}
        for alphabet in alphabets
    ]
    most = max(map(len, readings))
    best = [i for i, reading in enumerate(readings) if len(reading) == most > 0]
    is_latin = best[:1] == [0] and sum(map(str.isascii, letters)) > len(letters) / 2
    is_clear = best and all(readings[i] == readings[best[0]] for i in best)
    return alphabets[best[0]] if is_latin or is_clear else {}


def _gold_value(row: dict, columns: dict):
    try:
        return Cells(row, columns).value("gold")
    except RowRejected:
        return None


def _count_options(row: dict, columns: dict) -> int:
    try:
        return len(Cells(row, columns).texts("choices")) if "choices" in columns else 26
    except RowRejected:
        return 0


def check_numbering(rows: Iterable[dict], columns: dict, name: str) -> None:
    """Raise DataError if answers are numbered from 1 with gold_format: index, or from 0 with number.

    Then the number of an option occurs that does not exist, and that of the first (index) or last (number) never does.
    """
    gold_format = columns.get("gold_format")
    if gold_format not in ("index", "number") or "choices" not in columns:
        return
    first, other = (0, "number") if gold_format == "index" else (1, "index")
    outside = None
    for row_index, row in enumerate(rows):
        n_options = _count_options(row, columns)
        value = Cells(row, columns).literal(_gold_value(row, columns)) if n_options else None
        for entry in value if isinstance(value, list) else [value]:
            index = _index(as_text(entry), gold_format, [], None, {})
            if index == (0 if gold_format == "index" else n_options - 1):
                return
            if index == (n_options if gold_format == "index" else -1):
                outside = outside or (location_of(row, row_index), as_text(entry), n_options)
    if outside:
        location, number, n_options = outside
        unseen = "0" if gold_format == "index" else f"{n_options}, the last option,"
        raise DataError(
            f"{name}: gold_format: {gold_format}: expected {first} to {n_options - 1 + first}, got {number} "
            f"({location}), and {unseen} never occurs: the answers are numbered from {1 - first}. "
            f"Set gold_format: {other}."
        )
