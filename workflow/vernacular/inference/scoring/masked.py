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
from math import isfinite

import numpy as np
import torch

from vernacular.core.errors import ModelError, named
from vernacular.core.fingerprint import fingerprint
from vernacular.core.library_errors import is_out_of_memory
from vernacular.core.metadata import INFILLING
from vernacular.inference.model.encoder_decoder import padded
from vernacular.inference.model.loaded import MODEL_ERRORS, LoadedModel, agreement, check_is_causal
from vernacular.inference.model.memory import LOGIT_BYTES, within_memory
from vernacular.inference.model.tokenization import SPECIAL
from vernacular.inference.schema import Journal
from vernacular.inference.scoring.execute import Counters, Outputs, Plan, execute
from vernacular.inference.scoring.head import DeviceScores, Head
from vernacular.inference.scoring.outputs import EXACT
from vernacular.inference.scoring.plan import Queries
from vernacular.inference.scoring.prepare import PreparedRequest
from vernacular.inference.scoring.strategy import (
    ALL_NAN,
    BATCHINGS,
    NAN_ADVICE,
    noise_by_length,
    noise_sample,
)

VARIANTS = ("original", "within_word_l2r")


@dataclass
class Reading:
    """What a model reads at once, and the token queries whose targets it predicts there."""

    ids: tuple[int, ...]  # a masked text, or the prompt of an encoder
    decoder: tuple[int, ...]  # what a decoder reads; () without one
    queries: dict[tuple[int, int], int]  # (position, target) -> number of the distinct token query


Query = tuple[tuple[int, ...], tuple[int, ...], int, int]  # ids, what a decoder reads, position, target


@dataclass
class ReadingBatch:
    """Readings that go through the model together, the shortest decoders first."""

    readings: list[Reading]

    @cached_property
    def texts(self) -> list[tuple[int, ...]]:
        """The distinct texts; those of readings with the same prompt are one."""
        return list(dict.fromkeys(reading.ids for reading in self.readings))

    @property
    def tokens(self) -> int:
        """Tokens computed, padding included."""
        longest = max(len(reading.decoder) for reading in self.readings)
        return len(self.texts) * max(map(len, self.texts)) + len(self.readings) * longest

    @property
    def divisible(self) -> bool:
        """Whether a smaller budget can split this batch."""
        return len(self.readings) > 1

    @cached_property
    def queries(self) -> Queries:
        """The token queries of the batch, by reading, position and target."""
        queries = []
        for row, reading in enumerate(self.readings):
            queries += [(number, row, *query) for query, number in sorted(reading.queries.items())]
        return Queries(*np.array(queries, np.int64).reshape(-1, 4).T)

    def name(self) -> str:
        """Return a hash of the inputs and the token queries."""
        return fingerprint([[list(r.ids), list(r.decoder), sorted(r.queries)] for r in self.readings])[:32]


@dataclass(frozen=True)
class Way:
    """A way to compute readings."""

    batching: str  # key of BATCHINGS
    full_model: bool  # the output head is not separable from the model
    strategy: str = "plain"  # "prefix": a decoder continues the state of what it reads first, once per prompt

    @property
    def name(self) -> str:
        """Return the name for metadata and notes."""
        label = f"{self.strategy}, full head" if self.full_model else self.strategy
        return label if self.batching == "padded" else f"{label}, {BATCHINGS[self.batching]}"


