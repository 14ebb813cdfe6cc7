#!/usr/bin/env bash
# The tokenizer.json of a Qwen model, and of others that are trained on bytes of composed text, begins with the normalizer
# NFC, so that decomposed text (Yoruba and Vietnamese from many keyboards, Korean from some file systems) has the tokens of
# composed text. The tokenizer of ONNX Runtime's extensions 0.15.2 (pp_api) reads the same file and does not normalize: the
# same Yoruba sentence has five times the tokens, the Korean one twenty times, so that a model on ONNX Runtime is given other
# words, without a message. Composed text has the same tokens. With `Lowercase` it is the same: capitals stay. tokenizers
# 0.23.3, which wrote the file, has the same tokens for both forms.
# Exits with 1 if that changes.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv --without-pip "$directory/venv"
python3 -m pip --python "$directory/venv/bin/python" install --quiet \
    onnxruntime-extensions==0.15.2 tokenizers==0.23.3 numpy==2.4.6 2>/dev/null
"$directory/venv/bin/python" - "$directory" 2>/dev/null <<'PYTHON'
import json
import sys
import unicodedata
from importlib.metadata import version
from pathlib import Path

from onnxruntime_extensions.pp_api import Tokenizer as Converted
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

print(*(f"{name} {version(name)}" for name in ("onnxruntime-extensions", "tokenizers")))
PATTERN = (  # that of Qwen 2 and 3
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEXTS = {
    "Yoruba": "ọmọ náà rí ọkọ̀ lójú ọ̀nà", "Vietnamese": "tiếng Việt được nói ở đây", "Korean": "한국어를 배우는 사람",
    "Lithuanian": "žmonės šoka",
}


def both(name, normalizer):
    """The functions that give the IDs of a text, by tokenizers and by ONNX Runtime, from one tokenizer.json."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizer
    split = pre_tokenizers.Split(Regex(PATTERN), "isolated", False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600, special_tokens=["<|endoftext|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator([*TEXTS.values()] * 30, trainer)
    folder = Path(sys.argv[1], name)
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|endoftext|>", "add_prefix_space": False}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    converted = Converted(str(folder))
    return lambda text: tokenizer.encode(text).ids, lambda text: [int(number) for number in converted.tokenize([text])[0]]


held = True
ours, theirs = both("nfc", normalizers.NFC())
for language, text in TEXTS.items():
    composed, decomposed = unicodedata.normalize("NFC", text), unicodedata.normalize("NFD", text)
    counts = [len(read(form)) for read in (ours, theirs) for form in (composed, decomposed)]
    print(f"{language}, composed and decomposed: tokenizers {counts[0]} and {counts[1]} tokens, "
          f"ONNX Runtime {counts[2]} and {counts[3]}")
    held = held and ours(composed) == ours(decomposed) == theirs(composed) and counts[3] > 2 * counts[2]
ours, theirs = both("lower", normalizers.Lowercase())
upper = TEXTS["Lithuanian"].upper()
print(f"Lowercase, {upper}: tokenizers {len(ours(upper))} tokens, ONNX Runtime {len(theirs(upper))}")
held = held and ours(upper) == ours(upper.lower()) == theirs(upper.lower()) != theirs(upper)
sys.exit(not held)
PYTHON
