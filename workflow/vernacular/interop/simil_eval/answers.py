"""How Simil-Eval reads and measures answers, its faults included.

It compares an answer with the whitespace around it, weights BERTScore by idf, and takes the evaluated model itself as
the encoder of the cosine, which is why its cosines compare no two models.
"""

import re

from vernacular.interop.simil_eval import STYLES as STYLES
from vernacular.types import Request

METRIC_OPTIONS = {"moverscore": {"variant": "simil-eval"}, "bertscore": {"idf": True}}
SELF_ENCODED = ("cosine",)
STEMS = ("RESPOST", "CONTINUAC", "RESUM")  # a prompt ends in one of these unfinished labels


def strip(text: str) -> str:
    """Return a text as it is compared: unchanged."""
    return text


def parse(request: Request, generation: dict) -> str:
    """Return the answer as Simil-Eval extracts it from prompt and completion (`get_generated_answer`, sim_steps.py).

    The prompt ends in the stem of a label ("RESPOST"), which the model is to finish ("A: the answer"). From the last
    line upwards, the first one that begins with the stem is the answer's; everything up to its *last* colon goes.
    Its faults are kept, for the sake of the numbers that were published with it: a colon inside the answer cuts it
    ("RESPOSTA: razón 3:1" → "1"), a label without a colon is itself the answer, a second label that the model begins
    wins over the first, and an answer on a line of its own is lost. A chat model's text stands after a literal
    "RESPOST.*: ", as that tool saves it.

    >>> parse({"prefix": "", "text": "PREGUNTA: x\\nRESPOST"}, {"rendered": None, "raw": "A: razón 3:1"})
    '1'
    """
    stem = label_stem(request["text"])
    start = request["prefix"] + request["text"] if generation["rendered"] is None else f"{stem}.*: "
    for line in reversed((start + generation["raw"]).split("\n")):
        if line.lstrip().startswith(stem):
            return re.sub(rf"^{re.escape(stem)}.*:", "", line.strip())
    return ""


def is_prompt(request: Request) -> bool:
    """Whether a request is in Simil-Eval's style: it ends in the middle of a label and is sampled, as no other.

    (A text to be continued may end in "RESUM" too, but the answer to it is never sampled.)
    """
    return bool(request.get("decoding")) and label_stem(request["text"]) in STEMS


def label_stem(text: str) -> str:
    """The unfinished label at the end of a Simil-Eval prompt: "RESPOST", "CONTINUAC" or "RESUM"."""
    return text[max(text.rfind("\n"), text.rfind(" ")) + 1 :]
