"""Scoring: the log-probability of every token of every span, computed once, with the requested statistics.

`execute.py` and `masked.py` run the model. This module prepares the requests, selects and checks a strategy, and
arranges the outputs by request; a large evaluation is processed in portions.
"""

import logging
import time
from collections import Counter

import pyarrow as pa

from vernacular.core.errors import ArtifactError
from vernacular.inference.journal import Journal, MemoryJournal
from vernacular.inference.model.loaded import LoadedModel, token_budget
from vernacular.inference.model.tokenization import bos_policy
from vernacular.inference.schema import SCORES, iter_rows, rows_to_table
from vernacular.inference.scoring.execute import Counters, ask_causal, path_of
from vernacular.inference.scoring.head import EXTRAS, Answers
from vernacular.inference.scoring.masked import ask_masked
from vernacular.inference.scoring.prepare import Prepared, portions, prepare, together
from vernacular.inference.scoring.strategy import choose, joined
from vernacular.inference.scoring.trie import Path, grow, size

log = logging.getLogger("vernacular")


def score(
    loaded: LoadedModel,
    requests: pa.Table,
    *,
    journal: Journal | None = None,
    strategy: str | None = None,
    progress: bool = False,
) -> tuple[pa.Table, dict]:
    """Score the spans of `requests` (kind "score"); return (table per SCORES, a row per request row; metadata).

    Equal requests are computed once. The failure of a single request is recorded in its row's flag.

    Args:
        strategy: "auto" (or None) for the fastest that the model supports, or the first of STRATEGIES to try.
            Fallbacks and their reasons are in the metadata.

    Raises:
        ModelError: The model cannot be scored at all.
        ArtifactError: A request is of another kind, or two requests with the same ID differ.
        Stopped: A stop signal was received.
    """
    started = time.perf_counter()
    for kind in requests["kind"].unique().to_pylist():
        if kind != "score":
            wrong = requests["request_id"][requests["kind"].to_pylist().index(kind)]
            raise ArtifactError(f'request {wrong}: expected kind "score", got "{kind}".')
    journal = MemoryJournal() if journal is None else journal
    scorer = _Scorer(loaded, journal, strategy or "auto", progress)
    cut = portions(requests, masked=loaded.kind == "masked")
    table = together([scorer.answer(requests.take(rows)) for rows in cut], cut)
    loaded.evaluations += 1
    metadata = {
        "model": loaded.facts(),
        "engine": {**joined(scorer.engines), "journal": journal.notes},
        "tokenizer": scorer.tokenizer_facts(),
        "counters": {
            **scorer.counters.facts(),
            "requests": len(scorer.contents),
            "portions": len(cut),
            "loads": int(loaded.evaluations == 1),
            "seconds_loading": loaded.seconds if loaded.evaluations == 1 else 0.0,
            "seconds": time.perf_counter() - started,
        },
        "flags": dict(scorer.flags),
    }
    return table, metadata


