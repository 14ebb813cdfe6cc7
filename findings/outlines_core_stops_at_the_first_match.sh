#!/usr/bin/env bash
# Outlines keeps answers to a list of choices or a regular expression. In the automaton that outlines-core 0.2.14 uses,
# a match shows one byte late. It asks of the state after a token whether it is no match or ends one, and a token that
# continues a complete match without ending the next one at once is taken for neither, and is forbidden. So of Basque
# "ez" (no) and "ez dakit" (I do not know) only the shorter can be given, in either order; and as byte-level tokenizers
# write most letters of small languages with two or three tokens, [ა-ჰ]+ allows one Georgian letter, and \w+ and .+
# allow no Yoruba, Hindi or Arabic letter after the first. ASCII letters, fixed lengths and quoted strings are right.
# The answers are valid and short, and a class of the choices has no hits, without a message. llguidance 1.9.1 accepts
# all of them.
# Exits with 1 if that changes.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv --without-pip "$directory/venv"
python3 -m pip --python "$directory/venv/bin/python" install --quiet outlines==1.3.3 outlines-core==0.2.14 \
    llguidance==1.9.1 2>/dev/null
"$directory/venv/bin/python" - <<'PYTHON'
import re
import sys
from importlib.metadata import version

from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper
from outlines.types import Choice
from outlines.types.dsl import python_types_to_terms, to_regex
from outlines_core import Guide, Index, Vocabulary

print(*(f"{name} {version(name)}" for name in ("outlines", "outlines-core", "llguidance")))
end = 256  # after one token for each byte
vocabulary = Vocabulary(end, {bytes([byte]): [byte] for byte in range(256)})


class Bytes:
    eos_token_id, bos_token_id, special_token_ids = end, None, [end]
    tokens = [bytes([byte]) for byte in range(256)] + [b"<eos>"]

    def __call__(self, text):
        return list(text if isinstance(text, bytes) else text.encode())


tokenizer = LLTokenizer(TokenizerWrapper(Bytes()))


def follow(pattern, text):  # the part of text that outlines-core allows
    guide = Guide(Index(pattern, vocabulary))
    for number, byte in enumerate(text.encode()):
        if byte not in guide.get_tokens():
            return text.encode()[:number].decode(errors="replace")
        guide.advance(byte)
    return text if end in guide.get_tokens() else None


def choices(*labels):
    return to_regex(python_types_to_terms(Choice(list(labels))))


cases = [(choices("ez", "ez dakit"), "ez dakit", "ez"), (choices("ez dakit", "ez"), "ez dakit", "ez")]
cases += [(choices("კიდევ", "კი"), "კიდევ", "კი"), ("[ა-ჰ]+", "კარი", "კ"), (r"\w+", "ọkọ", "ọk"), (".+", "घर", "घ")]
cases += [(r"[^\s]+", "باب", "ب")]
equal = [(choices("ez dakit", "bai"), "ez dakit"), ("[a-z]+", "door"), (".{4}", "კარი"), ('"[ა-ჰ]+"', '"კარი"')]
right = True
for pattern, text, part in cases + [(pattern, text, text) for pattern, text in equal]:
    seen = follow(pattern, text)
    matcher = LLMatcher(tokenizer, LLMatcher.grammar_from_regex(pattern))
    other = matcher.consume_tokens(list(text.encode())) and matcher.is_accepting()
    print(f"{pattern}: of {text!r}, outlines-core allows {seen!r}; llguidance allows all of it: {other}")
    right = right and seen == part and other and re.fullmatch(pattern, text) is not None
sys.exit(not right)
PYTHON
