"""Which text of a generation is the answer: what the default style gave, or what Simil-Eval's parser makes of it."""

import re
from dataclasses import dataclass

from vernacular.types import Generation, Request

STEMS = ("RESPOST", "CONTINUAC", "RESUM")  # a Simil-Eval prompt ends in one of these unfinished labels


@dataclass(frozen=True)
class Answer:
    """The answer to one item, and what is to be said of it."""

    text: str  # "" where the model gave none, None where the generation itself failed
    flag: str | None  # the generation's own flag, and "empty answer"


def given(requests: list[Request], generations: list[Generation]) -> dict[str, Answer]:
    """`item_id` → Answer, from rows of REQUESTS and GENERATIONS with role "answer" (or the item's only generation).

    Answers to prompts in Simil-Eval's style are parsed as that tool does. A generation flagged "error: …" has no answer
    (text None): it is not the model's silence but our failure.
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
        text = simil_eval_answer(request, row) if is_simil_eval(request) else row["answer"] or ""
        if not text.strip():
            flag = f"{flag}; empty answer" if flag else "empty answer"
        answers[row["item_id"]] = Answer(text, flag)
    return answers


def simil_eval_answer(request: Request, generation: dict) -> str:
    """The answer as Simil-Eval cuts it out of the prompt and its completion (`get_generated_answer`, sim_steps.py).

    The prompt ends in the stem of a label ("RESPOST"), which the model is to finish ("A: the answer"). From the last
    line upwards, the first one that begins with the stem is the answer's; everything up to its *last* colon goes.
    Its faults are kept, for the sake of the numbers that were published with it: a colon inside the answer cuts it
    ("RESPOSTA: razón 3:1" → "1"), a label without a colon is itself the answer, a second label that the model begins
    wins over the first, and an answer on a line of its own is lost. A chat model's text stands after a literal
    "RESPOST.*: ", as that tool saves it.

    >>> simil_eval_answer({"prefix": "", "text": "PREGUNTA: x\\nRESPOST"}, {"rendered": None, "raw": "A: razón 3:1"})
    '1'
    """
    stem = label_stem(request["text"])
    start = request["prefix"] + request["text"] if generation["rendered"] is None else f"{stem}.*: "
    for line in reversed((start + generation["raw"]).split("\n")):
        if line.lstrip().startswith(stem):
            return re.sub(rf"^{re.escape(stem)}.*:", "", line.strip())
    return ""


def is_simil_eval(request: Request) -> bool:
    """Is this a prompt in Simil-Eval's style? It ends in the middle of a label, and its answer is sampled, as no other.

    (A text to be continued may end in "RESUM" too, but the answer to it is never sampled.)
    """
    return bool(request.get("decoding")) and label_stem(request["text"]) in STEMS


def label_stem(text: str) -> str:
    """The unfinished label at the end of a Simil-Eval prompt: "RESPOST", "CONTINUAC" or "RESUM"."""
    return text[max(text.rfind("\n"), text.rfind(" ")) + 1 :]
