"""requests -> scores: the log-probability of every token of every span, once, with what the model's report needs.

`causal.py` and `masked.py` ask the model; here requests are prepared, a strategy is chosen and checked, and the answers
are laid out by request.
"""

import logging
import time
from collections import Counter

import pyarrow as pa

from vernacular.errors import ArtifactError, ModelError
from vernacular.inference.capability import MEND_NAN, NOTHING_BUT_NAN, check, incapable, with_numbers
from vernacular.inference.causal import ask_causal, paths_of
from vernacular.inference.head import EXTRAS, Answers
from vernacular.inference.keys import engine_version
from vernacular.inference.load import LoadedModel
from vernacular.inference.masked import ask_masked
from vernacular.inference.plan import STRATEGIES
from vernacular.inference.prepare import Prepared, prepare
from vernacular.inference.schema import SCORES
from vernacular.inference.store import Journal
from vernacular.inference.tokens import bos_policy
from vernacular.inference.trie import grow, size

log = logging.getLogger("vernacular")


def score(
    loaded: LoadedModel,
    requests: pa.Table,
    *,
    journal: Journal | None = None,
    strategy: str | None = None,
    progress: bool = False,
) -> tuple[pa.Table, dict]:
    """Score the spans of `requests` (kind "score"): (table per SCORES, a row per request row; metadata).

    `strategy`: "auto" (or None) for the fastest that the model can do, or one of STRATEGIES to begin with; what it
    falls back to, and why, is in the metadata. Equal requests are asked once. Raises ModelError where this model cannot
    be asked at all, Stopped on a signal; a single request's trouble is its row's flag.
    """
    started = time.perf_counter()
    rows = requests.to_pylist()
    if wrong := next((row for row in rows if row["kind"] != "score"), None):
        raise ArtifactError(
            f"request {wrong['request_id']}: its kind is {wrong['kind']}, and only score can be scored."
        )
    prepared = {rid: prepare(loaded, row) for rid, row in _distinct(rows).items()}
    asked = [request for request in prepared.values() if not request.failed]
    answers = {request.request_id: _Slots(request) for request in asked}
    extras = frozenset(name for request in asked for name in request.extras if name in EXTRAS)

    def take(questions: list, found: Answers) -> None:
        for index, (_, _, _, askers) in enumerate(questions):
            for who, slot in askers:
                answers[who].put(slot, found, index)

    journal = Journal(None) if journal is None else journal
    if loaded.kind == "masked":
        counters, engine = ask_masked(loaded, asked, extras=extras, take=take, journal=journal, progress=progress)
    else:
        paths = paths_of(asked)
        chosen, engine = _choose(loaded, strategy or "auto", paths)
        how = {"whole_head": engine["head"] == "whole", "extras": extras, "take": take, "journal": journal}
        counters = ask_causal(loaded, paths, strategy=chosen, progress=progress, **how)
        # in a row of several texts, NaN in one spoils the others: those are asked once more, each in a row of its own
        if chosen != "plain" and (spoilt := {who: paths[who] for who, found in answers.items() if found.broken}):
            again = ask_causal(loaded, spoilt, strategy="plain", progress=progress, **how)
            counters.forwards += again.forwards
            counters.tokens_computed += again.tokens_computed
            counters.given_up += again.given_up
            engine["fallback"].append(f"plain: the model returned NaN where {len(spoilt)} requests were asked")
    for who in [who for who, found in answers.items() if found.broken]:
        prepared[who].flags.append("error: the model returned NaN")
        del answers[who]
    for who in counters.given_up:
        prepared[who].flags.append("error: out of memory")
        answers.pop(who, None)
    table = pa.Table.from_pylist([_row(loaded, row, prepared, answers) for row in rows], schema=SCORES.schema)
    loaded.evaluations += 1
    metadata = {
        "model": loaded.facts(),
        "engine": {"version": engine_version(SCORES), **engine, "journal": journal.notes},
        "tokenizer": _tokenizer_facts(loaded, prepared),
        "counters": {
            **counters.facts(),
            "requests": len(prepared),
            "loads": int(loaded.evaluations == 1),
            "seconds_loading": loaded.seconds if loaded.evaluations == 1 else 0.0,
            "seconds": time.perf_counter() - started,
        },
        "flags": dict(Counter(flag.split(":")[0] for request in prepared.values() for flag in request.flags)),
    }
    return table, metadata


