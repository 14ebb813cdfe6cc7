"""Causal models: every request a path of the token trie, and the trie read under the chosen strategy."""

from vernacular.inference.execute import Counters, execute
from vernacular.inference.forward import Body
from vernacular.inference.head import Head, answer
from vernacular.inference.load import LoadedModel
from vernacular.inference.memory import token_budget
from vernacular.inference.plan import Batch, Limits, plan
from vernacular.inference.prepare import Prepared
from vernacular.inference.store import Journal
from vernacular.inference.trie import Path, grow, size


def paths_of(requests: list[Prepared]) -> dict[str, Path]:
    """request id -> what it reads and asks. The last token is read only where what follows it is asked for."""
    found = {}
    for request in requests:
        slots = range(max(request.first, 1), request.stop)  # nothing stands before index 0
        asks = [(i, request.ids[i], (request.request_id, i - request.first)) for i in slots]
        if "word_end" in request.extras:
            asks.append((request.stop, -1, (request.request_id, request.stop - request.first)))
        read = request.stop if "word_end" in request.extras else request.stop - 1
        found[request.request_id] = Path(tuple(request.ids[:read]), tuple(asks))
    return found


def ask_causal(
    loaded: LoadedModel,
    paths: dict[str, Path],
    *,
    strategy: str,
    whole_head: bool,
    extras: frozenset[str],
    take,
    journal: Journal,
    progress: bool,
) -> Counters:
    """Answer every question of `paths`, handing (questions, answers) to `take`; returns what it cost."""
    counters = Counters(budget=token_budget(loaded), tokens_trie=size(grow(list(paths.values()))))
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
