"""Audit of a parallel task: differences between the rows of its languages that translation does not explain.

Items with the same ID are translations of each other, so that their answer, number of options, category and extra
columns are equal, and their texts are not. A row is reported where it differs from most languages; with two languages,
or without a majority, all values are listed.
"""

from collections import Counter
from dataclasses import dataclass

from vernacular.core.errors import shortened
from vernacular.core.languages import script_of, script_of_tag
from vernacular.types import Item

REFERENCE = "en"


@dataclass(frozen=True)
class Finding:
    """What is suspicious about one item of one language."""

    language: str
    item_id: str
    kind: str  # what differs: answer, number of options, category, a column, equal text, script
    detail: str
    text: str  # of the item


def audit(items: dict[str, list[Item]]) -> list[Finding]:
    """Return what is suspicious about the items of each language, ordered by language and item; see the module."""
    rows = {
        language: {item["item_id"]: item for item in own if not item["few_shot"]} for language, own in items.items()
    }
    findings = []
    for language, own in rows.items():
        expected_script = script_of_tag(language) or script_of(_text(item) for item in own.values())
        for item in own.values():
            script = script_of([_text(item)])
            if script and script != expected_script:
                findings.append(_finding(language, item, "script", f"{script}, expected {expected_script}"))
            reference = rows.get(REFERENCE, {}).get(item["item_id"])
            if language != REFERENCE and reference and _is_words(item) and _text(item) == _text(reference):
                findings.append(_finding(language, item, "equal text", f"the same as in {REFERENCE}"))
    for item_id in dict.fromkeys(item_id for own in rows.values() for item_id in own):
        present = {language: own[item_id] for language, own in rows.items() if item_id in own}
        for kind in sorted({kind for item in present.values() for kind in _constants(item)}):
            values = {
                language: _constants(item)[kind] for language, item in present.items() if kind in _constants(item)
            }
            findings += _differing(kind, values, present)
    return sorted(findings, key=lambda finding: (list(rows).index(finding.language), finding.kind, finding.item_id))


def missing_ids(items: dict[str, list[Item]]) -> dict[str, int]:
    """Return how many IDs of other languages each language lacks; languages without a gap are left out."""
    own = {language: {item["item_id"] for item in each if not item["few_shot"]} for language, each in items.items()}
    all_ids = set().union(*own.values())
    return {language: len(all_ids - ids) for language, ids in own.items() if all_ids - ids}


def _differing(kind: str, values: dict[str, str], present: dict[str, Item]) -> list[Finding]:
    counts = Counter(values.values()).most_common()
    if len(counts) < 2:
        return []
    has_majority = counts[0][1] > len(values) / 2
    others = f"{counts[0][0]} in {counts[0][1]} of {len(values)} languages"
    listed = others if has_majority else ", ".join(f"{value} in {code}" for code, value in values.items())
    return [
        _finding(language, present[language], kind, f"{value}, but {listed}" if has_majority else listed)
        for language, value in values.items()
        if not has_majority or value != counts[0][0]
    ]


def _constants(item: Item) -> dict[str, str]:
    """Return what translation does not change, by name."""
    extra = {name: text for name, text in (item["extra"] or {}).items() if name not in ("targets", "label")}
    values = {"number of options": str(len(item["choices"])), "answer": _numbers(item["gold"])} | extra
    if label := (item["extra"] or {}).get("label"):
        values["answer"] = label
    if (item["extra"] or {}).get("number"):
        values["answer"] = item["target"] or ""
    return values | ({"category": item["category"]} if item["category"] else {})


def _numbers(gold: list[int]) -> str:
    return " and ".join(f"option {index + 1}" for index in gold) or "none"


def _text(item: Item) -> str:
    return " ".join(filter(None, (item["context"], item["question"], *item["choices"])))


def _is_words(item: Item) -> bool:
    """Return whether a text may differ between languages: it has three words or more that are no names or numbers."""
    return sum(word.islower() for word in _text(item).split()) >= 3


def _finding(language: str, item: Item, kind: str, detail: str) -> Finding:
    return Finding(language, item["item_id"], kind, detail, shortened(_text(item), 70))