class _Scorer:
    """The state of one evaluation's scoring, and its counters for the metadata."""

    def __init__(self, loaded: LoadedModel, journal: Journal, strategy: str, progress: bool):
        self.loaded, self.journal, self.strategy, self.progress = loaded, journal, strategy, progress
        self.counters = Counters(budget=token_budget(loaded))
        self.contents: dict[str, int] = {}  # request ID -> hash of the request's content
        self.engines: list[dict] = []  # metadata of each portion
        self.flags: Counter = Counter()
        self.n_unscored = self.n_chat = 0
        self.one_of: dict[int, int] = {}  # see path_of

    def answer(self, requests: pa.Table) -> pa.Table:
        """Score a portion of the requests; return one row per request row."""
        prepared, paths = self._prepare(requests)
        answers = {who: _Slots(request) for who, request in prepared.items() if not request.failed}
        self._ask(prepared, paths, answers)
        for who in [who for who, found in answers.items() if found.broken]:
            prepared[who].flags.append("error: the model returned NaN")
            del answers[who]
        for who in self.counters.given_up:
            if who in prepared:
                prepared[who].flags.append("error: out of memory")
                answers.pop(who, None)
        self._count(prepared.values())
        named = requests.select(["request_id", "item_id", "role"])
        return rows_to_table((_row(self.loaded, row, prepared, answers) for row in iter_rows(named)), SCORES.schema)

    def tokenizer_facts(self) -> dict:
        """Return the tokenizer's metadata."""
        return {
            "class": type(self.loaded.tokenizer).__name__,
            "bos_policy": bos_policy(self.loaded) if self.loaded.kind == "causal" else None,
            "bos_token": self.loaded.tokenizer.bos_token,
            "adds_bos": self.loaded.adds_bos,
            "unscored_first_tokens": self.n_unscored,
            "chat": self.n_chat,
        }

    def _prepare(self, requests: pa.Table) -> tuple[dict[str, Prepared], dict[str, Path]]:
        """Return a portion's distinct requests and, for causal models, their paths; texts and rows are not retained."""
        prepared, paths = {}, {}
        for row in iter_rows(requests):
            who = row["request_id"]
            content = hash(str([value for name, value in row.items() if name not in ("item_id", "role")]))
            if self.contents.setdefault(who, content) != content:
                raise ArtifactError(f"request {who}: two rows with this ID have different content.")
            if who in prepared:
                continue
            request = prepared[who] = prepare(self.loaded, row)
            if self.loaded.kind == "causal" and not request.failed:
                paths[who] = path_of(request, self.one_of)
                request.ids = []
        return prepared, paths

    def _ask(self, prepared: dict[str, Prepared], paths: dict[str, Path], answers: dict[str, "_Slots"]) -> None:
        asked = [prepared[who] for who in answers]
        if not asked and self.engines:
            return

        def take(questions: list, found: Answers) -> None:
            for index, (_, _, _, askers) in enumerate(questions):
                for who, slot in askers:
                    answers[who].put(slot, found, index)

        extras = frozenset(name for request in asked for name in request.extras if name in EXTRAS)
        how = {"extras": extras, "take": take, "journal": self.journal, "progress": self.progress}
        if self.loaded.kind == "masked":
            counters, engine = ask_masked(self.loaded, asked, budget=self.counters.budget, **how)
            self.counters.add(counters)
            self.engines.append(engine)
            return
        tokens = size(grow(list(paths.values())))
        self.counters.tokens_trie += tokens
        chosen, engine = choose(self.loaded, self.strategy, paths, tokens)
        self.engines.append(engine)
        how["whole_head"] = engine["head"] == "whole"
        self.counters.add(ask_causal(self.loaded, paths, strategy=chosen, budget=self.counters.budget, **how))
        # in a row of several texts, NaN in one spreads to the others: compute the affected requests again, one per row
        if chosen != "plain" and (spoilt := {who: paths[who] for who, found in answers.items() if found.broken}):
            self.counters.add(ask_causal(self.loaded, spoilt, strategy="plain", budget=self.counters.budget, **how))
            engine["fallback"].append(
                f"plain: the model returned NaN; number of requests computed again: {len(spoilt)}"
            )

    def _count(self, prepared) -> None:
        causal = self.loaded.kind == "causal"
        self.flags += Counter(flag.split(":")[0] for request in prepared for flag in request.flags)
        self.n_unscored += sum(causal and request.first == 0 for request in prepared if not request.failed)
        self.n_chat += sum(request.rendered is not None for request in prepared if not request.failed)


class _Slots:
    """The outputs of one request: one value per token of its span (and one more for the end of the word)."""

    def __init__(self, request: Prepared):
        self.values: dict[str, list] = {}
        size = request.stop - request.first
        for name in ("logprobs", "is_greedy"):
            self.values[name] = [None] * size
        if "entropy" in request.extras:
            self.values |= {"entropy": [None] * size, "topk_entropy": [None] * size}
        if "rank" in request.extras:
            self.values["rank"] = [None] * size
        if "word_end_logprobs" in request.extras:
            self.values["word_end_logprobs"] = [None] * (size + 1)

    @property
    def broken(self) -> bool:
        """Whether an output is NaN."""
        return any(value != value for values in self.values.values() for value in values)

    def put(self, slot: int, answers: Answers, index: int) -> None:
        """Store the output at `index` for the token at `slot`."""
        for name, places in self.values.items():
            found = getattr(answers, name)
            if slot < len(places) and found is not None:
                places[slot] = found[index]


def _row(loaded: LoadedModel, row: dict, prepared: dict[str, Prepared], answers: dict[str, _Slots]) -> dict:
    request = prepared[row["request_id"]]
    found = {**row, "rendered": request.rendered, "flags": request.flag}
    if row["request_id"] not in answers:
        return found
    return found | {
        "tokens": loaded.tokenizer.convert_ids_to_tokens(request.span),
        "offsets": request.offsets,
        "n_prompt_tokens": request.first,
        **answers[row["request_id"]].values,
    }
