"""Tags of languages (BCP 47: `gl`, `sr-Latn`, `pt-BR`, `ca-valencia`), their names, and the script of a text.

Codes of three letters (ISO 639-3), macrolanguages (IANA's registry) and usual scripts (CLDR) are those of langcodes.
It and ruamel.yaml are imported where they are used: an environment of lm-eval may lack them.
"""

import functools
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from vernacular.core.paths import WORKFLOW, display_path

# ISO 15924 codes, by `script_name`
_SCRIPTS = {
    "Latin": "Latn", "Cyrillic": "Cyrl", "Greek": "Grek", "Armenian": "Armn", "Georgian": "Geor", "Hebrew": "Hebr",
    "Arabic": "Arab", "Devanagari": "Deva", "Bengali": "Beng", "Gurmukhi": "Guru", "Gujarati": "Gujr", "Oriya": "Orya",
    "Tamil": "Taml", "Telugu": "Telu", "Kannada": "Knda", "Malayalam": "Mlym", "Sinhala": "Sinh", "Thai": "Thai",
    "Lao": "Laoo", "Tibetan": "Tibt", "Myanmar": "Mymr", "Ethiopic": "Ethi", "Khmer": "Khmr", "Thaana": "Thaa",
    "Cjk": "Hani", "Hiragana": "Hani", "Katakana": "Hani", "Hangul": "Hang", "Tifinagh": "Tfng", "Ol": "Olck",
    "Nko": "Nkoo", "Meetei": "Mtei", "Syriac": "Syrc", "Mongolian": "Mong",
}  # fmt: skip
SCRIPT_NAMES = {code: name for name, code in reversed(_SCRIPTS.items())}
_SAME = {"Hans": "Hani", "Hant": "Hani", "Jpan": "Hani", "Kore": "Hang"}
# marks without width that change neither letters nor words; combining grapheme joiner, soft hyphen, bidi controls …
_INVISIBLE = "\u00ad\u034f\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff"
# joiners (ZWNJ, ZWJ) change letters of Arabic, Indic and similar scripts, and emoji, but nothing after other characters
INVISIBLE_MARKS = re.compile(f"[{_INVISIBLE}]|(?<![\u0590-\u1dff\u2600-\u27bf\u2c80-\U0010ffff])[\u200c\u200d]")


def fallbacks(language: str) -> list[str]:
    """Return a tag and the more general ones, without its last parts (RFC 4647, lookup).

    >>> fallbacks("sr-Latn-RS"), fallbacks("ca-x-x1")
    (['sr-Latn-RS', 'sr-Latn', 'sr'], ['ca-x-x1', 'ca'])
    """
    parts = language.split("-")
    tags = ["-".join(parts[:n]) for n in range(len(parts), 0, -1)]
    return [tag for tag in tags if not tag.endswith("-x")]


def base_language(language: str) -> str:
    """Return the language of a tag, without script, region and variant."""
    return language.partition("-")[0]


def script_of_tag(language: str) -> str | None:
    """Return the script that a tag states, as `script_of` names it; None if it states none.

    >>> script_of_tag("sr-Latn"), script_of_tag("zh-Hans"), script_of_tag("pt-BR")
    ('Latn', 'Hani', None)
    """
    script = next((part for part in language.split("-")[1:] if len(part) == 4 and part.istitle()), None)
    return _SAME.get(script, script)


# usual scripts of languages of which CLDR states none
_USUAL = {"Arab": "acm acq afb ajp azb bsk mey prs", "Deva": "cls rwr", "Hebr": "hbo", "Armn": "hyw xcl", "Cyrl": "orv"}
_USUAL = {language: script for script, languages in _USUAL.items() for language in languages.split()}


def usual_script(language: str) -> str | None:
    """Return the script that a tag states, or in which its language is usually written, as `script_of` names it.

    >>> usual_script("uz"), usual_script("hi-Latn"), usual_script("yue"), usual_script("sr-Latn-x-torlak")
    ('Latn', 'Latn', 'Hani', 'Latn')
    """
    base = base_language(language)
    script = script_of_tag(language) or _USUAL.get(base)
    if script is None:
        from langcodes import Language

        script = Language.get(base, normalize=False).maximize().script
    return _SAME.get(script, script)


# scripts without spaces between words: ideographs and syllables, and those whose lines are broken by a dictionary or
# at any syllable (UAX 14: SA, AK)
UNSPACED = {
    "Hani", "Hira", "Kana", "Hrkt", "Yiii", "Thai", "Laoo", "Khmr", "Mymr", "Tibt", "Lana", "Tale", "Talu", "Tavt",
    "Ahom", "Java", "Bali", "Batk", "Bugi", "Maka",
}  # fmt: skip


