"""Language of generated texts: by script, then by HeLI-OTS among the languages that are usually confused with it.

The identifier is the package heliport, which is not a dependency because of its license (GPL 3): without it there are
no values. It finds 90 to 98 % of texts below 40 letters, 96 to 100 % below 100, and all above (measured on questions
and answers in Galician, Catalan, Spanish and English), also in Galician, which others take for Portuguese. An
identifier errs; the same rule is therefore applied to the correct answers of the same items, and its values are beside
those of the model. Language is never a factor of another score.
"""

import functools
import importlib.util
import re
from collections import Counter
from collections.abc import Iterable

from vernacular.core.languages import (
    SCRIPT_NAMES,
    UNSPACED,
    iso_codes,
    language_name,
    neighbors,
    script_counts,
    script_of,
    usual_script,
)
from vernacular.core.metadata import LanguageCounts
from vernacular.metrics.metric import Metric
from vernacular.statistics.intervals import wilson
from vernacular.types import Generation, Item, Result, correct_answers, target_language

NOT_INSTALLED = "language of responses not identified: heliport is not installed (see docs/report.md)"

METRICS = [
    Metric("language_correct", "share", True, "similarity", proportion=True,
           about="responses in the language of the item, of those with at least 40 letters (HeLI-OTS)"),
    Metric("language_correct_gold", "share", None, "similarity", proportion=True,
           about="the same rule on the correct answers: what differs from 1 is the error of the rule"),
    Metric("language_decided", "share", None, "similarity", proportion=True,
           about="responses whose language is identified, of those that are not empty"),
    Metric("language_lpr", "share", True, "similarity", proportion=True,
           about="line pass rate: responses without a line in another language (Marchisio et al. 2024)"),
    Metric("wrong_line_share", "share", False, "similarity", corpus=lambda wrong, n: wrong.sum(-1) / n.sum(-1),
           needs=("wrong_lines", "decided_lines"),
           about="lines in another language, of those of at least 5 words (in scripts with spaces) and 40 letters"),
]  # fmt: skip
BLOCKS = "language_blocks"  # of responses that are too short by themselves, which are joined

