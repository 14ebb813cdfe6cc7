"""The letter of an option in a response to multiple choice; there is none by default.

The first step that finds exactly one letter decides:

1. `boxed`: \\boxed{B}
2. `last_line`: the last line has a cue and a letter, or the text of one option: "Resposta: B", "A resposta é Lugo"
3. `cue`: the last such cue in the response, in the language of the items or in English
4. `letter`: the only letter that stands alone in a line
5. `option_line`: a line is a letter with the text of its option: "B) Lugo"
6. `option_text`: the response is the text of exactly one option

A cue begins a sentence, and no other word than those that the prompts file lists stands between it and the letter, so
that "I don't think the answer is A" has none. A letter that may be a word (the article A, the conjunctions E and O,
Cyrillic С) must be followed by punctuation, and nothing is extracted where two letters are joined ("A or B").
"""

import functools
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence

from vernacular.core.languages import INVISIBLE_MARKS
from vernacular.protocols.generation.metrics import matches, normalize

STEPS = ("boxed", "last_line", "cue", "letter", "option_line", "option_text")
# besides themselves: letters that look the same, and those that label options in their languages
_SAME = {"A": "АΑأاა", "B": "ВΒبბ", "C": "Сجგ", "D": "دდ", "E": "ЕΕهე", "H": "НΗ", "I": "ІΙ", "K": "КΚ", "M": "МΜ",
         "O": "ОΟ", "P": "РΡ", "T": "ТΤ", "X": "ХΧ", "Y": "УΥ"}  # fmt: skip
_WORDS = set("AEIOUYKSVZN")  # single letters that are words in some language
_OPEN = r"[\s(\[{<\"'“”„«»‘]*"
_SENTENCE = r"(?:^\W*(?:\d+[.)]\s*)?|(?<=[.!?:;…—–])\s+)"
_CLOSING = ')]}>"”»’'
_BOXED = re.compile(r"\\boxed\s*\{\s*(?:\\(?:text|mathrm|textbf|mathbf)\s*\{)?\s*\(?([^\W\d_])\)?\s*\}")
_END = r"(?![\w])(?!['’]\w)"

Answers = Mapping[str, Sequence[str]]  # words around a letter by their place, as in a prompts file
Found = tuple[int | None, str | None]


def extract(response: str, options: Sequence[str], answers: Sequence[Answers], *, is_complete: bool = True) -> Found:
    """Return (index of the option that a response names, step that found it), or (None, None).

    `response` is without reasoning, and may be cut (`is_complete`); `options` in the order of their letters; `answers`:
    words of each language in which it may be written.
    """
    text = unicodedata.normalize("NFKC", INVISIBLE_MARKS.sub("", response))
    letters = {same: i for i in range(len(options)) for same in (chr(65 + i), *_SAME.get(chr(65 + i), ""))}
    boxed = {letters[letter] for letter in _BOXED.findall(text) if letter in letters}
    if len(boxed) == 1:
        return boxed.pop(), "boxed"
    lines = _lines(re.sub(r"[*`$#]|\\text(?=\{)|\\boxed(?=\{)|(?<!\w)_+|_+(?!\w)", "", text))
    reader = _Reader(lines, tuple(options), letters, is_complete)
    found = [match for grammar in map(_grammar, map(_frozen, answers)) for match in reader.cues(grammar)]
    if found:
        (line, _), index = max(found, key=lambda entry: entry[0])
        if index is not None:
            return index, "last_line" if line == len(lines) - 1 else "cue"
        return None, None  # the last cue names several letters, or none
    for step, candidates in (
        ("letter", reader.single_letters(answers)),
        ("option_line", reader.option_lines()),
        ("option_text", {i for i, option in enumerate(options) if matches(text.strip(), option)}),
    ):
        if len(candidates) == 1:
            return candidates.pop(), step
    return None, None


def _lines(text: str) -> list[str]:
    """Return the lines that have words."""
    return [line.strip() for line in text.splitlines() if re.search(r"\w", line)]


def _frozen(answers: Answers) -> tuple:
    return tuple(tuple(answers.get(name, ())) for name in ("cue", "is", "before", "after", "right", "end", "if"))


