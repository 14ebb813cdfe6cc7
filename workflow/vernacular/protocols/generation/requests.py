"""generation: the model writes its answer, which is compared with the options afterwards.

Styles: `default` shows the options, `open` does not; `simil-eval` and `simil-eval-open` are that tool's own prompts and
sampling. In the first two decoding is greedy, ends at the line's end, and lasts as long as the longest option needs.
"""

from vernacular.protocols.generation import simil_eval
from vernacular.protocols.prompts import answer, demonstration, query, shown_order
from vernacular.protocols.request_rows import Setting, continue_with, generated, turn, unasked
from vernacular.types import Item, Request


def demonstrate(item: Item, setting: Setting) -> tuple[str, list[dict]]:
    """A demonstration as text and as chat turns."""
    if setting.style.startswith("simil-eval"):
        reply = item["target"] or answer(item)
        return simil_eval.prompt(item, setting.layout, _shown(item, setting), reply), []
    text = query(item, setting.layout, setting.labels, _shown(item, setting))
    turns = [turn("user", _instructed(text, setting)), turn("assistant", answer(item))]
    return demonstration(text, answer(item), setting.language), turns


def requests(item: Item, setting: Setting) -> list[Request]:
    """One generate request, role "answer"."""
    if not (item["context"] or item["question"]):
        return [unasked(item, "neither context nor question")]
    if setting.style.startswith("simil-eval"):
        text = simil_eval.prompt(item, setting.layout, _shown(item, setting), None)
        whole = setting.prefix + text  # one user message, however many demonstrations it holds
        return [
            generated(
                item,
                text,
                setting=setting,
                turns=[turn("user", whole)],
                max_new_tokens=simil_eval.max_new_tokens(setting.layout),
                decoding=simil_eval.decoding(setting.seed, whole),
            )
        ]
    text = query(item, setting.layout, setting.labels, _shown(item, setting))
    turns = [*setting.turns, turn("user", _instructed(text, setting))]
    answers = [*item["choices"], *([item["target"]] if item["target"] else [])]
    longest = max((continue_with(text, each, setting.language)[1] for each in answers), key=len, default=None)
    return [generated(item, text, setting=setting, turns=turns, stop=["\n"], longest_answer=longest)]


def _shown(item: Item, setting: Setting) -> list[str] | None:
    if setting.style.endswith("open") or setting.layout == "summary":
        return None
    return [item["choices"][i] for i in shown_order(item, setting.layout, setting.seed)] or None


def _instructed(text: str, setting: Setting) -> str:
    """A text to be continued says nothing to a chat model: tell it what is wanted."""
    return f"{setting.labels['complete']}\n{text}" if setting.layout == "continuation" else text
