"""Pseudo-log-likelihood of masked models: one masked copy of the text per token of the span.

"original" masks the token alone (Salazar et al. 2020, "Masked Language Model Scoring", ACL); "within_word_l2r" also
masks the later tokens of its word, which would reveal it (Kauf & Ivanova 2023, "A Better Way to Do Masked Language
Model Scoring", ACL). Special tokens are not masked. Requests that mask the same position of the same text (the
candidates of a cloze item) share the copy.
"""

from dataclasses import dataclass

import torch

from vernacular.core.errors import ModelError
from vernacular.core.fingerprint import fingerprint
from vernacular.inference.journal import Journal
from vernacular.inference.model.loaded import LoadedModel, agreement
from vernacular.inference.scoring.execute import Counters, execute
from vernacular.inference.scoring.head import Answers, Head
from vernacular.inference.scoring.prepare import Prepared
from vernacular.inference.scoring.strategy import MEND_NAN, NOTHING_BUT_NAN

VARIANTS = ("original", "within_word_l2r")


@dataclass
class Copy:
    """A masked text, and the token queries at one of its masks."""

    ids: tuple[int, ...]
    position: int
    asked: dict[int, list]  # target -> requesters


@dataclass
class MaskedBatch:
    """Masked copies that go through the model together."""

    copies: list[Copy]

    @property
    def tokens(self) -> int:
        """Tokens computed, padding included."""
        return len(self.copies) * max(len(copy.ids) for copy in self.copies)

    @property
    def divisible(self) -> bool:
        """Whether a smaller budget can split this batch."""
        return len(self.copies) > 1

    def questions(self) -> list[tuple[int, int, int, list]]:
        """Return (row, column, target, requesters) of every token query, in a fixed order."""
        return [
            (row, copy.position, target, who)
            for row, copy in enumerate(self.copies)
            for target, who in sorted(copy.asked.items())
        ]

    def name(self) -> str:
        """Return a hash of the inputs and the token queries."""
        return fingerprint([[list(c.ids), c.position, sorted(c.asked)] for c in self.copies])[:32]


def ask_masked(
    loaded: LoadedModel,
    requests: list[Prepared],
    *,
    budget: int,
    extras: frozenset[str],
    take,
    journal: Journal,
    progress: bool,
) -> tuple[Counters, dict]:
    """Score every span of `requests`, pass (queries, outputs) to `take`, and return (counters, metadata).

    Raises ModelError if the tokenizer's mask token is missing or unknown to the model, or if a batch does not reproduce
    the scores of single texts.
    """
    if loaded.tokenizer.mask_token_id is None:
        raise ModelError(f"model {loaded.record['name']}: its tokenizer has no mask token.")
    if loaded.tokenizer.mask_token_id >= loaded.n_embeddings:
        raise ModelError(
            f"model {loaded.record['name']}: its tokenizer's mask token is outside the model's vocabulary."
        )
    copies = {request.request_id: copies_of(loaded, request) for request in requests}
    everything = merged(copies, set(copies))
    counters = Counters(budget=budget, tokens_trie=sum(len(copy.ids) for copy in everything))
    head = Head(loaded, extras=extras - {"word_end_logprobs"})
    difference = _self_check(loaded, head, everything)

    def answer(batch: MaskedBatch) -> Answers:
        counters.forwards += 1
        counters.tokens_computed += batch.tokens
        return answers_of(loaded, head, batch)

    execute(
        loaded,
        set(copies),
        batches=lambda pending, budget: cut(merged(copies, pending), budget),
        answer=answer,
        take=take,
        forget=lambda: None,
        length=lambda who: len(copies[who][0][0]),
        journal=journal,
        counters=counters,
        progress=progress,
    )
    variants = sorted({variant(request) for request in requests})
    check = {"plain": {"agrees": True, "difference": difference}}
    return counters, {"strategy_asked": None, "strategy": "plain", "fallback": [], "self_check": check, "pll": variants}


