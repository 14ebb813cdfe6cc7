"""PalmX 2025 (palmx.dlnlp.ai, run_evaluation.py): log-likelihood of the letters A to D after a question.

The prompt and the letter are tokenized together and apart: the first gives the logits, the second the number of tokens
before the letter and the token IDs to look up.
"""

import torch

LETTERS = "ABCD"


def prompt(row: dict) -> str:
    """Return the prompt of a row with the columns question, A, B, C and D."""
    options = "\n".join(f"{letter}. {row[letter]}" for letter in LETTERS)
    return f"{row['question']}\n\n{options}\nالجواب:"


@torch.inference_mode()
def letter_logliks(model, tokenizer, row: dict) -> list[float]:
    """Return the log-likelihood (nats) of " A", " B", " C" and " D"; minus infinity if no token is left to score."""
    text, values = prompt(row), []
    n_prompt = len(tokenizer(text, add_special_tokens=False)["input_ids"])
    for letter in LETTERS:
        ids = tokenizer(f"{text} {letter}")["input_ids"]
        wanted = tokenizer(f" {letter}", add_special_tokens=False)["input_ids"]
        start = n_prompt + (1 if ids[0] == tokenizer.bos_token_id else 0)
        logprobs = model(input_ids=torch.tensor([ids])).logits[0].log_softmax(-1)
        n_scored = min(len(wanted), len(ids) - start)
        scored = [logprobs[start + i - 1, wanted[i]].item() for i in range(n_scored)]
        values.append(sum(scored) if scored else float("-inf"))
    return values


def predict(logliks: list[float]) -> str:
    """Return the letter of the largest log-likelihood; of several, the first.

    >>> predict([-2.0, -1.0, -1.0, -3.0])
    'B'
    """
    return LETTERS[max(range(len(logliks)), key=lambda i: (logliks[i], -i))]
