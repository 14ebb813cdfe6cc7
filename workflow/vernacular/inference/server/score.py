"""Scoring through a server: the same rows as `scoring.score`, from the forms that the probe selected.

Texts, tokens, spans and flags are prepared as for a local model. Spans of one token with a common context (the letters
of a question) are one request if the server returns the log-probabilities of given tokens. An evaluation is prepared
while another is computed, unless the server is asked for its tokens.
"""

import time
from collections import Counter
from dataclasses import asdict, dataclass
from functools import partial

import pyarrow as pa

from vernacular.core.errors import ArtifactError
from vernacular.core.fingerprint import fingerprint
from vernacular.inference.generation import reasoning
from vernacular.inference.model.rendering import with_system
from vernacular.inference.model.tokenization import bos_policy
from vernacular.inference.schema import SCORES, Journal, distinct, iter_rows, missing_statistics, rows_to_table
from vernacular.inference.scoring.prepare import PreparedRequest, prepare_all, reads, window_length
from vernacular.inference.server.completions import TextLabels
from vernacular.inference.server.served import ServedModel
from vernacular.types import Request

NOT_LISTED = "error: not answerable: the label is not among the tokens that the server lists"
_SEVERAL_TOKENS = "error: not answerable: the label has several tokens"


@dataclass(frozen=True)
class Call:
    """Tokens to score: `prompt[first:]`, or each of `labels` after the prompt (token IDs, a text or chat messages)."""

    name: str
    prompt: tuple[int, ...] | str | list[dict]
    first: int
    labels: tuple[int | str, ...] | None


class Scoring:
    """One evaluation; see `scoring.score.Scoring`.

    Raises ArtifactError for a request of another kind, and ServerError and ModelError as `ServedModel.answer_all`.
    """

    def __init__(self, served: ServedModel, requests: pa.Table):
        if kinds := set(requests["kind"].unique().to_pylist()) - {"score"}:
            raise ArtifactError(f'expected requests of kind "score", got "{kinds.pop()}".')
        started = time.perf_counter()
        self.served, self.requests = served, requests
        self.by_text = isinstance(served.labels, TextLabels) and served.spans is None
        self.prepared: list[PreparedRequest] | None = None
        if not self.by_text and served.record.server.tokenizer == "local":
            self._prepare()
        self.seconds = time.perf_counter() - started

    def _prepare(self) -> None:
        self.prepared = list(prepare_all(self.served, distinct(self.requests)))
        for request in self.prepared:
            _reject_windows(self.served, request)
        self.calls, self.slots = make_calls(self.served, self.prepared)

    def compute(self, journal: Journal) -> None:
        served, started, before = self.served, time.perf_counter(), asdict(self.served.client.usage)
        if self.by_text:
            self.rows, self.n_calls = score_label_texts(served, self.requests, journal)
        else:
            if self.prepared is None:
                self._prepare()
            self.n_calls = len(self.calls)
            names = {request: name for request, (name, _) in self.slots.items()}
            answer = partial(_answer, served)
            self.answers = served.answer_all(self.calls, answer, journal, "score", self.requests, names)
        self.used = {name: value - before[name] for name, value in asdict(served.client.usage).items()}
        self.journal_notes = journal.notes
        self.seconds += time.perf_counter() - started

    def finish(self) -> tuple[pa.Table, dict]:
        served, requests = self.served, self.requests
        rows = self.rows if self.by_text else {p.request_id: self._row(p) for p in self.prepared}
        all_flags = "; ".join(row["flags"] for row in rows.values() if row["flags"]).split("; ")
        flags = Counter(flag.split(":")[0] for flag in all_flags if flag)
        n_missing = sum(NOT_LISTED in (row["flags"] or "") for row in rows.values())
        metadata = {
            "model": served.metadata(),
            "engine": {
                "name": f"server: {(served.spans or served.labels).name}",
                "fallback": missing_statistics(requests, "not returned by the server") + served.uncounted(self.used),
                "stated": served.client.stated.summary(),
                "journal": self.journal_notes,
            },
            "tokenizer": {
                "class": type(served.tokenizer).__name__ if served.tokenizer else None,
                "bos_policy": bos_policy(served) if served.tokenizer else None,
                "adds_bos": served.adds_bos,
            },
            "counters": {
                "requests": len(rows),
                "calls": self.n_calls,
                "tokens_computed": self.used["prompt_tokens"],
                "server": self.used,
                "labels_not_listed": n_missing,
                "coverage": 1 - n_missing / len(rows) if rows else None,
                "seconds": self.seconds,
            },
            "flags": dict(flags),
        }
        ids = requests.select(["request_id", "item_id", "role"])
        return rows_to_table(({**rows[row["request_id"]], **row} for row in iter_rows(ids)), SCORES.schema), metadata

    def _row(self, request: PreparedRequest) -> dict:
        """Return the outputs of one request."""
        row = dict.fromkeys(SCORES.schema.names) | {"rendered": request.rendered}
        slot = self.slots.get(request.request_id)
        answer = self.answers[slot[0]] if slot else {}
        request.flags += answer.get("flags", [])
        if error := answer.get("error"):
            request.flags.append(f"error: {error}")
        elif slot:
            index, size = slot[1], request.stop - request.first
            values = {name: answer[name][index : index + size] for name in ("logprobs", "is_greedy")}
            if None in values["logprobs"] and request.first:
                request.flags.append(NOT_LISTED)
            else:
                tokens, offsets = self.served.tokenizer.convert_ids_to_tokens(request.span.tolist()), request.offsets
                row |= {"tokens": tokens, "offsets": offsets.tolist(), "n_prompt_tokens": request.first, **values}
        return row | {"flags": request.flag}


