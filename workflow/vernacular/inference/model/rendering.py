"""Chat: turning a request's turns into the one string that a chat model reads. Shared by scoring and generation."""

import contextlib
import signal
import threading

from jinja2 import TemplateError

from vernacular.core.errors import ModelError, first_line
from vernacular.inference.model.load import LoadedModel

# Templates that write the day of the run into the prompt (Llama 3's, SmolLM3's) would give other numbers tomorrow. They
# learn it from `date_string` or `strftime_now`; a macro of that name hides the one of transformers.
_NO_DAY = "{% macro strftime_now(pattern) %}{% endmacro %}"
_SECONDS = 10  # of one prompt; usual templates take milliseconds
# A template is a program: what any of them may raise.
_REFUSALS = (TemplateError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
_REFUSALS += (MemoryError,)


class _Overdue(Exception):
    """The time is over."""


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
        with _within(_SECONDS):
            return loaded.tokenizer.apply_chat_template(
                messages, chat_template=template, tokenize=False, add_generation_prompt=True, date_string=""
            )
    except _Overdue:
        raise ModelError(f"model {name}: its chat template has not come to an end in {_SECONDS} seconds.") from None
    except _REFUSALS as error:
        raise ModelError(f"model {name}: its chat template refuses these turns: {first_line(error)}") from error


def render_continuation(loaded: LoadedModel, turns: list[dict], continuation: str) -> tuple[str, int]:
    """(text, start of the continuation in it): the rendered prompt followed by the answer to score.

    The answer begins the model's turn, so the blank that parts it from the question in running text is dropped.
    """
    prompt = render(loaded, turns)
    return prompt + continuation.lstrip(), len(prompt)


def without_demonstrations(turns: list[dict], count: int) -> list[dict]:
    """The turns less the first `count` demonstrations (a user and an assistant turn each); system turns stay."""
    system = [turn for turn in turns if turn["role"] == "system"]
    others = [turn for turn in turns if turn["role"] != "system"]
    return system + others[2 * count :]


@contextlib.contextmanager
def _within(seconds: float):
    """Raise _Overdue where what is inside takes longer; only in the main thread, the one that signals reach."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def over(number, frame):
        raise _Overdue

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
