"""Execution of a plan, batch by batch, with a journal; the token budget is halved when memory runs out."""

import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

from vernacular.core.progress import Progress
from vernacular.inference.journal import Journal
from vernacular.inference.model.loaded import SMALLEST_BUDGET, LoadedModel, halve, release_memory, within_memory
from vernacular.inference.scoring.forward import Body
from vernacular.inference.scoring.head import Head, TokenScores, score_batch
from vernacular.inference.scoring.plan import Batch, PlanLimits, plan
from vernacular.inference.scoring.prepare import PreparedRequest
from vernacular.inference.scoring.trie import Path, build_trie

log = logging.getLogger("vernacular")


@dataclass
class Counters:
    """Counters of the computation, for the artifact's metadata."""

    budget: int = 0  # tokens per batch, after the last reduction
    forwards: int = 0
    tokens_computed: int = 0  # through the model, padding included
    tokens_trie: int = 0  # minimum that must go through the model
    batches_resumed: int = 0  # read from the journal
    oom_retries: int = 0
    out_of_memory: list[str] = field(default_factory=list)  # requests that do not fit in memory

    def add(self, other: "Counters") -> None:
        """Add the counters of a later computation, and take over its budget."""
        self.budget = other.budget
        for name in ("forwards", "tokens_computed", "tokens_trie", "batches_resumed", "oom_retries", "out_of_memory"):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def metadata(self) -> dict:
        """Return the counters for the metadata, with the number of requests that do not fit in memory."""
        return {**asdict(self), "out_of_memory": len(self.out_of_memory)}


def execute(
    loaded: LoadedModel,
    pending: set[str],
    *,
    make_batches: Callable[[set[str], int], list],
    score_batch: Callable[[object], TokenScores],
    on_scores: Callable[[list, TokenScores], None],
    clear_cache: Callable[[], None],
    request_length: Callable[[str], int],
    journal: Journal,
    counters: Counters,
) -> None:
    """Compute every token query of the requests `pending`.

    The plan depends only on the pending requests and the budget, so that a resumed run finds the batches that an
    earlier one stored.

    Args:
        make_batches: Plans requests under a token budget; a batch has `queries()`, `name()`, `tokens` and `divisible`.
        score_batch: Runs the model on a batch.
        on_scores: Receives the token queries of a batch and their outputs.
        clear_cache: Frees memory after an out-of-memory error.
        request_length: Returns the number of tokens that a request must read.

    Raises:
        Stopped: A stop signal was received.
        Exception: Whatever the model raises, except for out-of-memory errors.
    """
    open_queries = dict.fromkeys(pending, 0)
    try:
        while pending:
            batches = make_batches(pending, counters.budget)
            planned = [(batch, queries) for batch in batches if (queries := batch.queries())]
            open_queries = _queries_per_request(planned)
            with Progress("score", sum(batch.tokens for batch, _ in planned), "token") as progress:
                for batch, queries in planned:
                    name = batch.name()
                    with journal.defer_signals():
                        if cached := journal.get(name):
                            scores = TokenScores(**cached[0])
                            counters.batches_resumed += 1
                        else:
                            scores = within_memory(loaded, score_batch, batch)
                            if scores is None:
                                break
                            journal.add(name, [asdict(scores)])
                    on_scores(queries, scores)
                    for request_id in _request_ids(queries):
                        open_queries[request_id] -= 1
                    progress.advance(batch.tokens)
                else:
                    return
            pending = {request_id for request_id in pending if open_queries.get(request_id)}
            clear_cache()
            release_memory(loaded)
            pending -= _shrink(counters, batch, queries, request_length)
    finally:
        journal.flush()


def _shrink(counters: Counters, batch, queries, request_length) -> set[str]:
    """Halve the budget, or return the requests to give up if the batch cannot be split further."""
    counters.oom_retries += 1
    if batch.divisible and (budget := halve(counters.budget, SMALLEST_BUDGET, used=batch.tokens)):
        counters.budget = budget
        log.warning(
            "out of memory at %d tokens; continuing with at most %d tokens per batch", batch.tokens, counters.budget
        )
        return set()
    longest = max(map(request_length, _request_ids(queries)))  # the others can be computed without these
    too_long = {request_id for request_id in _request_ids(queries) if request_length(request_id) == longest}
    counters.out_of_memory += sorted(too_long)
    log.warning("out of memory at %d tokens; number of requests skipped: %d", batch.tokens, len(too_long))
    return too_long


def _request_ids(queries) -> list[str]:
    """Return the request IDs of these token queries, once per query."""
    return [request_id for _, _, _, requesters in queries for request_id, _ in requesters]


def _queries_per_request(planned) -> dict[str, int]:
    counts: dict[str, int] = {}
    for _, queries in planned:
        for request_id in _request_ids(queries):
            counts[request_id] = counts.get(request_id, 0) + 1
    return counts


def build_path(request: PreparedRequest, interned: dict[int, int]) -> Path:
    """Return the tokens that a request reads and its token queries.

    The last token is read only if the distribution after it is requested. `interned`: one int object per token of all
    paths, updated in place; separate objects take four times the memory.
    """
    ids = request.ids
    indices = range(max(request.first, 1), request.stop)  # no token precedes index 0
    queries = [(i, ids[i], (request.request_id, i - request.first)) for i in indices]
    if "word_end_logprobs" in request.extras:
        queries.append((request.stop, -1, (request.request_id, request.stop - request.first)))
    read_ids = ids[: request.stop] if "word_end_logprobs" in request.extras else ids[: request.stop - 1]
    return Path(tuple(map(interned.setdefault, read_ids, read_ids)), tuple(queries))


def score_causal(
    loaded: LoadedModel,
    paths: dict[str, Path],
    *,
    strategy: str,
    budget: int,
    full_model: bool,
    extras: frozenset[str],
    on_scores,
    journal: Journal,
) -> Counters:
    """Compute every token query of `paths`, pass (queries, outputs) to `on_scores`, and return the counters."""
    counters = Counters(budget=budget)
    body = Body(loaded, tree=strategy == "tree", full_model=full_model)
    head = Head(loaded, extras=extras, full_model=full_model)

    def make_batches(pending: set[str], budget: int) -> list[Batch]:
        roots = build_trie([paths[request_id] for request_id in sorted(pending)])
        return plan(roots, strategy, plan_limits(loaded, budget))

    execute(
        loaded,
        set(paths),
        make_batches=make_batches,
        score_batch=lambda batch: score_batch(body, head, batch),
        on_scores=on_scores,
        clear_cache=body.clear_cache,
        request_length=lambda request_id: len(paths[request_id].tokens),
        journal=journal,
        counters=counters,
    )
    counters.forwards, counters.tokens_computed = body.forwards, body.tokens
    return counters


def plan_limits(loaded: LoadedModel, budget: int) -> PlanLimits:
    """Return the plan limits of a device.

    A CPU is fastest with short rows (less attention between unrelated texts), a GPU with long ones.
    """
    if loaded.device.type == "cpu":
        return PlanLimits(budget=budget, row=min(budget, 256), forward=64)
    return PlanLimits(budget=budget, row=min(budget, 2048), forward=512)
