"""Scoring with llama.cpp: the trie of an evaluation, one node after the other.

A prefix is read once, in a sequence of its own, which the texts after it share; each text is read after it in a pass of
its own, and removed before the next. So it has the same place in the cache, and every value is, bit by bit, that of the
text alone: in a pass with others, or elsewhere in the cache, sums have another order, and rounding to 8 bits makes
tenths of nats of it.
"""

from functools import cached_property, partial

import numpy as np

from vernacular.inference.llama.model import LARGEST, SMALLEST, LlamaModel
from vernacular.inference.schema import Journal
from vernacular.inference.scoring.execute import Counters, Plan, execute
from vernacular.inference.scoring.outputs import EXACT, TOP_K, PendingScores, TokenScores, starts_word
from vernacular.inference.scoring.plan import Batch, CachedPrefix, PlanLimits, plan
from vernacular.inference.scoring.score import Scoring
from vernacular.inference.scoring.trie import Trie

_FORWARD = 4  # tokens whose computation costs as much as a prefix does in addition to its own
_ALONE = "its kernels round by the number of tokens of a pass, so that each text is computed alone"


class LlamaScoring(Scoring):
    """The same as `Scoring`, of a GGUF file."""

    loaded: LlamaModel

    @cached_property
    def starts(self) -> np.ndarray:
        """Whether each token begins a word, booleans [vocabulary]."""
        return np.array(starts_word(self.loaded))

    def budget(self) -> int:
        """Return the number of tokens of a pass."""
        return self.loaded.largest

    def _plan_ahead(self, trie: Trie) -> Trie:
        return trie

    def _compute_group(self, chunk, numbers: np.ndarray, trie: Trie, journal: Journal) -> None:
        loaded, lengths = self.loaded, np.array([len(path.tokens) for path in chunk.paths])
        is_plain = loaded.depends_on_batch or self.strategy == "plain"
        engine = {"name": "llama.cpp", "strategy": "plain" if is_plain else "prefix", "batching": "single"}
        reason = [f"prefix: {_ALONE}"] if loaded.depends_on_batch and self.strategy != "plain" else []
        self.engines.append(engine | {"fallback": reason, "head": "rows", "self_check": {}, "noise": EXACT})
        body = Body(loaded, chunk.extras, self.starts if "word_end_logprobs" in chunk.extras else None)
        counters = Counters(budget=self.budget(), tokens_trie=trie.size)
        limits = PlanLimits(LARGEST, LARGEST, _FORWARD, slack=-1, min_prefix=SMALLEST, depth=loaded.prefixes)
        if len(numbers):
            loaded.open_context(int(lengths[numbers].max()))
        execute(
            loaded,
            chunk.outputs,
            numbers,
            make_plan=lambda pending, _: Plan(
                plan(trie, engine["strategy"], limits), chunk.outputs.slots(pending), trie.queries
            ),
            score_batch=body.score,
            clear_cache=body.clear,
            lengths=lengths,
            journal=journal,
            counters=counters,
        )
        counters.forwards, counters.tokens_computed = body.passes, body.tokens
        self.counters.add(counters)


