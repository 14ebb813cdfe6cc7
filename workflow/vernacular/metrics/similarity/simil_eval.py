"""Answer parser and metric options of Simil-Eval, including its errors.

It compares answers including surrounding whitespace, weights BERTScore by idf, and uses the evaluated model itself as
the encoder of the cosine, so that cosines of different models are not comparable.
"""

import re

from vernacular.types import Request

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
