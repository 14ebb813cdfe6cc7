#!/usr/bin/env bash
# The T5 models of many languages (MADLAD-400, mT5, Aya 101, Flan-T5) have an output layer of their own: `tie_word_embeddings`
# is false in config.json. transformers 5.24.0 always shows it as true, and keeps the value of the file in
# `scale_decoder_outputs`. The converter of CTranslate2 4.8.5 asks for the former, and lets the converted model multiply all
# logits by 1 / root of d_model, which only tied models have to: MADLAD-400 3B is sampled, searched by beam and scored at a
# temperature of 32, without a message. The best first token is the same, so that greedy output looks well.
# The NLLB architecture, which is not concerned, is converted exactly by the same versions. Shown with small models.
# Exits with 1 if that changes.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv --without-pip "$directory/venv"
python3 -m pip --python "$directory/venv/bin/python" install --quiet \
    ctranslate2==4.8.5 transformers==5.24.0 torch==2.13.0 2>/dev/null
HF_HUB_OFFLINE=1 "$directory/venv/bin/python" - "$directory" 2>/dev/null <<'PYTHON'
import json
import sys
from pathlib import Path

import ctranslate2
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers

print("CTranslate2", ctranslate2.__version__, "transformers", transformers.__version__)
directory = Path(sys.argv[1])
words = ["<s>", "<pad>", "</s>", "<unk>"] + [f"w{number}" for number in range(60)]
tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))
tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
special = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
wrapped = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)
ids = {"vocab_size": len(words), "bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 0}


def compare(name, cls, config, own_head):
    """Log-probabilities of a translation by transformers and by the converted model, of one and the same directory."""
    path = directory / name
    torch.manual_seed(0)
    model = cls(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.3)
    if own_head:
        model.lm_head.weight = torch.nn.Parameter(torch.randn_like(model.lm_head.weight))
    model.save_pretrained(path)
    wrapped.save_pretrained(path)
    settings = json.loads((path / "config.json").read_text())
    if own_head:  # as in the files on the Hub
        settings.pop("scale_decoder_outputs", None)
        settings["tie_word_embeddings"] = False
        (path / "config.json").write_text(json.dumps(settings))
    source, target = torch.randint(4, len(words), (1, 8)), torch.randint(4, len(words), (1, 8))
    model = cls.from_pretrained(path).eval()
    start = torch.tensor([[config.decoder_start_token_id]])
    with torch.no_grad():
        logits = model(input_ids=source, decoder_input_ids=torch.cat([start, target], 1)).logits[0, :-1]
    ctranslate2.converters.TransformersConverter(str(path)).convert(str(path / "converted"))
    translator = ctranslate2.Translator(str(path / "converted"), compute_type="float32")
    texts = [[[words[number] for number in row] for row in rows.tolist()] for rows in (source, target)]
    scored = torch.tensor(translator.score_batch(*texts)[0].log_probs[:8])
    root = config.d_model ** 0.5
    expected, divided = (torch.log_softmax(values, -1).gather(1, target[0][:, None])[:, 0] for values in (logits, logits / root))
    print(f"{name}: log P by transformers {expected.sum():.3f}, converted {scored.sum():.3f}, "
          f"transformers with logits divided by {root:g} {divided.sum():.3f}")
    return torch.allclose(scored, expected, atol=1e-3), torch.allclose(scored, divided, atol=1e-3)


size = {"d_model": 64, "d_kv": 16, "d_ff": 64, "num_layers": 2, "num_heads": 4}
layers = {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
          "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "d_model": 64, "max_position_embeddings": 64}
seen = {
    "T5, tied": compare("t5-tied", transformers.T5ForConditionalGeneration, transformers.T5Config(**ids, **size), False),
    "MADLAD": compare("madlad", transformers.T5ForConditionalGeneration,
                      transformers.T5Config(**ids, **size, feed_forward_proj="gated-gelu", tie_word_embeddings=False), True),
    "mT5": compare("mt5", transformers.MT5ForConditionalGeneration, transformers.MT5Config(**ids, **size), True),
    "NLLB": compare("nllb", transformers.M2M100ForConditionalGeneration, transformers.M2M100Config(**ids, **layers), False),
}
for name, (same, flattened) in seen.items():
    print(f"{name}: as transformers {same}, logits divided {flattened}")
right, wrong = (True, False), (False, True)
sys.exit(seen != {"T5, tied": right, "MADLAD": wrong, "mT5": wrong, "NLLB": right})
PYTHON
