"""Options of questions by an encoder-decoder: seconds of lm-eval (`backend=seq2seq`) divided by those of Vernacular.

    bench-env/bin/python bench/seq2seq.py --items 12 --reps 3 --clock cpu

The model has the shape of mT5 small (or `--layers`, `--width`) and random weights, the texts are random words. Both
engines run in this process, on the same weights, and take turns; lm-eval at the fastest of batch sizes 1, 8 and 32.
"""

import argparse
import random
import statistics
import tempfile
import time

import torch
import transformers as tf
import vernacular
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

SYLLABLES = [first + second for first in "bcdfglmnprstvx" for second in ("a", "e", "i", "o", "u", "an", "or", "es")]


def tokenizer():
    """Return a tokenizer of the syllables, with </s> behind a text."""
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -2.0), *((piece, -3.0) for piece in SYLLABLES)]
    pieces += [(character, -9.0) for character in "abcdefghijklmnopqrstuvwxyz:?\n"]
    core = Tokenizer(models.Unigram(pieces, unk_id=2))
    core.pre_tokenizer, core.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    core.post_processor = processors.TemplateProcessing(single=["$A", "</s>"], special_tokens=[("</s>", 1)])
    return tf.PreTrainedTokenizerFast(tokenizer_object=core, eos_token="</s>", unk_token="<unk>", pad_token="<pad>")


def build(directory: str, layers: int, width: int) -> None:
    """Write an mT5 with random weights."""
    config = tf.MT5Config(d_model=width, d_kv=64, d_ff=2 * width, num_layers=layers, num_heads=6, vocab_size=250_112,
                          decoder_start_token_id=0, feed_forward_proj="gated-gelu", initializer_factor=0.3)  # fmt: skip
    torch.manual_seed(0)
    tf.MT5ForConditionalGeneration(config).save_pretrained(directory)
    tokenizer().save_pretrained(directory)


def questions(count: int, words: int, options: int) -> list[tuple[str, str]]:
    """Return (prompt, option) for questions with a passage of so many words."""
    draw = random.Random(0)

    def text(n: int) -> str:
        return " ".join("".join(draw.choices(SYLLABLES, k=draw.randint(1, 2))) for _ in range(n))

    prompts = [f"{text(words)}\nquestion: {text(12)}?\nanswer:" for _ in range(count)]
    return [(prompt, f" {text(draw.randint(1, 5))}") for prompt in prompts for _ in range(options)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in {"items": 12, "reps": 3, "words": 120, "options": 4, "layers": 8, "width": 512}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    args = parser.parse_args()
    torch.set_num_threads(1)
    clock = time.process_time if args.clock == "cpu" else time.perf_counter
    with tempfile.TemporaryDirectory() as directory:
        build(directory, args.layers, args.width)
        own = vernacular.lm_eval_model(directory, device="cpu", dtype="float32", threads=1)
        other = HFLM(pretrained=directory, backend="seq2seq", device="cpu", dtype="float32", batch_size=1)
        pairs = questions(args.items, args.words, args.options)
        requests = [Instance("loglikelihood", {}, pair, number) for number, pair in enumerate(pairs)]

        def seconds(model, size: int | None = None):
            if size is not None:
                model.batch_size_per_gpu = size
            start = clock()
            values = model.loglikelihood(requests, disable_tqdm=True)
            return clock() - start, [value for value, _ in values]

        sizes = {size: seconds(other, size)[0] for size in (1, 8, 32)}
        fastest, ratios, largest = min(sizes, key=sizes.get), [], 0.0
        for _ in range(args.reps):
            (mine, values), (theirs, expected) = seconds(own), seconds(other, fastest)
            ratios.append(theirs / mine)
            largest = max(largest, *(abs(a - b) for a, b in zip(values, expected, strict=True)))
    print(f"ratio to lm-eval, batch {fastest}: min {min(ratios):.2f}, median {statistics.median(ratios):.2f}")
    print(f"largest difference: {largest:.1e} nats of {statistics.mean(map(abs, expected)):.0f}")


if __name__ == "__main__":
    main()
