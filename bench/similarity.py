"""Compare the similarity metrics with a pair-by-pair implementation, as in Simil-Eval: speed-up and equality.

    python bench/similarity.py ENCODER_FOLDER [--items 500] [--repeats 3] [--threads 2]

An evaluation of OpenBookQA's size: an output and four options per item, words drawn from the shipped samples, one fixed
encoder. The reference embeds both texts of each (option, output) pair again for cosine and once more for MoverScore,
with an earth mover's distance each, and calls bert_score twice over the full list, as Simil-Eval does.
"""

import argparse
import json
import random
import statistics
import time

import bert_score
import numpy as np
import ot
import torch
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoTokenizer
from vernacular.config.load import WORKFLOW
from vernacular.metrics.similarity.compute import similarities
from vernacular.metrics.similarity.encoder import TokenEncoder
from vernacular.metrics.similarity.moverscore import token_weights


def evaluation(items: int, turn: int) -> tuple[list[dict], list[dict], list[dict]]:
    """Return items, requests and generations: options of 2 to 12 words, outputs that share some with an option.

    Each turn draws different texts, because embeddings are cached.
    """
    words = []
    for path in sorted((WORKFLOW / "samples" / "openbookqa").glob("*/test.jsonl")):
        for line in path.read_text("utf-8").splitlines():
            words += [word for word in json.dumps(json.loads(line), ensure_ascii=False).split() if word.isalpha()]
    draw = random.Random(turn)
    rows, asked, given = [], [], []
    for i in range(items):
        choices = [" ".join(draw.choices(words, k=draw.randint(2, 12))) for _ in range(4)]
        answer = " ".join([*draw.choice(choices).split()[: draw.randint(1, 12)], *draw.choices(words, k=2)])
        rows.append({"item_id": str(i), "choices": choices, "gold": [0], "target": None})
        asked.append({"item_id": str(i), "role": "response", "kind": "generate", "prefix": "", "text": "Answer:"})
        same = {"item_id": str(i), "role": "response", "rendered": None, "flags": None}
        given.append(same | {"raw_output": answer, "output": answer})
    return rows, asked, given


class PairByPair:
    """Pair-by-pair computation of the same metrics."""

    def __init__(self, folder: str, layer: int):
        self.folder, self.layer = folder, layer
        self.sentences = SentenceTransformer(folder)
        self.tokens = TokenEncoder({"name": folder, "folder": folder})
        self.tokenizer, self.model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder)

    def cosine(self, option: str, answer: str) -> float:
        one, other = (self.sentences.encode(text, show_progress_bar=False) for text in (option, answer))
        return float(one @ other / (np.linalg.norm(one) * np.linalg.norm(other)))

    def moverscore(self, option: str, answer: str) -> float:
        sides = []
        for text in (option, answer):
            with torch.no_grad():
                states = self.model(**self.tokenizer(text, return_tensors="pt")).last_hidden_state[0].double().numpy()
            weights = token_weights(self.tokens.tokenize([text])[0])
            points = states[weights > 0]
            sides.append((points / np.linalg.norm(points, axis=1, keepdims=True), weights[weights > 0] / weights.sum()))
        (a, mass), (b, other) = sides
        return 1 / (1 + ot.emd2(mass, other, np.linalg.norm(a[:, None] - b[None], axis=2)))

    def bertscore(self, references: list[list[str]], answers: list[str]) -> np.ndarray:
        scorer = bert_score.BERTScorer(model_type=self.folder, num_layers=self.layer)
        return scorer.score(answers, references)[2].numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder")
    parser.add_argument("--items", type=int, default=500)
    parser.add_argument("--layer", type=int, default=9)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    encoders = {"default": {"name": args.folder, "folder": args.folder, "layer": args.layer}}
    other = PairByPair(args.folder, args.layer)
    ratios = []
    for turn in range(args.repeats):
        rows, asked, given = evaluation(args.items, turn)
        pairs = [(option, g["output"]) for row, g in zip(rows, given, strict=True) for option in row["choices"]]
        answers = [g["output"] for g in given]
        started = time.perf_counter()
        names = ["cosine", "moverscore", "bertscore"]
        found, _ = similarities(rows, given, names, encoders, requests=asked, threads=args.threads)
        seconds = time.perf_counter() - started
        parts = [time.perf_counter()]
        theirs = {"cosine": [other.cosine(*pair) for pair in pairs]}
        parts.append(time.perf_counter())
        theirs["moverscore"] = [other.moverscore(*pair) for pair in pairs]
        parts.append(time.perf_counter())
        other.bertscore([[row["choices"][0]] for row in rows], answers)
        best = other.bertscore([row["choices"] for row in rows], answers)
        parts.append(time.perf_counter())
        ratios.append((parts[-1] - parts[0]) / seconds)
        each = ", ".join(f"{name} {b - a:.1f}" for name, a, b in zip(names, parts, parts[1:], strict=False))
        print(f"ours {seconds:.1f} s, pair by pair {parts[-1] - parts[0]:.1f} s ({each}), ratio {ratios[-1]:.1f}")
    print(f"{len(rows)} items x 4 options: ratio min {min(ratios):.1f}, median {statistics.median(ratios):.1f}")
    for name in names:
        ours = np.array([row["similarities"] for row in found if row["metric"] == name])
        if name == "bertscore":
            gap = np.abs(ours.max(axis=1) - best).max()
        else:
            gap = np.abs(ours.ravel() - np.array(theirs[name])).max()
        print(f"largest difference in {name}: {gap:.1e}")


if __name__ == "__main__":
    main()
