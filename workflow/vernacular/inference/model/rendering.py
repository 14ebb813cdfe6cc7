"""The prompt text of a request: chat template, and few-shot examples dropped to fit the context length.

Shared by scoring and generation. What the settings of a model pass to its template is found by rendering: a template
that renders the same prompt for two values of an argument does not have it.
"""

import contextlib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from jinja2 import TemplateError

from vernacular.core.errors import ModelError, first_line, format_count, suggest
from vernacular.core.model_record import EFFORT, SWITCHES, ModelRecord
from vernacular.core.processes import TimeLimitExceeded, time_limit
from vernacular.inference.model.tokenization import TextModel, control_tokens
from vernacular.inference.model.tokenizers import load_tokenizer
from vernacular.types import CHAT, Request

T = TypeVar("T")

# Templates that write the current date into the prompt (Llama 3, SmolLM3) would change the results from day to day.
# They obtain it from `date_string` or `strftime_now`; a macro of that name replaces the function of transformers.
_WITHOUT_DATE = "{% macro strftime_now(pattern) %}{% endmacro %}"
_DELIMITER = "system_delimiter:"  # in `extras`: what separates a system instruction from the system turn
_TIME_LIMIT = 10  # per prompt; typical templates take milliseconds
# A template is a program; these are the errors that it can raise.
_TEMPLATE_ERRORS = (TemplateError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
_TEMPLATE_ERRORS += (MemoryError,)


def uses_chat(loaded: TextModel, messages: list[dict] | None, kind: str, extras: Iterable[str] | None = ()) -> bool:
    """Return whether the chat template is applied to a request; kind: "generate" or "score".

    It always is if CHAT is in `extras`. With "auto", it is applied to generate requests if the tokenizer has one.
    Log-probabilities are those of plain text unless `chat` is true: PalmX and lm-evaluation-harness define prompts so,
    and scores of a base model and its chat model remain comparable. Raises ModelError if `chat` is true without one.
    """
    chat_option, is_possible = loaded.record.chat, has_template(loaded)
    if chat_option is True and not is_possible:
        raise ModelError(
            f"model {loaded.record.name}: chat is true, but its tokenizer has no chat template. Set chat: auto."
        )
    if messages and CHAT in (extras or ()):
        return True
    return bool(messages) and (is_possible and kind == "generate" if chat_option == "auto" else bool(chat_option))


def has_template(loaded: TextModel) -> bool:
    """Return whether a model has a chat template, its own or that of its settings."""
    return bool(loaded.record.chat_template or getattr(loaded.tokenizer, "chat_template", None))


def render(loaded: TextModel, messages: list[dict]) -> str:
    """Render chat turns up to the beginning of the model's turn, without a date, with the settings of the model.

    The text contains its special tokens. Raises ModelError if the template fails or takes too long.
    """
    return render_with(loaded, with_system(loaded, messages), template_arguments(loaded))


def render_row(loaded: TextModel, row: Request) -> tuple[str, str | None]:
    """Render the turns of a request; return (text, flag, if its system turn was dropped).

    With CHAT in its extras, as lm-eval with `--apply_chat_template`: an assistant turn at the end is continued, a
    system instruction is joined with the system turn, and system turns that the template rejects are dropped.
    """
    messages, extras, text = row["messages"], row["extras"] or (), loaded.record.system_instruction
    if CHAT not in extras:
        return render(loaded, messages), None
    if text and messages[0]["role"] == "system":
        delimiter = next((e.removeprefix(_DELIMITER) for e in extras if e.startswith(_DELIMITER)), "\n\n")
        content = messages[0]["content"]
        joined = text + ("" if text[-1].isspace() or content[:1].isspace() else delimiter) + content
        messages = [{"role": "system", "content": joined}, *messages[1:]]
    elif text:
        messages = [{"role": "system", "content": text}, *messages]
    arguments = template_arguments(loaded)
    if is_continued(messages):
        arguments |= {"add_generation_prompt": False, "continue_final_message": True}
    try:
        return render_with(loaded, messages, arguments), None
    except ModelError as error:
        turns = [turn for turn in messages if turn["role"] != "system"]
        if not isinstance(error.__cause__, TemplateError) or len(turns) == len(messages):
            raise
        return render_with(loaded, turns, arguments), "system turn dropped: the chat template rejects it"


def own_texts(row: Request, *, chat: bool) -> list[str]:
    """Return the texts of a request that are not its template's; its prefix, which many requests share, is apart."""
    if not chat:
        return [row["prefix"], row["text"]]
    span = (row["prefix"] + row["text"])[row["span_start"] : row["span_end"]] if row["kind"] == "score" else ""
    return [*(turn["content"] for turn in row["messages"]), span]


def is_continued(messages: list[dict]) -> bool:
    """Return whether the model continues a turn of its own, instead of beginning one."""
    return messages[-1]["role"] == "assistant"


def adds_special_tokens(loaded: TextModel, row: Request, rendered: str | None) -> bool:
    """Return whether the tokenizer adds its special tokens: as in lm-eval, not where BOS begins the text."""
    if rendered is None or CHAT not in (row["extras"] or ()):
        return rendered is None
    token = loaded.bos_id if loaded.bos_id is not None else loaded.eos_id
    return token is None or not rendered.startswith(loaded.tokenizer.decode([token]))


def render_with(loaded: TextModel, messages: list[dict], arguments: dict, template: str | None = None) -> str:
    """Render chat turns with these arguments and template (None: the model's), and nothing else of its settings."""
    name = loaded.record.name
    if loaded.template_error:
        raise ModelError(loaded.template_error)
    try:
        template = template_of(loaded) if template is None else template
        if "strftime_now" in template:
            template = _WITHOUT_DATE + template
        options = {"tokenize": False, "add_generation_prompt": True, "date_string": ""} | arguments
        with time_limit(_TIME_LIMIT):
            return loaded.tokenizer.apply_chat_template(messages, chat_template=template, **options)
    except TimeLimitExceeded:
        raise ModelError(f"model {name}: its chat template did not finish within {_TIME_LIMIT} seconds.") from None
    except _TEMPLATE_ERRORS as error:
        raise ModelError(f"model {name}: its chat template failed: {first_line(error)}.") from error


def template_of(loaded: TextModel) -> str:
    """Return the text of a model's template: its own, one of its own by name, or that of a file."""
    setting = loaded.record.chat_template
    if setting is None:
        return loaded.tokenizer.get_chat_template()
    if "{" in setting:  # the text of a file; a name has no braces
        return setting
    own = getattr(loaded.tokenizer, "chat_template", None)
    named = own if isinstance(own, dict) else {"default": own} if own else {}
    if setting not in named:
        message = f'model {loaded.record.name}: chat_template: expected a file or a template of its tokenizer, got "'
        raise ModelError(f'{message}{setting}".{suggest(setting, named)}')
    return named[setting]


USER = "Ola, que tal?"  # of a conversation with which templates are compared
_CONVERSATIONS = (
    [{"role": "user", "content": USER}],
    [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": USER}],
)


def _renderings(loaded: TextModel, arguments: dict, template: str | None = None, system: str | None = None) -> list:
    """Return the texts of a few conversations, or why there are none."""
    turns = [{"role": "system", "content": system}] if system else []
    texts = []
    for conversation in _CONVERSATIONS:
        try:
            texts.append(render_with(loaded, turns + conversation, arguments, template))
        except ModelError as error:
            texts.append(str(error))
    return texts


def reasoning_switch(loaded: TextModel) -> dict[bool, dict]:
    """Return the arguments with which a template asks for reasoning (True) and for none (False), as far as it can."""

    def find() -> dict[bool, dict]:
        template = template_of(loaded)
        for name in SWITCHES:
            if name in template and _renderings(loaded, {name: True}) != _renderings(loaded, {name: False}):
                return {True: {name: True}, False: {name: False}}
        if EFFORT not in template or _renderings(loaded, {EFFORT: "high"}) == _renderings(loaded, {EFFORT: "low"}):
            return {}
        has_none = re.search("""['"]none['"]""", template)  # gpt-oss always reasons
        return {True: {EFFORT: "high"}} | ({False: {EFFORT: "none"}} if has_none else {})

    return loaded.of_template("switch", find)


def template_arguments(loaded: TextModel) -> dict:
    """Return what the settings of a model pass to its template. Raises ModelError if it cannot turn reasoning so."""
    arguments, wanted = dict(loaded.record.chat_template_args or {}), loaded.record.enable_thinking
    if wanted is None:
        return arguments
    switch = reasoning_switch(loaded)
    if wanted not in switch:
        advice = f"set chat_template_args: {{{EFFORT}: low}} instead" if switch else "remove it"
        problem = "enable_thinking: its chat template renders the same prompt for true and false"
        raise ModelError(f"model {loaded.record.name}: {problem}; {advice}.")
    return arguments | switch[wanted]


def with_system(loaded: TextModel, messages: list[dict]) -> list[dict]:
    """Return chat turns with the model's system instruction, in the first user turn if there are no system turns."""
    text = loaded.record.system_instruction
    if not text:
        return messages
    if messages[0]["role"] == "system" or not takes_system(loaded):
        return [{**messages[0], "content": f"{text}\n\n{messages[0]['content']}"}, *messages[1:]]
    return [{"role": "system", "content": text}, *messages]


def takes_system(loaded: TextModel) -> bool:
    """Return whether a template renders system turns."""

    def find() -> bool:
        try:
            turns = [{"role": "system", "content": "a"}, *_CONVERSATIONS[0]]
            render_with(loaded, turns, template_arguments(loaded))
        except ModelError:
            return False
        return True

    return loaded.tokenizer is None or loaded.of_template("system", find)


_ANSWER, _NEXT = "Vigo 1417", "Lugo 2653"  # texts of turns that no template contains


@dataclass(frozen=True)
class TurnEnd:
    """What a template writes between the text of an assistant turn and that of the next user turn."""

    end_id: int | None = None  # the first control token
    header_ids: frozenset[int] = frozenset()  # the others, which begin another turn
    headers: re.Pattern | None = None  # the text before a turn of either role, without control tokens
    stop: str | None = None  # beginning of the text, if it has no control token, and is no word that an answer contains


def turn_end(loaded: TextModel) -> TurnEnd:
    """Return how the template of a model ends its turns; nothing if it has none, or does not render this."""

    def find() -> TurnEnd:
        turns = [{"role": role, "content": text} for role, text in (("user", USER), ("assistant", _ANSWER))]
        texts = []
        for conversation, begins in (([*turns, {"role": "user", "content": _NEXT}], True), (turns, False)):
            with contextlib.suppress(ModelError):  # some templates render a single exchange only
                arguments = template_arguments(loaded) | {"add_generation_prompt": begins}
                texts.append(render_with(loaded, conversation, arguments))
        before, _, after = next((text for text in texts if _ANSWER in text), "").rpartition(_ANSWER)
        control, pattern = control_tokens(loaded.tokenizer, only_special=False)
        parts = pattern.split(after.partition(_NEXT)[0])
        ids = [control[part] for part in parts if part in control]
        first = next((i + 1 for i, part in enumerate(parts) if part in control), 0)  # text before it is not of a header
        header = "".join(part for part in parts[first:] if part not in control)
        own_header = pattern.sub("", before.rpartition(USER)[2])
        found = [*_header_patterns(header), *_header_patterns(own_header)]
        mark = re.match(r"(\s*)(\S.*)", header)
        stop = None
        if mark and not ids and any(not c.isalnum() and not c.isspace() for c in mark[2]):
            stop = ("\n" if "\n" in mark[1] else mark[1]) + mark[2].rstrip()  # in whatever lines a model leaves empty
        headers = re.compile("|".join(found), re.MULTILINE) if found else None
        return TurnEnd(ids[0] if ids else None, frozenset(ids[1:]), headers, stop)

    if not has_template(loaded) or not hasattr(loaded.tokenizer, "added_tokens_decoder"):
        return TurnEnd()
    return loaded.of_template("turn end", find)


def _header_patterns(header: str) -> list[str]:
    """Return the patterns of a turn's header: as it is written, and its words in other spacing.

    A header with punctuation ("### User:", "USER:") follows whitespace, a short one ("Q:") begins a line; one of
    letters alone ("user") is a line between others.
    """
    words = next((words for line in header.splitlines() if (words := line.split())), [])
    n_letters = sum(c.isalnum() for word in words for c in word)
    if not n_letters:
        return []
    text = r"[ \t]+".join(map(re.escape, words))
    if all(word.isalnum() for word in words):
        return [re.escape(header.strip(" ")), rf"^[ \t]*{text}[ \t]*\n", rf"\n[ \t]*{text}[ \t]*\Z"]
    return [rf"(?<!\S){text}" if n_letters > 2 else rf"^[ \t]*{text}"]


def open_template(record: ModelRecord, directory: str | None = None) -> TextModel:
    """Return a model's tokenizer with its settings, before the model is loaded. Raises ModelError if it cannot."""
    tokenizer = load_tokenizer(record, directory or record.directory, trust_remote_code=record.trust_remote_code)
    loaded = TextModel(record=record, kind="causal", tokenizer=tokenizer, max_length=None, n_embeddings=len(tokenizer))
    try_template(loaded)
    return loaded


def check_settings(loaded: TextModel) -> None:
    """Raise ModelError if a setting of a model changes nothing in a rendered prompt."""
    record = loaded.record
    settings = [key for key in record.rendering if key not in ("gen_kwargs", "think_end_token")]
    if not settings:
        return

    def reject(key: str, problem: str) -> None:
        raise ModelError(f"model {record.name}: {key}: {problem}; remove it.")

    if not has_template(loaded):
        reject(settings[0], "its tokenizer has no chat template")
    template, arguments = template_of(loaded), template_arguments(loaded)
    render(loaded, _CONVERSATIONS[0])
    expected, own = _renderings(loaded, arguments), getattr(loaded.tokenizer, "chat_template", None)
    if record.chat_template and own:
        default = own.get("default") if isinstance(own, dict) else own
        if default and _renderings(loaded, arguments, default) == expected:
            reject("chat_template", "it renders the same prompts as the model's own")
    for key, value in (record.chat_template_args or {}).items():
        without = {name: item for name, item in arguments.items() if name != key}
        if expected == _renderings(loaded, without) == _renderings(loaded, arguments | {key: _another(value)}):
            known = [name for name in (*SWITCHES, EFFORT) if name in template]
            reject(f"chat_template_args.{key}", f"the chat template has no such argument.{suggest(key, known)}"[:-1])
    system = record.system_instruction
    if system and takes_system(loaded) and _renderings(loaded, arguments, system=system) == expected:
        reject("system_instruction", "the chat template drops system turns")


def _another(value):
    """Return another value of the same type, of an argument of a template."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, list | dict):
        return [*value, ""] if isinstance(value, list) else value | {"": ""}
    return f"{value}." if isinstance(value, str) else (value or 0) + 1


def try_template(loaded: TextModel) -> None:
    """Render a short conversation in the main thread, where one that does not finish can be interrupted."""
    if not has_template(loaded) or loaded.record.chat is False:
        return
    try:
        render_with(loaded, _CONVERSATIONS[1], loaded.record.chat_template_args or {})
    except ModelError as error:
        if isinstance(error.__context__, TimeLimitExceeded):
            loaded.template_error = str(error)  # other errors can depend on the turns


def render_continuation(loaded: TextModel, row: Request, continuation: str) -> tuple[str, int, str | None]:
    """Return (text, start of the scored part, flag): the rendered prompt followed by the text to score.

    The space that separates it in plain text is dropped; of lm-eval's tasks, the whitespace at the prompt's end is
    scored with it, as there: the newline after the header of a turn.
    """
    prompt, flag = render_row(loaded, row)
    if CHAT in (row["extras"] or ()):
        return prompt + continuation, len(prompt.rstrip()), flag
    return prompt + continuation.lstrip(), len(prompt), flag


def fit_to_length(row: Request, attempt: Callable[[Request], tuple[T, bool]]) -> tuple[T, int]:
    """Drop few-shot examples, first ones first, until `attempt` returns (result, True); return the last result.

    Second, the number of dropped examples.
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
    """Return a request without its first `n_dropped` few-shot examples, in prefix, span and chat turns."""
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
