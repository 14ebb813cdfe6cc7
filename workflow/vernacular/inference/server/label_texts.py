"""Labels scored by their text, for servers without token IDs: one request per context."""

from dataclasses import dataclass

import pyarrow as pa

from vernacular.core.fingerprint import fingerprint
from vernacular.inference.journal import Journal
from vernacular.inference.schema import SCORES, iter_rows
from vernacular.inference.server.calls import answer_all
from vernacular.inference.server.served import ServedModel
from vernacular.types import Request

NOT_LISTED = "error: not answerable: the label is not among the tokens that the server lists"


@dataclass(frozen=True)
class Call:
    """Labels after one prompt: a text, or chat messages."""

    name: str
    prompt: str | list[dict]
    labels: tuple[str, ...]


def score_label_texts(served: ServedModel, requests: pa.Table, journal: Journal) -> tuple[dict[str, dict], int]:
    """Return the outputs by request ID, and the number of calls."""
    contexts: dict[str, dict] = {}  # hash of the prompt -> prompt, labels
    places: dict[str, tuple[str, str, Request]] = {}
    for row in iter_rows(requests):
        if row["request_id"] in places:
            continue
        prompt, label = _prompt_and_label(row, chat=served.labels.chat)
        key = fingerprint(prompt)
        contexts.setdefault(key, {"prompt": prompt, "labels": {}})["labels"][label] = None
        places[row["request_id"]] = (key, label, row)
    calls = {
        key: Call(
            fingerprint([served.labels.name, key, *context["labels"]]), context["prompt"], tuple(context["labels"])
        )
        for key, context in contexts.items()
    }

    def answer(call: Call) -> dict:
        values, n_prompt_tokens = served.labels.label_texts(call.prompt, list(call.labels))
        served.compare_length(call.prompt, n_prompt_tokens)
        return {"values": dict(zip(call.labels, values, strict=True)), "n_prompt_tokens": n_prompt_tokens}

    answers = answer_all(served, list(calls.values()), answer, journal, "score")
    return {
        request_id: _row(row, label, answers[calls[key].name]) for request_id, (key, label, row) in places.items()
    }, len(calls)


def _prompt_and_label(row: Request, *, chat: bool) -> tuple[str | list[dict], str]:
    """Return the prompt and the label after it; spaces between the two belong to the label, as in most vocabularies."""
    text = row["prefix"] + row["text"]
    prompt, label = text[: row["span_start"]], text[row["span_start"] : row["span_end"]]
    if chat and row["messages"]:
        return [{"role": turn["role"], "content": turn["content"]} for turn in row["messages"]], label.strip()
    stripped = prompt.rstrip(" ")
    return stripped, prompt[len(stripped) :] + label


def _row(row: Request, label: str, answer: dict) -> dict:
    output = dict.fromkeys(SCORES.schema.names)
    if error := answer.get("error"):
        return output | {"flags": f"error: {error}"}
    value = answer["values"][label]
    flags = [] if value is not None else [NOT_LISTED]
    output["flags"] = "; ".join([*answer.get("flags", []), *flags]) or None
    return (
        output
        if value is None
        else output
        | {
            "tokens": [label],
            "offsets": [[row["span_start"], row["span_end"]]],
            "logprobs": [value],
            "n_prompt_tokens": answer["n_prompt_tokens"],
        }
    )
