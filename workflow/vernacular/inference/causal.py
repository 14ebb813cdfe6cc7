"""Causal models: every request a path of the token trie, and the trie read under the chosen strategy."""

from vernacular.inference.execute import Counters, execute
from vernacular.inference.forward import Body
from vernacular.inference.head import Head, answer
from vernacular.inference.journal import Journal
from vernacular.inference.load import LoadedModel
from vernacular.inference.plan import Batch, Limits, plan
from vernacular.inference.prepare import Prepared
from vernacular.inference.trie import Path, grow


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