# codes that HeLI-OTS 2.0 returns
_CODES = """
    abk ace adz afr aii ame amh amr ara arl arn asm ayr aze bak bar bcl bel ben boa bod bpy bre bul cat cbu cdo
    ceb ces che chk cho chr chv chy ckb cmn cnh cor cos cym dan deu dik diq div ell eng epo est eus ewe ext fao
    fij fin fon fra fry gaz gla gle glg glv gom grn gsw guj hat hbs heb hin hmo hsb hun hus huu hye ibo ido iku
    ilo ina isl ita izh jpn kac kal kan kat kaz kbd kbp kca khm kir kmr knc koi kor kpv krc ksh lao lat lav lin
    lit liv lmo ltz lud lug luo lus mal mar mcd mcf mdf mhr mkd mlg mlt mns mon mri mrj msa mwl mya myv nav nep
    nhn nio nld nno nob nso nus oci olo ori oss pag pam pan pbt pes pfl pli pms pnb pol pon por que roh ron rus
    sag sah sat scn sgs shk shn sin sjd sjk sju slk slv sma sme smj smn sms sna snd som sot spa sqi srd swa swe
    tam tat tca tel tet tgk tgl tha tir tso tuk tur twi tzh udm uig ukr ura urd uzn vie vls vol vot war wln xmf
    yid yor yrk zul
"""
_KNOWN = frozenset(_CODES.split())
# codes whose texts in HeLI-OTS are not in the usual script of the language: of Uzbek, letters of Cyrillic only
_SCRIPTS = {"uzn": ("Cyrl",), "hbs": ("Cyrl", "Latn")}
_TOP = 30  # languages that the identifier ranks
# advantage of a language outside the candidates (mean negative logarithm per word), from which it counts
_OUTSIDE = 0.3
MIN_LETTERS, _MIN_JOINED, _MIN_WORDS, _MIN_SCRIPT = 40, 100, 5, 10
_SCRIPT_SHARE, _SCRIPT_CHARACTERS = 0.9, 500  # of an item, which decide its script
OTHER = "other"
_REMOVED = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`|https?://\S+|www\.\S+|[\d*_#>|~]+", re.DOTALL)
_SENTENCE = re.compile(r"[^\n.!?…]+")


def is_available() -> bool:
    """Return whether the identifier is installed."""
    return importlib.util.find_spec("heliport") is not None


@functools.cache
def _identifier():
    import heliport  # where it is used: it is optional, and loading its 129 MB takes seconds

    return heliport.Identifier()


@functools.cache
def codes(language: str) -> list[str]:
    """Return the identifier's codes of a language, or of its macrolanguage; [] if it cannot identify it."""
    script = usual_script(language)
    for tag, group in iso_codes(language).items():
        found = [code for code in group if code in _KNOWN]
        if any(script in _SCRIPTS.get(code, (usual_script(tag),)) for code in found):
            return found
    return []


@functools.cache
def candidates(language: str) -> dict[str, str]:
    """Return the language tags that are taken into account for a language, by the identifier's codes."""
    own = dict.fromkeys(codes(language), language)
    return {code: tag for tag in neighbors(language) for code in codes(tag)} | own


def unidentified(languages: Iterable[str]) -> str | None:
    """Return that the language of texts is not identified, and why: of those that the identifier does not know."""
    if not is_available():
        return NOT_INSTALLED
    names = [language_name(language) for language in dict.fromkeys(languages) if not codes(language)]
    return f"language of responses not identified: HeLI-OTS does not know {', '.join(names)}" if names else None


def main_script(text: str) -> tuple[str, float] | None:
    """Return the most common script of a text, and its share of the letters; None without letters.

    >>> main_script("Кућа A"), main_script("ここは東京です")  # Han and Kana are one
    (('Cyrillic', 0.8), ('Cjk', 1.0))
    """
    counts = script_counts([text])
    if not counts:
        return None
    script, count = counts.most_common(1)[0]
    return SCRIPT_NAMES.get(script, script), count / counts.total()


def n_letters(text: str) -> int:
    return sum(map(str.isalpha, text))


def clean(text: str, copied: Iterable[str] = ()) -> str:
    """Remove code, addresses, numbers and markup from a text, and what it copies: texts of five words or more."""
    for part in sorted({part.strip() for part in copied}, key=len, reverse=True):
        if part in text and len(part.split()) >= _MIN_WORDS:
            text = text.replace(part, "\n")
    return _REMOVED.sub(" ", text)


def identify(text: str, language: str, script: str | None, *, min_letters: int = MIN_LETTERS) -> str | None:
    """Return the language of a cleaned text, or the script, if it is another than expected; None if it is too short.

    The expected `language` decides what is taken into account; `script`: the expected one, None: any.
    """
    n, found = n_letters(text), main_script(text)
    if found and script and n >= _MIN_SCRIPT and found[0] != script and found[1] >= _SCRIPT_SHARE:
        return f"{found[0]} script"
    if n < min_letters:
        return None
    ranked = _identifier().identify_topk_with_score(" ".join(text.split()), _TOP)  # a lower score is better
    known = candidates(language)
    best = next(((code, score) for code, score in ranked if code in known), None)
    is_tied = best and any(code in known and score == best[1] and code != best[0] for code, score in ranked)
    if best is None or is_tied or best[1] - ranked[0][1] > _OUTSIDE:
        return OTHER
    return known[best[0]]


def _script_of(item: Item) -> str | None:
    own = "\n".join([*item["choices"], item["target"] or "", item["question"], item["context"]])
    if target_language(item):  # the source of a translation is in another language
        own = item["target"]
    script = main_script(own[:_SCRIPT_CHARACTERS])
    return script[0] if script else None


class LanguageMeter:
    """Adds the values of METRICS to the results of generated texts, in parts of their items."""

    def __init__(self, language: str):
        self.language = language
        self.missing = unidentified([language])  # why there are no values
        self.answered, self.gold = Counter(), Counter()  # responses or correct answers by language
        self.blocks, self.gold_blocks = _Blocks(self), _Blocks(self)
        self.undecided, self.is_begun = 0, False
        self.wrong: list[tuple[str, str]] = []  # item, and text in another language

    def add(self, items: list[Item], outputs: list[Generation], rows: list[Result], *, is_tool: bool) -> None:
        """Add values to `rows`; `is_tool`: their predictions are what another tool extracts, and not the response."""
        if self.missing:
            return
        item_by_id = {item["item_id"]: item for item in items}
        output_by_id = {output["item_id"]: output for output in reversed(outputs)}
        scripts = {row["item_id"]: _script_of(item_by_id[row["item_id"]]) for row in rows}
        golds = {item_id: self._of_gold(item_by_id[item_id], script) for item_id, script in scripts.items()}
        self.missing = None if self.is_begun else self._misidentified()  # of the first part, for all
        self.is_begun = True
        if self.missing:
            return
        for row in rows:
            item, output, script = (each.get(row["item_id"]) for each in (item_by_id, output_by_id, scripts))
            row["metrics"] |= golds[row["item_id"]]
            text = output and (output["output"] if is_tool else row["prediction"])
            if text and text.strip() and output.get("think_state") != "unclosed":
                row["metrics"] |= self._of_response(text, item, script)

    def _misidentified(self) -> str | None:
        """Return that most correct answers, joined if short, are taken for another language; None if they are not."""
        found = self.gold + self.gold_blocks.found
        n, correct = found.total(), found[self.language]
        if correct >= n / 2:
            return None
        others = ", ".join(f"{language} {count}" for language, count in found.most_common())
        name = language_name(self.language)
        return f"language of responses not identified: {correct} of {n} correct answers are taken for {name} ({others})"

    def _of_response(self, text: str, item: Item, script: str | None) -> dict[str, float]:
        prompt = _SENTENCE.findall(f"{item['context']}\n{item['question']}")
        text = clean(text, [*item["choices"], *prompt])
        found = identify(text, self.language, script)
        values = {"language_decided": float(found is not None)}
        lines = [line for line in text.splitlines() if len(line.split()) >= _MIN_WORDS or script_of([line]) in UNSPACED]
        lines = [found] if lines == [text] else [identify(line, self.language, script) for line in lines]
        decided = [line for line in lines if line is not None]
        if decided:
            wrong = sum(line != self.language for line in decided)
            values |= {"wrong_lines": wrong, "decided_lines": len(decided), "language_lpr": float(not wrong)}
        if found is None:
            self.undecided += 1
            self.blocks.add(text, script)
            return values
        self.answered[found] += 1
        if found != self.language:
            self.wrong.append((item["item_id"], text.strip()))
        return values | {"language_correct": float(found == self.language)}

    def _of_gold(self, item: Item, script: str | None) -> dict[str, float]:
        text = clean(next(iter(correct_answers(item)), ""))
        if not text.strip():
            return {}
        found = identify(text, self.language, script)
        if found is None:
            self.gold_blocks.add(text, script)
            return {}
        self.gold[found] += 1
        return {"language_correct_gold": float(found == self.language)}

    def values(self) -> list[dict]:
        """Return rows of METRICS, without labels, of the joined responses: an estimate, if there are any."""
        if self.missing:
            return []
        rows = self.blocks.value(BLOCKS), self.gold_blocks.value(f"{BLOCKS}_gold")
        return [row for row in rows if row]

    def counts(self) -> LanguageCounts:
        """Return the languages of responses and correct answers."""
        return LanguageCounts(
            answered=dict(self.answered.most_common()),
            gold=dict(self.gold.most_common()),
            blocks=dict(self.blocks.found.most_common()),
            gold_blocks=dict(self.gold_blocks.found.most_common()),
            undecided=self.undecided,
            missing=self.missing,
        )


class _Blocks:
    """Short texts, joined in the order of the items to blocks of at least 100 letters, and their languages."""

    def __init__(self, meter: LanguageMeter):
        self.meter, self.texts, self.size, self.found = meter, [], 0, Counter()

    def add(self, text: str, script: str | None) -> None:
        self.texts.append(text)
        self.size += n_letters(text)
        if self.size >= _MIN_JOINED:
            self.found[identify("\n".join(self.texts), self.meter.language, script)] += 1
            self.texts, self.size = [], 0

    def value(self, name: str) -> dict | None:
        n, correct = self.found.total(), self.found[self.meter.language]
        if not n:
            return None
        low, high = wilson(correct, n)
        return {
            "metric": name, "value": correct / n, "ci_low": low, "ci_high": high, "n": n, "n_flagged": 0,
            "n_ties": None, "chance_level": None, "unit": "share", "metric_group": "similarity",
            "higher_is_better": None, "headline": False, "category": "",
        }  # fmt: skip
