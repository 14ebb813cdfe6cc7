"""Carrying out a plan: batch after batch, with the journal at hand, halving the token budget when memory runs out."""

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
    """What the work cost; goes into the artifact's metadata."""

    budget: int = 0  # tokens a batch may hold, in the end
    forwards: int = 0
    tokens_computed: int = 0  # through the model, padding included
    tokens_trie: int = 0  # the least that must go through it
    batches_resumed: int = 0  # found in the journal
    oom_retries: int = 0
    given_up: list[str] = field(default_factory=list)  # requests that fit no memory

    def add(self, other: "Counters") -> None:
        """Count in what came after this."""
        self.budget = other.budget
        for name in ("forwards", "tokens_computed", "tokens_trie", "batches_resumed", "oom_retries", "given_up"):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def facts(self) -> dict:
        """For the metadata: the given-up requests as a number."""
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
    """Answer every question of the requests `pending`.

    `batches(requests, budget)` plans them, each batch with `questions()`, `name()`, `tokens` and `divisible`;
    `answer(batch)` asks the model; `take(questions, answers)` keeps what it said; `forget()` lets go of memory;
    `length(request)` is how many tokens it must read. The plan follows from the requests still to be answered and the
    budget alone, so that a resumed run meets the batches that an earlier one kept. Raises Stopped (a signal), and
    whatever the model raises but running out of memory.
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
    """Halve the budget; or return the requests to give up, where the batch cannot be cut any further."""
    counters.oom_retries += 1
    if batch.divisible and (budget := halved(counters.budget, SMALLEST_BUDGET, used=batch.tokens)):
        counters.budget = budget
        log.warning("out of memory at %d tokens: going on with %d", batch.tokens, counters.budget)
        return set()
    longest = max(map(length, _askers(asked)))  # others that ask here can be asked without it
    lost = {who for who in _askers(asked) if length(who) == longest}
    counters.given_up += sorted(lost)
    log.warning("out of memory at %d tokens: giving up %d requests", batch.tokens, len(lost))
    return lost


def _askers(asked) -> list[str]:
    """The requests that ask these questions, each as often as it asks."""
    return [who for _, _, _, askers in asked for who, _ in askers]


def _questions_per_request(planned) -> dict[str, int]:
    counts: dict[str, int] = {}
    for _, asked in planned:
        for who in _askers(asked):
            counts[who] = counts.get(who, 0) + 1
    return counts


def path_of(request: Prepared, one_of: dict[int, int]) -> Path:
    """What a request reads and asks. The last token is read only where what follows it is asked for.

    `one_of`: the one object for each token of all paths, which is added to: one of its own each is four times as large.
    """
    ids = request.ids
    slots = range(max(request.first, 1), request.stop)  # nothing stands before index 0
    asks = [(i, ids[i], (request.request_id, i - request.first)) for i in slots]
    if "word_end" in request.extras:
        asks.append((request.stop, -1, (request.request_id, request.stop - request.first)))
    read = ids[: request.stop] if "word_end" in request.extras else ids[: request.stop - 1]
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
    """Answer every question of `paths`, handing (questions, answers) to `take`; returns what it cost."""
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
    """How a device likes its batches: a CPU a few short rows (less attention among strangers), a GPU long ones."""
    if loaded.device.type == "cpu":
        return Limits(budget=budget, row=min(budget, 256), forward=64)
    return Limits(budget=budget, row=min(budget, 2048), forward=512)
