"""Execution of a plan, batch by batch, with a journal; the token budget is halved when memory runs out."""

import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

from tqdm import tqdm

from vernacular.inference.journal import Journal
from vernacular.inference.model.loaded import SMALLEST_BUDGET, LoadedModel, halved, release, within_memory
from vernacular.inference.scoring.forward import Body
from vernacular.inference.scoring.head import Answers, Head, answer
from vernacular.inference.scoring.plan import Batch, Limits, plan
from vernacular.inference.scoring.prepare import Prepared
from vernacular.inference.scoring.trie import Path, grow

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
    given_up: list[str] = field(default_factory=list)  # requests that do not fit in memory

    def add(self, other: "Counters") -> None:
        """Add the counters of a later computation, and take over its budget."""
        self.budget = other.budget
        for name in ("forwards", "tokens_computed", "tokens_trie", "batches_resumed", "oom_retries", "given_up"):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def facts(self) -> dict:
        """Return the counters for the metadata, with the number of given-up requests."""
        return {**asdict(self), "given_up": len(self.given_up)}


def execute(
    loaded: LoadedModel,
    pending: set[str],
    *,
    batches: Callable[[set[str], int], list],
    answer: Callable[[object], Answers],
    take: Callable[[list, Answers], None],
    forget: Callable[[], None],
    length: Callable[[str], int],
    journal: Journal,
    counters: Counters,
    progress: bool,
) -> None:
    """Compute every token query of the requests `pending`.

    The plan depends only on the pending requests and the budget, so that a resumed run finds the batches that an
    earlier one stored.

    Args:
        batches: Plans requests under a token budget; a batch has `questions()`, `name()`, `tokens` and `divisible`.
        answer: Runs the model on a batch.
        take: Receives the token queries of a batch and their outputs.
        forget: Frees memory after an out-of-memory error.
        length: Returns the number of tokens that a request must read.

    Raises:
        Stopped: A stop signal was received.
        Exception: Whatever the model raises, except for out-of-memory errors.
    """
    unanswered = dict.fromkeys(pending, 0)
    try:
        while pending:
            planned = [(batch, asked) for batch in batches(pending, counters.budget) if (asked := batch.questions())]
            unanswered = _questions_per_request(planned)
            with tqdm(total=sum(b.tokens for b, _ in planned), unit="token", disable=None if progress else True) as bar:
                for batch, asked in planned:
                    name = batch.name()
                    with journal.finishing():
                        if kept := journal.done(name):
                            answers = Answers(**kept[0])
                            counters.batches_resumed += 1
                        else:
                            answers = within_memory(loaded, answer, batch)
                            if answers is None:
                                break
                            journal.add(name, [asdict(answers)])
                    take(asked, answers)
                    for who in _askers(asked):
                        unanswered[who] -= 1
                    bar.update(batch.tokens)
                else:
                    return
            pending = {who for who in pending if unanswered.get(who)}
            forget()
            release(loaded)
            pending -= _shrink(counters, batch, asked, length)
    finally:
        journal.flush()


def _shrink(counters: Counters, batch, asked, length) -> set[str]:
    """Halve the budget, or return the requests to give up if the batch cannot be split further."""
    counters.oom_retries += 1
    if batch.divisible and (budget := halved(counters.budget, SMALLEST_BUDGET, used=batch.tokens)):
        counters.budget = budget
        log.warning(
            "out of memory at %d tokens; continuing with at most %d tokens per batch", batch.tokens, counters.budget
        )
        return set()
    longest = max(map(length, _askers(asked)))  # the others can be computed without these
    lost = {who for who in _askers(asked) if length(who) == longest}
    counters.given_up += sorted(lost)
    log.warning("out of memory at %d tokens; number of requests skipped: %d", batch.tokens, len(lost))
    return lost


def _askers(asked) -> list[str]:
    """Return the request IDs of these token queries, once per query."""
    return [who for _, _, _, askers in asked for who, _ in askers]


def _questions_per_request(planned) -> dict[str, int]:
    counts: dict[str, int] = {}
    for _, asked in planned:
        for who in _askers(asked):
            counts[who] = counts.get(who, 0) + 1
    return counts


def path_of(request: Prepared, one_of: dict[int, int]) -> Path:
    """Return the tokens that a request reads and its token queries.

    The last token is read only if the distribution after it is requested. `one_of`: one int object per token of all
    paths, updated in place; separate objects take four times the memory.
    """
    ids = request.ids
    slots = range(max(request.first, 1), request.stop)  # no token precedes index 0
    asks = [(i, ids[i], (request.request_id, i - request.first)) for i in slots]
    if "word_end_logprobs" in request.extras:
        asks.append((request.stop, -1, (request.request_id, request.stop - request.first)))
    read = ids[: request.stop] if "word_end_logprobs" in request.extras else ids[: request.stop - 1]
    return Path(tuple(map(one_of.setdefault, read, read)), tuple(asks))


def ask_causal(
    loaded: LoadedModel,
    paths: dict[str, Path],
    *,
    strategy: str,
    budget: int,
    whole_head: bool,
    extras: frozenset[str],
    take,
    journal: Journal,
    progress: bool,
) -> Counters:
    """Compute every token query of `paths`, pass (queries, outputs) to `take`, and return the counters."""
    counters = Counters(budget=budget)
    body = Body(loaded, tree=strategy == "tree", whole=whole_head)
    head = Head(loaded, extras=extras, whole=whole_head)

    def batches(pending: set[str], budget: int) -> list[Batch]:
        roots = grow([paths[who] for who in sorted(pending)])
        return plan(roots, strategy, limits(loaded, budget))

    execute(
        loaded,
        set(paths),
        batches=batches,
        answer=lambda batch: answer(body, head, batch),
        take=take,
        forget=body.forget,
        length=lambda who: len(paths[who].tokens),
        journal=journal,
        counters=counters,
        progress=progress,
    )
    counters.forwards, counters.tokens_computed = body.forwards, body.tokens
    return counters


def limits(loaded: LoadedModel, budget: int) -> Limits:
    """Return the plan limits of a device.

    A CPU is fastest with short rows (less attention between unrelated texts), a GPU with long ones.
    """
    if loaded.device.type == "cpu":
        return Limits(budget=budget, row=min(budget, 256), forward=64)
    return Limits(budget=budget, row=min(budget, 2048), forward=512)