def _words(words: Sequence[str], *, in_sentence: bool = False) -> str:
    """Return a pattern of words or phrases; within a sentence, a capital is not the word "a", but a letter."""
    forms = [re.escape(unicodedata.normalize("NFKC", word)).replace(r"\ ", r"\s+") for word in words]
    if in_sentence:
        forms = [f"(?-i:{form})" if len(form) == 1 else form for form in forms]
    return "(?i:" + "|".join(sorted(forms, key=len, reverse=True)) + ")" if words else "(?!)"


class _Grammar:
    """Patterns of what surrounds a letter in a language."""

    def __init__(self, frozen: tuple):
        cue, complete, before, _, right, end, _ = map(_words, frozen)
        after = _words(frozen[3], in_sentence=True)
        self.hedges = {word.casefold() for word in frozen[6]}  # that make a clause before a cue mean something else
        begin = rf"{_SENTENCE}(?P<clause>[^.!?:;,،]{{2,80}}[,،]\s+)??{_OPEN}(?:{before}(?:[\s,:،]+|(?<=['’])))*"
        lead = rf"(?:(?P<cue>{cue})|(?P<is>{complete})){_END}(?P<after>(?:[\s,]+{after}{_END})*)"
        colon = rf"(?P<colon>[\"'”»]?\s*[:=፦–—-](?!\w)(?:\s*{after}(?=\s))*)"
        closing = rf"[{re.escape(_CLOSING)}]*"
        sentence = r"(?=\s*(?:[.!;።]|$))"
        self.forward = re.compile(rf"{begin}{lead}{colon}?(?=(?P<rest>.*)$)")
        self.backward = re.compile(
            rf"{begin}(?:{after}\s+)*{_OPEN}(?P<letter>[^\W\d_]){_END}{closing}\s+{right}{sentence}"
        )
        self.end = re.compile(rf"\s+{end}{sentence}")

    def has_clause(self, match: re.Match) -> bool:
        """Return whether a clause before a cue may change its meaning: "if it rains, the answer is A"."""
        if not match["clause"]:
            return False
        return not self.hedges or bool(self.hedges & set(re.findall(r"\w+", match["clause"].casefold())))


_grammar = functools.cache(_Grammar)