def is_unspaced(language: str) -> bool:
    """Return whether a language, given by its tag, is written without spaces between words.

    >>> is_unspaced("zh-Hant"), is_unspaced("dz"), is_unspaced("ja-Latn"), is_unspaced("ko"), is_unspaced("ii")
    (True, True, False, False, True)
    """
    return usual_script(language) in UNSPACED


def matching_tags(language: str, available: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return (tags of a language, given by tag or English name, in all scripts and regions; what else is of it).

    Else are variants, and members of a macrolanguage; these are the language where it has no tag of its own.

    >>> tags = ["sr", "sr-Latn", "sr-x-torlak", "zh-Hans", "yue", "nb", "nn"]
    >>> matching_tags("Serbian", tags), matching_tags("zh", tags), matching_tags("no", tags), matching_tags("x", tags)
    ((['sr', 'sr-Latn'], ['sr-x-torlak']), (['zh-Hans'], ['yue']), (['nb', 'nn'], []), ([], []))
    >>> matching_tags("zh-CN", tags), matching_tags("nb_NO", tags), matching_tags("hbs", tags)
    ((['zh-Hans'], []), (['nb'], []), (['sr', 'sr-Latn'], ['sr-x-torlak']))
    """
    from langcodes import Language, standardize_tag, tag_is_valid
    from langcodes.data_dicts import MACROLANGUAGES

    available, names = sorted(available), english_names()
    bases = [*map(base_language, available), *names]  # a name is first that of an available language
    named = (base for base in bases if len(language) > 3 and names.get(base, "").casefold() == language.casefold())
    tag = next(named, None) or _other_names().get(language.casefold(), language)
    tag = _two_letter_codes().get(tag.lower(), tag)
    tags = dict.fromkeys([tag, *(standardize_tag(tag, macro) for macro in (False, True) if tag_is_valid(tag))])
    above = {each: [MACROLANGUAGES.get(base_language(each))] for each in available}
    levels = {each: fallbacks(each) for each in available}, above
    groups = [[each for each in available if tag in level[each]] for tag in tags for level in levels]
    if not any(groups) and tag_is_valid(tag):  # a region in which no task is: the language, in the script of the region
        for general in fallbacks(Language.get(tag).maximize().to_tag()):
            groups += [[general] * (general in available), [each for each in available if general in levels[0][each]]]
    own = next(filter(None, groups), [])
    kept = [each for each in own if each in tags or all(len(part) in (2, 3, 4) for part in each.split("-"))] or own
    others = [*own, *(each for group in groups for each in group if above[each][0] in tags)]
    return kept, sorted({*others} - {*kept})


def iso_codes(language: str) -> dict[str, list[str]]:
    """Return the ISO 639-3 codes by which a tool may know a language, by tag: of itself, or of its macrolanguage.

    >>> iso_codes("gl"), iso_codes("hr"), iso_codes("no")
    ({'gl': ['glg']}, {'hr': ['hrv'], 'sh': ['hbs']}, {'no': ['nor', 'nob', 'nno']})
    """
    from langcodes.data_dicts import LANGUAGE_ALPHA3, MACROLANGUAGES

    base = base_language(language)
    tags = {base: [base, *(member for member, macro in MACROLANGUAGES.items() if macro == base)]}
    tags |= {macro: [macro] for macro in [MACROLANGUAGES.get(base)] if macro}
    return {tag: [LANGUAGE_ALPHA3.get(code, code) for code in codes] for tag, codes in tags.items()}


@functools.lru_cache(maxsize=20_000)
def script_name(letter: str) -> str:
    """Return the script of a letter: the first word of its Unicode name.

    >>> script_name("ж"), script_name("ñ")
    ('Cyrillic', 'Latin')
    """
    return unicodedata.name(letter, "unknown").split()[0].title()


def script_of(texts: Iterable[str]) -> str | None:
    """Return the script of most letters (ISO 15924); None without letters. Han and Kana are one: Hani.

    >>> script_of(["Београд (Belgrade) је главни град."]), script_of(["3 + 4"])
    ('Cyrl', None)
    """
    scripts = script_counts(texts)
    return scripts.most_common(1)[0][0] if scripts else None


def script_counts(texts: Iterable[str]) -> Counter:
    """Return the number of letters of each script, see `script_of`."""
    letters = Counter(char for text in texts for char in text if char.isalpha())
    scripts: Counter = Counter()
    for char, count in letters.items():
        name = script_name(char).partition("-")[0]
        scripts[_SCRIPTS.get(name, name)] += count
    return scripts


@functools.cache
def _two_letter_codes() -> dict[str, str]:
    """Return the codes of two letters, of languages that have one, by those of three."""
    from langcodes.data_dicts import LANGUAGE_ALPHA3

    return {code: two for two, code in LANGUAGE_ALPHA3.items() if "-" not in two}


@functools.cache
def _registry() -> list[dict]:
    """Return the entries of languages in IANA's registry."""
    from langcodes.registry_parser import parse_registry

    return [entry for entry in parse_registry() if entry["Type"] == "language" and "Subtag" in entry]


# English names that are not the first one in IANA's registry
_NAMES = """ace Acehnese; bbj Ghomala; cls Classical Sanskrit; cu Old Church Slavonic; dv Divehi; egy Ancient Egyptian;
el Greek; ht Haitian Creole; ky Kyrgyz; li Limburgish; lus Mizo; mi Māori; nhi Zacatlán Nahuatl; nso Northern Sotho;
or Odia; pa Punjabi; ps Pashto; to Tongan; ug Uyghur; yue Cantonese"""


@functools.cache
def english_names() -> dict[str, str]:
    """Return the English names of all languages by their subtags."""
    names = {entry["Subtag"]: entry["Description"][0].partition(" (")[0] for entry in _registry()}
    return names | dict(entry.split(None, 1) for entry in _NAMES.split(";"))


@functools.cache
def _other_names() -> dict[str, str]:
    """Return the subtags of languages by their other names in IANA's registry: Castilian, Valencian."""
    return {name.casefold(): entry["Subtag"] for entry in _registry()[::-1] for name in entry["Description"][1:]}


def language_name(language: str) -> str:
    """Return the English name of a tag's language, and the tag; the tag alone if the name is not known.

    >>> language_name("hsb"), language_name("sr-Latn"), language_name("x-own")
    ('Upper Sorbian (hsb)', 'Serbian (sr-Latn)', 'x-own')
    """
    name = english_names().get(base_language(language))
    return f"{name} ({language})" if name else language


def prompts_file(language: str, directory) -> Path | None:
    """Return the prompt lines' file of a language or a more general tag, in the tag's script; None without one."""
    from vernacular.core.yaml import read

    script = script_of_tag(language)
    for tag in fallbacks(language):
        path = Path(directory) / f"{tag}.yaml"
        if path.is_file() and (tag == language or script is None or script_of(_texts(read(path)[0])) == script):
            return path
    return None


def wordings_message(language: str, lacking: list[str], directory) -> str:
    """Return what a user has to write, so that a task can be evaluated in a language."""
    is_shipped = Path(directory).resolve() == WORKFLOW / "tasks"
    prompts = WORKFLOW / "prompts" if is_shipped else Path(directory) / "prompts"
    path = prompts_file(language, prompts) or prompts / f"{language}.yaml"
    lines = ", ".join(f'"{name}": …' for name in lacking)
    return f'{display_path(path)}: words of the language "{language}" not found. Add `wordings: {{{lines}}}`.'


def _texts(lines) -> list[str]:
    return [text for text in lines.values() if isinstance(text, str)] if isinstance(lines, dict) else []


# Latin letters of Cyrillic ones in languages that are written in both, as in the Latin alphabets of Serbian (Gaj),
# Uzbek (1995), Kazakh (2021), Azerbaijani (1991), Turkmen (1999), and in Tajik's romanization (BGN/PCGN 1994)
_LETTERS = """а a б b в v г g д d е e ё yo ж j з z и i й y к k л l м m н n о o п p р r с s т t у u ф f х x ц ts ч ch
ш sh щ sh ъ ' ь _ ы i э e ю yu я ya ғ gʻ қ q ҳ h ў oʻ ә ə ө ö ү ü һ h"""
_SLAVIC = "ђ đ ж ž ј j љ lj њ nj ћ ć х h ц c ч č џ dž ш š с́ ś з́ ź"
_OWN_LETTERS = {
    **dict.fromkeys(("sr", "bs", "cnr", "sh"), _SLAVIC),
    "uz": "ж j",
    "kk": "ә ä ғ ğ ң ñ ұ ū ш ş ч ç щ şş і ı й i ы y х h ъ _ ю iu я ia ё io",
    "az": "г q ғ ğ ж j ы ı ј y ҝ g ч ç ҹ c ш ş",
    "tk": "ж ž җ j й ý ң ň ч ç ш ş щ şç ы y х h ю ýu я ýa ё ýo в w ә ä ц s",
    "tg": "ғ gh ж zh ӣ i х kh ӯ u ҷ j щ shch",
}


@functools.cache
def _latin_letters(language: str) -> dict[str, str]:
    letters = f"{_LETTERS} {_OWN_LETTERS[language]}".split()
    return {a: b.replace("_", "") for a, b in zip(letters[::2], letters[1::2], strict=True)}


def has_two_scripts(language: str | None) -> bool:
    """Return whether texts of a language are compared in one script, too: it is written in Cyrillic and in Latin."""
    return _in_two_letters(language or "") in _OWN_LETTERS


@functools.cache
def _in_two_letters(language: str) -> str:
    """Return the language of a tag by its code of two letters, or that of its macrolanguage: uzn, srp.

    >>> _in_two_letters("uzn-Cyrl"), _in_two_letters("srp"), _in_two_letters("cnr")
    ('uz', 'sr', 'cnr')
    """
    from langcodes.data_dicts import MACROLANGUAGES

    base = base_language(language)
    if len(base) != 3 or base in _OWN_LETTERS:
        return base
    return _two_letter_codes().get(base) or MACROLANGUAGES.get(base, base)


def in_one_script(text: str, language: str) -> str:
    """Return a text of such a language in Latin letters; only this direction is unambiguous (nj is њ, or н and ј).

    >>> in_one_script("Његов џеп је пун.", "sr"), in_one_script("ЊЕГОШ", "srp"), in_one_script("Ўзбек тили", "uz")
    ('Njegov džep je pun.', 'NJEGOŠ', "O'zbek tili")
    """
    base = _in_two_letters(language)
    letters = _latin_letters(base)

    def in_case_of(match: re.Match, letter: str) -> str:
        """Return a letter, or two, in the case of what they replace; of one capital, that of its neighbor counts."""
        if match[0] == match[0].lower():
            return letter
        before, after = text[max(match.start() - 1, 0) : match.start()], text[match.end() : match.end() + 1]
        is_upper = (after if after.isalpha() else before).isupper()
        letter = letter.replace("i", "İ", 1) if base in ("az", "kk") and (is_upper or letter[0] == "i") else letter
        return letter.upper() if is_upper else letter[0].upper() + letter[1:]

    text = unicodedata.normalize("NFC", text)
    if base == "uz":  # the spelling of 1995: ye after a vowel, or none; ъ is silent before it; a first ц is s
        consonant = "бвгджзйклмнпрстфхцчшқғҳ"
        text = re.sub(f"(?<![{consonant}])е", lambda match: in_case_of(match, "йе"), text, flags=re.IGNORECASE)
        text = re.sub(r"ъ(?=[йёюя])", "", text, flags=re.IGNORECASE)
        text = re.sub(r"(?<!\w)ц", lambda match: in_case_of(match, "с"), text, flags=re.IGNORECASE)
    pattern = "|".join(sorted(letters, key=len, reverse=True))
    text = re.sub(pattern, lambda match: in_case_of(match, letters[match[0].lower()]), text, flags=re.IGNORECASE)
    text = re.sub("[Ǆ-ǌ]", lambda match: unicodedata.normalize("NFKC", match[0]), text)  # letters such as ǆ
    return re.sub("[ʻʼ‘’`]", "'", text)


# languages in which a response may be, by that of the items; others: itself, and large languages of training data
_NEIGHBORS = {
    "gl": "gl pt es ca en", "ca": "ca es oc fr en", "eu": "eu es fr en", "pt": "pt gl es en", "es": "es gl ca pt en",
    "oc": "oc ca fr es en", **dict.fromkeys(("sr", "hr", "bs"), "sr sl mk bg ru en"), "ar": "ar fa ur en",
    **dict.fromkeys(("nb", "nn", "no", "da", "sv"), "nb nn da sv en"),
}  # fmt: skip
_OTHERS = "en es fr ru"


def neighbors(language: str) -> list[str]:
    """Return the tags of languages with which texts in a language are usually confused; English is one of them.

    >>> neighbors("eu"), neighbors("sw")
    (['eu', 'es', 'fr', 'en'], ['en', 'es', 'fr', 'ru'])
    """
    return _NEIGHBORS.get(base_language(language), _OTHERS).split()
