"""The string that a model reads for a request: chat template, and few-shot examples that do not fit.

Shared by scoring and generation.
"""

from collections.abc import Callable
from typing import TypeVar

from jinja2 import TemplateError

from vernacular.core.errors import ModelError, first_line
from vernacular.core.processes import TimeLimitExceeded, time_limit
from vernacular.inference.model.loaded import LoadedModel
from vernacular.types import Request

T = TypeVar("T")

# Templates that write the day of the run into the prompt (Llama 3's, SmolLM3's) would give other numbers tomorrow. They
# learn it from `date_string` or `strftime_now`; a macro of that name hides the one of transformers.
_NO_DAY = "{% macro strftime_now(pattern) %}{% endmacro %}"
_SECONDS = 10  # of one prompt; usual templates take milliseconds
# A template is a program: what any of them may raise.
_REFUSALS = (TemplateError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
_REFUSALS += (MemoryError,)


def uses_chat(loaded: LoadedModel, turns: list[dict] | None, kind: str) -> bool:
    """Is this request put through the chat template? kind: "generate" or "score".

    "auto": to generate, where the tokenizer has one. Log-probabilities are those of the running text unless a person
    says true: the prompts of PalmX and of the harnesses are meant so, and a base model and its chat model compare.
    Raises ModelError if chat is demanded of a tokenizer without a template.
    """
    wanted = loaded.option("chat", "auto")
    has_template = bool(getattr(loaded.tokenizer, "chat_template", None))
    if wanted is True and not has_template:
        raise ModelError(f"model {loaded.record['name']}: chat is true, and its tokenizer has no chat template.")
    return bool(turns) and (has_template and kind == "generate" if wanted == "auto" else bool(wanted))


def render(loaded: LoadedModel, turns: list[dict]) -> str:
    """The prompt as text: template, turns, and the opening of the model's own turn, no date; tokenise it as it is."""
    name = loaded.record["name"]
    messages = [{"role": turn["role"], "content": turn["content"]} for turn in turns]
    try:
        template = loaded.tokenizer.get_chat_template()
        if "strftime_now" in template:
            template = _NO_DAY + template
        with time_limit(_SECONDS):
            return loaded.tokenizer.apply_chat_template(
                messages, chat_template=template, tokenize=False, add_generation_prompt=True, date_string=""
            )
    except TimeLimitExceeded:
        raise ModelError(f"model {name}: its chat template has not come to an end in {_SECONDS} seconds.") from None
    except _REFUSALS as error:
        raise ModelError(f"model {name}: its chat template refuses these turns: {first_line(error)}") from error


def render_continuation(loaded: LoadedModel, turns: list[dict], continuation: str) -> tuple[str, int]:
    """(text, start of the continuation in it): the rendered prompt followed by the answer to score.

    The answer begins the model's turn, so the blank that parts it from the question in running text is dropped.
    """
    prompt = render(loaded, turns)
    return prompt + continuation.lstrip(), len(prompt)


def fit_to_length(row: Request, attempt: Callable[[Request], tuple[T, bool]]) -> tuple[T, int]:
    """Drop few-shot examples from a request, the first ones first, until it fits the model's context.

    `attempt` receives the request and returns (result, does it fit?). Returns the last result and the number of dropped
    examples; the result fits, unless the request does not even without examples.
    """
    examples = row["demonstrations"] or []
    if "".join(examples) != row["prefix"]:
        examples = []  # nowhere to cut that is certain to leave a well-formed prompt
    for n_dropped in range(len(examples) + 1):
        result, fits = attempt(shortened(row, n_dropped))
        if fits:
            break
    return result, n_dropped


def dropped_flag(n_dropped: int) -> str | None:
    """Return the flag of a row that lost few-shot examples; None where it lost none."""
    return f"truncated: {n_dropped} demonstrations left out" if n_dropped else None


def shortened(row: Request, n_dropped: int) -> Request:
    """Return a request without its first `n_dropped` few-shot examples, in text, span and chat turns.

    An example is a user and an assistant turn, or the beginning of the only turn; system turns remain.
    """
    if not n_dropped:
        return row
    start = len("".join(row["demonstrations"][:n_dropped]))
    span = {name: row[name] - start for name in ("span_start", "span_end") if row[name] is not None}
    turns = row["turns"]
    if turns and len(turns) == 1 and turns[0]["content"].startswith(row["prefix"]):
        turns = [{**turns[0], "content": turns[0]["content"][start:]}]
    elif turns:
        others = [turn for turn in turns if turn["role"] != "system"]
        turns = [turn for turn in turns if turn["role"] == "system"] + others[2 * n_dropped :]
    return {**row, "prefix": row["prefix"][start:], "turns": turns, **span}
