"""Execution of a plan, batch by batch, with a journal; the token budget is halved when memory runs out."""

import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from vernacular.core.logs import Progress
from vernacular.inference.model.memory import SMALLEST_BUDGET, halve, release_memory, token_budget, within_memory
from vernacular.inference.schema import Journal
from vernacular.inference.scoring.outputs import DTYPES, EXTRAS, PendingScores, TokenScores
from vernacular.inference.scoring.plan import PlanLimits, plan
from vernacular.inference.scoring.prepare import PreparedRequest
from vernacular.inference.scoring.trie import Path, Trie, build_trie, ranges

if TYPE_CHECKING:
    from vernacular.inference.model.loaded import LoadedModel

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
        return {**asdict(self), "out_of_memory": len({part.partition("#")[0] for part in self.out_of_memory})}


class Outputs:
    """A slot per token query of each request, in the order of the requests and of their tokens."""

    def __init__(self, request_ids: list[str], sizes: list[int], extras: frozenset[str]):
        self.request_ids = request_ids
        self.sizes = np.array(sizes, np.int64)
        self.starts = np.cumsum(self.sizes) - self.sizes
        self.requests = np.repeat(np.arange(len(sizes), dtype=np.int32), self.sizes)  # number of each slot's request
        names = ["logprobs", "is_greedy", *(name for extra in sorted(extras) for name in EXTRAS[extra])]
        self.values = {name: np.zeros(len(self.requests), DTYPES.get(name, np.float32)) for name in names}
        self.done = np.zeros(len(self.requests), np.bool_)

    def slots(self, numbers: np.ndarray) -> np.ndarray:
        """Return the slots of some requests, in the order of `numbers`."""
        return ranges(self.starts[numbers], self.sizes[numbers])

    def put(self, slots: np.ndarray, scores: TokenScores, indices: np.ndarray) -> None:
        """Store the outputs at `indices` in `slots`."""
        for name, values in self.values.items():
            values[slots] = getattr(scores, name)[indices]
        self.done[slots] = True

    def requests_with_nan(self) -> np.ndarray:
        """Return the numbers of the requests with an output that is NaN, ascending."""
        is_nan = np.zeros(len(self.done), np.bool_)
        for values in self.values.values():
            is_nan |= np.isnan(values)
        return np.unique(self.requests[is_nan & self.done])


@dataclass(frozen=True, eq=False)
class Plan:
    """Batches that compute the outputs of some requests.

    A batch has `queries`, `name()`, `tokens` and `divisible`; `queries.indices` are among the distinct token queries.
    """

    batches: list
    slots: np.ndarray  # of the requests' outputs, see `Outputs`
    queries: np.ndarray  # the distinct token query of each slot


def execute(
    loaded: "LoadedModel",
    outputs: Outputs,
    pending: np.ndarray,
    *,
    make_plan: Callable[[np.ndarray, int], Plan],
    score_batch: Callable[[object], PendingScores],
    clear_cache: Callable[[], None],
    lengths: np.ndarray,
    journal: Journal,
    counters: Counters,
) -> None:
    """Compute every token query of some requests, and put the outputs in `outputs`.

    The plan depends only on the pending requests and the budget, so that a resumed run finds the batches that an
    earlier one stored.

    `pending`: numbers of the requests; `make_plan` plans requests under a token budget; `score_batch` starts the model
    on a batch; `clear_cache` frees memory; `lengths`: number of tokens that each request must read. Raises Stopped at a
    signal, and whatever the model raises, except for out-of-memory errors.
    """
    try:
        while len(pending):
            plan = make_plan(pending, counters.budget)
            batch = _run_batches(loaded, plan, outputs, score_batch, journal, counters)
            if batch is None:
                return
            is_done = outputs.done[outputs.slots(pending)]
            pending = np.unique(outputs.requests[outputs.slots(pending)[~is_done]])
            clear_cache()
            release_memory(loaded)
            failed_slots = plan.slots[np.isin(plan.queries, batch.queries.indices)]
            failed = np.unique(outputs.requests[failed_slots])
            pending = np.setdiff1d(pending, _shrink(counters, batch, failed, lengths, outputs.request_ids))
    finally:
        journal.flush()


def _run_batches(
    loaded: "LoadedModel", plan: Plan, outputs: Outputs, score_batch, journal: Journal, counters: Counters
):
    """Compute the batches of a plan; return the batch for which memory did not suffice, or None.

    A GPU gets the next batch before the outputs of the last one are read, so that it does not wait for the host.
    """
    batches = plan.batches[::-1]
    plan.batches.clear()  # a batch is not needed any more when it is computed
    n_queries = plan.queries.max(initial=-1) + 1
    values: dict[str, np.ndarray] = {}  # by field of TokenScores: the outputs of the distinct token queries
    is_computed = np.zeros(n_queries, np.bool_)
    running, failed = None, None  # running: the batch whose outputs are not read yet, and these
    with Progress("score", sum(batch.tokens for batch in batches), "token") as progress:

        def read(batch, name: str, scores: PendingScores | TokenScores) -> None:
            if isinstance(scores, PendingScores):
                scores = scores.result()
                journal.add(name, [scores.to_lists()])
            for field_name, array in vars(scores).items():
                if array is not None:
                    if field_name not in values:
                        values[field_name] = np.zeros(n_queries, array.dtype)
                    values[field_name][batch.queries.indices] = array
            is_computed[batch.queries.indices] = True
            progress.advance(batch.tokens)

        while batches:
            batch = batches.pop()
            if not len(batch.queries):
                progress.advance(batch.tokens)
                continue
            name = batch.name()
            with journal.defer_signals():
                if cached := journal.get(name):
                    scores = TokenScores.from_lists(cached[0])
                    counters.batches_resumed += 1
                else:
                    scores = within_memory(loaded, score_batch, batch)
                previous, running = running, None if scores is None else (batch, name, scores)
                if previous is not None:
                    read(*previous)
                if running is None:
                    failed = batch
                    break
                if not loaded.is_asynchronous:
                    read(*running)
                    running = None
        if running is not None:
            with journal.defer_signals():
                read(*running)
    if values:
        is_done = is_computed[plan.queries]
        outputs.put(plan.slots[is_done], TokenScores(**values), plan.queries[is_done])
    return failed


