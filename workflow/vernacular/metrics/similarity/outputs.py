"""Extraction of the answer from a generation: the generated line, or the output of Simil-Eval's parser.

Simil-Eval's parser and options of metrics include its errors: it compares answers including surrounding whitespace,
weights BERTScore by idf, and uses the evaluated model itself as the encoder of the cosine, so that cosines of different
models are not comparable.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from vernacular.types import Generation, Item, Request, Role

METRIC_OPTIONS = {"moverscore": {"variant": "simil-eval"}, "bertscore": {"idf": True}}
SELF_ENCODED = ("cosine",)
STEMS = ("RESPOST", "CONTINUAC", "RESUM")  # a prompt ends in one of these unfinished labels


def parse(request: Request, generation: dict) -> str:
    """Return the answer as Simil-Eval extracts it from prompt and completion (`get_generated_answer`, sim_steps.py).

    The prompt ends in the stem of a label ("RESPOST"), which the model is expected to complete ("A: the answer"). The
    answer is on the last line that begins with the stem; everything up to its *last* colon is removed. The errors of
    the parser are reproduced, for comparison with published values: a colon inside the answer truncates it
    ("RESPOSTA: razón 3:1" → "1"), a label without a colon is itself the answer, a second label that the model begins
    replaces the first, and an answer on a separate line is lost. The text of a chat model follows a literal
    "RESPOST.*: ", as that tool stores it.

    >>> parse({"prefix": "", "text": "PREGUNTA: x\\nRESPOST"}, {"rendered": None, "raw_output": "A: razón 3:1"})
    '1'
    """
    stem = label_stem(request["text"])
    head = request["prefix"] + request["text"] if generation["rendered"] is None else f"{stem}.*: "
    for line in reversed((head + generation["raw_output"]).split("\n")):
        if line.lstrip().startswith(stem):
            return re.sub(rf"^{re.escape(stem)}.*:", "", line.strip())
    return ""


def is_prompt(request: Request) -> bool:
    """Return whether a request is in Simil-Eval's style: it ends inside a label, and decoding is by sampling.

    A text to be continued may also end in "RESUM", but its decoding is greedy.
    """
    return bool(request.get("decoding")) and label_stem(request["text"]) in STEMS


def label_stem(text: str) -> str:
    """Return the incomplete label at the end of a Simil-Eval prompt: "RESPOST", "CONTINUAC" or "RESUM"."""
    return text[max(text.rfind("\n"), text.rfind(" ")) + 1 :]


@dataclass(frozen=True)
class ParsedOutput:
    """The answer to one item, with its flag."""

    text: str  # "" if the response is empty, None if the generation failed
    flag: str | None  # the generation's own flag, and "empty answer"
    values: dict[str, float] = field(default_factory=dict)  # of the reasoning before it, by metric; {}: none
    is_cut: bool = False  # whether the response ends at its largest number of tokens


def sample_name(metric: str, number: int) -> str:
    """Return the name of a similarity of one of several samples, of which the first is number 0: `cosine@1`."""
    return f"{metric}@{number}" if number else metric


def samples_of(
    items: list[Item], requests: list[Request], generations: list[Generation]
) -> Iterator[tuple[Item, Request, list[ParsedOutput]]]:
    """Yield each item that has a request, its first request, and the answers of all samples; see `parse_samples`."""
    samples = parse_samples(requests, generations)
    request_by_item = {request["item_id"]: request for request in reversed(requests)}
    failed = [ParsedOutput(None, "error: no generation")]
    for item in items:
        if request := request_by_item.get(item["item_id"]):
            yield item, request, samples.get(item["item_id"], failed)


def parse_outputs(requests: list[Request], generations: list[Generation]) -> dict[str, ParsedOutput]:
    """Return {item_id: answer}, of the first sample; see `parse_samples`."""
    return {item: samples[0] for item, samples in parse_samples(requests, generations).items()}


def parse_samples(requests: list[Request], generations: list[Generation]) -> dict[str, list[ParsedOutput]]:
    """Return {item_id: answers}, from rows of REQUESTS and GENERATIONS with role "response", else an item's only one.

    Responses to Simil-Eval's prompts are parsed as in that tool. A generation with the flag "error: …" has no answer
    (text None), in contrast to an empty response.
    """
    request_by_key = {(request["item_id"], request["role"]): request for request in requests}
    rows_by_item: dict[str, list[Generation]] = {}
    for row in generations:
        rows_by_item.setdefault(row["item_id"], []).append(row)
    samples = {}
    for item, rows in rows_by_item.items():
        responses = {Role.parse(row["role"]).rotation: row for row in rows if row["role"].startswith("response")}
        ordered = [responses[number] for number in sorted(responses)] or rows[:1]
        samples[item] = [_parse(request_by_key[item, row["role"]], row) for row in ordered]
    return samples


def _parse(request: Request, row: Generation) -> ParsedOutput:
    flag = row["flags"]
    if row["raw_output"] is None or (flag and "error:" in flag):
        return ParsedOutput(None, flag or "error: no generation")
    text = parse(request, row) if is_prompt(request) else row["output"] or ""
    values = _reasoning_values(row)
    if values.get("unclosed"):
        return ParsedOutput("", flag, values)  # no answer, whatever a parser would find
    if not text.strip():
        flag = f"{flag}; empty answer" if flag else "empty answer"
    return ParsedOutput(text, flag, values, is_cut=row.get("finish_reason") == "length")


def _reasoning_values(row: Generation) -> dict[str, float]:
    state, n_tokens = row.get("think_state"), row.get("n_reasoning_tokens")
    if state is None:
        return {}
    values = {"unclosed": float(state == "unclosed"), "no_reasoning": float(state == "none")}
    values["answer_cut"] = float(row["finish_reason"] == "length" and state != "unclosed")
    return values | ({} if n_tokens is None else {"reasoning_tokens": float(n_tokens)})
