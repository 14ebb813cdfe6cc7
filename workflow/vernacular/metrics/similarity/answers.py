"""Which text of a generation is the answer: the generated line, or in a tool's style what its own parser extracts."""

from dataclasses import dataclass

from vernacular.core.fingerprint import import_each
from vernacular.types import Generation, Request

# style: the module of another tool that has STYLES, METRIC_OPTIONS, SELF_ENCODED, `strip`, `is_prompt` and `parse`
TOOLS = {style: tool for tool in import_each("vernacular/interop/*/answers.py").values() for style in tool.STYLES}


@dataclass(frozen=True)
class Answer:
    """The answer to one item, and what is to be said of it."""

    text: str  # "" where the model gave none, None where the generation itself failed
    flag: str | None  # the generation's own flag, and "empty answer"


def given(requests: list[Request], generations: list[Generation]) -> dict[str, Answer]:
    """`item_id` → Answer, from rows of REQUESTS and GENERATIONS with role "answer" (or the item's only generation).

    Answers to a tool's prompts are parsed as that tool does. A generation flagged "error: …" has no answer (text None):
    it is not the model's silence but our failure.
    """
    asked = {(r["item_id"], r["role"]): r for r in requests}
    answers = {}
    for row in generations:
        if row["item_id"] in answers and row["role"] != "answer":
            continue
        flag = row["flag"]
        if row["raw"] is None or (flag and "error:" in flag):
            answers[row["item_id"]] = Answer(None, flag or "error: no generation")
            continue
        request = asked[row["item_id"], row["role"]]
        tool = next((tool for tool in TOOLS.values() if tool.is_prompt(request)), None)
        text = tool.parse(request, row) if tool else row["answer"] or ""
        if not text.strip():
            flag = f"{flag}; empty answer" if flag else "empty answer"
        answers[row["item_id"]] = Answer(text, flag)
    return answers
