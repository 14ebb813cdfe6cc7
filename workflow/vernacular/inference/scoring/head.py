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
class TokenScores:
    """The outputs of some token queries, as parallel lists; None if not requested."""

    logprobs: list[float | None]  # nats; None where only the distribution was requested
    is_greedy: list[bool | None]  # no token is more probable (true for each of several equally probable ones)
    rank: list[int | None] | None = None  # 1 + number of more probable tokens
    entropy: list[float] | None = None  # nats
    topk_entropy: list[float] | None = None  # nats, of the TOP_K most probable tokens, renormalized
    word_end_logprobs: list[float] | None = None  # ln P(next token begins a word or ends the text)


class Head:
    """The model's output head, applied to selected rows."""

    def __init__(self, loaded: LoadedModel, *, extras: frozenset[str] = frozenset(), full_model: bool = False):
        self.model, self.body = loaded.model, loaded.body
        self.extras = extras
        self.full_model = full_model  # the "hidden states" are logits: the model's body and head cannot be separated
        self.starts_word = word_start_mask(loaded) if "word_end_logprobs" in extras else None

    @torch.inference_mode()
    def score(self, hidden: torch.Tensor, output, rows: list[int], targets: list[int]) -> TokenScores:
        """Compute the outputs for `targets[i]` (-1: none) predicted by hidden[rows[i]].

        `hidden` is [n, size], `rows` ascending; `output` is what the body returned, whose type is reused.
        """
        chunks: list[TokenScores] = []
        unique_rows = sorted(set(rows))
        step = None
        start = 0
        while start < len(unique_rows):
            step = step or self._rows_at_once()
            chunk_rows = unique_rows[start : start + step]
            logits = self._logits(hidden[torch.tensor(chunk_rows, device=hidden.device)], output)
            indices = {row: index for index, row in enumerate(chunk_rows)}
            queries = [(indices[row], target) for row, target in zip(rows, targets, strict=True) if row in indices]
            chunks.append(self._reduce(logits, [index for index, _ in queries], [target for _, target in queries]))
            start += step
        return _concat(chunks)

    def _rows_at_once(self) -> int:
        return max(1, _CHUNK_BYTES // (4 * self.model.get_output_embeddings().weight.shape[0]))

    def _logits(self, rows: torch.Tensor, output) -> torch.Tensor:
        """Return float32 logits [n, vocabulary] of hidden rows [n, size], through the model's own forward."""
        if self.full_model:
            return rows.float()
        substitute = copy.copy(output)
        substitute[0 if isinstance(substitute, tuple) else "last_hidden_state"] = rows[None]
        with _replace_output(self.body, substitute):
            return self.model(input_ids=torch.zeros(1, 1, dtype=torch.long, device=rows.device)).logits[0].float()

    def _reduce(self, logits: torch.Tensor, row_indices: list[int], targets: list[int]) -> TokenScores:
        """Compute outputs from float32 logits [n, vocabulary], which are overwritten."""
        indices = torch.tensor(row_indices, device=logits.device)
        target_ids = torch.tensor([max(t, 0) for t in targets], device=logits.device)
        target_logits = logits[indices, target_ids]
        max_logits = logits.amax(-1)
        scores = TokenScores([], _mask_missing(target_logits >= max_logits[indices], targets))
        if "rank" in self.extras:
            scores.rank = _mask_missing(1 + (logits[indices] > target_logits[:, None]).sum(-1), targets)
        if self.starts_word is not None:
            starts_word = self.starts_word[: logits.shape[-1]].to(logits.device)  # the tokenizer may have more tokens
            start_logsumexp = logits[:, : len(starts_word)].masked_fill(~starts_word, -torch.inf).logsumexp(-1)
        if "entropy" in self.extras:
            top_logits = logits.topk(min(TOP_K, logits.shape[-1]), -1).values
            scores.topk_entropy = _entropy(top_logits)[indices].tolist()
            entropy = _entropy(logits)
            scores.entropy = entropy[indices].tolist()
        log_normalizer = logits.sub_(max_logits[:, None]).exp_().sum(-1).log_().add_(max_logits)  # log-sum-exp in place
        scores.logprobs = _mask_missing(target_logits - log_normalizer[indices], targets)
        if self.starts_word is not None:
            scores.word_end_logprobs = (start_logsumexp - log_normalizer)[indices].tolist()
        return scores


def score_batch(body: Body, head: Head, batch: Batch) -> TokenScores:
    """Run one forward pass; return the outputs of the batch's token queries, in their order."""
    hidden = body.hidden(batch)
    queries = batch.queries()
    if not queries:
        return TokenScores([], [])
    rows = [row * hidden.shape[1] + column for row, column, _, _ in queries]
    return head.score(hidden.flatten(0, 1), body.output, rows, [target for _, _, target, _ in queries])


def word_start_mask(loaded: LoadedModel) -> torch.Tensor:
    """Return booleans [vocabulary]: whether a word begins with the token, or the text ends with it.

    If the tokenizer marks word beginnings (tokens that begin with whitespace, as Ġ, ▁ or itself), these and EOS: the
    set of Pimentel & Meister (2024), "How to Compute the Probability of a Word", EMNLP. If it marks continuations
    instead (##), all unmarked tokens and EOS.
    """
    tokenizer = loaded.tokenizer
    names = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    names = ["" if name is None else name for name in names]
    whitespace_markers = ("Ġ", "▁", "Ċ", "ĉ", "č", "<0x20>", "<0x0A>", "<0x0D>", "<0x09>")
    starts_word = [name.startswith(whitespace_markers) or name[:1].isspace() for name in names]
    if not any(starts_word):
        starts_word = [not name.startswith("##") for name in names]
    if loaded.eos_id is not None:
        starts_word[loaded.eos_id] = True
    return torch.tensor(starts_word)


@contextlib.contextmanager
def _replace_output(body: torch.nn.Module, output):
    """Make `body` return `output` for any input inside this context."""
    previous_forward = body.__dict__.get("forward")  # set by accelerate
    body.forward = lambda *args, **kwargs: output
    try:
        yield
    finally:
        if previous_forward is None:
            del body.forward
        else:
            body.forward = previous_forward


def _mask_missing(values: torch.Tensor, targets: list[int]) -> list:
    """Return the values as a list, with None where there is no target."""
    return [value if target >= 0 else None for value, target in zip(values.tolist(), targets, strict=True)]


def _entropy(logits: torch.Tensor) -> torch.Tensor:
    """Return the entropy of each row in nats, [n]; NaN where a logit is NaN."""
    return torch.distributions.Categorical(logits=logits, validate_args=False).entropy()


def _concat(chunks: list[TokenScores]) -> TokenScores:
    """Concatenate the outputs of consecutive chunks."""
    merged = chunks[0]
    for chunk in chunks[1:]:
        for name, values in vars(chunk).items():
            if values is not None:
                getattr(merged, name).extend(values)
    return merged
