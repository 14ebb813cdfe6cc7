"""Values of lm-evaluation-harness (HFLM) for our requests: `python -m replicate.lm_eval_values DIRECTORY`.

Runs in the environment .bench, in float32, without a chat template. lm-eval's own tasks, with its own prompts, are
compared by bench/lm_eval_values.py.
"""

import json
import logging
import math
import sys
from pathlib import Path

from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM

from replicate.references import Writer, spans

SCORED = {"acceptability": "sentence", "last_word": "word"}
OPTIONS = {"options": "choice", "letters": "choice", "minimal_pair": "choice", "cloze": "filled"}
MAX_NEW_TOKENS = 64  # of a generation that ended before its limit


class HarnessModel:
    """A model in lm-eval."""

    def __init__(self, name: str, directory: str):
        self.name = name
        self.model = HFLM(pretrained=directory, dtype="float32", device="cpu", batch_size=4)

    def loglikelihood(self, pairs: list[tuple[str, str]]) -> list[tuple[float, bool]]:
        return self.model.loglikelihood(_instances("loglikelihood", pairs), disable_tqdm=True)

    def rolling(self, texts: list[str]) -> list[float]:
        instances = _instances("loglikelihood_rolling", [(text,) for text in texts])
        return self.model.loglikelihood_rolling(instances, disable_tqdm=True)

    def generate(self, prompts: list[tuple[str, dict]]) -> list[str]:
        return self.model.generate_until(_instances("generate_until", prompts), disable_tqdm=True)


def _instances(kind: str, arguments: list[tuple]) -> list[Instance]:
    return [Instance(request_type=kind, doc={}, arguments=row, idx=i) for i, row in enumerate(arguments)]


def options(writer, model, evaluation):
    items = evaluation["items"]
    pairs = [pair for item in items for pair in spans(item, OPTIONS[evaluation["protocol"]])]
    values = iter(model.loglikelihood(pairs))
    for item in items:
        logliks = [next(values)[0] for _ in item["choices"]]
        for i, value in enumerate(logliks):
            writer.add("loglikelihood", model.name, evaluation, item, f"option_scores:{i}", value)
        writer.choose("loglikelihood", model.name, evaluation, item, logliks)


def scored(writer, model, evaluation):
    items, role = evaluation["items"], SCORED[evaluation["protocol"]]
    requests = [item["requests"][role] for item in items]
    pairs = [(row["text"][: row["span_start"]], row["text"][row["span_start"] : row["span_end"]]) for row in requests]
    for item, (value, is_greedy) in zip(items, model.loglikelihood(pairs), strict=True):
        writer.add("loglikelihood", model.name, evaluation, item, "surprisal", -value)
        if role == "word":
            writer.add("loglikelihood", model.name, evaluation, item, "greedy", float(is_greedy))


def target_word(writer, model, evaluation):
    """Score the form after the text before it, and the complete sentence."""
    for role in ("token", "sentence"):
        for item in evaluation["items"]:
            for i, (value, _) in enumerate(model.loglikelihood(spans(item, role))):
                writer.add("loglikelihood", model.name, evaluation, item, f"loglik_{role}:{i}", value)


def text(writer, model, evaluation):
    items = evaluation["items"]
    for item, value in zip(items, model.rolling([item["raw"]["text"] for item in items]), strict=True):
        writer.add("loglikelihood_rolling", model.name, evaluation, item, "bits", -value / math.log(2))


def generation(writer, model, evaluation):
    """Generate greedily up to the same stop string and limit."""
    items, prompts = evaluation["items"], []
    for item in items:
        request, output = item["requests"]["response"], evaluation["outputs"][model.name][item["item_id"]]
        limit = output["n_tokens"] if output["finish_reason"] == "length" else MAX_NEW_TOKENS
        decoding = {"until": request["stop"], "max_gen_toks": limit, "do_sample": False}
        prompts.append((request["prefix"] + request["text"], decoding))
    for item, response in zip(items, model.generate(prompts), strict=True):
        writer.add("generate_until", model.name, evaluation, item, "prediction", response.strip())


PROTOCOLS = dict.fromkeys(OPTIONS, options) | dict.fromkeys(SCORED, scored)
PROTOCOLS |= {"target_word": target_word, "text": text}


def main(directory: Path) -> None:
    logging.disable(logging.WARNING)
    rows = json.loads((directory / "rows.json").read_text("utf-8"))
    with Writer(directory / "lm_eval_values.jsonl", "lm-eval") as writer:
        model = HarnessModel("smollm2", rows["models"]["smollm2"]["directory"])
        for evaluation in rows["evaluations"]:
            if evaluation["protocol"] in PROTOCOLS:
                PROTOCOLS[evaluation["protocol"]](writer, model, evaluation)
                print(evaluation["id"], len(writer.lines), file=sys.stderr, flush=True)
        model.name = "smollm2-never"  # without a chat template, as here
        for evaluation in rows["evaluations"]:
            if evaluation["protocol"] == "generation" and evaluation["style"] == "default":
                generation(writer, model, evaluation)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
