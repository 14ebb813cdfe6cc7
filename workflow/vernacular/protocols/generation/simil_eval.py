"""Exact prompts and decoding parameters of Simil-Eval.

All properties are reproduced, for comparison with earlier results: one set of Galician labels for every language,
sixteen spaces from the indentation of its source code, spaces before some line ends, and an incomplete label
("RESPOST") that the model is expected to complete. Only the shuffle of `multi_answer` options and the sampling differ:
here, they are seeded.
"""

from vernacular.core.errors import ConfigError
from vernacular.core.fingerprint import fingerprint
from vernacular.protocols.prompts import gold_text
from vernacular.protocols.request_rows import RequestSettings, generation_requests, turn
from vernacular.types import Item, Request

_INDENT = " " * 16
ITEM_TYPES = ("passage", "question", "story", "multi_answer", "summary")


def check(task: dict, style: str) -> None:
    """Raise ConfigError if Simil-Eval has no prompt for the items of a task."""
    location = f"Task {task['task']}"
    if task["item_type"] not in ITEM_TYPES:
        raise ConfigError(
            f"{location}: Simil-Eval has no prompt for the item_type {task['item_type']}. Use another style."
        )
    if style == "simil-eval-open" and task["item_type"] == "summary":
        raise ConfigError(
            f"{location}: Simil-Eval has no prompt without options for summaries. Use the style simil-eval."
        )


def few_shot_example(item: Item, settings: RequestSettings, options: list[str] | None) -> tuple[str, list[dict]]:
    """Return a few-shot example as text; no chat turns, because `requests` puts all text into one message."""
    return prompt(item, settings.item_type, options, item["target"] or gold_text(item)), []


def requests(item: Item, settings: RequestSettings, options: list[str] | None) -> list[Request]:
    """Return a generate request per sample, with Simil-Eval's sampling; `options` are in the order to show them."""
    text = prompt(item, settings.item_type, options, None)
    full = settings.prefix + text  # one user message, including all few-shot examples
    return generation_requests(
        item,
        text,
        settings=settings,
        messages=[turn("user", full)],
        max_new_tokens=max_new_tokens(settings.item_type),
        decoding=decoding(settings.seed, full),
    )


def prompt(item: Item, item_type: str, options: list[str] | None, reply: str | None) -> str:
    """Return the prompt of an item: with `reply` a few-shot example, else the query, which ends in a label's stem."""
    context, question = item["context"], item["question"]
    if item_type == "passage":
        space = " " if options else ""
        head = f"CONTEXTO: {context} \n{_INDENT}PREGUNTA: {question}{space}\n"
        return head + _options(options, _INDENT) + _label(_INDENT, "RESPOST", "A", reply)
    if item_type == "question":
        return (
            f"PREGUNTA: {question} \n"
            + _options(options, _INDENT, letters=True)
            + _label(_INDENT, "RESPOST", "A", reply)
        )
    if item_type == "story":
        spaces = {(True, True): " ", (True, False): "", (False, True): "  ", (False, False): " "}
        head = f"TEXTO: {context}{spaces[bool(options), reply is not None]}\n"
        return head + _options(options, _INDENT) + _label(_INDENT, "CONTINUAC", "ION", reply)
    if item_type == "multi_answer" and options:
        return f"PREGUNTA: {question}\n" + _options(options, "") + _label("", "RESPOST", "A", reply)
    if item_type == "multi_answer":
        return f"CONTEXTO: {question} \n{_INDENT}PREGUNTA: {question}\n" + _label(_INDENT, "RESPOST", "A", reply)
    if item_type == "summary":
        return f"TEXTO: {context} \n" + _label(_INDENT, "RESUM", "O", reply)
    raise ConfigError(f'expected a layout of Simil-Eval ({", ".join(ITEM_TYPES)}), got "{item_type}".')


def max_new_tokens(item_type: str) -> int:
    return 60 if item_type == "summary" else 20


def decoding(seed: int, text: str) -> dict:
    """Return Simil-Eval's sampling parameters (top_k 50 was the default of transformers); one stream per request."""
    request_seed = int(fingerprint([seed, text])[:8], 16)
    return {"temperature": 0.5, "top_k": 50, "top_p": None, "repetition_penalty": 0.5, "seed": request_seed}


def _options(options: list[str] | None, indent: str, *, letters: bool = False) -> str:
    labels = (chr(ord("A") + i) if letters else str(i + 1) for i in range(len(options or ())))
    return "".join(f"{indent}OPCION {label}: {choice}\n" for label, choice in zip(labels, options or (), strict=True))


def _label(indent: str, stem: str, ending: str, reply: str | None) -> str:
    return f"{indent}{stem}" if reply is None else f"{indent}{stem}{ending}: {reply}\n"