class Body:
    """What is in the cache: prefixes, each of which continues the one before, in a sequence each."""

    def __init__(self, loaded: LlamaModel, extras: frozenset[str], starts: np.ndarray | None):
        self.loaded = loaded
        self.reduce = partial(reduce, extras=extras, starts=starts)
        self.held: list[CachedPrefix] = []
        self.passes = self.tokens = 0

    def clear(self) -> None:
        """Empty the cache."""
        self._keep(0)

    def score(self, batch: Batch) -> PendingScores:
        """Return the outputs of a batch of one row."""
        queries, prefix = batch.queries, batch.prefix
        rows, indices = np.unique(queries.columns, return_inverse=True)
        self._hold(prefix)
        if batch.computed_prefix is not None:
            return PendingScores(self.reduce(self._read(batch.computed_prefix, rows), indices, queries.targets))
        logits = self._next(batch.rows[0].tokens(), prefix.length, rows, fills=True)
        scores = self.reduce(logits, indices, queries.targets)
        self.loaded.drop(len(self.held))
        return PendingScores(scores)

    def _keep(self, n: int) -> None:
        while len(self.held) > n:
            self.held.pop()
            self.loaded.drop(len(self.held))

    def _hold(self, prefix: CachedPrefix) -> None:
        """Read a prefix and those before it if they are not in the cache, and remove all others."""
        chain = []
        while prefix.parent is not None:
            chain.append(prefix)
            prefix = prefix.parent
        chain.reverse()
        self._keep(next((n for n, (a, b) in enumerate(zip(self.held, chain, strict=False)) if a is not b), len(chain)))
        for missing in chain[len(self.held) :]:
            self._read(missing, np.zeros(0, np.int64))

    def _read(self, prefix: CachedPrefix, rows: np.ndarray) -> np.ndarray:
        logits = self._next(prefix.row.tokens(), prefix.parent.length, rows)
        self.held.append(prefix)
        return logits

    def _next(self, ids: np.ndarray, start: int, rows: np.ndarray, *, fills: bool = False) -> np.ndarray:
        sequence = len(self.held)
        if sequence:
            self.loaded.share(sequence - 1, sequence)
        self.passes += -(-len(ids) // self.loaded.largest)
        self.tokens += len(ids)
        return self.loaded.read(ids, start, sequence, rows, fills=fills)


_ROWS = 16  # of logits at a time, so that they stay in the cache of a core


def reduce(
    logits: np.ndarray, indices: np.ndarray, targets: np.ndarray, *, extras: frozenset[str], starts: np.ndarray | None
) -> TokenScores:
    """Return the outputs of targets [n] (-1: none), predicted by logits[index] of float32 [rows, vocabulary].

    Sums are in float64. `starts`: whether each token begins a word, for their probability.
    """
    parts = [_statistics(logits[low : low + _ROWS], extras, starts) for low in range(0, len(logits), _ROWS)]
    rows = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]} if parts else {}
    wanted = np.maximum(targets, 0)
    chosen = logits[indices, wanted] if len(logits) else np.zeros(0, np.float32)
    maxima = rows.pop("maximum", chosen)[indices]
    log_normalizer = rows.pop("log_normalizer", chosen)[indices]
    scores = {name: values[indices] for name, values in rows.items()}
    if "rank" in extras:
        pairs = zip(indices.tolist(), chosen, strict=True)
        scores["rank"] = np.array([1 + np.count_nonzero(logits[i] > value) for i, value in pairs], np.int32)
    return TokenScores((chosen - log_normalizer).astype(np.float32), chosen >= maxima, **scores)


def _statistics(logits: np.ndarray, extras: frozenset[str], starts: np.ndarray | None) -> dict[str, np.ndarray]:
    """Return what is known of each row of logits, whatever the target: float32, top_id int32, the first two float64."""
    maximum = logits.max(-1)
    x = logits - maximum[:, None]
    weights = np.exp(x)
    total = weights.sum(-1, dtype=np.float64)
    found = {"maximum": maximum, "log_normalizer": np.log(total) + maximum}
    if "top_token" in extras:
        found["top_id"] = logits.argmax(-1).astype(np.int32)
    if extras & {"entropy", "logprob_moments"}:
        x = np.maximum(x, -150)  # -inf times 0 would be NaN
        first = (weights * x).sum(-1, dtype=np.float64) / total
    if "entropy" in extras:
        found["entropy"] = (np.log(total) - first).astype(np.float32)
        top = np.partition(x, -min(TOP_K, x.shape[1]), -1)[:, -TOP_K:].astype(np.float64)
        shares = np.exp(top) / np.exp(top).sum(-1, keepdims=True)
        found["topk_entropy"] = -(shares * np.log(np.maximum(shares, 1e-300))).sum(-1).astype(np.float32)
    if "logprob_moments" in extras:
        second = (weights * x * x).sum(-1, dtype=np.float64) / total
        found["logprob_mean"] = (first - np.log(total)).astype(np.float32)
        found["logprob_sd"] = np.sqrt(np.maximum(second - first**2, 0)).astype(np.float32)
    if starts is not None:
        share = weights[:, starts].sum(-1, dtype=np.float64) / total
        found["word_end_logprobs"] = np.log(np.maximum(share, 1e-300)).astype(np.float32)
    return found
