"""Log-probabilities of a span of a text, from all logits of one forward pass per text (causal) or per token (masked).

A token belongs to the span if it shares a character with it. Log-softmax is computed in float64 from the logits of the
model.
"""

from typing import NamedTuple

import torch


class Scored(NamedTuple):
    """The tokens of a span: their texts, their log-probabilities in nats, and whether each is the most probable one.

    The log-probability of a first token is None if nothing stands before it.
    """

    tokens: list[str]
    logprobs: list[float | None]
    is_greedy: list[bool | None]

    @property
    def loglik(self) -> float:
        """The sum over the tokens that have a log-probability."""
        return sum(value for value in self.logprobs if value is not None)


@torch.inference_mode()
def causal(model, tokenizer, text: str, start: int = 0, end: int | None = None, *, bos: int | None = None) -> Scored:
    """Score characters `start` to `end` of a text; `bos`: ID of a token before it, in addition to the tokenizer's."""
    end = len(text) if end is None else end
    encoding = tokenizer(text, return_offsets_mapping=True, return_special_tokens_mask=True)
    ids, offsets, special = encoding["input_ids"], encoding["offset_mapping"], encoding["special_tokens_mask"]
    span = [i for i, (a, b) in enumerate(offsets) if not special[i] and a < end and b > start]
    if bos is not None:
        ids, span = [bos, *ids], [i + 1 for i in span]
    logits = model(input_ids=torch.tensor([ids])).logits[0].double().log_softmax(-1)
    logprobs = [logits[i - 1, ids[i]].item() if i else None for i in span]
    greedy = [bool(logits[i - 1, ids[i]] >= logits[i - 1].max() - 1e-6) if i else None for i in span]
    return Scored(tokenizer.convert_ids_to_tokens([ids[i] for i in span]), logprobs, greedy)


@torch.inference_mode()
def masked(model, tokenizer, text: str, start: int = 0, end: int | None = None, *, variant: str = "original") -> Scored:
    """Compute the pseudo-log-likelihood of characters `start` to `end`, with one masked copy of the text per token.

    "original" (Salazar et al. 2020) masks the token alone, "within_word_l2r" (Kauf and Ivanova 2023) also the later
    tokens of its word.
    """
    end = len(text) if end is None else end
    encoding = tokenizer(text, return_offsets_mapping=True, return_special_tokens_mask=True)
    ids, words, special = encoding["input_ids"], encoding.word_ids(), encoding["special_tokens_mask"]
    tokens, logprobs, greedy = [], [], []
    for i, (a, b) in enumerate(encoding["offset_mapping"]):
        if special[i] or a >= end or b <= start:
            continue
        copy = list(ids)
        copy[i] = tokenizer.mask_token_id
        for j in range(i + 1, len(ids)):
            if variant == "within_word_l2r" and words[j] == words[i]:
                copy[j] = tokenizer.mask_token_id
        logits = model(input_ids=torch.tensor([copy])).logits[0, i].double().log_softmax(-1)
        tokens += tokenizer.convert_ids_to_tokens([ids[i]])
        logprobs.append(logits[ids[i]].item())
        greedy.append(bool(logits[ids[i]] >= logits.max() - 1e-6))
    return Scored(tokens, logprobs, greedy)


@torch.inference_mode()
def corrected_word(model, tokenizer, context: str, word: str) -> float:
    """Return ln p(word | context, a word begins), which ends with the start of another word or of nothing, in nats.

    Pimentel and Meister (2024): the log-likelihood of the word's tokens, plus the log-probability that a word begins
    after it, minus that before it. Tokens that begin with whitespace begin a word; EOS ends the text.
    """
    begins = [token.startswith(tuple("ĠĊĉč▁")) for token in tokenizer.convert_ids_to_tokens(range(len(tokenizer)))]
    begins = torch.tensor([i for i, begin in enumerate(begins) if begin or i == tokenizer.eos_token_id])
    ids, n_context = tokenizer(context + word)["input_ids"], len(tokenizer(context)["input_ids"])
    logprobs = model(input_ids=torch.tensor([ids])).logits[0].double().log_softmax(-1)
    loglik = sum(logprobs[i - 1, ids[i]].item() for i in range(n_context, len(ids)))
    before, after = logprobs[n_context - 1, begins].logsumexp(-1), logprobs[-1, begins].logsumexp(-1)
    return loglik + after.item() - before.item()