class Masked:
    """How masked texts are computed. Raises ModelError without a mask token that the model knows."""

    ways = tuple(Way(batching, full_model) for full_model in (False, True) for batching in BATCHINGS)
    encoded: tuple | None = None  # of an encoder-decoder: the prompts of the last batch, and their encodings

    def __init__(self, loaded: LoadedModel):
        self.loaded = loaded
        if loaded.tokenizer.mask_token_id is None:
            raise ModelError(f"model {loaded.record.name}: its tokenizer has no mask token.")
        if loaded.tokenizer.mask_token_id >= loaded.n_embeddings:
            raise ModelError(f"model {loaded.record.name}: its tokenizer's mask token is outside the vocabulary.")

    def queries(self, request: PreparedRequest) -> list[Query]:
        """Return the query of each token of the span, in a copy of the text in which it is masked."""
        loaded, queries, ids = self.loaded, [], request.ids.tolist()
        for index in range(request.first, request.stop):
            masked = np.array(ids)
            masked[index] = loaded.tokenizer.mask_token_id
            if variant(request) == "within_word_l2r" and (word := request.words[index]) != SPECIAL:
                masked[index:][request.words[index:] == word] = loaded.tokenizer.mask_token_id
            queries.append((tuple(masked.tolist()), (), index, ids[index]))
        return queries

    def score(self, head: Head, batch: ReadingBatch, way: Way) -> DeviceScores:
        """Start one forward pass; return the outputs of the batch's token queries, in their order."""
        model = self.loaded.model if head.full_model else self.loaded.body
        ids, mask = padded(self.loaded, [reading.ids for reading in batch.readings])
        output = model(**_inputs(model, ids, mask))
        rows = batch.queries.rows * ids.shape[1] + batch.queries.columns
        hidden = output.logits if head.full_model else output[0]
        return head.score(hidden.flatten(0, 1), output, rows, batch.queries.targets)

    def logits(self, reading: Reading) -> torch.Tensor:
        """Return the logits of a reading, [positions, vocabulary], by transformers' forward of it alone."""
        ids, mask = padded(self.loaded, [reading.ids])
        return self.loaded.model(**_inputs(self.loaded.model, ids, mask)).logits[0]


def score_readings(
    kind: Masked,
    requests: list[PreparedRequest],
    outputs: Outputs,
    *,
    budget: int,
    extras: frozenset[str],
    journal: Journal,
    requested: str | None = None,
) -> tuple[Counters, dict]:
    """Score every span into `outputs`; return (counters, metadata).

    `kind`: how they are computed; `requested`: the first strategy to try. Raises ModelError if two computations of one
    text differ.
    """
    loaded = kind.loaded
    queries = [kind.queries(request) for request in requests]
    readings, _ = merge(queries)
    prompts = {reading.ids for reading in readings if reading.decoder}
    n_read = sum(len(reading.decoder or reading.ids) for reading in readings) + sum(map(len, prompts))
    counters = Counters(budget=budget, tokens_trie=n_read)
    way, checks, fallback, noise = _select_way(kind, readings, requested)
    head = Head(loaded, extras=extras, full_model=way.full_model or loaded.kind == "seq2seq")

    def make_plan(pending: np.ndarray, budget: int) -> Plan:
        readings, numbers = merge([queries[number] for number in pending])
        return Plan(make_batches(loaded, readings, budget, way.batching), outputs.slots(pending), numbers)

    @torch.inference_mode()
    def score_batch(batch: ReadingBatch) -> DeviceScores:
        loaded.forget_lengths()
        counters.forwards += 1
        counters.tokens_computed += batch.tokens
        return kind.score(head, batch, way)

    execute(
        loaded,
        outputs,
        np.arange(len(requests)),
        make_plan=make_plan,
        score_batch=score_batch,
        clear_cache=lambda: setattr(kind, "encoded", None),
        lengths=np.array([len(request.ids) for request in requests]),
        journal=journal,
        counters=counters,
    )
    variants = sorted({variant(request) for request in requests} - {None})
    if variants and any("logprob_moments" in request.extras for request in requests):
        fallback = [*fallback, "min_k_plus_plus: not defined by pseudo-log-likelihood"]
    return counters, {
        "strategy_requested": requested,
        "strategy": way.strategy,
        "head": "full" if way.full_model else "rows",
        "batching": way.batching,
        "fallback": fallback,
        "self_check": checks,
        "pll": variants,
        **({"noise": noise} if noise else {}),
    }


