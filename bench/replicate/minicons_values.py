"""Values of minicons (Misra 2022) for our texts: `python -m replicate.minicons_values DIRECTORY`.

Runs in the environment .bench. Sums of log-probabilities (nats) of one to eight texts at a time, in float32.
"""

import json
import math
import sys
from pathlib import Path

import torch
from minicons.scorer import IncrementalLMScorer, MaskedLMScorer
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer

from replicate.references import Writer, spans

BATCH = 8
SENTENCE, CONDITIONAL = "sequence_score", "conditional_score"


def total(logprobs) -> float:
    return logprobs.sum(0).item()


class Causal:
    """A causal model in minicons, with or without BOS before a text that is scored from its beginning."""

    def __init__(self, name: str, model: dict):
        loaded = AutoModelForCausalLM.from_pretrained(model["directory"], dtype=torch.float32)
        tokenizer = AutoTokenizer.from_pretrained(model["directory"])
        self.name, self.bos = name, model["bos"] != "never"
        self.scorer = IncrementalLMScorer(loaded.eval(), tokenizer=tokenizer, device="cpu")
        self.method = SENTENCE + (", bos_token=True" if self.bos else "")

    def sentences(self, texts: list[str]) -> list[float]:
        def call(part):
            return self.scorer.sequence_score(part, bos_token=self.bos, reduction=total)

        return _batched(call, [(text,) for text in texts])

    def continuations(self, pairs: list[tuple[str, str]]) -> list[float]:
        def call(contexts, ends):
            return self.scorer.conditional_score(contexts, ends, separator="", reduction=total)

        return _batched(call, pairs)


class Masked:
    """A masked model in minicons."""

    def __init__(self, name: str, model: dict):
        loaded = AutoModelForMaskedLM.from_pretrained(model["directory"], dtype=torch.float32)
        tokenizer = AutoTokenizer.from_pretrained(model["directory"])
        tokenizer.batch_encode_plus = tokenizer.__call__  # minicons 0.3.39 calls it; transformers 5.23 has removed it
        self.name, self.method = name, SENTENCE
        self.scorer = MaskedLMScorer(loaded.eval(), tokenizer=tokenizer, device="cpu")

    def sentences(self, texts: list[str], variant: str = "original") -> list[float]:
        def call(part):
            return self.scorer.sequence_score(part, PLL_metric=variant, reduction=total)

        return _batched(call, [(text,) for text in texts])


def _batched(call, rows: list[tuple]) -> list[float]:
    """Call with columns of at most BATCH rows of similar length; return the values in the order of the rows."""
    order = sorted(range(len(rows)), key=lambda i: sum(map(len, rows[i])))
    values = [0.0] * len(rows)
    for start in range(0, len(order), BATCH):
        part = order[start : start + BATCH]
        columns = (list(column) for column in zip(*(rows[i] for i in part), strict=True))
        for i, value in zip(part, call(*columns), strict=True):
            values[i] = value
    return values


def acceptability(writer, scorer, evaluation):
    items = evaluation["items"]
    sentences = [item["raw"].get("sentence") or item["raw"]["Sentence"] for item in items]
    for item, value in zip(items, scorer.sentences(sentences), strict=True):
        writer.add(scorer.method, scorer.name, evaluation, item, "surprisal", -value)


def minimal_pair(writer, scorer, evaluation):
    """Score the texts without their context (as Simil-Eval scores Global PIQA), and after it."""
    for item in evaluation["items"]:
        texts = [text.lstrip() for _, text in spans(item, "choice")]
        alone = scorer.sentences(texts)
        contexts = [context for context, _ in spans(item, "choice")]
        if contexts[0]:
            names = ["surprisal_good_bare" if i in item["gold"] else "surprisal_bad_bare" for i in range(2)]
            for name, value in zip(names, alone, strict=True):
                writer.add(scorer.method, scorer.name, evaluation, item, name, -value)
            if isinstance(scorer, Causal) and not scorer.bos:
                options(writer, scorer, evaluation | {"items": [item]})
        else:
            _add_options(writer, scorer.method, scorer, evaluation, item, alone)


