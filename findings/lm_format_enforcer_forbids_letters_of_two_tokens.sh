#!/usr/bin/env bash
# lm-format-enforcer keeps answers to a JSON schema or an expression. It knows each token by its text, and the text of
# a token that is a part of a letter is "�". Byte-level tokenizers (GPT-2, Llama 3, Qwen) have a token for each letter
# of Western Europe, and two or three for others (ẹ, ọ, ɓ, ƙ, most of Georgian). In version 0.11.3, such a letter is
# allowed in free strings, where "�" is as good as another character, and forbidden wherever the letters are named: of
# the Yoruba labels "rárá" (no) and "bẹ́ẹ̀ni" (yes), only the former can be given, after the "b" of the latter no token
# is allowed, not even the end, and for Georgian labels and [ẹọṣ]+ none is from the start. No message is given.
# llguidance 1.9.1, with the same tokens, allows each label.
# Exits with 1 if that changes.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv --without-pip "$directory/venv"
python3 -m pip --python "$directory/venv/bin/python" install --quiet lm-format-enforcer==0.11.3 llguidance==1.9.1 \
    numpy==2.2.6 2>/dev/null
"$directory/venv/bin/python" - <<'PYTHON'
import json
import sys
from importlib.metadata import version

from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper
from lmformatenforcer import JsonSchemaParser, RegexParser, TokenEnforcer, TokenEnforcerTokenizerData

print(*(f"{name} {version(name)}" for name in ("lm-format-enforcer", "llguidance")))
end = 256
tokens = [bytes([byte]) for byte in range(256)] + [b"<eos>"] + [letter.encode() for letter in "áàéèíìóòúù"]


def encode(text):  # each letter as one token if there is one, else as its bytes
    if isinstance(text, bytes):
        text = text.decode()
    parts = ([tokens.index(letter.encode())] if letter.encode() in tokens else list(letter.encode()) for letter in text)
    return [token for part in parts for token in part]


def decode(ids):
    return b"".join(tokens[token] for token in ids if token != end).decode(errors="replace")


regular = [(token, decode([token]), False) for token in range(len(tokens)) if token != end]
data = TokenEnforcerTokenizerData(regular, decode, end, False, len(tokens))


class Bytes:
    eos_token_id, bos_token_id, special_token_ids = end, None, [end]

    def __init__(self):
        self.tokens = tokens

    def __call__(self, text):
        return encode(text)


def follow(parser, text):
    enforcer, ids = TokenEnforcer(data, parser), [end]
    enforcer.get_allowed_tokens(ids)
    for token in encode(text):
        allowed = enforcer.get_allowed_tokens(ids).allowed_tokens
        if token not in allowed:
            return f"forbidden after {decode(ids)!r}, where {sorted(decode([token]) for token in allowed)} is allowed"
        ids.append(token)
    return "allowed" if end in enforcer.get_allowed_tokens(ids).allowed_tokens else "no end"


tokenizer = LLTokenizer(TokenizerWrapper(Bytes()))
yoruba, georgian = {"enum": ["rárá", "bẹ́ẹ̀ni"]}, {"enum": ["კი", "არა"]}
cases = [(yoruba, '"rárá"'), ({"type": "string"}, '"bẹ́ẹ̀ni"'), (yoruba, '"bẹ́ẹ̀ni"')]
cases += [(georgian, '"კი"'), (georgian, '"არა"')]
seen = []
for schema, text in cases:
    seen.append(follow(JsonSchemaParser(schema), text))
    matcher = LLMatcher(tokenizer, LLMatcher.grammar_from_json_schema(json.dumps(schema)))
    other = matcher.consume_tokens(encode(text)) and matcher.is_accepting()
    print(f"{json.dumps(schema, ensure_ascii=False)} {text}: {seen[-1]}; llguidance allows it: {other}")
    assert other
seen.append(follow(RegexParser("[ẹọṣ]+"), "ẹọ"))
print(f"[ẹọṣ]+ ẹọ: {seen[-1]}")
forbidden = all(text.startswith("forbidden") for text in seen[2:])
sys.exit(not (seen[:2] == ["allowed"] * 2 and forbidden and all("where [] is" in text for text in seen[2:])))
PYTHON
