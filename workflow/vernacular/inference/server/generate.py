"""Generation through a server: the same rows as `generation.generate`.

Prompts, lengths, stop strings and flags are those of a local model if a tokenizer is known; without one, the server
receives text, or chat messages to which it applies its own template. The text is decoded here if the server returns the
IDs of its tokens, because vLLM omits what stands at its end before a character is complete. Otherwise the server's is
stored as it is. Reasoning before it is split off by a field of the response, by token IDs or by its markers. An
evaluation is prepared while another is computed, unless the server is asked for its tokens.
"""

import time
from collections import Counter
from dataclasses import asdict, dataclass
from functools import partial

import pyarrow as pa

from vernacular.core.errors import ModelError
from vernacular.core.fingerprint import fingerprint
from vernacular.inference.generation import prepare, reasoning
from vernacular.inference.model.rendering import has_template, is_continued, with_system
from vernacular.inference.model.tokenization import decode_continuation
from vernacular.inference.schema import GENERATIONS, Journal, iter_rows, rows_to_table
from vernacular.inference.server.completions import Completion, PromptLogprobs
from vernacular.inference.server.forms import read
from vernacular.inference.server.served import ServedModel
from vernacular.types import Request

_TEMPLATE_TOKENS = 256  # that a template adds to a chat
_MAX_STOPS = 4  # the most that OpenAI's API accepts; the output is cut at all of them


@dataclass(frozen=True)
class Call:
    """One text to generate."""

    name: str
    prompt: prepare.PreparedPrompt
    content: str | list  # token IDs, a text, or chat messages


class Generation:
    """One evaluation; see `generation.generate.Generation`.

    Raises ServerError if the server cannot be reached any more, and ModelError if it answers unlike its probe.
    """

    def __init__(self, served: ServedModel, requests: pa.Table):
        started = time.perf_counter()
        self.served, self.requests = served, requests
        self.form = served.record.server.forms.generation
        self.prompts: dict[str, prepare.PreparedPrompt] | None = None
        self.flags: dict[str, list[str]] = {}  # by request ID
        if served.record.server.tokenizer != "server":
            self._prepare()
        self.seconds = time.perf_counter() - started

    def _prepare(self) -> None:
        if self.served.tokenizer is not None:
            self.prompts = prepare.prepare_prompts(self.served, self.requests)
            contents = {p.request_id: p.ids for p in self.prompts.values()}
        else:
            self.prompts, contents = _text_prompts(self.served, self.requests)
        calls = [
            Call(fingerprint(["served", self.form, prompt.request_id]), prompt, contents[prompt.request_id])
            for prompt in self.prompts.values()
            if prompt.error is None
        ]
        self.calls = sorted(calls, key=lambda call: (str(call.content), call.name))

    def compute(self, journal: Journal) -> None:
        served, started, before = self.served, time.perf_counter(), asdict(self.served.client.usage)
        if self.prompts is None:
            self._prepare()
        names = {call.prompt.request_id: call.name for call in self.calls}
        answer = partial(_answer, served)
        answers = served.answer_all(self.calls, answer, journal, "generate", self.requests, names)
        self.outcomes = {call.prompt.request_id: {"error": None, **answers[call.name]} for call in self.calls}
        for call in self.calls:
            if flags := answers[call.name].get("flags"):
                self.flags[call.prompt.request_id] = flags
        self.used = {name: value - before[name] for name, value in asdict(served.client.usage).items()}
        self.journal_notes = journal.notes
        self.seconds += time.perf_counter() - started

    def finish(self) -> tuple[pa.Table, dict]:
        served = self.served
        rows = (self._row(row) for row in iter_rows(self.requests))
        reasons = Counter(str(outcome.get("finish_reason")) for outcome in self.outcomes.values())
        return rows_to_table(rows, GENERATIONS.schema), {
            "model": served.metadata(),
            "engine": {
                "name": f"server: {self.form}",
                "fallback": _fallback(served) + served.uncounted(self.used),
                "stated": served.client.stated.summary(),
            },
            "tokenizer": {"bos": served.record.bos, "adds_bos": served.adds_bos, "truncation": "few-shot examples"}
            | {"has_chat_template": has_template(served) if served.tokenizer else None}
            | reasoning.describe(served, self.prompts.values(), self.outcomes.values()),
            "counters": {
                "requests": self.requests.num_rows,
                "distinct": len(self.prompts),
                "tokens_computed": self.used["prompt_tokens"],
                "tokens_generated": self.used["completion_tokens"],
                "server": self.used,
                "invalid_prompts": len(self.prompts) - len(self.calls),
                "finish_reasons": dict(sorted(reasons.items())),
                "seconds": round(self.seconds, 3),
            },
            "journal": self.journal_notes,
        }

    def _row(self, row: Request) -> dict:
        output = prepare.output_row(row, self.prompts, self.outcomes)
        flags = [output["flags"], *self.flags.get(row["request_id"], [])]
        return output | {"flags": "; ".join(filter(None, flags)) or None}


