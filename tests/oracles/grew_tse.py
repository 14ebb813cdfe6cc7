"""Grew-TSE's evaluator (grew-tse.readthedocs.io): probabilities of word forms, for causal ("ntp") and masked models.

A form is tokenized alone, apart from its context, and no special token is added. A probability is at least 1e-12.
"""

import math

import torch

FLOOR = 1e-12
MASK = "[MASK]"


@torch.inference_mode()
def causal_token(model, tokenizer, prompt: str, form: str) -> float:
    """Return ln p(form | prompt), for a form that begins with its space; the prompt is stripped.

    Raises ValueError if nothing stands before the form, in which case Grew-TSE stops.
    """
    context = tokenizer(prompt.strip(), add_special_tokens=False)["input_ids"]
    if not context:
        raise ValueError("a form at the start of a sentence has no context")
    total = 0.0
    for token in tokenizer(form, add_special_tokens=False)["input_ids"]:
        probabilities = model(input_ids=torch.tensor([context])).logits[0, -1].softmax(-1)
        total += math.log(max(probabilities[token].item(), FLOOR))
        context = [*context, token]
    return total


@torch.inference_mode()
def causal_sentence(model, tokenizer, masked_text: str, form: str) -> float:
    """Return the log2-probability of the sentence with `form` in the place of its mask, without its first token."""
    ids = tokenizer(masked_text.replace(MASK, form), add_special_tokens=False)["input_ids"]
    probabilities = model(input_ids=torch.tensor([ids])).logits[0].softmax(-1)
    return sum(math.log2(max(probabilities[i - 1, ids[i]].item(), FLOOR)) for i in range(1, len(ids)))


@torch.inference_mode()
def masked_token(model, tokenizer, masked_text: str, form: str, *, special_tokens: bool = False) -> float:
    """Return ln p(form) at the mask, in its full context.

    Of a form of several tokens, each is predicted at one mask, after the tokens before it; later ones are absent.
    `special_tokens` adds [CLS] and [SEP], which Grew-TSE omits.
    """
    text = masked_text.replace(MASK, tokenizer.mask_token)
    ids = tokenizer(text, add_special_tokens=special_tokens)["input_ids"]
    position, total = ids.index(tokenizer.mask_token_id), 0.0
    for token in tokenizer(form, add_special_tokens=False)["input_ids"]:
        probabilities = model(input_ids=torch.tensor([ids])).logits[0, position].softmax(-1)
        total += math.log(max(probabilities[token].item(), FLOOR))
        ids = [*ids[:position], token, *ids[position:]]
        position += 1
    return total


def is_correct(grammatical: float, ungrammatical: list[float]) -> bool:
    """Return whether the grammatical form is more probable than every other; a tie is incorrect."""
    return all(grammatical > other for other in ungrammatical)
