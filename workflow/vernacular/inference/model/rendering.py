"""The prompt text of a request: chat template, and few-shot examples dropped to fit the context length.

Shared by scoring and generation.
"""

from collections.abc import Callable
from typing import TypeVar

from jinja2 import TemplateError

from vernacular.core.errors import ModelError, first_line, format_count
from vernacular.core.processes import TimeLimitExceeded, time_limit
from vernacular.inference.model.tokenization import TextModel
from vernacular.types import Request

T = TypeVar("T")

# Templates that write the current date into the prompt (Llama 3, SmolLM3) would change the results from day to day.
# They obtain it from `date_string` or `strftime_now`; a macro of that name replaces the function of transformers.
_WITHOUT_DATE = "{% macro strftime_now(pattern) %}{% endmacro %}"
_TIME_LIMIT = 10  # per prompt; typical templates take milliseconds
# A template is a program; these are the errors that it can raise.
_TEMPLATE_ERRORS = (TemplateError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
_TEMPLATE_ERRORS += (MemoryError,)


def uses_chat(loaded: TextModel, messages: list[dict] | None, kind: str) -> bool:
    """Return whether the chat template is applied to a request; kind: "generate" or "score".

    With "auto", it is applied to generate requests if the tokenizer has one. Log-probabilities are those of plain text
    unless `chat` is true: PalmX and lm-evaluation-harness define their prompts so, and the scores of a base model and
    its chat model remain comparable. Raises ModelError if `chat` is true and the tokenizer has no template.
    """
    chat_option = loaded.record.chat
    has_template = bool(getattr(loaded.tokenizer, "chat_template", None))
    if chat_option is True and not has_template:
        raise ModelError(
            f"model {loaded.record.name}: chat is true, but its tokenizer has no chat template. Set chat: auto."
        )
    return bool(messages) and (has_template and kind == "generate" if chat_option == "auto" else bool(chat_option))


def render(loaded: TextModel, messages: list[dict]) -> str:
    """Render chat turns as text, up to the beginning of the model's turn and without a date.

    The text contains its special tokens: tokenize it without adding any. Raises ModelError if the template fails or
    takes more than `_TIME_LIMIT`.
    """
    name = loaded.record.name
    if loaded.template_error:
        raise ModelError(loaded.template_error)
    messages = [{"role": turn["role"], "content": turn["content"]} for turn in messages]
    try:
        template = loaded.tokenizer.get_chat_template()
        if "strftime_now" in template:
            template = _WITHOUT_DATE + template
        with time_limit(_TIME_LIMIT):
            return loaded.tokenizer.apply_chat_template(
                messages, chat_template=template, tokenize=False, add_generation_prompt=True, date_string=""
            )
    except TimeLimitExceeded:
        raise ModelError(f"model {name}: its chat template did not finish within {_TIME_LIMIT} seconds.") from None
    except _TEMPLATE_ERRORS as error:
        raise ModelError(f"model {name}: its chat template failed: {first_line(error)}.") from error


def try_template(loaded: TextModel) -> None:
    """Render a short conversation, so that a template that does not finish is not used by threads.

    Call it in the main thread. A power of large integers can be interrupted only there; in any other, it stops the
    entire process, because it does not release the interpreter.
    """
    if not getattr(loaded.tokenizer, "chat_template", None) or loaded.record.chat is False:
        return
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]
    try:
        render(loaded, turns)
    except ModelError as error:
        if isinstance(error.__context__, TimeLimitExceeded):
            loaded.template_error = str(error)  # other errors can depend on the turns


def render_continuation(loaded: TextModel, messages: list[dict], continuation: str) -> tuple[str, int]:
    """Return (text, start of the continuation in it): the rendered prompt followed by the text to score.

    The continuation begins the model's turn, so the space that separates it from the question in plain text is dropped.
    """
    prompt = render(loaded, messages)
    return prompt + continuation.lstrip(), len(prompt)


def fit_to_length(row: Request, attempt: Callable[[Request], tuple[T, bool]]) -> tuple[T, int]:
    """Drop few-shot examples from a request, first ones first, until it fits the model's context length.

    `attempt` maps a request to (result, whether it fits). Returns the last result and the number of dropped examples;
    the result does not fit if the request does not fit without its removable examples.
    """
    examples = row["few_shot_examples"] or []
    if "".join(examples) != row["prefix"]:
        examples = []  # the prefix is not the joined examples: dropping one could leave a malformed prompt
    for n_dropped in range(len(examples) + 1):
        result, fits = attempt(drop_examples(row, n_dropped))
        if fits:
            break
    return result, n_dropped


def dropped_flag(n_dropped: int) -> str | None:
    """Return the flag of a row with `n_dropped` few-shot examples dropped; None for 0."""
    return f"truncated: {format_count(n_dropped, 'few-shot example')} dropped" if n_dropped else None


def drop_examples(row: Request, n_dropped: int) -> Request:
    """Return a request without its first `n_dropped` few-shot examples, in prefix, span and chat turns.

    In chat turns, an example is a user turn and an assistant turn, or the beginning of the only turn; system turns are
    retained.
    """
    if not n_dropped:
        return row
    offset = len("".join(row["few_shot_examples"][:n_dropped]))
    span = {name: row[name] - offset for name in ("span_start", "span_end") if row[name] is not None}
    messages = row["messages"]
    if messages and len(messages) == 1 and messages[0]["content"].startswith(row["prefix"]):
        messages = [{**messages[0], "content": messages[0]["content"][offset:]}]
    elif messages:
        example_turns = [turn for turn in messages if turn["role"] != "system"]
        messages = [turn for turn in messages if turn["role"] == "system"] + example_turns[2 * n_dropped :]
    return {**row, "prefix": row["prefix"][offset:], "messages": messages, **span}
