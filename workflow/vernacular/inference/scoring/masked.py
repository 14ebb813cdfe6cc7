"""Pseudo-log-likelihood of masked models: one masked copy of the text per token of the span.

"original" masks the token alone (Salazar et al. 2020, "Masked Language Model Scoring", ACL); "within_word_l2r" also
masks the later tokens of its word, which would reveal it (Kauf & Ivanova 2023, "A Better Way to Do Masked Language
Model Scoring", ACL). Special tokens are not masked. Requests that mask the same position of the same text (the
candidates of a cloze item) share the copy.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from vernacular.core.errors import ModelError
from vernacular.core.fingerprint import fingerprint
from vernacular.inference.journal import Journal
from vernacular.inference.model.loaded import LoadedModel, agreement
from vernacular.inference.model.tokenization import SPECIAL
from vernacular.inference.scoring.execute import Counters, Plan, execute
from vernacular.inference.scoring.head import Head
from vernacular.inference.scoring.outputs import Outputs
from vernacular.inference.scoring.plan import Queries
from vernacular.inference.scoring.prepare import PreparedRequest
from vernacular.inference.scoring.strategy import ALL_NAN, NAN_ADVICE
from vernacular.inference.scoring.token_scores import PendingScores

VARIANTS = ("original", "within_word_l2r")


@dataclass
class MaskedCopy:
    """A masked text, and the token queries at one of its masks."""

    ids: tuple[int, ...]
    position: int
    queries: dict[int, int]  # target -> number of the distinct token query


@dataclass
class MaskedBatch:
    """Masked copies that go through the model together."""

    copies: list[MaskedCopy]

    @property
    def tokens(self) -> int:
        """Tokens computed, padding included."""
        return len(self.copies) * max(len(copy.ids) for copy in self.copies)

    @property
    def divisible(self) -> bool:
        """Whether a smaller budget can split this batch."""
        return len(self.copies) > 1

    @cached_property
    def queries(self) -> Queries:
        """The token queries of the batch, by copy and target."""
        queries = [
            (number, row, copy.position, target)
            for row, copy in enumerate(self.copies)
            for target, number in sorted(copy.queries.items())
        ]
        return Queries(*np.array(queries, np.int64).reshape(-1, 4).T)

    def name(self) -> str:
        """Return a hash of the inputs and the token queries."""
        return fingerprint([[list(c.ids), c.position, sorted(c.queries)] for c in self.copies])[:32]


def score_masked(
    loaded: LoadedModel,
    requests: list[PreparedRequest],
    outputs: Outputs,
    *,
    budget: int,
    extras: frozenset[str],
    journal: Journal,
) -> tuple[Counters, dict]:
    """Score every span of `requests`, put the outputs in `outputs`, and return (counters, metadata).

    Raises ModelError if the tokenizer's mask token is missing or unknown to the model, or if a batch does not reproduce
    the scores of single texts.
    """
    if loaded.tokenizer.mask_token_id is None:
        raise ModelError(f"model {loaded.record['name']}: its tokenizer has no mask token.")
    if loaded.tokenizer.mask_token_id >= loaded.n_embeddings:
        raise ModelError(
            f"model {loaded.record['name']}: its tokenizer's mask token is outside the model's vocabulary."
        )
    copies = [masked_copies(loaded, request) for request in requests]
    unique_copies, _ = merge_copies(copies)
    counters = Counters(budget=budget, tokens_trie=sum(len(copy.ids) for copy in unique_copies))
    head = Head(loaded, extras=extras)
    difference = _self_check(loaded, head, unique_copies)

    def make_plan(pending: np.ndarray, budget: int) -> Plan:
        unique_copies, queries = merge_copies([copies[number] for number in pending])
        return Plan(make_batches(unique_copies, budget), outputs.slots(pending), queries)

    def score_batch(batch: MaskedBatch) -> PendingScores:
        counters.forwards += 1
        counters.tokens_computed += batch.tokens
        return score_masked_batch(loaded, head, batch)

    execute(
        loaded,
        outputs,
        np.arange(len(requests)),
        make_plan=make_plan,
        score_batch=score_batch,
        clear_cache=lambda: None,
        lengths=np.array([len(request.ids) for request in requests]),
        journal=journal,
        counters=counters,
    )
    variants = sorted({variant(request) for request in requests})
    check = {"plain": {"agrees": True, "difference": difference}}
    without_moments = any("logprob_moments" in request.extras for request in requests)
    return counters, {
        "strategy_requested": None,
        "strategy": "plain",
        "fallback": ["min_k_plus_plus: not defined for masked models"] if without_moments else [],
        "self_check": check,
        "pll": variants,
    }


def variant(request: PreparedRequest) -> str:
    """Return the pseudo-log-likelihood variant of a request; "original" is the default."""
    return next((name for name in VARIANTS if f"pll:{name}" in request.extras), "original")


def masked_copies(loaded: LoadedModel, request: PreparedRequest) -> list[tuple[tuple[int, ...], int, int]]:
    """Return (masked IDs, position, target) per token of the span."""
    copies, ids = [], request.ids.tolist()
    for index in range(request.first, request.stop):
        masked = np.array(ids)
        masked[index] = loaded.tokenizer.mask_token_id
        if variant(request) == "within_word_l2r" and (word := request.words[index]) != SPECIAL:
            masked[index:][request.words[index:] == word] = loaded.tokenizer.mask_token_id
        copies.append((tuple(masked.tolist()), index, ids[index]))
    return copies


def merge_copies(copies: list[list[tuple[tuple[int, ...], int, int]]]) -> tuple[list[MaskedCopy], np.ndarray]:
    """Return the distinct masked copies, sorted by length (longest first) and content, and their token queries.

    `copies`: of each request. The queries are the number of the distinct token query of each copy of each request.
    """
    merged: dict[tuple, MaskedCopy] = {}
    queries, n_queries = [], 0
    for ids, position, target in (copy for request_copies in copies for copy in request_copies):
        copy = merged.setdefault((ids, position), MaskedCopy(ids, position, {}))
        number = copy.queries.setdefault(target, n_queries)
        n_queries += number == n_queries
        queries.append(number)
    ordered = sorted(merged.values(), key=lambda copy: (-len(copy.ids), copy.ids, copy.position))
    return ordered, np.array(queries, np.int64)


def make_batches(copies: list[MaskedCopy], budget: int) -> list[MaskedBatch]:
    """Split copies, sorted longest first, into batches of similar length and at most `budget` tokens."""
    batches = []
    while copies:
        count = max(1, budget // len(copies[0].ids))
        batches.append(MaskedBatch(copies[:count]))
        copies = copies[count:]
    return batches


@torch.inference_mode()
def score_masked_batch(loaded: LoadedModel, head: Head, batch: MaskedBatch) -> PendingScores:
    """Start one forward pass; return the outputs of the batch's token queries, in their order."""
    longest = max(len(copy.ids) for copy in batch.copies)
    ids = torch.full((len(batch.copies), longest), loaded.tokenizer.pad_token_id or 0)
    mask = torch.zeros(len(batch.copies), longest, dtype=torch.long)
    for row, copy in enumerate(batch.copies):
        ids[row, : len(copy.ids)] = torch.tensor(copy.ids)
        mask[row, : len(copy.ids)] = 1
    output = loaded.body(input_ids=ids.to(loaded.device), attention_mask=mask.to(loaded.device))
    rows = batch.queries.rows * longest + batch.queries.columns
    return head.score(output[0].flatten(0, 1), output, rows, batch.queries.targets)


