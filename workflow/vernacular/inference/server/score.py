"""Scoring through a server: the same rows as `scoring.score`, from the forms that the probe selected.

Texts, tokens, spans and flags are prepared as for a local model. Spans of one token with a common context (the letters
of a question) are one request if the server returns the log-probabilities of given tokens.
"""

import time
from collections import Counter
from dataclasses import asdict, dataclass

import pyarrow as pa

from vernacular.core.errors import ArtifactError
from vernacular.core.fingerprint import fingerprint
from vernacular.inference.journal import Journal, MemoryJournal
from vernacular.inference.model.tokenization import bos_policy
from vernacular.inference.schema import SCORES, iter_rows, rows_to_table
from vernacular.inference.scoring.prepare import PreparedRequest, prepare
from vernacular.inference.server.calls import answer_all
from vernacular.inference.server.forms import TokenScore
from vernacular.inference.server.label_texts import NOT_LISTED, score_label_texts
from vernacular.inference.server.served import ServedModel
from vernacular.inference.server.text_labels import TextLabels

EXTRAS = {"entropy", "rank", "word_end_logprobs"}  # need the distribution over all tokens, which no server returns
_SEVERAL_TOKENS = "error: not answerable: the label has several tokens"


@dataclass(frozen=True)
class Call:
    """Tokens to score: `ids[first:]`, or each of `labels` after `ids`."""

    name: str
    ids: tuple[int, ...]
    first: int
    labels: tuple[int, ...] | None


def score(served: ServedModel, requests: pa.Table, *, journal: Journal | None = None) -> tuple[pa.Table, dict]:
    """Score the spans of `requests` (kind "score"); return (table per SCORES, metadata). See `scoring.score.score`.

    Raises:
        ArtifactError: A request is of another kind.
        ServerError: The server cannot be reached any more; answered requests are in the journal.
        ModelError: The server's responses are no longer those that the probe found.
        Stopped: A stop signal was received.
    """
    if kinds := set(requests["kind"].unique().to_pylist()) - {"score"}:
        raise ArtifactError(f'expected requests of kind "score", got "{kinds.pop()}".')
    started, before = time.perf_counter(), asdict(served.client.usage)
    journal = MemoryJournal() if journal is None else journal
    if isinstance(served.labels, TextLabels) and served.spans is None:
        rows, n_calls = score_label_texts(served, requests, journal)
    else:
        rows, n_calls = _score_rows(served, requests, journal)
    flags = Counter(flag.split(":")[0] for row in rows.values() for flag in (row["flags"] or "").split("; ") if flag)
    n_missing = sum(NOT_LISTED in (row["flags"] or "") for row in rows.values())
    extras = sorted({extra for row in iter_rows(requests.select(["extras"])) for extra in row["extras"] or []} & EXTRAS)
    form = served.spans or served.labels
    used = {name: value - before[name] for name, value in asdict(served.client.usage).items()}
    metadata = {
        "model": served.metadata(),
        "engine": {
            "name": f"server: {form.name}",
            "fallback": [f"{', '.join(extras)}: not returned by the server"] if extras else [],
            "journal": journal.notes,
        },
        "tokenizer": {
            "class": type(served.tokenizer).__name__ if served.tokenizer else None,
            "bos_policy": bos_policy(served) if served.tokenizer else None,
            "adds_bos": served.adds_bos,
        },
        "counters": {
            "requests": len(rows),
            "calls": n_calls,
            "tokens_computed": used["prompt_tokens"],
            "server": used,
            "labels_not_listed": n_missing,
            "coverage": 1 - n_missing / len(rows) if rows else None,
            "seconds": time.perf_counter() - started,
        },
        "flags": dict(flags),
    }
    ids = requests.select(["request_id", "item_id", "role"])
    return rows_to_table(({**rows[row["request_id"]], **row} for row in iter_rows(ids)), SCORES.schema), metadata


def _score_rows(served: ServedModel, requests: pa.Table, journal: Journal) -> tuple[dict[str, dict], int]:
    """Return the outputs by request ID, and the number of calls."""
    prepared: dict[str, PreparedRequest] = {}
    for row in iter_rows(requests):
        if row["request_id"] not in prepared:
            prepared[row["request_id"]] = prepare(served, row)
    calls, places = plan(served, list(prepared.values()))
    answers = answer_all(served, calls, lambda call: _answer(served, call), journal, "score")
    return {
        request_id: _row(served, request, answers, places.get(request_id)) for request_id, request in prepared.items()
    }, len(calls)


def plan(served: ServedModel, requests: list[PreparedRequest]) -> tuple[list[Call], dict[str, tuple[str, int]]]:
    """Return the calls, ordered by their tokens, and {request ID: (name of its call, index of its first score)}."""
    labels: dict[tuple, dict[int, list[str]]] = {}  # context -> token -> requests
    spans: dict[tuple, list[str]] = {}  # (tokens, first) -> requests
    for request in requests:
        if request.failed:
            continue
        ids = tuple(request.ids)
        if served.labels is not None and request.first and request.stop - request.first == 1:
            labels.setdefault(ids[:-1], {}).setdefault(ids[-1], []).append(request.request_id)
        elif served.spans is not None:
            spans.setdefault((ids, request.first), []).append(request.request_id)
        else:
            request.flags.append(_SEVERAL_TOKENS)
    calls, places = [], {}
    for context, by_token in labels.items():
        if served.spans is not None and len(by_token) == 1:  # of no use as labels
            [(token, request_ids)] = by_token.items()
            spans.setdefault(((*context, token), len(context)), []).extend(request_ids)
            continue
        tokens = tuple(sorted(by_token))
        name = fingerprint([served.labels.name, context, tokens])
        calls.append(Call(name, context, len(context), tokens))
        places |= {r: (name, index) for index, token in enumerate(tokens) for r in by_token[token]}
    for (ids, first), request_ids in spans.items():
        name = fingerprint([served.spans.name, ids, first])
        calls.append(Call(name, ids, first, None))
        places |= dict.fromkeys(request_ids, (name, 0))
    return sorted(calls, key=lambda call: (call.ids, call.first)), places  # prefixes in the server's cache are next


def _answer(served: ServedModel, call: Call) -> dict:
    ids = list(call.ids)
    scores: list[TokenScore] = (
        served.spans.score(ids, call.first)
        if call.labels is None
        else served.labels.label_scores(ids, list(call.labels))
    )
    return {"logprobs": [score.logprob for score in scores], "is_greedy": [score.is_greedy for score in scores]}


def _row(served: ServedModel, request: PreparedRequest, answers: dict, place: tuple[str, int] | None) -> dict:
    """Return the outputs of one request."""
    row = dict.fromkeys(SCORES.schema.names) | {"rendered": request.rendered}
    answer = answers[place[0]] if place else {}
    if error := answer.get("error"):
        request.flags.append(f"error: {error}")
    elif place:
        index, size = place[1], request.stop - request.first
        values = {name: answer[name][index : index + size] for name in ("logprobs", "is_greedy")}
        if None in values["logprobs"] and request.first:
            request.flags.append(NOT_LISTED)
        else:
            tokens = served.tokenizer.convert_ids_to_tokens(request.span)
            row |= {"tokens": tokens, "offsets": request.offsets, "n_prompt_tokens": request.first, **values}
    return row | {"flags": request.flag}
