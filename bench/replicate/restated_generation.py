"""Generated answers: Simil-Eval's prompts and parser, and similarities by the definitions in tests/oracles.

Sampled texts are not repeated (Simil-Eval samples without a seed): what our run generated is parsed and compared with
the options. In Simil-Eval's style the encoder of the cosine is the evaluated model, MoverScore has its variant, and
BERTScore has idf over all options; otherwise all three use the encoder of the config.
"""

import functools

import torch
from oracles import simil_eval, similarity
from transformers import AutoModel, AutoTokenizer

PROMPTS = {"openbookqa": simil_eval.openbookqa_prompt, "belebele": simil_eval.belebele_prompt,
           "xstorycloze": simil_eval.xstorycloze_prompt}  # fmt: skip


def generation(writer, name: str, rows: dict, evaluation: dict) -> None:
    """Write the values of an evaluation of generated answers."""
    if evaluation["style"] == "simil-eval":
        writer.tool = "Simil-Eval"
        answers = {item["item_id"]: _prompt_and_answer(writer, name, evaluation, item) for item in evaluation["items"]}
    else:
        writer.tool = "definitions"
        answers = {item_id: output["output"] for item_id, output in evaluation["outputs"][name].items()}
    metrics = _metrics(rows, name, evaluation)
    for item in evaluation["items"]:
        if answers[item["item_id"]].strip():  # an empty answer has no similarities
            _similarities(writer, name, evaluation, item, answers[item["item_id"]], metrics)


def _prompt_and_answer(writer, name, evaluation, item) -> str:
    prompt = PROMPTS[evaluation["task"]](item["raw"])
    writer.add("prompt", name, evaluation, item, "prompt", prompt)
    output, stem = evaluation["outputs"][name][item["item_id"]], prompt.split()[-1]
    saved = simil_eval.saved_text(prompt, output["raw_output"], stem, chat=output["rendered"] is not None)
    answer = simil_eval.answer(saved, stem)
    writer.add("answer parser", name, evaluation, item, "prediction", answer)
    return answer


@functools.cache
def encoder(directory: str, lower_case: bool = False):
    """Return (tokenizer, model) of a directory; `lower_case`: as Simil-Eval configures a BERT tokenizer."""
    tokenizer = AutoTokenizer.from_pretrained(directory)
    normalizer = tokenizer.backend_tokenizer.normalizer
    if lower_case and type(normalizer).__name__ == "BertNormalizer":
        tokenizer.backend_tokenizer.normalizer = type(normalizer)(lowercase=True)
    return tokenizer, AutoModel.from_pretrained(directory, dtype=torch.float32).eval()


def _metrics(rows: dict, name: str, evaluation: dict) -> dict:
    """Return functions of (answer, option), by metric."""
    directory, layer = rows["encoder"]["directory"], rows["encoder"]["layer"]
    fixed = encoder(directory)
    if evaluation["style"] == "simil-eval":
        options = [option for item in evaluation["items"] for option in item["choices"]]
        weight = similarity.idf([set(fixed[0](option)["input_ids"]) for option in options])
        return {
            "cosine": functools.partial(similarity.cosine, *encoder(rows["models"][name]["directory"])),
            "moverscore": functools.partial(similarity.moverscore_simil_eval, *encoder(directory, lower_case=True)),
            "bertscore": functools.partial(similarity.bertscore, *fixed, layer=layer, weight=weight),
        }
    return {
        "cosine": functools.partial(similarity.cosine, *fixed, prefix=rows["encoder"]["prefix"]),
        "moverscore": functools.partial(similarity.moverscore, *fixed),
        "bertscore": functools.partial(similarity.bertscore, *fixed, layer=layer),
    }


def _similarities(writer, name, evaluation, item, answer: str, metrics: dict) -> None:
    for metric, similarity_of in metrics.items():
        values = [similarity_of(answer, option) for option in item["choices"]]
        sides = {
            "correct": [value for i, value in enumerate(values) if i in item["gold"]],
            "incorrect": [value for i, value in enumerate(values) if i not in item["gold"]],
        }
        writer.add(metric, name, evaluation, item, f"{metric}_mean", sum(values) / len(values))
        for side, of_side in sides.items():
            writer.add(metric, name, evaluation, item, f"{metric}_{side}", max(of_side))
        is_correct = values.index(max(values)) in item["gold"]
        writer.add(metric, name, evaluation, item, f"{metric}_accuracy", float(is_correct))