def variant(request: PreparedRequest) -> str | None:
    """Return the pseudo-log-likelihood variant of a request, "original" by default; None: it is a log-likelihood."""
    if request.start:
        return INFILLING if request.fills_in else None
    return next((name for name in VARIANTS if f"pll:{name}" in request.extras), "original")


def merge(queries: list[list[Query]]) -> tuple[list[Reading], np.ndarray]:
    """Return the distinct readings, longest first, and the number of each query of each request."""
    merged: dict[tuple, Reading] = {}
    numbers, n_queries = [], 0
    for ids, decoder, position, target in (query for request_queries in queries for query in request_queries):
        reading = merged.setdefault((ids, decoder), Reading(ids, decoder, {}))
        number = reading.queries.setdefault((position, target), n_queries)
        n_queries += number == n_queries
        numbers.append(number)
    ordered = sorted(merged.values(), key=lambda r: (-len(r.ids), r.ids, -len(r.decoder), r.decoder))
    return ordered, np.array(numbers, np.int64)


def make_batches(loaded: LoadedModel, readings: list[Reading], budget: int, batching: str) -> list[ReadingBatch]:
    """Split readings, longest first, into batches of at most `budget` tokens with the same positions.

    The limit is that of the texts, and also that of what decoders read; their logits are limited by memory.
    """

    def shared(reading: Reading) -> int:
        length = len(reading.ids)
        return length if batching == "equal" else loaded.lengths.first(length)

    n_logits = LOGIT_BYTES // (8 * loaded.n_outputs)
    batches: list[ReadingBatch] = []
    longest = n_texts = 0  # of the last batch: tokens that a decoder reads; texts
    for reading in readings:
        last = batches[-1].readings if batches else []
        is_new = not last or reading.ids != last[-1].ids
        width = max(longest, len(reading.decoder))
        if (
            not last
            or batching == "single"
            or shared(reading) != shared(last[0])
            or (is_new and (n_texts + 1) * len(last[0].ids) > budget)
            or (len(last) + 1) * width > budget
            or (width and sum(len(r.queries) for r in (*last, reading)) > n_logits)
        ):
            batches.append(ReadingBatch([]))
            n_texts, width, is_new = 0, len(reading.decoder), True
        batches[-1].readings.append(reading)
        longest, n_texts = width, n_texts + is_new
    for batch in batches:
        batch.readings.sort(key=lambda reading: len(reading.decoder))
    return batches


