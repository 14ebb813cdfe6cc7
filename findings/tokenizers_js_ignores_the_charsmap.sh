#!/usr/bin/env bash
# A SentencePiece model states how its text is normalized as a compiled map, which tokenizer.json stores as `Precompiled`.
# The map may fold case (rule `nmt_nfkc_cf`; here Swahili, Kazakh, Greek) or be a table of one's own, as for characters that
# compete in texts of a language (here ş for Romanian ș, and two apostrophes for ʼ). @huggingface/tokenizers 0.2.0, the
# package of Transformers.js for browsers and Node, does not apply the map: words with a capital or the other character have
# unknown tokens, without a message. tokenizers 0.23.3 and SentencePiece 0.2.3 have none. Needs Node.
# Exits with 1 if that changes.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv --without-pip "$directory/venv"
python3 -m pip --python "$directory/venv/bin/python" install --quiet \
    tokenizers==0.23.3 sentencepiece==0.2.3 protobuf==7.36.2 2>/dev/null
npm install --silent --no-audit --no-fund --prefer-offline --prefix "$directory" @huggingface/tokenizers@0.2.0 >/dev/null 2>&1
"$directory/venv/bin/python" - "$directory" 2>/dev/null <<'PYTHON'
import json
import sys
from importlib.metadata import version
from pathlib import Path

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

directory = Path(sys.argv[1])
print("tokenizers", version("tokenizers"), "sentencepiece", version("sentencepiece"))
TEXTS = {"folded": ["Mtoto anasoma kitabu", "Адам кітап оқиды", "Ο ΗΛΙΟΣ"], "table": ["şi aşa", "ha’i", "ha‘i"]}
RULES = {"ş": "ș", "Ş": "Ș", "’": "ʼ", "‘": "ʼ"}
table = directory / "rules.tsv"
table.write_text("".join(f"{ord(old):X}\t{ord(new):X}\n" for old, new in RULES.items()))
for name, options in (("folded", {"normalization_rule_name": "nmt_nfkc_cf"}), ("table", {"normalization_rule_tsv": str(table)})):
    lines = [text.casefold() if name == "folded" else text.translate(str.maketrans(RULES)) for text in TEXTS[name]]
    corpus = directory / "corpus.txt"
    corpus.write_text("\n".join(lines * 50))
    prefix = str(directory / name)
    sentencepiece.SentencePieceTrainer.train(
        input=str(corpus), model_prefix=prefix, vocab_size=60, hard_vocab_limit=False, character_coverage=1.0, minloglevel=2,
        **options,
    )
    processor = sentencepiece.SentencePieceProcessor(model_file=prefix + ".model")
    model = sentencepiece_model_pb2.ModelProto.FromString(Path(prefix + ".model").read_bytes())
    pieces = [(processor.id_to_piece(number), processor.get_score(number)) for number in range(processor.vocab_size())]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0))
    tokenizer.normalizer = normalizers.Precompiled(model.normalizer_spec.precompiled_charsmap)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.save(prefix + ".json")
    rows = [(text, processor.encode(text), tokenizer.encode(text).ids) for text in TEXTS[name]]
    (directory / f"{name}.rows").write_text(json.dumps(rows))
    if any(0 in first or first != second for _, first, second in rows):
        sys.exit(1)
PYTHON
cat > "$directory/read.mjs" <<'JAVASCRIPT'
import { readFileSync } from "fs";
import { Tokenizer } from "@huggingface/tokenizers";

const read = (name) => JSON.parse(readFileSync(new URL(name, import.meta.url), "utf8"));
console.log("@huggingface/tokenizers", read("node_modules/@huggingface/tokenizers/package.json").version);
let held = true;
for (const name of ["folded", "table"]) {
  const tokenizer = new Tokenizer(read(`${name}.json`), {});
  for (const [text, , ids] of read(`${name}.rows`)) {
    const { ids: other, tokens } = tokenizer.encode(text);
    const unknown = [...other].filter((id) => id === 0).length;
    console.log(`${name}: "${text}" in Python and SentencePiece ${ids.length} tokens, none unknown; in JS ${other.length} tokens, `
      + `${unknown} unknown: ${tokens.join(" ")}`);
    held &&= unknown > 0;
  }
}
process.exit(held ? 0 : 1);
JAVASCRIPT
node "$directory/read.mjs"
