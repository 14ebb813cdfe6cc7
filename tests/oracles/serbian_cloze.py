"""Serbian cloze scripts (github.com/MilosKosRadGit/ClozeTaskEvaluation): the candidate directly after the whole prompt.

The gap stays in the prompt, and no space precedes the candidate. The number of prompt tokens is that of the prompt
alone, so that a candidate whose first token includes the prompt's full stop loses it, or has no token at all.
"""

import torch


@torch.inference_mode()
def loglik(model, tokenizer, prompt: str, candidate: str) -> float:
    """Return the log-likelihood (nats) of the tokens after those of the prompt; 0.0 if there are none."""
    start = len(tokenizer(prompt)["input_ids"])
    ids = tokenizer(prompt + candidate)["input_ids"]
    logprobs = model(input_ids=torch.tensor([ids])).logits[0].log_softmax(-1)
    return sum(logprobs[i - 1, ids[i]].item() for i in range(start, len(ids)))


def boundary_moves(tokenizer, prompt: str, candidate: str) -> bool:
    """Return whether a token crosses the end of the prompt, so that the scripts score a part of the candidate."""
    ids = tokenizer(prompt)["input_ids"]
    return tokenizer(prompt + candidate)["input_ids"][: len(ids)] != ids


def predict(candidates: list[str], logliks: list[float]) -> str:
    """Return the candidate with the largest log-likelihood; of several, the first.

    >>> predict(["a", "b", "c"], [-1.0, 0.0, 0.0])
    'b'
    """
    return candidates[max(range(len(candidates)), key=lambda i: (logliks[i], -i))]
