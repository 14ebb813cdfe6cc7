"""generation: requests for generated responses, which are then compared with the options.

Styles: `default` shows the options, `open` does not. Decoding is greedy and ends at the end of the line, or at the
length of the longest option. All other styles have the prompts and decoding of a tool in `interop/`.
"""

from vernacular.core.fingerprint import import_each
from vernacular.protocols.prompts import answer, example_text, query, shown_order
from vernacular.protocols.request_rows import Setting, continue_with, generated, skipped, turn
from vernacular.types import Item, Request

# style: the module of another tool that has STYLES, `check`, `few_shot_example` and `requests`
_TOOLS = {style: tool for tool in import_each("vernacular/interop/*/prompts.py").values() for style in tool.STYLES}


def check(task: dict, *, style: str) -> None:
    """Raise ConfigError if the style has no prompt for the items of a task."""
    if tool := _TOOLS.get(style):
        tool.check(task, style)


def few_shot_example(item: Item, setting: Setting) -> tuple[str, list[dict]]:
    """Return a few-shot example as text and as chat turns."""
    if tool := _TOOLS.get(setting.style):
        return tool.few_shot_example(item, setting, _shown(item, setting))
    text = query(item, setting.layout, setting.labels, _shown(item, setting))
    messages = [turn("user", _instructed(text, setting)), turn("assistant", answer(item))]
    return example_text(text, answer(item), setting.language), messages


def requests(item: Item, setting: Setting) -> list[Request]:
    """Return one generate request, role "response"."""
    if not (item["context"] or item["question"]):
        return [skipped(item, "neither context nor question")]
    if tool := _TOOLS.get(setting.style):
        return tool.requests(item, setting, _shown(item, setting))
    text = query(item, setting.layout, setting.labels, _shown(item, setting))
    messages = [*setting.messages, turn("user", _instructed(text, setting))]
    answers = [*item["choices"], *([item["target"]] if item["target"] else [])]
    longest = max((continue_with(text, each, setting.language)[1] for each in answers), key=len, default=None)
    return [generated(item, text, setting=setting, messages=messages, stop=["\n"], longest_target=longest)]


def _shown(item: Item, setting: Setting) -> list[str] | None:
    if setting.style.endswith("open") or setting.layout == "summary":
        return None
    return [item["choices"][i] for i in shown_order(item, setting.layout, setting.seed)] or None


def _instructed(text: str, setting: Setting) -> str:
    """Return the chat message of a prompt; a text to be continued requires an instruction for a chat model."""
    return f"{setting.labels['complete']}\n{text}" if setting.layout == "continuation" else text
