"""Outputs from hidden states: log-probability, greedy mark, rank, entropies, and the probability that a word ends.

Only the rows that predict a target go through the output head, in chunks of about 50 MB of logits, which are reduced in
float32. The logits are computed by the model's own `forward`, with the body's output substituted: final soft-capping,
logit scaling, biases and tied heads are those of the model's implementation.
"""

import contextlib
import copy
from dataclasses import dataclass

import torch

from vernacular.inference.model.loaded import LoadedModel
from vernacular.inference.scoring.forward import Body
from vernacular.inference.scoring.plan import Batch

TOP_K = 100  # number of most probable tokens in topk_entropy
_CHUNK_BYTES = 50 * 2**20  # of float32 logits at a time: 256 rows of a 50k vocabulary, the fastest on a CPU

EXTRAS = ("entropy", "rank", "word_end_logprobs")


@dataclass
class Answers:
    """The outputs of some token queries, as parallel lists; None if not requested."""

    logprobs: list[float | None]  # nats; None where only the distribution was requested
    is_greedy: list[bool | None]  # no token is more probable (true for each of several equally probable ones)
    rank: list[int | None] | None = None  # 1 + number of more probable tokens
    entropy: list[float] | None = None  # nats
    topk_entropy: list[float] | None = None  # nats, of the TOP_K most probable tokens, renormalized
    word_end_logprobs: list[float] | None = None  # ln P(next token begins a word or ends the text)


class Head:
    """The model's output head, applied to selected rows."""

    def __init__(self, loaded: LoadedModel, *, extras: frozenset[str] = frozenset(), whole: bool = False):
        self.model, self.body = loaded.model, loaded.body
        self.extras = extras
        self.whole = whole  # the "hidden states" are logits: the model's body and head cannot be separated
        self.beginnings = word_beginnings(loaded) if "word_end_logprobs" in extras else None

    @torch.inference_mode()
    def ask(self, hidden: torch.Tensor, output, rows: list[int], targets: list[int]) -> Answers:
        """Compute the outputs for `targets[i]` (-1: none) predicted by hidden[rows[i]].

        `hidden` is [n, size], `rows` ascending; `output` is what the body returned, whose type is reused.
        """
        found: list[Answers] = []
        distinct = sorted(set(rows))
        step = None
        low = 0
        while low < len(distinct):
            step = step or self._rows_at_once()
            chosen = distinct[low : low + step]
            logits = self._logits(hidden[torch.tensor(chosen, device=hidden.device)], output)
            place = {row: index for index, row in enumerate(chosen)}
            asked = [(place[row], target) for row, target in zip(rows, targets, strict=True) if row in place]
            found.append(self._reduce(logits, [p for p, _ in asked], [t for _, t in asked]))
            low += step
        return _joined(found)

    def _rows_at_once(self) -> int:
        return max(1, _CHUNK_BYTES // (4 * self.model.get_output_embeddings().weight.shape[0]))

    def _logits(self, rows: torch.Tensor, output) -> torch.Tensor:
        """Return float32 logits [n, vocabulary] of hidden rows [n, size], through the model's own forward."""
        if self.whole:
            return rows.float()
        shaped = copy.copy(output)
        shaped[0 if isinstance(shaped, tuple) else "last_hidden_state"] = rows[None]
        with _replaced(self.body, shaped):
            return self.model(input_ids=torch.zeros(1, 1, dtype=torch.long, device=rows.device)).logits[0].float()

    def _reduce(self, logits: torch.Tensor, places: list[int], targets: list[int]) -> Answers:
        """Compute outputs from float32 logits [n, vocabulary], which are overwritten."""
        at = torch.tensor(places, device=logits.device)
        target = torch.tensor([max(t, 0) for t in targets], device=logits.device)
        chosen = logits[at, target]
        highest = logits.amax(-1)
        answers = Answers([], _only(chosen >= highest[at], targets))
        if "rank" in self.extras:
            answers.rank = _only(1 + (logits[at] > chosen[:, None]).sum(-1), targets)
        if self.beginnings is not None:
            beginnings = self.beginnings[: logits.shape[-1]].to(logits.device)  # the tokenizer may have more tokens
            mass = logits[:, : len(beginnings)].masked_fill(~beginnings, -torch.inf).logsumexp(-1)
        if "entropy" in self.extras:
            top = logits.topk(min(TOP_K, logits.shape[-1]), -1).values
            answers.topk_entropy = _entropy(top)[at].tolist()
            full = _entropy(logits)
            answers.entropy = full[at].tolist()
        total = logits.sub_(highest[:, None]).exp_().sum(-1).log_().add_(highest)  # log-sum-exp in place
        answers.logprobs = _only(chosen - total[at], targets)
        if self.beginnings is not None:
            answers.word_end_logprobs = (mass - total)[at].tolist()
        return answers


def answer(body: Body, head: Head, batch: Batch) -> Answers:
    """Run one forward pass; return the outputs of the batch's token queries, in their order."""
    hidden = body.hidden(batch)
    asked = batch.questions()
    if not asked:
        return Answers([], [])
    rows = [row * hidden.shape[1] + column for row, column, _, _ in asked]
    return head.ask(hidden.flatten(0, 1), body.output, rows, [target for _, _, target, _ in asked])


def word_beginnings(loaded: LoadedModel) -> torch.Tensor:
    """Return booleans [vocabulary]: whether a word begins with the token, or the text ends with it.

    If the tokenizer marks word beginnings (tokens that begin with whitespace, as Ġ, ▁ or itself), these and EOS: the
    set of Pimentel & Meister (2024), "How to Compute the Probability of a Word", EMNLP. If it marks continuations
    instead (##), all unmarked tokens and EOS.
    """
    tokenizer = loaded.tokenizer
    names = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    names = ["" if name is None else name for name in names]
    blanks = ("Ġ", "▁", "Ċ", "ĉ", "č", "<0x20>", "<0x0A>", "<0x0D>", "<0x09>")
    begins = [name.startswith(blanks) or name[:1].isspace() for name in names]
    if not any(begins):
        begins = [not name.startswith("##") for name in names]
    if loaded.eos_id is not None:
        begins[loaded.eos_id] = True
    return torch.tensor(begins)


@contextlib.contextmanager
def _replaced(body: torch.nn.Module, output):
    """Make `body` return `output` for any input inside this context."""
    before = body.__dict__.get("forward")  # set by accelerate
    body.forward = lambda *args, **kwargs: output
    try:
        yield
    finally:
        if before is None:
            del body.forward
        else:
            body.forward = before


def _only(values: torch.Tensor, targets: list[int]) -> list:
    """Return the values as a list, with None where there is no target."""
    return [value if target >= 0 else None for value, target in zip(values.tolist(), targets, strict=True)]


def _entropy(logits: torch.Tensor) -> torch.Tensor:
    """Return the entropy of each row in nats, [n]; NaN where a logit is NaN."""
    return torch.distributions.Categorical(logits=logits, validate_args=False).entropy()


def _joined(parts: list[Answers]) -> Answers:
    """Concatenate the outputs of consecutive chunks."""
    whole = parts[0]
    for part in parts[1:]:
        for name, values in vars(part).items():
            if values is not None:
                getattr(whole, name).extend(values)
    return whole
