"""Tags of languages (BCP 47: `gl`, `sr-Latn`, `pt-BR`, `ca-valencia`), and the script in which a text is written."""

import functools
import unicodedata
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from vernacular.core.paths import WORKFLOW, display_path
from vernacular.core.yaml import read

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


def prompts_file(language: str, directory) -> Path | None:
    """Return the prompt lines' file of a language or a more general tag, in the tag's script; None without one."""
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
