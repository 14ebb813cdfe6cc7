"""Compare the similarity metrics with a pair-by-pair implementation, as in Simil-Eval: speed-up and equality.

    python bench/similarity.py ENCODER_DIRECTORY [--items 500] [--repeats 3] [--threads 2]

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
    rng = random.Random(turn)
    rows, requests, generations = [], [], []
    for i in range(items):
        choices = [" ".join(rng.choices(words, k=rng.randint(2, 12))) for _ in range(4)]
        output = " ".join([*rng.choice(choices).split()[: rng.randint(1, 12)], *rng.choices(words, k=2)])
        rows.append({"item_id": str(i), "choices": choices, "gold": [0], "target": None})
        requests.append({"item_id": str(i), "role": "response", "kind": "generate", "prefix": "", "text": "Answer:"})
        fields = {"item_id": str(i), "role": "response", "rendered": None, "flags": None}
        generations.append(fields | {"raw_output": output, "output": output})
    return rows, requests, generations


class PairByPair:
    """Pair-by-pair computation of the same metrics."""

    def __init__(self, directory: str, layer: int):
        self.directory, self.layer = directory, layer
        self.sentence_encoder = SentenceTransformer(directory)
        self.token_encoder = TokenEncoder({"name": directory, "directory": directory})
        self.tokenizer, self.model = AutoTokenizer.from_pretrained(directory), AutoModel.from_pretrained(directory)

    def cosine(self, option: str, output: str) -> float:
        a, b = (self.sentence_encoder.encode(text, show_progress_bar=False) for text in (option, output))
        return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))

    def moverscore(self, option: str, output: str) -> float:
        weighted_points = []
        for text in (option, output):
            with torch.no_grad():
                states = self.model(**self.tokenizer(text, return_tensors="pt")).last_hidden_state[0].double().numpy()
            weights = token_weights(self.token_encoder.tokenize([text])[0])
            points = states[weights > 0]
            weighted_points.append(
                (points / np.linalg.norm(points, axis=1, keepdims=True), weights[weights > 0] / weights.sum())
            )
        (a, a_weights), (b, b_weights) = weighted_points
        return 1 / (1 + ot.emd2(a_weights, b_weights, np.linalg.norm(a[:, None] - b[None], axis=2)))

    def bertscore(self, references: list[list[str]], outputs: list[str]) -> np.ndarray:
        scorer = bert_score.BERTScorer(model_type=self.directory, num_layers=self.layer)
        return scorer.score(outputs, references)[2].numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("directory")
    parser.add_argument("--items", type=int, default=500)
    parser.add_argument("--layer", type=int, default=9)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    encoders = {"default": {"name": args.directory, "directory": args.directory, "layer": args.layer}}
    reference = PairByPair(args.directory, args.layer)
    ratios = []
    for turn in range(args.repeats):
        rows, requests, generations = evaluation(args.items, turn)
        pairs = [
            (option, generation["output"])
            for row, generation in zip(rows, generations, strict=True)
            for option in row["choices"]
        ]
        outputs = [generation["output"] for generation in generations]
        started = time.perf_counter()
        names = ["cosine", "moverscore", "bertscore"]
        similarity_rows, _ = similarities(rows, generations, names, encoders, requests=requests, threads=args.threads)
        seconds = time.perf_counter() - started
        times = [time.perf_counter()]
        expected = {"cosine": [reference.cosine(*pair) for pair in pairs]}
        times.append(time.perf_counter())
        expected["moverscore"] = [reference.moverscore(*pair) for pair in pairs]
        times.append(time.perf_counter())
        reference.bertscore([[row["choices"][0]] for row in rows], outputs)
        best = reference.bertscore([row["choices"] for row in rows], outputs)
        times.append(time.perf_counter())
        ratios.append((times[-1] - times[0]) / seconds)
        details = ", ".join(f"{name} {b - a:.1f}" for name, a, b in zip(names, times, times[1:], strict=False))
        print(f"ours {seconds:.1f} s, pair by pair {times[-1] - times[0]:.1f} s ({details}), ratio {ratios[-1]:.1f}")
    print(f"{len(rows)} items x 4 options: ratio min {min(ratios):.1f}, median {statistics.median(ratios):.1f}")
    for name in names:
        values = np.array([row["similarities"] for row in similarity_rows if row["metric"] == name])
        if name == "bertscore":
            difference = np.abs(values.max(axis=1) - best).max()
        else:
            difference = np.abs(values.ravel() - np.array(expected[name])).max()
        print(f"largest difference in {name}: {difference:.1e}")


if __name__ == "__main__":
    main()
