"""choice: the letter that a response names (`parser`); a response without one is incorrect, and counted.

A failed generation is excluded from all metrics. A response that ends within its reasoning names nothing.
"""

from collections.abc import Sequence
from dataclasses import replace
from string import ascii_uppercase

from vernacular.metrics.metric import Metric
from vernacular.metrics.similarity.outputs import ParsedOutput
from vernacular.metrics.spans import Choice, choose_option, correct_options, result_row
from vernacular.protocols.choice.parser import STEPS, Answers, extract
from vernacular.protocols.generation.metrics import RESPONSES, SAMPLES
from vernacular.protocols.letters.metrics import reordered
from vernacular.types import Item, Request, Result

METRICS = [
    Metric("accuracy", "share", True, "similarity", proportion=True, headline=True,
           about="the response names the correct option; one that names none is incorrect"),
    Metric("accuracy_parsed", "share", True, "similarity", proportion=True,
           about="accuracy of the responses that name an option"),
    Metric("extraction_failed", "share", False, "similarity", proportion=True,
           about="responses in which no option is found: they abstain, refuse, name several, or are cut"),
    *(Metric(f"found_in_{step}", "share", None, "similarity", proportion=True,
             about=f"responses whose option is found in step {number} of the parser ({step})")
      for number, step in enumerate(STEPS, 1)),
    *(replace(metric, about=metric.about.replace("exact_match", "accuracy").replace("an exact match", "a correct one"))
      for metric in SAMPLES),
    *RESPONSES,
]  # fmt: skip


def result_of(item: Item, request: Request, output: ParsedOutput, answers: Sequence[Answers] = ()) -> Result:
    """Return the row of an item, with the options in the order of their letters.

    `answers`: words around the letter in the languages of responses.
    """
    listed = next((extra for extra in request["extras"] or () if extra.startswith("order:")), None)
    order = range(len(item["choices"])) if listed is None else map(int, listed.partition(":")[2].split())
    item = reordered(item, list(order))
    correct = correct_options(item["choices"], item["gold"])
    values: dict[str, float] = {}
    choice, step = Choice([], None), None
    if output.text is not None:
        index, step = extract(output.text, item["choices"], answers, is_complete=not output.is_cut)
        if index is None:
            choice = Choice([], False if correct else None)
        else:
            choice = choose_option([float(i == index) for i in range(len(item["choices"]))], correct)
            values |= choice.outcome("accuracy_parsed")
        values |= choice.outcome() | {"extraction_failed": float(index is None)}
        values |= {f"found_in_{name}": float(name == step) for name in STEPS}
    prediction = ascii_uppercase[choice.predicted_indices[0]] if choice.predicted_indices else None
    values |= output.values
    row = result_row(item, [output.flag], request["text"], values, choice=choice, prediction=prediction)
    return row | {"predicted_indices": choice.predicted_indices or None}
