"""Exact prompts and decoding parameters of Simil-Eval.

All properties are reproduced, for comparison with earlier results: one set of Galician labels for every language,
sixteen spaces from the indentation of its source code, spaces before some line ends, and an incomplete label
("RESPOST") that the model is expected to complete. Only the shuffle of `multi_answer` options and the sampling differ:
here, they are seeded.
"""

from vernacular.core.errors import ConfigError
from vernacular.core.fingerprint import fingerprint
from vernacular.interop.simil_eval import STYLES as STYLES
from vernacular.protocols.prompts import answer
from vernacular.protocols.request_rows import Setting, generated, turn
from vernacular.types import Item, Request

_IN = " " * 16
LAYOUTS = ("passage", "question", "story", "multi_answer", "summary")


def check(task: dict, style: str) -> None:
    """Raise ConfigError if Simil-Eval has no prompt for the items of a task."""
    where = f"Task {task['task']}"
    if task["item_type"] not in LAYOUTS:
        raise ConfigError(
            f"{where}: Simil-Eval has no prompt for the item_type {task['item_type']}. Use another style."
        )
    if style == "simil-eval-open" and task["item_type"] == "summary":
        raise ConfigError(f"{where}: Simil-Eval has no prompt without options for summaries. Use the style simil-eval.")


def few_shot_example(item: Item, setting: Setting, shown: list[str] | None) -> tuple[str, list[dict]]:
    """Return a few-shot example as text; no chat turns, because `requests` puts all text into one message."""
    return prompt(item, setting.layout, shown, item["target"] or answer(item)), []


def requests(item: Item, setting: Setting, shown: list[str] | None) -> list[Request]:
    """Return one generate request with Simil-Eval's sampling; `shown` are the options in the order to show them."""
    text = prompt(item, setting.layout, shown, None)
    full = setting.prefix + text  # one user message, including all few-shot examples
    request = generated(
        item,
        text,
        setting=setting,
        messages=[turn("user", full)],
        max_new_tokens=max_new_tokens(setting.layout),
        decoding=decoding(setting.seed, full),
    )
    return [request]


def prompt(item: Item, layout: str, shown: list[str] | None, reply: str | None) -> str:
    """Return the prompt of an item: with `reply` a few-shot example, else the query, which ends in a label's stem."""
    context, question = item["context"], item["question"]
    if layout == "passage":
        blank = " " if shown else ""
        head = f"CONTEXTO: {context} \n{_IN}PREGUNTA: {question}{blank}\n"
        return head + _options(shown, _IN) + _end(_IN, "RESPOST", "A", reply)
    if layout == "question":
        return f"PREGUNTA: {question} \n" + _options(shown, _IN, letters=True) + _end(_IN, "RESPOST", "A", reply)
    if layout == "story":
        blanks = {(True, True): " ", (True, False): "", (False, True): "  ", (False, False): " "}
        head = f"TEXTO: {context}{blanks[bool(shown), reply is not None]}\n"
        return head + _options(shown, _IN) + _end(_IN, "CONTINUAC", "ION", reply)
    if layout == "multi_answer" and shown:
        return f"PREGUNTA: {question}\n" + _options(shown, "") + _end("", "RESPOST", "A", reply)
    if layout == "multi_answer":
        return f"CONTEXTO: {question} \n{_IN}PREGUNTA: {question}\n" + _end(_IN, "RESPOST", "A", reply)
    if layout == "summary":
        return f"TEXTO: {context} \n" + _end(_IN, "RESUM", "O", reply)
    raise ConfigError(f'expected a layout of Simil-Eval ({", ".join(LAYOUTS)}), got "{layout}".')


def max_new_tokens(layout: str) -> int:
    return 60 if layout == "summary" else 20


def decoding(seed: int, text: str) -> dict:
    """Return Simil-Eval's sampling parameters (top_k 50 was the default of transformers); one stream per request."""
    stream = int(fingerprint([seed, text])[:8], 16)
    return {"temperature": 0.5, "top_k": 50, "top_p": None, "repetition_penalty": 0.5, "seed": stream}


def _options(shown: list[str] | None, indent: str, *, letters: bool = False) -> str:
    names = (chr(ord("A") + i) if letters else str(i + 1) for i in range(len(shown or ())))
    return "".join(f"{indent}OPCION {name}: {option}\n" for name, option in zip(names, shown or (), strict=True))


def _end(indent: str, stem: str, rest: str, reply: str | None) -> str:
    return f"{indent}{stem}" if reply is None else f"{indent}{stem}{rest}: {reply}\n"
