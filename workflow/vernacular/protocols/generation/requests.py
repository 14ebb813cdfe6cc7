"""generation: requests for generated responses, which are then compared with the options.

Styles: `default` shows the options, `open` does not. Decoding is greedy and ends at the end of the line, or at the
length of the longest option. The styles `simil-eval` and `simil-eval-open` are those of that tool.
"""

from vernacular.protocols.generation import simil_eval
from vernacular.protocols.prompts import display_order, example_text, gold_text, query
from vernacular.protocols.request_rows import Setting, continue_with, generation_request, skipped_request, turn
from vernacular.types import SIMIL_EVAL_STYLES, Item, Request


def check(task: dict, *, style: str) -> None:
    """Raise ConfigError if the style has no prompt for the items of a task."""
    if style in SIMIL_EVAL_STYLES:
        simil_eval.check(task, style)


def few_shot_example(item: Item, setting: Setting) -> tuple[str, list[dict]]:
    """Return a few-shot example as text and as chat turns."""
    if setting.style in SIMIL_EVAL_STYLES:
        return simil_eval.few_shot_example(item, setting, _displayed_options(item, setting))
    text = query(item, setting.item_type, setting.labels, _displayed_options(item, setting))
    messages = [turn("user", _chat_message(text, setting)), turn("assistant", gold_text(item))]
    return example_text(text, gold_text(item), setting.language), messages


def requests(item: Item, setting: Setting) -> list[Request]:
    """Return one generate request, role "response"."""
    if not (item["context"] or item["question"]):
        return [skipped_request(item, "neither context nor question")]
    if setting.style in SIMIL_EVAL_STYLES:
        return simil_eval.requests(item, setting, _displayed_options(item, setting))
    text = query(item, setting.item_type, setting.labels, _displayed_options(item, setting))
    messages = [*setting.messages, turn("user", _chat_message(text, setting))]
    targets = [*item["choices"], *([item["target"]] if item["target"] else [])]
    longest = max((continue_with(text, target, setting.language)[1] for target in targets), key=len, default=None)
    return [generation_request(item, text, setting=setting, messages=messages, stop=["\n"], longest_target=longest)]


def _displayed_options(item: Item, setting: Setting) -> list[str] | None:
    if setting.style.endswith("open") or setting.item_type == "summary":
        return None
    return [item["choices"][i] for i in display_order(item, setting.item_type, setting.seed)] or None


def _chat_message(text: str, setting: Setting) -> str:
    """Return the chat message of a prompt; a text to be continued requires an instruction for a chat model."""
    return f"{setting.labels['complete']}\n{text}" if setting.item_type == "continuation" else text