@torch.inference_mode()
def _self_check(loaded: LoadedModel, head: Head, copies: list[MaskedCopy]) -> float | None:
    """Return the largest difference in nats between a small padded batch and transformers' forward of each text.

    Returns None if there is no text. Raises ModelError if the two disagree.
    """
    sample = [*copies[:1], *copies[len(copies) // 2 :][:1], *copies[-1:]]
    if not sample:
        return None
    batch = MaskedBatch(sample)
    scores = score_masked_batch(loaded, head, batch).result()
    single_logprobs = []
    for row, position, target in zip(batch.queries.rows, batch.queries.columns, batch.queries.targets, strict=True):
        ids = torch.tensor([sample[row].ids], device=loaded.device)
        logits = loaded.model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[0, position].float()
        single_logprobs.append(float(logits[target] - logits.logsumexp(-1)))
    # three tokens are too few for a mean
    values, reference = (
        torch.tensor(logprobs, dtype=torch.float64) for logprobs in (scores.logprobs.tolist(), single_logprobs)
    )
    result = agreement(values, reference, loaded.dtype, few_values=True)
    if not result.compared:
        raise ModelError(f"model {loaded.record['name']}: {ALL_NAN}. {NAN_ADVICE}")
    if not result.agrees:
        raise ModelError(
            f"model {loaded.record['name']}: scores in a batch and of a single text differ by "
            f"{result.largest:.2g} nats. Try dtype: float32."
        )
    return result.largest
