#!/usr/bin/env bash
# The pre-tokenizer Whitespace, of many tokenizers trained for one language, divides a text into words and punctuation, where
# any letter of Unicode is of a word. @huggingface/tokenizers 0.2.0, the package of Transformers.js for browsers and Node,
# reads the same tokenizer.json, and takes only ASCII letters for letters: words of Yoruba, Vietnamese, Turkish, Navajo,
# Hausa or German are torn at other letters, and a word of Hindi, Arabic, Amharic or Greek is one with the mark after it, so
# that both are unknown, without a message. English and words without marks around them are equal. tokenizers 0.23.3, which
# wrote the file, finds each word. Needs Node.
# Exits with 1 if that changes.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv --without-pip "$directory/venv"
python3 -m pip --python "$directory/venv/bin/python" install --quiet tokenizers==0.23.3 2>/dev/null
npm install --silent --no-audit --no-fund --prefer-offline --prefix "$directory" @huggingface/tokenizers@0.2.0 >/dev/null 2>&1
"$directory/venv/bin/python" - "$directory" 2>/dev/null <<'PYTHON'
import json
import sys
from importlib.metadata import version
from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers

print("tokenizers", version("tokenizers"))
TEXTS = {
    "torn": ["ọjọ́ ẹ̀kọ́ .", "tiếng Việt .", "ağaç kökü .", "Diné łeeh .", "ɗaki ƙofa .", "größer Fuß ."],
    "joined": ["हाँ।", "نعم؟", "ሰላም፣ ቤት።", "ναι;"], "equal": ["yes , no .", "हाँ नहीं", "ኣብ ቤት", "kata kita."],
}
tokenizer = Tokenizer(models.WordPiece({"[UNK]": 0}, unk_token="[UNK]"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
texts = [text for group in TEXTS.values() for text in group]
words = {text: [word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text)] for text in texts}
vocabulary = ["[UNK]", *sorted({word for found in words.values() for word in found})]
tokenizer.model = models.WordPiece({word: number for number, word in enumerate(vocabulary)}, unk_token="[UNK]")
tokenizer.save(str(Path(sys.argv[1], "tokenizer.json")))
rows = [(group, text, tokenizer.encode(text).tokens) for group, members in TEXTS.items() for text in members]
Path(sys.argv[1], "rows.json").write_text(json.dumps(rows))
sys.exit(any("[UNK]" in tokens for _, _, tokens in rows))
PYTHON
cat > "$directory/read.mjs" <<'JAVASCRIPT'
import { readFileSync } from "fs";
import { Tokenizer } from "@huggingface/tokenizers";

const read = (name) => JSON.parse(readFileSync(new URL(name, import.meta.url), "utf8"));
console.log("@huggingface/tokenizers", read("node_modules/@huggingface/tokenizers/package.json").version);
const tokenizer = new Tokenizer(read("tokenizer.json"), {});
let held = true;
for (const [group, text, expected] of read("rows.json")) {
  const { tokens, ids } = tokenizer.encode(text);
  const unknown = [...ids].filter((id) => id === 0).length;
  console.log(`${group}: "${text}" is ${expected.length} tokens in Python: ${expected.join(" | ")}; in JS ${tokens.length}, `
    + `${unknown} of them unknown: ${tokens.join(" | ")}`);
  if (group === "torn") held &&= tokens.length > expected.length && unknown > 1;
  else if (group === "equal") held &&= tokens.join() === expected.join();
  else held &&= tokens.length < expected.length && unknown > 0;
}
process.exit(held ? 0 : 1);
JAVASCRIPT
node "$directory/read.mjs"
