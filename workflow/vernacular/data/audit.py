"""Audit of the items of a task without a model: faults of files and of writing, in each language and between them.

Items of a parallel task with the same ID are translations of each other, so that their answer, number of options,
category and extra columns are equal, and their texts are not. A row is reported where it differs from most languages;
with two languages, or without a majority, all values are listed (`audit_between`).

In one language, repeated items and options, answers that the question contains, and damaged texts are found
(`item_findings`), and whether a position or the length of the options gives answers away (`set_findings`).
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.special import chdtrc

from vernacular.core.errors import shortened
from vernacular.core.languages import script_counts, script_of, script_of_tag
from vernacular.core.tables import percent
from vernacular.data.columns import comparable
from vernacular.types import Item, correct_answers

REFERENCE = "en"
CONTRADICTING = "contradicting golds"
ERRORS = (CONTRADICTING, "duplicate", "few-shot leak")  # other findings are warnings
_SIMILAR, _GRAM = 0.8, 5  # Jaccard index of the character n-grams of near-duplicates
_OTHER_SCRIPT = 0.2  # share of letters in another script than that of the language
_MIN_ANSWER = 4  # letters of an answer that a question may contain by chance if it is shorter
_P_POSITION, _Z_LONGEST, _MARGIN = 0.01, 3.0, 0.05  # from which a bias is reported, and its least size
_COMPARED_AT_A_TIME = 500  # items, with all others
# options that refer to others, normalized
_ALL_OR_NONE = re.compile(
    r"\b((all|none) of the (above|others)|(todas|ningunha|ninguna|nenhuma) (as|las|das|de las) "
    r"(anteriores|outras|otras)|(totes|cap de) les anteriors|(toutes|aucune) (les|des) réponses|"
    r"aurreko (guztiak|bat ere ez)|"
    r"(alle|keine) der genannten|(tutte|nessuna) (le|delle) precedenti|(sve|ništa od) naveden\w*|"
    r"(все|ничего из) вышеперечисленн\w*)\b"
)
_DAMAGE = {
    "replacement character": re.compile("\ufffd"),
    "control character": re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"),
    "encoding damage": re.compile("Ã[\u0080-\u00bf]|â€"),
    "HTML entity": re.compile(r"&(amp|lt|gt|quot|nbsp|apos|#x?[0-9a-f]{2,6});", re.IGNORECASE),
}
_ENUMERATION = re.compile(r"(?:^|(?<=[\s;,:]))\(?\w{1,3}\)", re.MULTILINE)  # a) 1) iii)


@dataclass(frozen=True)
class Finding:
    """What is suspicious about one item of one language."""

    language: str
    item_id: str
    kind: str  # what is suspicious: of parallel items, what differs; otherwise the name of a check
    detail: str
    text: str  # of the item


def audit_between(items: dict[str, list[Item]]) -> list[Finding]:
    """Return what is suspicious about the items of each language, ordered by language and item; see the module."""
    rows = {code: {item["item_id"]: item for item in own if not item["few_shot"]} for code, own in items.items()}
    findings = []
    for language, own in rows.items():
        expected_script = script_of_tag(language) or script_of(_text(item) for item in own.values())
        for item in own.values():
            scripts = script_counts([_text(item)])
            if scripts and 1 - scripts[expected_script] / scripts.total() > _OTHER_SCRIPT:
                other = next(name for name, _ in scripts.most_common() if name != expected_script)
                findings.append(finding(language, item, "script", f"{other}, expected {expected_script}"))
            reference = rows.get(REFERENCE, {}).get(item["item_id"])
            if language != REFERENCE and reference and _is_words(item) and _text(item) == _text(reference):
                findings.append(finding(language, item, "equal text", f"the same as in {REFERENCE}"))
    for item_id in dict.fromkeys(item_id for own in rows.values() for item_id in own):
        present = {language: own[item_id] for language, own in rows.items() if item_id in own}
        constants = {language: _constants(item) for language, item in present.items()}
        for kind in sorted({kind for own in constants.values() for kind in own}):
            values = {language: own[kind] for language, own in constants.items() if kind in own}
            findings += _differing(kind, values, present)
    return sorted(findings, key=lambda finding: (list(rows).index(finding.language), finding.kind, finding.item_id))


def in_language(item: Item, language: str) -> Item:
    """Return an item of a translation as its text in a language; any other item as it is."""
    extra = dict(item["extra"] or ())
    if "source_language" not in extra:
        return item
    text = item["context"] if extra.pop("source_language") == language else item["target"]
    del extra["target_language"]
    return item | {"context": text, "target": None, "extra": extra}


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
        finding(language, present[language], kind, f"{value}, but {listed}" if has_majority else listed)
        for language, value in values.items()
        if not has_majority or value != counts[0][0]
    ]


def _constants(item: Item) -> dict[str, str]:
    """Return what translation does not change, by name."""
    extra = {name: text for name, text in (item["extra"] or {}).items() if name not in ("targets", "label")}
    answer = " and ".join(f"option {index + 1}" for index in item["gold"]) or "none"
    values = {"number of options": str(len(item["choices"])), "answer": answer} | extra
    if label := (item["extra"] or {}).get("label"):
        values["answer"] = label
    if (item["extra"] or {}).get("number"):
        values["answer"] = item["target"] or ""
    return values | ({"category": item["category"]} if item["category"] else {})


def _text(item: Item) -> str:
    return " ".join(filter(None, (item["context"], item["question"], *item["choices"])))


def _is_words(item: Item) -> bool:
    """Return whether a text may differ between languages: it has three words or more that are no names or numbers."""
    return sum(word.islower() for word in _text(item).split()) >= 3


def finding(language: str, item: Item, kind: str, detail: str) -> Finding:
    return Finding(language, item["item_id"], kind, detail, shortened(_text(item), 70))


def normalized(text: str) -> str:
    """Return a text as it is compared: without case, punctuation and differences of spaces, with signs and emoji.

    >>> normalized(" O Miño,  o\\tSil… "), normalized("5 > -3"), normalized("Ben! 😀")
    ('o miño o sil', '5 > −3', 'ben 😀')
    """
    text = re.sub(r"(?<!\w)[-–](?=\d)", "−", unicodedata.normalize("NFKC", text).casefold())
    categories = map(unicodedata.category, text)
    kept = (" " if name[0] in "PZC" or name == "Sk" else char for char, name in zip(text, categories, strict=True))
    return " ".join("".join(kept).split())


def contradicting(items: list[Item], language: str) -> list[Finding]:
    """Return the evaluated items with the same question and options as another one, but another answer."""
    return [found for found in _duplicates(items, language) if found.kind == CONTRADICTING]


def item_findings(items: list[Item], language: str) -> list[Finding]:
    """Return what is suspicious about single items of one language, ordered by kind and item."""
    findings = _duplicates(items, language) + _near_duplicates(items, language)
    for item in items:
        if item["few_shot"]:
            continue
        findings += [finding(language, item, "damage", detail) for detail in _damages(item)]
        if not _has_question(item):
            continue
        options = [normalized(option) for option in item["choices"]]
        if detail := _suspicious_options(item, options):
            findings.append(finding(language, item, "options", detail))
        if answer := _answer_in_question(item, options):
            findings.append(finding(language, item, "answer in question", answer))
    return sorted(findings, key=lambda finding: (finding.kind, finding.item_id))


def _has_question(item: Item) -> bool:
    return len(item["choices"]) > 1 and bool(item["question"] or item["context"])


def _duplicates(items: list[Item], language: str) -> list[Finding]:
    groups: dict[tuple, list[Item]] = {}
    for item in items:
        texts = normalized(item["context"]), normalized(item["question"])
        options = tuple(sorted(normalized(option) or option for option in item["choices"]))
        if not item["few_shot"] and any([*texts, *options]):
            groups.setdefault((texts, options), []).append(item)
    findings = []
    for first, *others in groups.values():
        for item in others:
            answers = [[*correct_answers(i), *filter(None, [(i["extra"] or {}).get("label")])] for i in (first, item)]
            golds = [sorted(map(normalized, each)) for each in answers]
            kind = "duplicate" if golds[0] == golds[1] else CONTRADICTING
            findings.append(finding(language, item, kind, f"the same as {first['item_id']}"))
    return findings


def _near_duplicates(items: list[Item], language: str) -> list[Finding]:
    """Return evaluated items whose n-grams are nearly those of another one, or of a few-shot example: a leak.

    The sparse matrix of items and n-grams, times itself, counts shared n-grams. Items share passages, which are left
    out.
    """
    texts = [normalized(" ".join((item["question"], *item["choices"])).strip() or item["context"]) for item in items]
    passages = [normalized(item["context"]) for item in items]
    findings = {}
    for i, j in _similar(texts, texts):
        item, other = items[i], items[j]
        if i == j or item["few_shot"] or item["item_id"] in findings or passages[i] != passages[j]:
            continue
        if other["few_shot"]:
            detail = f"nearly the same as the few-shot example {other['item_id']}"
            findings[item["item_id"]] = finding(language, item, "few-shot leak", detail)
        elif j < i and texts[i] != texts[j] and item["question"]:  # sentences may differ by a word on purpose
            detail = f"nearly the same as {other['item_id']}"
            findings[item["item_id"]] = finding(language, item, "near-duplicate", detail)
    return list(findings.values())


def _similar(texts: list[str], others: list[str]) -> Iterator[tuple[int, int]]:
    """Yield the positions of pairs of texts and others that share most of their n-grams."""
    places = [[(text, range(max(len(text) - _GRAM + 1, 0))) for text in each] for each in (texts, others)]
    grams = [[{text[i : i + _GRAM] for i in own} for text, own in each] for each in places]
    numbers = {gram: number for number, gram in enumerate(sorted(set().union(*grams[1])))}
    sizes = [np.array([len(own) for own in each]) for each in grams]
    counts = []
    for each in grams:
        columns = [[numbers[gram] for gram in own if gram in numbers] for own in each]
        edges = np.concatenate([[0], np.cumsum([len(own) for own in columns])])
        indices = [number for own in columns for number in own]
        counts.append(sparse.csr_matrix((np.ones(len(indices), np.int32), indices, edges), (len(each), len(numbers))))
    for start in range(0, len(texts), _COMPARED_AT_A_TIME):
        shared = (counts[0][start : start + _COMPARED_AT_A_TIME] @ counts[1].T).tocoo()
        rows = shared.row + start
        is_close = shared.data >= _SIMILAR * (sizes[0][rows] + sizes[1][shared.col] - shared.data)
        yield from zip(rows[is_close].tolist(), shared.col[is_close].tolist(), strict=True)


_EDGES = re.compile(r"[^\w\s+=<>%°€$£₹-]+(?=\s|$)|(?<!\S)[^\w\s+=<>%°€$£₹-]+")


def folded(text: str) -> str:
    """Return a text without case and without punctuation at the edges of its words, by which repeated items are found.

    >>> folded("¿ONDE nace o Miño?"), folded("2 * 5 = 10,5?"), folded("?!")
    ('onde nace o miño', '2 * 5 = 10,5', '?!')
    """
    kept = _EDGES.sub(lambda match: match[0] if match[0] in "*/^" else "", comparable(text).casefold())
    return " ".join(kept.split()) or text.strip()


def leaked(examples: list[Item], items: list[Item]) -> dict[str, str]:
    """Return the few-shot examples that are nearly an evaluated item, with its ID.

    Context and question are the same, and all options but one, or the answer; or question and options share most of
    their n-grams, and have the same numbers.
    """
    by_text: dict[tuple, list[Item]] = {}
    for item in items:
        by_text.setdefault((folded(item["context"]), folded(item["question"])), []).append(item)
    found = {}
    for example in examples:
        options, gold = set(map(folded, example["choices"])), set(map(folded, correct_answers(example)))
        for item in by_text.get((folded(example["context"]), folded(example["question"])), ()):
            n_others = len({folded(option) for option in item["choices"]} ^ options)
            is_same = n_others <= 2 or gold == set(map(folded, correct_answers(item)))
            if options and (example["question"] or example["context"]) and is_same:
                found.setdefault(example["item_id"], item["item_id"])
    asked = [[each for each in own if each["question"]] for own in (examples, items)]
    texts = [[folded(" ".join([each["question"], *each["choices"]])) for each in own] for own in asked]
    for i, j in _similar(*texts):
        example, item = asked[0][i], asked[1][j]
        numbers = [re.findall(r"\d+", text) for text in (texts[0][i], texts[1][j])]
        if numbers[0] == numbers[1] and folded(example["context"]) == folded(item["context"]):
            found.setdefault(example["item_id"], item["item_id"])
    return found


def _suspicious_options(item: Item, options: list[str]) -> str | None:
    is_correct = [i in item["gold"] for i in range(len(options))]  # several wordings may be
    for i, option in enumerate(options):
        for j, other in enumerate(options):
            if i < j and option == other and (option or item["choices"][i] == item["choices"][j]):
                return f"options {i + 1} and {j + 1} are the same"
            if option and option != other and is_correct[i] != is_correct[j] and f" {option} " in f" {other} ":
                return f"option {i + 1} is in option {j + 1}"
        if _ALL_OR_NONE.search(option):
            return f"option {i + 1} refers to the others"
    return None


def _answer_in_question(item: Item, options: list[str]) -> str | None:
    """Return the gold if it is in the question, and no other option is."""
    question = f" {normalized(item['question'])} "
    contained = [i for i, option in enumerate(options) if option and f" {option} " in question]
    is_gold = len(contained) == 1 and contained[0] in item["gold"] and len(options[contained[0]]) >= _MIN_ANSWER
    return item["choices"][contained[0]] if is_gold else None


def _damages(item: Item) -> list[str]:
    texts = [item["context"], item["question"], *item["choices"], item["target"] or ""]
    text = "\n".join(texts)
    found = [f"{name}: {match.group()!r}" for name, pattern in _DAMAGE.items() if (match := pattern.search(text))]
    for part in texts:
        plain = _ENUMERATION.sub("", part)
        if plain.count('"') % 2:
            found.append('odd number of "')
        pairs = ["«»", "()"] if "„" in part or "“" not in part else ["«»", "()", "“”"]  # German „…“, Swedish ”…”
        found += [f"unequal numbers of {a} and {b}" for a, b in pairs if plain.count(a) != plain.count(b)]
    return list(dict.fromkeys(found))


def set_findings(items: list[Item], language: str, *, in_order: bool) -> list[Finding]:
    """Return how the gold's position (if options are shown `in_order`), and option lengths, give answers away."""
    asked = [each for each in items if not each["few_shot"] and _has_question(each) and len(each["gold"]) == 1]
    findings = []
    by_size: dict[int, list[int]] = {}
    for item in asked if in_order else []:
        by_size.setdefault(len(item["choices"]), []).append(item["gold"][0])
    for size, positions in sorted(by_size.items()):
        counts, n = np.bincount(positions, minlength=size), len(positions)
        p = chdtrc(size - 1, ((counts - n / size) ** 2 / (n / size)).sum())
        if p < _P_POSITION and counts.max() / n >= 1 / size + _MARGIN:
            shares = ", ".join(percent(count / n, 0) for count in counts)
            detail = f"of {n} items with {size} options, the gold is at positions 1 to {size} in {shares}"
            findings.append(Finding(language, "", "gold position", detail, ""))
    lengths = [list(map(len, each["choices"])) for each in asked]
    hits = [(own[each["gold"][0]] == max(own)) / own.count(max(own)) for each, own in zip(asked, lengths, strict=True)]
    if asked:
        chance = np.array([1 / len(own) for own in lengths])
        z = (sum(hits) - chance.sum()) / np.sqrt((chance * (1 - chance)).sum())
        if z > _Z_LONGEST and np.mean(hits) >= chance.mean() + _MARGIN:
            shares = f"{percent(np.mean(hits), 0)} of {len(asked)} items, chance {percent(chance.mean(), 0)}"
            findings.append(Finding(language, "", "longest option", f"the longest option is the gold in {shares}", ""))
    return findings