def _inputs(model, ids: torch.Tensor, mask: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the arguments of a forward pass; some architectures (FNet) know no attention mask."""
    takes_mask = "attention_mask" in inspect.signature(type(model).forward).parameters
    return {"input_ids": ids} | ({"attention_mask": mask} if takes_mask else {})


def _select_way(kind: Masked, readings: list[Reading], requested: str | None) -> tuple[Way, dict, list[str], dict]:
    """Return (fastest way that reproduces single texts, its checks, reasons of fallbacks, noise); raise ModelError."""
    loaded = kind.loaded
    sample = [*readings[:1], *readings[len(readings) // 2 :][:1], *readings[-1:]]
    if readings and readings[0].decoder:  # two continuations of the longest, and of the shortest prompt
        sample = [*readings[:2], *readings[-2:]]
    sample = list({id(reading): reading for reading in sample}.values())
    ways = [way for way in kind.ways if requested != "plain" or way.strategy == "plain"]
    if not sample:
        return ways[0], {}, [], {}
    lengths = {(len(reading.ids), len(reading.decoder)) for reading in sample}  # equal ones are not padded
    key = "readings", requested, *(len(set(each)) > 1 for each in zip(*lengths, strict=True))
    longest, (checked, *found) = len(sample[0].ids), loaded.checks.get(key, (0,))
    if longest <= 2 * checked and not loaded.has_threshold(checked, longest):
        return tuple(found)
    check_is_causal(loaded, max((reading.decoder for reading in sample), key=len))
    checks, fallback = {}, []
    try:
        references = [_reference_logprobs(kind, reading) for reading in sample]
    except MODEL_ERRORS as error:
        raise ModelError(f"{loaded.title} cannot be scored: {named(error)}") from error
    for way in ways if not loaded.depends_on_batch else [way for way in ways if way.batching == "single"]:
        difference, reason, noise = _difference(kind, way, sample, references)
        checks[way.name] = {"agrees": reason is None, "difference": difference}
        if reason is None:
            noise = EXACT if loaded.record.deterministic else _measured_noise(kind, way, readings) or noise
            loaded.checks[key] = longest, way, checks, fallback, noise
            return way, checks, fallback, noise
        if reason == ALL_NAN:
            raise ModelError(f"model {loaded.record.name}: {ALL_NAN}. {NAN_ADVICE}")
        fallback.append(f"{way.name}: {reason}")
    raise ModelError(f"{loaded.title} cannot be scored: two computations of one text differ ({reason}).")


def _measured_noise(kind: Masked, way: Way, readings: list[Reading]) -> dict[str, float] | None:
    """Return the noise of some readings in one batch against single ones; None in full precision."""
    if kind.loaded.dtype in (torch.float32, torch.float64):
        return None
    sample = noise_sample(readings)

    def measured() -> np.ndarray:
        return np.subtract(*_both_ways(kind, way, sample, [_reference_logprobs(kind, reading) for reading in sample]))

    with np.errstate(invalid="ignore"):  # -inf - -inf
        found = within_memory(kind.loaded, measured)
    return None if found is None else noise_by_length(found)


def _difference(
    kind: Masked, way: Way, sample: list[Reading], references: list[list[float]]
) -> tuple[float | None, str | None, dict]:
    """Return (largest difference in nats from single texts, reason of a disagreement, noise by length)."""
    try:
        values, reference = _both_ways(kind, way, sample, references)
    except MODEL_ERRORS as error:
        if is_out_of_memory(error):
            raise
        return None, named(error), {}
    # three tokens are too few for a mean
    tensors = torch.from_numpy(values), torch.from_numpy(reference)
    result = agreement(*tensors, kind.loaded.precision, few_values=True)
    if not result.compared:
        return None, ALL_NAN, {}
    reason = None if result.agrees else f"differs from single texts by {result.largest:.2g} nats"
    with np.errstate(invalid="ignore"):
        return (result.largest if isfinite(result.largest) else None), reason, noise_by_length(values - reference)


@torch.inference_mode()
def _both_ways(kind: Masked, way: Way, sample: list[Reading], references: list[list[float]]) -> np.ndarray:
    """Return the log-probabilities of all token queries in one batch, and those of single texts, [2, queries]."""
    loaded = kind.loaded
    head = Head(loaded, full_model=way.full_model or loaded.kind == "seq2seq")
    expected = dict(zip(map(id, sample), references, strict=True))
    # with a twin, so that a batch of equal lengths has two rows
    twins = sample if way.batching != "equal" else [reading for reading in sample for _ in range(2)]
    pairs = []
    for batch in make_batches(loaded, twins, 10**9, way.batching):
        loaded.forget_lengths()
        in_batch = [value for reading in batch.readings for value in expected[id(reading)]]
        pairs += zip(kind.score(head, batch, way).result().logprobs.tolist(), in_batch, strict=True)
    return np.array(pairs, float).T


@torch.inference_mode()
def _reference_logprobs(kind: Masked, reading: Reading) -> list[float]:
    """Return the log-probabilities of a reading's targets, by position and target, from it alone."""
    kind.loaded.forget_lengths()
    logits = kind.logits(reading).float()
    normalizers = logits.logsumexp(-1)
    queries = sorted(reading.queries)
    return [float(logits[position, max(target, 0)] - normalizers[position]) for position, target in queries]