def variant(request: Prepared) -> str:
    """Return the pseudo-log-likelihood variant of a request; "original" is the default."""
    return next((name for name in VARIANTS if f"pll:{name}" in request.extras), "original")


def copies_of(loaded: LoadedModel, request: Prepared) -> list[tuple[tuple[int, ...], int, int, tuple]]:
    """Return (masked IDs, position, target, requester) per token of the span."""
    found = []
    for index in range(request.first, request.stop):
        ids = list(request.ids)
        ids[index] = loaded.tokenizer.mask_token_id
        if variant(request) == "within_word_l2r":
            word = request.words[index]
            for later in range(index + 1, len(ids)):
                if word is not None and request.words[later] == word:
                    ids[later] = loaded.tokenizer.mask_token_id
        found.append((tuple(ids), index, request.ids[index], (request.request_id, index - request.first)))
    return found


def merged(copies: dict[str, list], pending: set[str]) -> list[Copy]:
    """Return the distinct masked copies of the requests `pending`, sorted by length (longest first) and content."""
    found: dict[tuple, Copy] = {}
    for who in sorted(pending):
        for ids, position, target, asker in copies[who]:
            copy = found.setdefault((ids, position), Copy(ids, position, {}))
            copy.asked.setdefault(target, []).append(asker)
    return sorted(found.values(), key=lambda copy: (-len(copy.ids), copy.ids, copy.position))


def cut(copies: list[Copy], budget: int) -> list[MaskedBatch]:
    """Split copies, sorted longest first, into batches of similar length and at most `budget` tokens."""
    batches = []
    while copies:
        count = max(1, budget // len(copies[0].ids))
        batches.append(MaskedBatch(copies[:count]))
        copies = copies[count:]
    return batches


@torch.inference_mode()
def answers_of(loaded: LoadedModel, head: Head, batch: MaskedBatch) -> Answers:
    """Run one forward pass; return the outputs of the batch's token queries, in their order."""
    longest = max(len(copy.ids) for copy in batch.copies)
    ids = torch.full((len(batch.copies), longest), loaded.tokenizer.pad_token_id or 0)
    mask = torch.zeros(len(batch.copies), longest, dtype=torch.long)
    for row, copy in enumerate(batch.copies):
        ids[row, : len(copy.ids)] = torch.tensor(copy.ids)
        mask[row, : len(copy.ids)] = 1
    output = loaded.body(input_ids=ids.to(loaded.device), attention_mask=mask.to(loaded.device))
    asked = batch.questions()
    rows = [row * longest + column for row, column, _, _ in asked]
    return head.ask(output[0].flatten(0, 1), output, rows, [target for _, _, target, _ in asked])


@torch.inference_mode()
def _self_check(loaded: LoadedModel, head: Head, copies: list[Copy]) -> float | None:
    """Return the largest difference in nats between a small padded batch and transformers' forward of each text.

    Returns None if there is no text. Raises ModelError if the two disagree.
    """
    sample = [*copies[:1], *copies[len(copies) // 2 :][:1], *copies[-1:]]
    if not sample:
        return None
    batch = MaskedBatch(sample)
    found = answers_of(loaded, head, batch)
    alone = []
    for row, position, target, _ in batch.questions():
        ids = torch.tensor([sample[row].ids], device=loaded.device)
        logits = loaded.model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[0, position].float()
        alone.append(float(logits[target] - logits.logsumexp(-1)))
    # three tokens are too few for a mean
    values, reference = (torch.tensor(numbers, dtype=torch.float64) for numbers in (found.logprobs, alone))
    outcome = agreement(values, reference, loaded.dtype, few=True)
    if not outcome.compared:
        raise ModelError(f"model {loaded.record['name']}: {NOTHING_BUT_NAN}. {MEND_NAN}")
    if not outcome.agrees:
        raise ModelError(
            f"model {loaded.record['name']}: scores in a batch and of a single text differ by "
            f"{outcome.largest:.2g} nats. Try dtype: float32."
        )
    return outcome.largest