def _fallback(served: ServedModel) -> list[str]:
    """Return that the server samples with a temperature of its own, if it accepts none."""
    accepted = served.native is not None or "temperature" in served.completions.fields
    return [] if accepted else ["temperature: not accepted by the server, which uses its own"]


def _text_prompts(
    served: ServedModel, requests: pa.Table
) -> tuple[dict[str, prepare.PreparedPrompt], dict[str, str | list]]:
    """Return the prompts without token IDs, and what is sent for each."""
    prompts: dict[str, prepare.PreparedPrompt] = {}
    contents: dict[str, str | list] = {}
    forms, chat_option = served.record.server.forms, served.record.chat
    if chat_option is True and not forms.chat:
        raise ModelError(f"model {served.record.name}: chat is true, but the server answers no chats. Set chat: auto.")
    for row in iter_rows(requests):
        if row["kind"] != "generate" or row["request_id"] in prompts:
            continue
        chat = bool(row["messages"]) and forms.chat and chat_option is not False
        decoding = prepare.decoding_of(served, row, is_chat=chat)
        error = None if chat or forms.generation != "chat" else "the server answers chats only"
        if chat and is_continued(row["messages"]):
            error = "the server applies its template, which cannot continue a turn of the model (gen_prefix)"
        content = with_system(served, row["messages"]) if chat else row["prefix"] + row["text"]
        contents[row["request_id"]] = content
        n_answer = decoding.max_new_tokens or prepare.max_new_tokens(served, row)
        think_tokens = _reasoning_budget(served, content, n_answer, decoding.think_tokens)
        prompts[row["request_id"]] = prepare.PreparedPrompt(
            request_id=row["request_id"],
            ids=[],
            rendered="chat template applied by the server" if chat else None,
            max_new_tokens=n_answer + think_tokens,
            stops=list(row["stop"] or []),
            decoding=decoding.values,
            think_tokens=think_tokens,
            wanted_tokens=decoding.think_tokens,
            error=error,
        )
    return prompts, contents


def _reasoning_budget(served: ServedModel, content: str | list[dict], n_answer: int, wanted: int) -> int:
    """Return what the server's context leaves of the tokens `wanted` for reasoning, if each byte were a token."""
    if not wanted or served.max_length is None:
        return wanted
    texts = [content] if isinstance(content, str) else [turn["content"] for turn in content]
    n_prompt = sum(len(text.encode("utf-8", "surrogatepass")) for text in texts) + _TEMPLATE_TOKENS
    return max(1, min(wanted, served.max_length - n_prompt - n_answer))


