"""Values of the references in tests/oracles, for the tools that are on no package index.

Runs in the environment of the workflow, on one thread.
"""

import json
import math
import sys
from pathlib import Path

import torch
from oracles import grew_tse, palmx, serbian_cloze, simil_eval, surprisal
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer

from replicate.references import Writer
from replicate.restated_generation import generation


def load(model: dict):
    """Return (model, tokenizer) of a record in float32."""
    kind = AutoModelForCausalLM if model["kind"] == "causal" else AutoModelForMaskedLM
    loaded = kind.from_pretrained(model["directory"], dtype=torch.float32).eval()
    return loaded, AutoTokenizer.from_pretrained(model["directory"])


def letters(writer, name, model, tokenizer, evaluation):
    for item in evaluation["items"]:
        writer.add("prompt", name, evaluation, item, "prompt", palmx.prompt(item["raw"]))
        logliks = palmx.letter_logliks(model, tokenizer, item["raw"])
        for i, value in enumerate(logliks):
            writer.add("letters", name, evaluation, item, f"option_scores:{i}", value)
        writer.add("letters", name, evaluation, item, "chosen", palmx.LETTERS.index(palmx.predict(logliks)))


def cloze(writer, name, model, tokenizer, evaluation):
    for item in evaluation["items"]:
        candidates, gold = item["raw"]["candidates"], item["raw"]["correct"]
        logliks = []
        for i, candidate in enumerate(candidates):
            logliks.append(serbian_cloze.loglik(model, tokenizer, item["raw"]["prompt"], candidate))
            moves = serbian_cloze.boundary_moves(tokenizer, item["raw"]["prompt"], candidate)
            reason = "boundary" if moves else None
            writer.add("unfilled gap", name, evaluation, item, f"loglik_unfilled:{i}", logliks[-1], reason=reason)
        is_correct = serbian_cloze.predict(candidates, logliks).strip() == gold.strip()
        writer.add("unfilled gap", name, evaluation, item, "accuracy_unfilled", is_correct)


def target_word_causal(writer, name, model, tokenizer, evaluation):
    for item in evaluation["items"]:
        prompt, _, _ = item["context"].partition(grew_tse.MASK)
        values = []
        for i, form in enumerate(item["choices"]):
            # the sentence with the form as written: Grew-TSE doubles the space of a form that begins with one
            bits = grew_tse.causal_sentence(model, tokenizer, item["context"], form)
            writer.add("sentence, ntp", name, evaluation, item, f"loglik_sentence:{i}", bits * math.log(2))
            if prompt.strip() and prompt.endswith(" "):
                values.append(grew_tse.causal_token(model, tokenizer, prompt, " " + form))
                writer.add("token, ntp", name, evaluation, item, f"loglik_token:{i}", values[-1])
        if values:
            is_correct = grew_tse.is_correct(values[0], values[1:])
            writer.add("token, ntp", name, evaluation, item, "accuracy", float(is_correct))


def target_word_masked(writer, name, model, tokenizer, evaluation):
    for item in evaluation["items"]:
        values, several = [], False
        for i, form in enumerate(item["choices"]):
            values.append(grew_tse.masked_token(model, tokenizer, item["context"], form, special_tokens=True))
            reason = "absent" if len(tokenizer(form, add_special_tokens=False)["input_ids"]) > 1 else None
            several = several or reason is not None
            writer.add("token, mlm", name, evaluation, item, f"loglik_token:{i}", values[-1], reason=reason)
        is_correct = grew_tse.is_correct(values[0], values[1:])
        reason = "absent" if several else None
        writer.add("token, mlm", name, evaluation, item, "accuracy", float(is_correct), reason=reason)


def target_word_within_word(writer, name, model, tokenizer, evaluation):
    """Score forms with their later tokens masked, in their sentence, as we do."""
    for item in evaluation["items"]:
        for i in range(len(item["choices"])):
            request = item["requests"][f"token:{i}"]
            span = request["span_start"], request["span_end"]
            scored = surprisal.masked(model, tokenizer, request["text"], *span, variant="within_word_l2r")
            writer.add("within_word_l2r", name, evaluation, item, f"loglik_token:{i}", scored.loglik)


