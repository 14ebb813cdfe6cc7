"""Extraction of the answer from a generation: the generated line, or the output of a tool's own parser."""

from dataclasses import dataclass

from vernacular.core.fingerprint import import_modules
from vernacular.types import Generation, Request

# style: the module of another tool that has STYLES, METRIC_OPTIONS, SELF_ENCODED, `strip`, `is_prompt` and `parse`
TOOLS = {style: tool for tool in import_modules("vernacular/interop/*/outputs.py").values() for style in tool.STYLES}


@dataclass(frozen=True)
class ParsedOutput:
    """The answer to one item, with its flag."""

    text: str  # "" if the response is empty, None if the generation failed
    flag: str | None  # the generation's own flag, and "empty answer"


def parse_outputs(requests: list[Request], generations: list[Generation]) -> dict[str, ParsedOutput]:
    """Return {item_id: Answer}, from rows of REQUESTS and GENERATIONS with role "response", else an item's only one.

    Responses to a tool's prompts are parsed as in that tool. A generation with the flag "error: …" has no answer (text
    None), in contrast to an empty response.
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
        tool = next((tool for tool in TOOLS.values() if tool.is_prompt(request)), None)
        text = tool.parse(request, row) if tool else row["output"] or ""
        if not text.strip():
            flag = f"{flag}; empty answer" if flag else "empty answer"
        outputs[row["item_id"]] = ParsedOutput(text, flag)
    return outputs
