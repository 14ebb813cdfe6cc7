"""Choosing the next token: greedy, or sampled from a stream of random numbers that belongs to the request alone."""

import torch
from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from vernacular.core.fingerprint import fingerprint
from vernacular.inference.generate_prompts import Prompt


class Sampler:
    """Chooses next tokens for the rows of a batch; rows may differ in their decoding.

    Repetition penalty, temperature, top-k and top-p are transformers' own, in its order, with two differences that make
    a row independent of its neighbours: the penalty covers the row's own tokens (transformers would count the padding
    too), and each row draws from its own generator, seeded by the request's seed and id.
    """

    def __init__(self, prompts: list[Prompt], vocabulary: int, device):
        self.prompts = prompts
        self.penalties = torch.tensor(
            [p.decoding["repetition_penalty"] or 1.0 for p in prompts], device=device, dtype=torch.float32
        )
        self.penalised = bool((self.penalties != 1.0).any())
        self.seen = torch.zeros(len(prompts), vocabulary if self.penalised else 0, dtype=torch.bool, device=device)
        if self.penalised:
            for i, prompt in enumerate(prompts):
                self.seen[i, torch.tensor(prompt.ids, device=device)] = True
        self.generators = [_generator(p) if p.decoding["temperature"] else None for p in prompts]

    def choose(self, logits: torch.Tensor, rows: list[int]) -> list[int]:
        """The next token of each of `rows`, indices of prompts; logits: float32 [len(rows), vocabulary]."""
        if self.penalised:
            # HF's RepetitionPenaltyLogitsProcessor (Keskar et al. 2019): seen tokens, logit < 0 times, else divided by
            penalty = self.penalties[rows, None]
            changed = torch.where(logits < 0, logits * penalty, logits / penalty)
            logits = torch.where(self.seen[rows], changed, logits)
        chosen = logits.argmax(-1).tolist()
        for k, row in enumerate(rows):
            if self.generators[row] is not None:
                chosen[k] = self._draw(logits[k : k + 1], row)
        if self.penalised:
            self.seen[rows, chosen] = True
        return chosen

    def _draw(self, logits: torch.Tensor, row: int) -> int:
        decoding = self.prompts[row].decoding
        for warp in _warpers(decoding):
            logits = warp(None, logits)
        shares = logits[0].softmax(-1).double().cumsum(-1)
        at = torch.rand((), generator=self.generators[row], dtype=torch.float64).to(shares.device) * shares[-1]
        return min(int(torch.searchsorted(shares, at, right=True)), len(shares) - 1)


def _warpers(decoding: dict) -> list:
    warpers = [TemperatureLogitsWarper(float(decoding["temperature"]))]
    if decoding["top_k"]:
        warpers.append(TopKLogitsWarper(decoding["top_k"]))
    if decoding["top_p"] is not None and decoding["top_p"] < 1:
        warpers.append(TopPLogitsWarper(float(decoding["top_p"])))
    return warpers


def _generator(prompt: Prompt) -> torch.Generator:
    seed = int(fingerprint([prompt.decoding["seed"], prompt.request_id])[:15], 16)
    return torch.Generator().manual_seed(seed)
