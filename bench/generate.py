"""Compare generation with a batch-1 `generate` loop, as in Simil-Eval: speed-up and equality of the texts.

    python bench/generate.py MODEL_DIRECTORY [--style default] [--shots 5] [--items 40] [--repeats 3] [--threads 2]

The same 5-shot OpenBookQA requests (shipped samples) go through both in turn, and the ratio of seconds is computed per
turn. The loop is Simil-Eval's: one prompt at a time, 20 tokens each, no stop string. In the default style it decodes
greedily, so that texts can be compared with Vernacular's up to the end of the line.
"""

import argparse
import statistics
import time

import pyarrow as pa
import torch
from vernacular.config.load import WORKFLOW
from vernacular.core.model_record import ModelRecord
from vernacular.data.load import load_items
from vernacular.data.tasks import load_task
from vernacular.inference.generation.generate import Generation
from vernacular.inference.generation.prepare import decode_continuation, truncate_output
from vernacular.inference.model.load import load
from vernacular.inference.schema import MemoryJournal
from vernacular.protocols.build import build
from vernacular.protocols.schema import REQUESTS


def requests(language: str, style: str, shots: int, items: int) -> list[dict]:
    """Build generation requests of the OpenBookQA samples; rotated options give more items than there are samples."""
    task = load_task(WORKFLOW / "tasks" / "openbookqa.yaml")
    items_and_examples, _ = load_items(task, language, source="samples")
    samples = [item for item in items_and_examples if not item["few_shot"]]
    rotated = []
    for shift in range(-(-items // len(samples))):
        for item in samples:
            choices = item["choices"][shift:] + item["choices"][:shift]
            gold = [(i - shift) % len(choices) for i in item["gold"]]
            rotated.append({**item, "item_id": f"{item['item_id']}@{shift}", "choices": choices, "gold": gold})
    few_shot_examples = [item for item in items_and_examples if item["few_shot"]]
    settings = {"language": language, "protocol": "generation", "shots": shots, "seed": 0, "style": style}
    return build(few_shot_examples + rotated[:items], task, **settings, options={})[0]


def loop(loaded, rows: list[dict], greedy: bool) -> list[str]:
    """Generate one prompt at a time through `generate`, as Simil-Eval does."""
    sampling = {"do_sample": False} if greedy else {"do_sample": True, "temperature": 0.5, "repetition_penalty": 0.5}
    texts = []
    for row in rows:
        inputs = loaded.tokenizer(row["prefix"] + row["text"], return_tensors="pt").to(loaded.device)
        token_ids = loaded.model.generate(**inputs, max_new_tokens=20, pad_token_id=loaded.eos_id, **sampling)[0]
        prompt_length = inputs["input_ids"].shape[1]
        texts.append(
            decode_continuation(
                loaded.tokenizer, token_ids[:prompt_length].tolist(), token_ids[prompt_length:].tolist()
            )
        )
    return texts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("directory")
    parser.add_argument("--language", default="en")
    parser.add_argument("--style", default="default", choices=["default", "open", "simil-eval", "simil-eval-open"])
    parser.add_argument("--shots", type=int, default=5)
    parser.add_argument("--items", type=int, default=40)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtype", default="float32")
    args = parser.parse_args()

    settings = {"kind": "causal", "fingerprint": "bench", "dtype": args.dtype, "chat": False}
    loaded = load(ModelRecord(name=args.directory, directory=args.directory, **settings), threads=args.threads)
    rows = requests(args.language, args.style, args.shots, args.items)
    table = pa.Table.from_pylist(rows, schema=REQUESTS.schema)
    greedy = not args.style.startswith("simil-eval")
    ratios = []
    for _ in range(args.repeats):
        started = time.perf_counter()
        generation = Generation(loaded, table)
        generation.compute(MemoryJournal())
        generations, metadata = generation.finish()
        middle = time.perf_counter()
        loop_texts = loop(loaded, rows, greedy)
        ratios.append((time.perf_counter() - middle) / (middle - started))
        print(f"ours {middle - started:.2f} s, loop {ratios[-1] * (middle - started):.2f} s, ratio {ratios[-1]:.1f}")
    print(f"{len(rows)} items, {args.shots} shots, {args.style}: ratio min {min(ratios):.1f}, ", end="")
    print(f"median {statistics.median(ratios):.1f}; {metadata['counters']}; {metadata['engine']['strategies']}")
    if greedy:
        outputs = generations.column("output").to_pylist()
        truncated = [truncate_output(text, ["\n"], skip_leading_space=False) for text in loop_texts]
        # Vernacular's limit may differ from 20 tokens: the shorter text must be a prefix of the longer one
        matches = [a.startswith(b) or b.startswith(a) for a, b in zip(outputs, truncated, strict=True)]
        print(f"identical greedy answers: {sum(matches)} of {len(matches)} ({torch.get_num_threads()} threads)")
        for a, b in [(a, b) for a, b, s in zip(outputs, truncated, matches, strict=True) if not s][:5]:
            print(f"  ours {a!r}, alone {b!r}")


if __name__ == "__main__":
    main()