def acceptability(writer, name, model, tokenizer, evaluation):
    """Write difsur of an evaluation, as Simil-Eval computes and rounds it."""
    sides = {"0": [], "1": []}
    for item in evaluation["items"]:
        row = item["raw"]
        scored = surprisal.causal(model, tokenizer, row.get("sentence") or row["Sentence"])
        writer.add("surprisal", name, evaluation, item, "surprisal", -scored.loglik)
        sides[str(row["label"] if "label" in row else row["Label"])].append(-scored.loglik)
    writer.add("difsur", name, evaluation, None, "difsur", simil_eval.difsur(sides["1"], sides["0"]), reason="rounded")


def global_piqa(writer, name, model, tokenizer, evaluation):
    """Write difsur of the solutions without their prompt."""
    sides = {True: [], False: []}
    for item in evaluation["items"]:
        gold = int(item["raw"]["label"])
        for i in range(2):
            value = -surprisal.causal(model, tokenizer, item["raw"][f"solution{i}"]).loglik
            sides[i == gold].append(value)
            column = "surprisal_good_bare" if i == gold else "surprisal_bad_bare"
            writer.add("surprisal", name, evaluation, item, column, value)
    value = simil_eval.difsur(sides[True], sides[False])
    writer.add("difsur", name, evaluation, None, "difsur_bare", value, reason="rounded")


def last_word(writer, name, model, tokenizer, evaluation):
    for item in evaluation["items"]:
        row = item["raw"]
        text = (
            f"{row['target']} {row['last_w_tgt']}" if "last_w_tgt" in row else f"{row['sentence']} {row['last_word']}"
        )
        scored = surprisal.causal(model, tokenizer, text)
        value = simil_eval.last_word(text, scored.tokens, [-(value or 0.0) for value in scored.logprobs])
        # a word that its tokens do not spell is dropped by Simil-Eval: there is no value to compare
        writer.add(
            "last word", name, evaluation, item, "surprisal_max", value, reason="dropped" if value is None else None
        )


def corrected_last_word(writer, name, model, tokenizer, evaluation):
    for item in evaluation["items"]:
        request = item["requests"]["word"]
        context, word = request["text"][: request["span_start"]], request["text"][request["span_start"] :]
        value = -surprisal.corrected_word(model, tokenizer, context, word)
        writer.add("beginning-of-word correction", name, evaluation, item, "surprisal_corrected", value)


CAUSAL = {"acceptability": ("Simil-Eval", acceptability), "last_word": ("Simil-Eval", last_word),
          "target_word": ("Grew-TSE", target_word_causal)}  # fmt: skip
TASKS = {"palmx_culture": ("PalmX", letters), "serbian_cloze": ("Serbian cloze", cloze)}


def main(directory: Path) -> None:
    """Write `restated.jsonl` for `rows.json` in `directory`."""
    torch.set_num_threads(1)
    rows = json.loads((directory / "rows.json").read_text("utf-8"))
    models = {name: load(rows["models"][name]) for name in ("smollm2", "bert")}
    with Writer(directory / "restated.jsonl", "") as writer:
        for evaluation in rows["evaluations"]:
            protocol, task = evaluation["protocol"], evaluation["task"]
            if task in TASKS:
                writer.tool, restated = TASKS[task]
                restated(writer, "smollm2", *models["smollm2"], evaluation)
            elif protocol in CAUSAL or task == "global_piqa":
                writer.tool, restated = CAUSAL.get(protocol, ("Simil-Eval", global_piqa))
                restated(writer, "smollm2-never", *models["smollm2"], evaluation)
            if protocol == "last_word":
                writer.tool = "definitions"
                corrected_last_word(writer, "smollm2", *models["smollm2"], evaluation)
            if protocol == "target_word":
                target_word_masked(writer, "bert", *models["bert"], evaluation)
                writer.tool = "definitions"
                target_word_within_word(writer, "bert", *models["bert"], evaluation)
            if protocol == "generation":
                generation(writer, "smollm2", rows, evaluation)
            print(evaluation["id"], len(writer.lines), file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
