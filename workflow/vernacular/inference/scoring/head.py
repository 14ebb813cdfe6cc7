"""From hidden states to answers: log-probability, greedy mark, rank, entropies, and the chance that a word ends.

Only the rows that predict something reach the output head, some megabytes of logits at a time, reduced in float32. The
logits come out of the model's own `forward`, with the body's output put in place of the body: so final soft-capping,
logit scaling, biases and tied heads are what the model's authors wrote.
"""

import contextlib
import copy
from dataclasses import dataclass

import torch

from vernacular.inference.model.loaded import LoadedModel
from vernacular.inference.scoring.forward import Body
from vernacular.inference.scoring.plan import Batch

TOP_K = 100  # of the entropy among the likeliest tokens
_CHUNK_BYTES = 50 * 2**20  # of float32 logits at once: 256 rows of a vocabulary of 50k, where a CPU is fastest

EXTRAS = ("entropy", "rank", "word_end")


@dataclass
class Answers:
    """What the model says at some questions; parallel lists, None where not asked."""

    logprobs: list[float | None]  # nats; None where only the distribution was asked about
    greedy: list[bool | None]  # no token was likelier (so that of several equal ones, each is)
    rank: list[int | None] | None = None  # 1 + tokens that are likelier
    entropy: list[float] | None = None  # nats
    topk_entropy: list[float] | None = None  # nats, of the TOP_K likeliest renormalised
    word_end: list[float] | None = None  # ln P(next token begins a word, or ends the text)


class Head:
    """The model's output head, fed with chosen rows."""

    def __init__(self, loaded: LoadedModel, *, extras: frozenset[str] = frozenset(), whole: bool = False):
        self.model, self.body = loaded.model, loaded.body
        self.extras = extras
        self.whole = whole  # the "hidden states" are logits already: a model whose body cannot be told from its head
        self.beginnings = word_beginnings(loaded) if "word_end" in extras else None

    @torch.inference_mode()
    def ask(self, hidden: torch.Tensor, output, rows: list[int], targets: list[int]) -> Answers:
        """Answers about `targets[i]` (-1: none) predicted by hidden[rows[i]]; hidden is [n, size], rows ascending.

        `output` is what the body returned, for its form.
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
        """Logits [n, vocabulary] of hidden rows [n, size], by way of the model's own forward."""
        if self.whole:
            return rows.float()
        shaped = copy.copy(output)
        shaped[0 if isinstance(shaped, tuple) else "last_hidden_state"] = rows[None]
        with _replaced(self.body, shaped):
            return self.model(input_ids=torch.zeros(1, 1, dtype=torch.long, device=rows.device)).logits[0].float()

    def _reduce(self, logits: torch.Tensor, places: list[int], targets: list[int]) -> Answers:
        """logits [n, vocabulary], float32, are used up."""
        at = torch.tensor(places, device=logits.device)
        target = torch.tensor([max(t, 0) for t in targets], device=logits.device)
        chosen = logits[at, target]
        highest = logits.amax(-1)
        answers = Answers([], _only(chosen >= highest[at], targets))
        if "rank" in self.extras:
            answers.rank = _only(1 + (logits[at] > chosen[:, None]).sum(-1), targets)
        if self.beginnings is not None:
            beginnings = self.beginnings[: logits.shape[-1]].to(logits.device)  # a tokenizer may know more tokens
            mass = logits[:, : len(beginnings)].masked_fill(~beginnings, -torch.inf).logsumexp(-1)
        if "entropy" in self.extras:
            top = logits.topk(min(TOP_K, logits.shape[-1]), -1).values
            answers.topk_entropy = _entropy(top)[at].tolist()
            full = _entropy(logits)
            answers.entropy = full[at].tolist()
        total = logits.sub_(highest[:, None]).exp_().sum(-1).log_().add_(highest)  # log-sum-exp in place
        answers.logprobs = _only(chosen - total[at], targets)
        if self.beginnings is not None:
            answers.word_end = (mass - total)[at].tolist()
        return answers


def answer(body: Body, head: Head, batch: Batch) -> Answers:
    """One forward pass and the answers to the batch's questions, in their order."""
    hidden = body.hidden(batch)
    asked = batch.questions()
    if not asked:
        return Answers([], [])
    rows = [row * hidden.shape[1] + column for row, column, _, _ in asked]
    return head.ask(hidden.flatten(0, 1), body.output, rows, [target for _, _, target, _ in asked])


def word_beginnings(loaded: LoadedModel) -> torch.Tensor:
    """[vocabulary] booleans: does a word begin with this token, or the text end with it?

    Of tokenizers that mark beginnings of words (a token that begins with a blank, as Ġ, ▁ or itself), these and the
    EOS: the set of Pimentel & Meister (2024), "How to Compute the Probability of a Word", EMNLP. Of those that mark
    continuations instead (##), all that are not marked.
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
    """While this lasts, `body` returns `output` whatever it is given."""
    before = body.__dict__.get("forward")  # accelerate puts one there
    body.forward = lambda *args, **kwargs: output
    try:
        yield
    finally:
        if before is None:
            del body.forward
        else:
            body.forward = before


def _only(values: torch.Tensor, targets: list[int]) -> list:
    """A list, with None where no target was named."""
    return [value if target >= 0 else None for value, target in zip(values.tolist(), targets, strict=True)]


def _entropy(logits: torch.Tensor) -> torch.Tensor:
    """Nats, [n]; NaN where a logit is."""
    return torch.distributions.Categorical(logits=logits, validate_args=False).entropy()


def _joined(parts: list[Answers]) -> Answers:
    """Parts laid end to end."""
    whole = parts[0]
    for part in parts[1:]:
        for name, values in vars(part).items():
            if values is not None:
                getattr(whole, name).extend(values)
    return whole