class _Reader:
    """The lines of a response, and what their letters mean."""

    def __init__(self, lines: list[str], options: tuple[str, ...], letters: dict[str, int], is_complete: bool):
        self.lines, self.options, self.letters, self.is_complete = lines, options, letters, is_complete
        chars = "".join(letters) + "".join(letters).lower()
        self.letter = re.compile(rf"{_OPEN}(?P<letter>[{chars}]){_END}(?P<rest>.*)$", re.DOTALL)
        joined = rf"(?:[,/&+-]|[^\W\d]{{1,4}}(?!\w))?\s*(?:[^\W\d]{{1,3}}\s+)?\(?[{''.join(letters)}]{_END}"
        self.several = re.compile(rf"[{re.escape(_CLOSING)}]*\s*{joined}")

    def cues(self, grammar: _Grammar) -> Iterator[tuple[tuple[int, int], int | None]]:
        """Yield ((line, position), index) of each cue; index None: it names several letters, or none."""
        for number, line in enumerate(self.lines):
            for match in grammar.forward.finditer(line):
                rest, where = match["rest"], number
                if not re.search(r"\w", rest) and number + 1 < len(self.lines):
                    rest, where = self.lines[number + 1], number + 1
                    if any(self._label(other) not in (None, self._label(rest)) for other in self.lines[number + 2 :]):
                        continue  # a list of options follows
                index = self._named(match, rest, where, number, grammar)
                if index is not False and not grammar.has_clause(match):
                    yield (where, match.start()), index
            for match in grammar.backward.finditer(line):
                if match["letter"] in self.letters and not grammar.has_clause(match):
                    yield (number, match.start()), self.letters[match["letter"]]

    def _named(self, cue: re.Match, rest: str, line: int, cue_line: int, grammar: _Grammar) -> int | bool | None:
        """Return the option that the text after a cue names; None: several, or none after a colon; False: no answer."""
        has_colon = bool(cue["colon"]) or line > cue_line
        if not (has_colon or cue["after"] or cue["is"]):
            match = self.letter.match(rest)
            is_ended = match and match["letter"] in self.letters and grammar.end.match(match["rest"])
            return self.letters[match["letter"]] if is_ended else False
        if (
            index := self._text(re.findall(r"[^\s:=]+", (cue["after"] or "") + (cue["colon"] or "")), rest)
        ) is not None:
            return index
        match = self.letter.match(rest)
        none = None if has_colon else False
        if match is None:
            return none
        letter, tail = match["letter"], match["rest"]
        index = self.letters.get(letter, self.letters.get(letter.upper()))
        if not re.search(r"\w", tail):
            is_cut = not self.is_complete and line == len(self.lines) - 1 and not tail.strip()
            may_be_word = letter not in self.letters and (letter.upper() in _WORDS or not has_colon)
            return none if is_cut or (may_be_word and tail[:1] not in (")", "]", "}")) else index
        if self._begins(tail, self.options[index]):
            return index
        if self.several.match(tail):
            return None
        is_accepted = self._is_closed(letter, tail, has_colon=has_colon) or grammar.end.match(tail)
        return index if is_accepted else none

    def _text(self, words: list[str], rest: str) -> int | None:
        """Return the only option whose text is what follows a cue, with some of its last words: "é" + "a" + "néboa"."""
        if named := re.fullmatch(rf"(.*\w.*?)[\s(\[]+([{''.join(self.letters)}])[)\]]?\W*", rest):  # Lugo (B)
            index = self.letters[named[2]]
            return index if matches(named[1], self.options[index]) else None
        rests = [" ".join([*words[n:], rest]) for n in range(len(words) + 1)]
        known = [(i, option) for i, option in enumerate(self.options) if normalize(option)]
        found = [i for i, option in known if any(matches(rest, option) for rest in rests)]
        return found[0] if len(found) == 1 else None

    def _is_closed(self, letter: str, tail: str, *, has_colon: bool) -> bool:
        """Return whether a letter is not a word of the text that follows it in its line."""
        if tail[0] in ")]}":
            return True
        if letter not in self.letters or not letter.isascii():
            return False
        tail = tail.lstrip(_CLOSING)
        if tail[:1] == ".":
            return not has_colon  # "Answer: D. Brown does not say so"
        if tail[:1] in ",;":
            return letter not in "EIOU"
        if re.match(r"\s*[(\[–—]|\s+-\s", tail):
            return True
        if not tail[:1].isspace():
            return False
        follows = re.search(r"\w", tail)[0]
        # within a sentence, a capital before a small letter is no article, but may begin a name: "é A Coruña"
        return letter not in _WORDS or (not has_colon and not follows.isupper() and not follows.isdigit())

    def _begins(self, text: str, option: str) -> bool:
        """Return whether a text begins with an option, or is the beginning of one."""
        text, option = normalize(text), normalize(option)
        return bool(option) and (f"{text} ".startswith(f"{option} ") or (len(text) > 2 and option.startswith(text)))

    def _label(self, line: str) -> str | None:
        """Return the letter with which a line begins, as an option's does."""
        match = self.letter.match(line)
        return match["letter"].upper() if match and re.match(r"\s*[).:\]]", match["rest"]) else None

    def single_letters(self, answers: Sequence[Answers]) -> set[int]:
        """Return the options whose letters stand alone in a line, or with words of a cue only."""
        names = [word for language in answers for name in ("cue", "before", "after") for word in language.get(name, ())]
        lead = re.compile(rf"\W*(?:{_words(names)}\s+)*(?P<line>.*)$")
        found = set()
        for number, line in enumerate(self.lines):
            is_cut = not self.is_complete and number == len(self.lines) - 1
            match = self.letter.match(lead.match(line)["line"]) or self.letter.match(line)
            if match is None or re.search(r"\w", match["rest"]) or (is_cut and not match["rest"].strip()):
                continue
            letter = match["letter"]
            if letter in self.letters or len(self.lines) == 1:
                found.add(self.letters.get(letter, self.letters.get(letter.upper())))
        return found

    def option_lines(self) -> set[int]:
        """Return the options whose letters begin a line that has their text, and nothing else."""
        found = set()
        for match in filter(None, map(self.letter.match, self.lines)):
            index = self.letters.get(match["letter"], self.letters.get(match["letter"].upper()))
            text, option = normalize(match["rest"]), normalize(self.options[index])
            is_labeled = re.match(r"\s*[).:\]]", match["rest"])
            if text and (text == option or (is_labeled and len(text) > 2 and option.startswith(text))):
                found.add(index)
        return found