def _answer(served: ServedModel, call: Call) -> dict:
    prompt, decoding = call.prompt, call.prompt.decoding
    # a chat turn may begin with an empty line, which must not end it
    stops = [] if prompt.rendered is not None else prompt.stops
    complete = served.native.complete if served.native else served.completions.complete
    fields = {
        "temperature": decoding["temperature"],
        "top_k": decoding["top_k"] or -1,
        "top_p": decoding["top_p"] or 1.0,
        "repetition_penalty": decoding["repetition_penalty"] or 1.0,
        "seed": prompt.seed(7) if decoding["temperature"] else 0,
    }
    if decoding["min_p"]:
        fields["min_p"] = decoding["min_p"]
    if stops:
        fields |= {"stop": stops[:_MAX_STOPS], "include_stop_str_in_output": True}
    if served.native is None and (names := served.completions.unsupported(fields)):
        return {"error": f"the server does not accept {', '.join(names)}"}
    limit = max(1, prompt.max_new_tokens)
    completion = complete(call.content, limit, **fields, **_extensions(served, call))
    served.compare_length(call.content, completion.prompt_tokens)
    if completion.finish_reason == "length" and limit > 1 + (completion.completion_tokens or limit):
        served.client.stated.flag("cut: by a limit of the server, below that of the request")
    split, ids = _split(served, prompt, completion), _ids(served, prompt, completion)
    text, n_tokens, parts = completion.text, completion.completion_tokens, split.outcome() if split else {}
    if ids is not None and served.native is None:
        text = served.client.redact(decode_continuation(served.tokenizer, prompt.ids, ids))
        n_tokens = len(ids)
    if split and split.state not in (None, "none"):
        text, n_tokens = split.answer, split.n_answer
    if served.client.redaction in f"{completion.reasoning}{completion.text}{text}":
        served.client.stated.flag("redacted: the text contained the key of the server")
    return {
        "raw_output": text,
        "next_turn": prepare.has_next_turn(served, prompt, text),
        "output": prepare.truncate_output(text, prompt.stops, skip_leading_space=prompt.rendered is not None),
        "finish_reason": _finish_reason(completion, text, prompt, bool(stops)),
        "n_tokens": n_tokens,
    } | parts


def _extensions(served: ServedModel, call: Call) -> dict:
    """Return the fields of a request that depend on its form."""
    prompt = call.prompt
    if not prompt.ids:  # the server applies its template, if any
        return {} if prompt.rendered is None else reasoning.template_fields(served)
    if served.native:
        return {}
    if prompt.rendered is None or not prompt.think_tokens:  # not to servers that may refuse the field
        return {"return_token_ids": True} if served.record.server.forms.spans == PromptLogprobs.name else {}
    special = {"skip_special_tokens": False} if reasoning.has_special_markers(served) else {}
    return {"return_token_ids": True} | special


def _ids(served: ServedModel, prompt: prepare.PreparedPrompt, completion: Completion) -> list[int] | None:
    """Return the IDs of the generated tokens, without an end token; None if they are not known."""
    if not (completion.ids and prompt.ids and served.tokenizer is not None):
        return None
    end_ids = (served.eos_id, read(completion.content, "choices", 0, "stop_reason"))  # vLLM states another end token
    is_end = read(completion.content, "stop_type") == "eos" or completion.ids[-1] in end_ids
    return completion.ids[:-1] if is_end else completion.ids


def _split(served: ServedModel, prompt: prepare.PreparedPrompt, completion: Completion) -> reasoning.Split | None:
    """Return the parts of a response: by a field of the server, by the IDs of its tokens, or else by its text."""
    markers, asks = reasoning.markers_of(served), prompt.think_tokens > 0
    if prompt.rendered is None or markers is None:
        return None
    n_reasoning, n_answer = completion.reasoning_tokens, None
    if n_reasoning is not None and completion.completion_tokens is not None:
        n_answer = max(0, completion.completion_tokens - n_reasoning)
    if completion.reasoning or n_reasoning:  # hosted models hide its text
        state = "closed" if completion.text.strip() else reasoning.UNCLOSED
        by = completion.reasoning_field or "usage"
        return reasoning.Split(completion.text, completion.reasoning, state, n_reasoning, n_answer, by)
    if (ids := _ids(served, prompt, completion)) is not None:
        limit = prompt.answer_tokens if asks else None
        return prepare.reader_of(served, prompt).split(ids, budget=prompt.think_tokens, limit=limit)
    split = reasoning.split_text(completion.text, markers, opened=prompt.opened, asks=asks)
    if asks and split.state == "none" and not prompt.ids and completion.finish_reason == "length":
        # a template that opens the block, or a parser that leaves a truncated one in the text
        return reasoning.Split("", completion.text, reasoning.UNCLOSED, completion.completion_tokens, 0)
    return split


def _finish_reason(completion: Completion, text: str, prompt: prepare.PreparedPrompt, has_stops: bool) -> str:
    """Return "stop", "eos" or "length"; a server that does not tell a stop string from an EOS token has "stop"."""
    if prepare.find_stop(text, prompt.stops, skip_leading_space=prompt.rendered is not None) is not None:
        return "stop"
    if completion.finish_reason == "length":
        return "length"
    tells = "stop_reason" in (read(completion.content, "choices", 0) or {}) or "stop_type" in completion.content
    return "stop" if completion.stop or (has_stops and not tells) else "eos"
