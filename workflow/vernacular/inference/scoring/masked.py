"""Pseudo-log-likelihood of masked models: one masked copy of the text per token of the span.

"original" masks the token alone (Salazar et al. 2020, "Masked Language Model Scoring", ACL); "within_word_l2r" also
masks the later tokens of its word, which would reveal it (Kauf & Ivanova 2023, "A Better Way to Do Masked Language
Model Scoring", ACL). Special tokens are not masked. Requests that mask the same position of the same text (the
candidates of a cloze item) share the copy.

Texts of a batch are padded to one length if a self-check finds that this changes nothing; otherwise (ConvBERT's
convolutions, FNet's Fourier transforms) only texts of equal length share a batch, or each is computed alone.
"""

import inspect
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from math import isfinite

import numpy as np
import torch

from vernacular.core.errors import ModelError, named
from vernacular.core.fingerprint import fingerprint
from vernacular.core.library_errors import is_out_of_memory
from vernacular.inference.model.loaded import MODEL_ERRORS, LoadedModel, agreement
from vernacular.inference.model.tokenization import SPECIAL
from vernacular.inference.schema import Journal
from vernacular.inference.scoring.execute import Counters, Outputs, Plan, execute
from vernacular.inference.scoring.head import DeviceScores, Head
from vernacular.inference.scoring.plan import Queries
from vernacular.inference.scoring.prepare import PreparedRequest
from vernacular.inference.scoring.strategy import ALL_NAN, BATCHINGS, NAN_ADVICE

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
        queries = []
        for row, copy in enumerate(self.copies):
            queries += [(number, row, copy.position, target) for target, number in sorted(copy.queries.items())]
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
    """Score every span into `outputs`; return (counters, metadata).

    Raises ModelError without a mask token that the model knows, or if two computations of one text differ.
    """
    if loaded.tokenizer.mask_token_id is None:
        raise ModelError(f"model {loaded.record.name}: its tokenizer has no mask token.")
    if loaded.tokenizer.mask_token_id >= loaded.n_embeddings:
        raise ModelError(f"model {loaded.record.name}: its tokenizer's mask token is outside the model's vocabulary.")
    copies = [masked_copies(loaded, request) for request in requests]
    unique_copies, _ = merge_copies(copies)
    counters = Counters(budget=budget, tokens_trie=sum(len(copy.ids) for copy in unique_copies))
    way, checks, fallback = _select_way(loaded, unique_copies)
    head = Head(loaded, extras=extras, full_model=way.full_model)

    def make_plan(pending: np.ndarray, budget: int) -> Plan:
        unique_copies, queries = merge_copies([copies[number] for number in pending])
        return Plan(make_batches(loaded, unique_copies, budget, way.batching), outputs.slots(pending), queries)

    def score_batch(batch: MaskedBatch) -> DeviceScores:
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
    if any("logprob_moments" in request.extras for request in requests):
        fallback = [*fallback, "min_k_plus_plus: not defined for masked models"]
    return counters, {
        "strategy_requested": None,
        "strategy": "plain",
        "head": "full" if way.full_model else "rows",
        "batching": way.batching,
        "fallback": fallback,
        "self_check": checks,
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
    """Return the distinct masked copies, longest first, and the number of the query of each copy of each request."""
    merged: dict[tuple, MaskedCopy] = {}
    queries, n_queries = [], 0
    for ids, position, target in (copy for request_copies in copies for copy in request_copies):
        copy = merged.setdefault((ids, position), MaskedCopy(ids, position, {}))
        number = copy.queries.setdefault(target, n_queries)
        n_queries += number == n_queries
        queries.append(number)
    ordered = sorted(merged.values(), key=lambda copy: (-len(copy.ids), copy.ids, copy.position))
    return ordered, np.array(queries, np.int64)


def make_batches(loaded: LoadedModel, copies: list[MaskedCopy], budget: int, batching: str) -> list[MaskedBatch]:
    """Split copies, longest first, into batches of at most `budget` tokens with the same positions."""

    def shared(copy: MaskedCopy) -> int:
        length = len(copy.ids)
        return length if batching == "equal" else loaded.lengths.first(length)

    batches = []
    while copies:
        count = max(1, budget // len(copies[0].ids)) if batching != "single" else 1
        batch = list(next(groupby(copies[:count], shared))[1])
        batches.append(MaskedBatch(batch))
        copies = copies[len(batch) :]
    return batches


@torch.inference_mode()
def score_masked_batch(loaded: LoadedModel, head: Head, batch: MaskedBatch) -> DeviceScores:
    """Start one forward pass; return the outputs of the batch's token queries, in their order."""
    loaded.forget_lengths()
    longest = max(len(copy.ids) for copy in batch.copies)
    ids = torch.full((len(batch.copies), longest), loaded.tokenizer.pad_token_id or 0)
    mask = torch.zeros(len(batch.copies), longest, dtype=torch.long)
    for row, copy in enumerate(batch.copies):
        ids[row, : len(copy.ids)] = torch.tensor(copy.ids)
        mask[row, : len(copy.ids)] = 1
    model = loaded.model if head.full_model else loaded.body
    output = model(**_inputs(loaded, model, ids, mask))
    rows = batch.queries.rows * longest + batch.queries.columns
    hidden = output.logits if head.full_model else output[0]
    return head.score(hidden.flatten(0, 1), output, rows, batch.queries.targets)


def _inputs(loaded: LoadedModel, model, ids: torch.Tensor, mask: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the arguments of a forward pass; some architectures (FNet) know no attention mask."""
    inputs = {"input_ids": ids.to(loaded.device)}
    if "attention_mask" in inspect.signature(type(model).forward).parameters:
        inputs["attention_mask"] = mask.to(loaded.device)
    return inputs


@dataclass(frozen=True)
class _Way:
    """A way to compute masked texts."""

    batching: str  # key of BATCHINGS
    full_model: bool  # the output head is not separable from the model

    @property
    def name(self) -> str:
        """Return the name for metadata and notes."""
        label = "plain, full head" if self.full_model else "plain"
        return label if self.batching == "padded" else f"{label}, {BATCHINGS[self.batching]}"


_WAYS = [_Way(batching, full_model) for full_model in (False, True) for batching in BATCHINGS]


def _select_way(loaded: LoadedModel, copies: list[MaskedCopy]) -> tuple[_Way, dict, list[str]]:
    """Return (the fastest way that reproduces single texts, its checks, reasons of fallbacks); raise ModelError."""
    sample = list({id(copy): copy for copy in (*copies[:1], *copies[len(copies) // 2 :][:1], *copies[-1:])}.values())
    if not sample:
        return _WAYS[0], {}, []
    checks, fallback = {}, []
    try:
        references = [_reference_logprobs(loaded, copy) for copy in sample]
    except MODEL_ERRORS as error:
        raise ModelError(f"{loaded.title} cannot be scored: {named(error)}") from error
    for way in _WAYS if not loaded.depends_on_batch else [way for way in _WAYS if way.batching == "single"]:
        difference, reason = _difference(loaded, way, sample, references)
        checks[way.name] = {"agrees": reason is None, "difference": difference}
        if reason is None:
            return way, checks, fallback
        if reason == ALL_NAN:
            raise ModelError(f"model {loaded.record.name}: {ALL_NAN}. {NAN_ADVICE}")
        fallback.append(f"{way.name}: {reason}")
    raise ModelError(f"{loaded.title} cannot be scored: two computations of one text differ ({reason}).")


def _difference(
    loaded: LoadedModel, way: _Way, sample: list[MaskedCopy], references: list[list[float]]
) -> tuple[float | None, str | None]:
    """Return (largest difference in nats from the log-probabilities of single texts, reason of a disagreement)."""
    head = Head(loaded, full_model=way.full_model)
    # with a twin, so that a batch of equal lengths has two rows
    twins = sample if way.batching != "equal" else [copy for copy in sample for _ in range(2)]
    expected = references if way.batching != "equal" else [values for values in references for _ in range(2)]
    pairs = []
    try:
        start = 0
        for batch in make_batches(loaded, twins, 10**9, way.batching):
            logprobs = iter(score_masked_batch(loaded, head, batch).result().logprobs.tolist())
            in_batch = expected[start : start + len(batch.copies)]
            pairs += [(next(logprobs), value) for values in in_batch for value in values]
            start += len(batch.copies)
    except MODEL_ERRORS as error:
        if is_out_of_memory(error):
            raise
        return None, named(error)
    # three tokens are too few for a mean
    values, reference = torch.tensor(pairs, dtype=torch.float64).unbind(1)
    result = agreement(values, reference, loaded.precision, few_values=True)
    if not result.compared:
        return None, ALL_NAN
    reason = None if result.agrees else f"differs from single texts by {result.largest:.2g} nats"
    return (result.largest if isfinite(result.largest) else None), reason


@torch.inference_mode()
def _reference_logprobs(loaded: LoadedModel, copy: MaskedCopy) -> list[float]:
    """Return the log-probabilities of a copy's targets, by target, from transformers' forward of the text alone."""
    loaded.forget_lengths()
    ids = torch.tensor([copy.ids])
    logits = loaded.model(**_inputs(loaded, loaded.model, ids, torch.ones_like(ids))).logits[0, copy.position].float()
    return [float(logits[target] - logits.logsumexp(-1)) for target in sorted(copy.queries)]