def _shrink(counters: Counters, batch, failed: np.ndarray, lengths: np.ndarray, request_ids: list[str]) -> np.ndarray:
    """Halve the budget, or return the numbers of the requests to give up if the batch cannot be split further.

    `failed`: the requests of the batch.
    """
    counters.oom_retries += 1
    if batch.divisible and (budget := halve(counters.budget, SMALLEST_BUDGET, used=batch.tokens)):
        counters.budget = budget
        log.warning(
            "out of memory at %d tokens; continuing with at most %d tokens per batch", batch.tokens, counters.budget
        )
        return np.zeros(0, np.int64)
    too_long = failed[lengths[failed] == lengths[failed].max()]  # the others can be computed without these
    counters.out_of_memory += sorted(request_ids[number] for number in too_long)
    log.warning("out of memory at %d tokens; number of requests skipped: %d", batch.tokens, len(too_long))
    return too_long


def build_path(loaded: "LoadedModel", request: PreparedRequest) -> Path:
    """Return the tokens that a request reads and its token queries.

    The last token is read only if the distribution after it is requested. If the positions of the whole text, which
    may continue after the span, are not those of the tokens to read, all of it is read.
    """
    start = max(request.first, 1)  # no token precedes index 0
    has_end = "word_end_logprobs" in request.extras
    targets = request.ids[start : request.stop]
    if has_end:
        targets = np.append(targets, np.int32(-1))
    reads_last = has_end or loaded.reads_all(request.stop, len(targets))
    tokens = request.ids[: request.stop if reads_last else request.stop - 1]
    if loaded.lengths.varies:
        text = np.concatenate([request.ids, request.rest])[: loaded.max_length]
        if len(tokens) < loaded.lengths.first(len(text)):
            tokens = text
    return Path(tokens, start, targets)


def split_by_positions(loaded: "LoadedModel", paths: list[Path], numbers: np.ndarray) -> list[np.ndarray]:
    """Split the numbers of paths into groups whose texts have the same positions, and may share a forward pass."""
    groups: dict[object, list[int]] = {}
    for number in numbers:
        tokens, size = paths[number].tokens, len(paths[number].tokens)
        is_alone = loaded.computed_alone(size)  # only equal texts share
        groups.setdefault(tokens.tobytes() if is_alone else loaded.lengths.first(size), []).append(number)
    return [np.array(group) for group in groups.values()] or [numbers]


def score_causal(
    loaded: "LoadedModel",
    paths: list[Path],
    outputs: Outputs,
    pending: np.ndarray,
    *,
    strategy: str,
    budget: int,
    full_model: bool,
    extras: frozenset[str],
    journal: Journal,
    batching: str = "padded",
    trie: Trie | None = None,
) -> Counters:
    """Compute every token query of the requests `pending`, put the outputs in `outputs`, and return the counters.

    `paths`: of all requests of `outputs`; `trie`: of those that are pending, if it is built already. The texts of these
    have the same positions (see `split_by_positions`).
    """
    from vernacular.inference.scoring.head import Body, Head, score_batch

    loaded.strategy = strategy
    loaded.forget_lengths()
    first = loaded.lengths.first(len(paths[pending[0]].tokens)) if len(pending) else 0
    counters = Counters(budget=budget)
    body = Body(loaded, tree=strategy == "tree", full_model=full_model)
    head = Head(loaded, extras=extras, full_model=full_model)

    def make_plan(pending: np.ndarray, budget: int) -> Plan:
        nonlocal trie
        current = build_trie([paths[number] for number in pending]) if trie is None else trie
        trie = None  # the next plan has fewer requests
        limits = plan_limits(loaded, budget, first)
        if batching != "padded":
            limits = replace(limits, forward=0, budget=1 if batching == "single" else budget)
        batches = current.plans.pop((strategy, limits), None) or plan(current, strategy, limits)
        return Plan(batches, outputs.slots(pending), current.queries)

    execute(
        loaded,
        outputs,
        pending,
        make_plan=make_plan,
        score_batch=lambda batch: score_batch(body, head, batch),
        clear_cache=body.clear_cache,
        lengths=np.array([len(path.tokens) for path in paths]),
        journal=journal,
        counters=counters,
    )
    counters.forwards, counters.tokens_computed = body.forwards, body.tokens
    return counters


def plan_ahead(loaded: "LoadedModel", trie: Trie) -> Trie:
    """Plan a trie as for the last evaluation, whose strategy and budget are usually those of the next; return it."""
    if loaded.strategy is not None:
        limits = plan_limits(loaded, token_budget(loaded))
        trie.plans[loaded.strategy, limits] = plan(trie, loaded.strategy, limits)
    return trie


def plan_limits(loaded: "LoadedModel", budget: int, shortest_prefix: int = 0) -> PlanLimits:
    """Return the plan limits of a device.

    A CPU is fastest with short rows (less attention between unrelated texts), a GPU with long ones.
    """
    row, forward = (256, 64) if loaded.device.type == "cpu" else (2048, 512)
    return PlanLimits(budget=budget, row=min(budget, row), forward=forward, shortest_prefix=shortest_prefix)