def options(writer, scorer, evaluation):
    items = evaluation["items"]
    pairs = [pair for item in items for pair in spans(item, "choice")]
    values = iter(scorer.continuations(pairs))
    for item in items:
        _add_options(writer, CONDITIONAL, scorer, evaluation, item, [next(values) for _ in item["choices"]])


def _add_options(writer, method, scorer, evaluation, item, values):
    for i, value in enumerate(values):
        writer.add(method, scorer.name, evaluation, item, f"option_scores:{i}", value)
    writer.choose(method, scorer.name, evaluation, item, values)


def last_word(writer, scorer, evaluation):
    items, requests = evaluation["items"], [item["requests"]["word"] for item in evaluation["items"]]
    pairs = [(row["text"][: row["span_start"]], row["text"][row["span_start"] :]) for row in requests]
    for item, value in zip(items, scorer.continuations(pairs), strict=True):
        writer.add(CONDITIONAL, scorer.name, evaluation, item, "surprisal", -value)
    # of the whole text: conditional_score does not correct the first token of the stimulus
    for item, (context, word) in zip(items, pairs, strict=True):
        tokenizer = scorer.scorer.tokenizer
        n_tokens = len(tokenizer(context + word)["input_ids"]) - len(tokenizer(context)["input_ids"])
        [tokens] = scorer.scorer.token_score([context + word], surprisal=True, bow_correction=True)
        surprisal = sum(value for _, value in tokens[-n_tokens:])
        writer.add(
            "token_score, bow_correction=True",
            scorer.name,
            evaluation,
            item,
            "surprisal_corrected",
            surprisal,
            reason="bow",
        )


def cloze(writer, scorer, evaluation):
    for item in evaluation["items"]:
        values = scorer.sentences([text for _, text in spans(item, "filled")])
        _add_options(writer, scorer.method, scorer, evaluation, item, values)


def target_word(writer, scorer, evaluation):
    """Score the complete sentences; masked models by our default, within_word_l2r."""
    variant = {"variant": "within_word_l2r"} if isinstance(scorer, Masked) else {}
    method = scorer.method + (", PLL_metric=within_word_l2r" if variant else "")
    for item in evaluation["items"]:
        values = scorer.sentences([text for _, text in spans(item, "sentence")], **variant)
        for i, value in enumerate(values):
            writer.add(method, scorer.name, evaluation, item, f"loglik_sentence:{i}", value)


def text(writer, scorer, evaluation):
    items = evaluation["items"]
    for item, value in zip(items, scorer.sentences([item["raw"]["text"] for item in items]), strict=True):
        column = "pseudo_bits" if isinstance(scorer, Masked) else "bits"
        writer.add(scorer.method, scorer.name, evaluation, item, column, -value / math.log(2))


BOTH = {function.__name__: function for function in (acceptability, minimal_pair, cloze, target_word, text)}
CAUSAL = BOTH | {"options": options, "letters": options, "last_word": last_word}


def main(directory: Path) -> None:
    rows = json.loads((directory / "rows.json").read_text("utf-8"))
    with Writer(directory / "minicons_values.jsonl", "minicons") as writer:
        for name, model in rows["models"].items():
            scorer, protocols = (Causal, CAUSAL) if model["kind"] == "causal" else (Masked, BOTH)
            scorer = scorer(name, model)
            for evaluation in rows["evaluations"]:
                # a prompt is read alike by both causal models: once is enough
                again = evaluation["protocol"] in ("options", "letters", "last_word") and model["bos"] == "never"
                if evaluation["protocol"] in protocols and not again:
                    protocols[evaluation["protocol"]](writer, scorer, evaluation)
                    print(name, evaluation["id"], len(writer.lines), file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