def _reject_windows(served: ServedModel, request: PreparedRequest) -> None:
    """Flag a text that only fits in several windows, whose values no server is asked for."""
    length = window_length(served, request)
    if not request.failed and length is not None and reads(served, request) > length:
        request.flags.append(f"error: expected a text of at most {length} tokens, because servers score no windows")
        request.stop = request.first


def make_calls(served: ServedModel, requests: list[PreparedRequest]) -> tuple[list[Call], dict[str, tuple[str, int]]]:
    """Return the calls, ordered by their tokens, and {request ID: (name of its call, index of its first score)}."""
    labels: dict[tuple, dict[int, list[str]]] = {}  # context -> token -> requests
    spans: dict[tuple, list[str]] = {}  # (tokens, first) -> requests
    for request in requests:
        if request.failed:
            continue
        ids = tuple(request.ids.tolist())
        if served.labels is not None and request.first and request.stop - request.first == 1:
            labels.setdefault(ids[:-1], {}).setdefault(ids[-1], []).append(request.request_id)
        elif served.spans is not None:
            spans.setdefault((ids, request.first), []).append(request.request_id)
        else:
            request.flags.append(_SEVERAL_TOKENS)
    calls, slots = [], {}
    for context, by_token in labels.items():
        if served.spans is not None and len(by_token) == 1:  # of no use as labels
            [(token, request_ids)] = by_token.items()
            spans.setdefault(((*context, token), len(context)), []).extend(request_ids)
            continue
        tokens = tuple(sorted(by_token))
        name = fingerprint([served.labels.name, context, tokens])
        calls.append(Call(name, context, len(context), tokens))
        slots |= {r: (name, index) for index, token in enumerate(tokens) for r in by_token[token]}
    for (ids, first), request_ids in spans.items():
        name = fingerprint([served.spans.name, ids, first])
        calls.append(Call(name, ids, first, None))
        slots |= dict.fromkeys(request_ids, (name, 0))
    return sorted(calls, key=lambda call: (call.prompt, call.first)), slots  # prefixes in the server's cache are next


def _answer(served: ServedModel, call: Call) -> dict:
    ids, labels = list(call.prompt), call.labels
    scores = served.spans.score(ids, call.first) if labels is None else served.labels.label_scores(ids, list(labels))
    return {"logprobs": [score.logprob for score in scores], "is_greedy": [score.is_greedy for score in scores]}


def score_label_texts(served: ServedModel, requests: pa.Table, journal: Journal) -> tuple[dict[str, dict], int]:
    """Return the outputs by request ID, and the number of calls."""
    contexts: dict[str, tuple[str | list[dict], dict[str, None]]] = {}  # hash of the prompt -> prompt, labels
    slots: dict[str, tuple[str, str, Request]] = {}
    for row in iter_rows(requests):
        if row["request_id"] in slots:
            continue
        prompt, label = _prompt_and_label(served, row)
        key = fingerprint(prompt)
        contexts.setdefault(key, (prompt, {}))[1][label] = None
        slots[row["request_id"]] = (key, label, row)
    form, calls = served.labels.name, {}
    for key, (prompt, labels) in contexts.items():
        calls[key] = Call(fingerprint([form, key, *labels]), prompt, 0, tuple(labels))

    def answer(call: Call) -> dict:
        fields = reasoning.template_fields(served) if isinstance(call.prompt, list) else {}
        values, n_prompt_tokens = served.labels.label_texts(call.prompt, list(call.labels), **fields)
        served.compare_length(call.prompt, n_prompt_tokens)
        return {"values": dict(zip(call.labels, values, strict=True)), "n_prompt_tokens": n_prompt_tokens}

    names = {request_id: calls[key].name for request_id, (key, _, _) in slots.items()}
    answers = served.answer_all(list(calls.values()), answer, journal, "score", requests, names)
    rows = {name: _text_row(row, label, answers[calls[key].name]) for name, (key, label, row) in slots.items()}
    return rows, len(calls)


def _prompt_and_label(served: ServedModel, row: Request) -> tuple[str | list[dict], str]:
    """Return the prompt and the label after it; spaces between the two belong to the label, as in most vocabularies."""
    text = row["prefix"] + row["text"]
    prompt, label = text[: row["span_start"]], text[row["span_start"] : row["span_end"]]
    if served.labels.chat and row["messages"]:
        return with_system(served, row["messages"]), label.strip()
    stripped = prompt.rstrip(" ")
    return stripped, prompt[len(stripped) :] + label


def _text_row(row: Request, label: str, answer: dict) -> dict:
    output = dict.fromkeys(SCORES.schema.names)
    if error := answer.get("error"):
        return output | {"flags": f"error: {error}"}
    value, n_prompt_tokens = answer["values"][label], answer["n_prompt_tokens"]
    flags = answer.get("flags", []) + ([NOT_LISTED] if value is None else [])
    output["flags"] = "; ".join(flags) or None
    if value is not None:
        offsets = [[row["span_start"], row["span_end"]]]
        output |= {"tokens": [label], "offsets": offsets, "logprobs": [value], "n_prompt_tokens": n_prompt_tokens}
    return output