class _Slots:
    """The answers of one request, one place per token of its span (and one more for the end of the word)."""

    def __init__(self, request: Prepared):
        self.values: dict[str, list] = {}
        size = request.stop - request.first
        for name in ("logprobs", "greedy"):
            self.values[name] = [None] * size
        if "entropy" in request.extras:
            self.values |= {"entropy": [None] * size, "topk_entropy": [None] * size}
        if "rank" in request.extras:
            self.values["rank"] = [None] * size
        if "word_end" in request.extras:
            self.values["word_end"] = [None] * (size + 1)

    @property
    def broken(self) -> bool:
        """Is an answer NaN?"""
        return any(value != value for values in self.values.values() for value in values)

    def put(self, slot: int, answers: Answers, index: int) -> None:
        """Take the answer at `index` for the token at `slot`."""
        for name, places in self.values.items():
            found = getattr(answers, name)
            if slot < len(places) and found is not None:
                places[slot] = found[index]


def _distinct(rows: list[dict]) -> dict[str, dict]:
    """request id -> its content; raises ArtifactError if two rows of one id ask different things."""
    found: dict[str, dict] = {}
    for row in rows:
        content = {name: value for name, value in row.items() if name not in ("item_id", "role")}
        if found.setdefault(row["request_id"], content) != content:
            raise ArtifactError(f"request {row['request_id']}: two rows with this id ask different things.")
    return found


def _choose(loaded: LoadedModel, wanted: str, paths: dict) -> tuple[str, dict]:
    """(the strategy to use, what the metadata says about the choice)."""
    if wanted not in ("auto", *STRATEGIES):
        raise ModelError(f'strategy is "{wanted}"; allowed: auto, {", ".join(STRATEGIES)}.')
    facts = {"strategy_asked": wanted, "fallback": [], "self_check": {}, "head": "rows"}
    if not paths:
        return "plain", {**facts, "strategy": "plain"}
    begin = 0 if wanted == "auto" else STRATEGIES.index(wanted)
    asked = list(paths.values())
    tokens = size(grow(asked))
    for strategy in STRATEGIES[begin:]:
        reason = incapable(loaded, strategy)
        if reason is None:
            result = check(loaded, strategy, asked, tokens)
            facts["self_check"][strategy] = result.facts()
            if result.agrees:
                return strategy, {**facts, "strategy": strategy}
            reason = result.reason
        facts["fallback"].append(f"{strategy}: {reason}")
    # even plain batches differ: perhaps the head cannot be fed by itself, so let the model do all in one
    result = check(loaded, "plain", asked, tokens, whole_head=True)
    facts["self_check"]["plain, whole head"] = result.facts()
    if not result.agrees and NOTHING_BUT_NAN in (result.reason or ""):
        healthy = with_numbers(loaded, paths)
        if 0 < len(healthy) < len(paths):  # a broken token or two, and not a broken model
            return _choose(loaded, wanted, healthy)
        raise ModelError(f"model {loaded.record['name']}: {result.reason}. {MEND_NAN}")
    if not result.agrees:
        raise ModelError(
            f"model {loaded.record['name']}: scores in a batch disagree with one text at a time ({result.reason}); "
            "its numbers would depend on the batch. Try dtype float32."
        )
    return "plain", {**facts, "strategy": "plain", "head": "whole"}


def _row(loaded: LoadedModel, row: dict, prepared: dict[str, Prepared], answers: dict[str, _Slots]) -> dict:
    request = prepared[row["request_id"]]
    found = {name: row[name] for name in ("request_id", "item_id", "role")}
    found |= {"rendered": request.rendered, "flag": request.flag}
    if row["request_id"] not in answers:
        return found
    ids = request.ids[request.first : request.stop]
    return found | {
        "tokens": loaded.tokenizer.convert_ids_to_tokens(ids),
        "offsets": request.offsets,
        "n_prompt_tokens": request.first,
        **answers[row["request_id"]].values,
    }


def _tokenizer_facts(loaded: LoadedModel, prepared: dict[str, Prepared]) -> dict:
    done = [request for request in prepared.values() if not request.failed]
    causal = loaded.kind == "causal"
    return {
        "class": type(loaded.tokenizer).__name__,
        "bos_policy": bos_policy(loaded) if causal else None,
        "bos_token": loaded.tokenizer.bos_token,
        "adds_bos": loaded.adds_bos,
        "unscored_first_tokens": sum(causal and request.first == 0 for request in done),
        "chat": sum(request.rendered is not None for request in done),
    }
