"""The prompts and decoding of Simil-Eval (Rodríguez et al., Findings of ACL 2025), to the byte.

One set of Galician labels for every language, sixteen blanks that its source code's indentation left in the prompts,
blanks before some line ends, and a label cut short ("RESPOST") for the model to finish: all of it is kept, so that its
users can compare with their old numbers. Ours alone: the shuffle of `truth` options and the sampling are seeded.
"""

from vernacular.core.errors import ConfigError
from vernacular.core.fingerprint import fingerprint
from vernacular.types import Item

_IN = " " * 16
LAYOUTS = ("passage", "question", "story", "truth", "summary")


def prompt(item: Item, layout: str, shown: list[str] | None, reply: str | None) -> str:
    """The prompt of an item; with `reply` a demonstration, without one the query, which ends in the stem of a label."""
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
    if layout == "truth" and shown:
        return f"PREGUNTA: {question}\n" + _options(shown, "") + _end("", "RESPOST", "A", reply)
    if layout == "truth":
        return f"CONTEXTO: {question} \n{_IN}PREGUNTA: {question}\n" + _end(_IN, "RESPOST", "A", reply)
    if layout == "summary":
        return f"TEXTO: {context} \n" + _end(_IN, "RESUM", "O", reply)
    raise ConfigError(f'Simil-Eval has no prompt of layout "{layout}"; its style knows {", ".join(LAYOUTS)}.')


def max_new_tokens(layout: str) -> int:
    return 60 if layout == "summary" else 20


def decoding(seed: int, text: str) -> dict:
    """Sampling as the tool has it (top_k 50 is what transformers applied unasked); each request has its own stream."""
    stream = int(fingerprint([seed, text])[:8], 16)
    return {"temperature": 0.5, "top_k": 50, "top_p": None, "repetition_penalty": 0.5, "seed": stream}


def _options(shown: list[str] | None, indent: str, *, letters: bool = False) -> str:
    names = (chr(ord("A") + i) if letters else str(i + 1) for i in range(len(shown or ())))
    return "".join(f"{indent}OPCION {name}: {option}\n" for name, option in zip(names, shown or (), strict=True))


def _end(indent: str, stem: str, rest: str, reply: str | None) -> str:
    return f"{indent}{stem}" if reply is None else f"{indent}{stem}{rest}: {reply}\n"
