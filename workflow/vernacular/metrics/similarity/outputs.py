"""Extraction of the answer from a generation: the generated line, or the output of Simil-Eval's parser."""

from dataclasses import dataclass

from vernacular.metrics.similarity import simil_eval
from vernacular.types import Generation, Request


@dataclass(frozen=True)
class ParsedOutput:
    """The answer to one item, with its flag."""

    text: str  # "" if the response is empty, None if the generation failed
    flag: str | None  # the generation's own flag, and "empty answer"


def parse_outputs(requests: list[Request], generations: list[Generation]) -> dict[str, ParsedOutput]:
    """Return {item_id: Answer}, from rows of REQUESTS and GENERATIONS with role "response", else an item's only one.

    Responses to Simil-Eval's prompts are parsed as in that tool. A generation with the flag "error: …" has no answer
    (text None), in contrast to an empty response.
    """
    request_by_key = {(request["item_id"], request["role"]): request for request in requests}
    outputs = {}
    for row in generations:
        if row["item_id"] in outputs and row["role"] != "response":
            continue
        flag = row["flags"]
        if row["raw_output"] is None or (flag and "error:" in flag):
            outputs[row["item_id"]] = ParsedOutput(None, flag or "error: no generation")
            continue
        request = request_by_key[row["item_id"], row["role"]]
        text = simil_eval.parse(request, row) if simil_eval.is_prompt(request) else row["output"] or ""
        if not text.strip():
            flag = f"{flag}; empty answer" if flag else "empty answer"
        outputs[row["item_id"]] = ParsedOutput(text, flag)
    return outputs
