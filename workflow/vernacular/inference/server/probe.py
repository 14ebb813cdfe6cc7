"""The probe of a server: seventeen checks that decide in which forms it can answer, and which protocols that allows.

Names and versions decide nothing: servers ignore requests that they do not understand. Each form of log-probabilities
is tried in turn, and the first that passes all of its checks is used. The outcome of every check, and answers to a few
texts, are stored in the model's record; each later start runs the probe again and compares the answers. What a server
states about itself is for provenance only.
"""

import itertools
from collections.abc import Callable
from dataclasses import replace

from vernacular.core.errors import ModelError, ServerError, suggest
from vernacular.core.fingerprint import fingerprint
from vernacular.core.model_record import Forms, ModelRecord, ServerRecord
from vernacular.inference.generation.reasoning import markers_of, server_arguments, template_fields, thinks
from vernacular.inference.model.rendering import check_settings, has_template, try_template
from vernacular.inference.model.tokenization import AlignmentError
from vernacular.inference.server import checks
from vernacular.inference.server.client import Client, DeniedError, RefusedError
from vernacular.inference.server.completions import LIMITS, Completion, Completions, TextLabels, TopIds
from vernacular.inference.server.forms import (
    CHECKS,
    EXTENDED,
    STANDARD,
    AnswerError,
    Check,
    ValueLieError,
    elements,
    file_name,
    one_line,
    read,
    text_of,
)
from vernacular.inference.server.native import LlamaCpp
from vernacular.inference.server.sampled import check_samples
from vernacular.inference.server.served import ServedModel, ServerTokenizer, label_forms, span_forms, wrap_server


def probe(
    record: ModelRecord,
    client: Client,
    tokenizer,
    known: dict | None = None,
    longest: str | None = None,
    model: str | None = None,
    report: Callable[[str], None] = lambda line: None,
    trial: bool = False,
) -> ServerRecord:
    """Return what a model's record states of its server.

    `tokenizer`: local; `known`: values of a local copy; `longest`: the longest prompt of the run, if it is known;
    `model`: its name on the server, if there are several; `report` is called with a line on each check; `trial`: leave
    out most of the checks that send a request per token.

    Raises ModelError if the server has no such model, cannot generate or sends malformed answers, and ServerError.
    """
    try:
        server = replace(identify(client, model), tokenizer="local" if tokenizer else None)
        return _Probe(record | {"server": server}, client, tokenizer, known, longest, report, trial).run()
    except (AnswerError, RefusedError, AlignmentError) as error:
        raise ModelError(f"{client.source}: the server cannot be used ({error}).") from error


class _Probe:
    def __init__(
        self, record: ModelRecord, client: Client, tokenizer, known: dict | None, longest: str | None, report, trial
    ):
        self.report, self.trial = report, trial
        self.client, self.server, self.known = client, record.server, known
        self.counter, self.longest = tokenizer, longest
        self.samples: dict[tuple, str | AnswerError] = {}  # source of lists -> outcome of `check_samples`
        self.checks: list[dict] = []
        self.reasons: dict[str, str] = {}
        self.in_doubt = False  # whether values of a form are not those of the model
        if tokenizer is None:
            tokenizer = self._server_tokenizer()
        self.loaded: ServedModel = wrap_server(record, client, tokenizer)
        self.native: LlamaCpp | None = None

    def run(self) -> ServerRecord:
        self._note(Check.REACH, None, True, f"the model {self.server.model} answers")
        self.loaded.completions, prompts = negotiate(self.client, self.server.model)
        if "text" not in prompts:  # a chat has no token IDs
            self._drop_tokenizer()
        if self.loaded.tokenizer is not None:
            self._check_ids()
        spans = self._select_spans(prompts)
        labels = self._select_labels(spans, prompts)
        forms = Forms(
            generation=self._select_generation(prompts, spans),
            spans=spans.name if spans else None,
            labels=labels.name if labels else None,
            chat="chat" in prompts,
        )
        if self.longest and (spans or forms.generation):
            self._check_longest(spans, forms.generation)
        return replace(
            self.server,
            fields=self.loaded.completions.fields,
            limit=self.loaded.completions.limit,
            forms=forms,
            reasons_by_default=self._check_chats(forms),
            reasons=self.reasons,
            checks=self.checks,
            answers=self._answers(spans, forms.generation),
            stated=self.client.stated.seen,
        )

    def _drop_tokenizer(self) -> None:
        self.loaded.tokenizer, self.server = None, replace(self.server, tokenizer=None)

    def _server_tokenizer(self) -> ServerTokenizer | None:
        try:
            tokenizer = ServerTokenizer(self.client)
            tokenizer(checks.TEXTS[2])
        except (RefusedError, AlignmentError):
            return None
        self.server = replace(self.server, tokenizer="server")
        return tokenizer

    def _check_ids(self) -> None:
        """Check the tokenizer and the use of token IDs; without them, only text remains."""
        loaded, steps = self.loaded, [(Check.IDS, checks.check_ids)]
        if self.server.tokenizer == "local":
            steps.insert(0, (Check.TOKENIZER, checks.check_tokenizer))
        for number, step in steps:
            try:
                self._note(number, None, True, step(loaded))
            except (AnswerError, RefusedError, AlignmentError) as error:
                self._fail(number, None, error, "spans", "labels")
                self._drop_tokenizer()
                return
        self.server = replace(self.server, whole_token=checks.ids_of(loaded, "the")[-1])
        self.native = LlamaCpp(self.client, loaded.n_embeddings, self.server.whole_token)

    def _select_spans(self, prompts: set[str]):
        """Return the first form of log-probabilities that passes all checks; None if there is none."""
        loaded = self.loaded
        best = ((0, False), "")  # the reason of the form that passes the most checks, or returns values at all
        steps = [
            (Check.ECHO, checks.check_structure),
            (Check.BYTES, checks.check_bytes),
            (Check.REPETITION, checks.check_repetition),
            (Check.PLAUSIBLE, checks.check_plausible),
            (Check.CONSISTENT, checks.check_consistency),
            (Check.PENALTIES, checks.check_penalties),
            (Check.BATCH, checks.check_batch),
            (Check.PENALTIES, lambda _, form: self._check_samples(form)),
            (Check.LENGTH, checks.check_length),
            (Check.KNOWN, lambda _, form: checks.check_known_answers(loaded, form, self.known)),
        ]
        for form in span_forms(loaded, self.native):
            is_short = self.trial and form is self.native  # a request per token
            own = [step for step in steps if not is_short or step[0] in (Check.ECHO, Check.BYTES, Check.KNOWN)]
            self.server = replace(self.server, trial=is_short)
            for passed, (number, step) in enumerate(own):
                try:
                    self._note(number, form.name, True, step(loaded, form))
                except (AnswerError, RefusedError) as error:
                    reason = self._fail(number, form.name, error)
                    rank = (passed, getattr(error, "check", Check.ECHO) != Check.ECHO)
                    if not isinstance(error, RefusedError) and (rank > best[0] or not best[1]):
                        best = (rank, reason)
                    self.in_doubt = isinstance(error, ValueLieError)
                    break
            else:
                return form
            if self.in_doubt:  # not believed in another form
                self.reasons["spans"] = reason
                break
        if best[1]:
            self.reasons.setdefault("spans", best[1])
        none, unknown = "the server returns none", "no tokenizer is known; set tokenizer"
        default = none if loaded.tokenizer else "the server answers chats only" if prompts == {"chat"} else unknown
        self.reasons.setdefault("spans", f"log-probabilities of a text are not available: {default}")
        return None

    def _select_labels(self, spans, prompts: set[str]):
        """Return the first form of the log-probabilities of labels; None if there is none."""
        for form in label_forms(self.loaded, self.native):
            if spans is not None and isinstance(form, TopIds | TextLabels):
                break  # scored as texts instead
            if isinstance(form, TextLabels) and ("chat" if form.chat else "text") not in prompts:
                continue
            try:
                if isinstance(form, TextLabels) and self.in_doubt:
                    raise AnswerError(Check.LETTERS, "other values are wrong, and these cannot be compared")
                if isinstance(form, TextLabels):
                    prompt = _message("chat" if form.chat else "text")(checks.QUESTION)
                    fields = template_fields(self.loaded) if form.chat else {}
                    values, _ = form.label_texts(prompt, list(checks.LABELS), **fields)
                    seen = f"{sum(v is not None for v in values)} of {len(values)} labels found"
                else:
                    seen = checks.check_labels(self.loaded, form, spans, in_doubt=self.in_doubt)
                if spans is None:
                    self._note(Check.PENALTIES, form.name, True, self._check_samples(form))
            except (AnswerError, RefusedError) as error:
                reason = self._fail(Check.LETTERS, form.name, error)
                is_lie = isinstance(error, ValueLieError) or getattr(error, "check", None) == Check.BOUNDARY
                if is_lie or self.in_doubt:  # of values that are returned
                    self.reasons["labels"] = reason
                continue
            self._note(Check.LETTERS, form.name, True, seen)
            self.reasons.pop("labels", None)
            return form
        advice = "the server answers chats only; set chat: true to score letters as the answer of a chat"
        none = "the server returns no log-probabilities of the next token"
        is_advised = prompts == {"chat"} and self.loaded.record.chat is not True
        self.reasons.setdefault("labels", advice if is_advised else none)
        return None

    def _select_generation(self, prompts: set[str], spans) -> str | None:
        """Return how texts are generated: "native" or "ids" (token IDs), "text", or "chat"."""
        form, complete = "text" if "text" in prompts else "chat", self.loaded.completions.complete
        prompt = _message(form)(checks.PROMPT)
        if self.loaded.tokenizer is not None and form == "text":
            native = spans is not None and spans is self.native
            form, prompt = ("native" if native else "ids"), checks.ids_of(self.loaded, checks.PROMPT)
            complete = self.native.complete if native else complete
        try:
            lister = self.native.listed if form == "native" else self.loaded.completions.listed
            seen = checks.check_generation(complete, prompt, stops=form != "chat", lister=lister)
            self._note(Check.STOP, form, True, seen)
            if form in ("text", "chat") and self.counter is not None:
                offset = checks.learn_offset(self.counter, complete, _message(form))
                self.server = replace(self.server, offset=offset)
        except (AnswerError, RefusedError) as error:
            self._fail(Check.STOP, form, error, "generation")
            return None
        return form

    def _check_longest(self, spans, generation: str | None) -> None:
        """Note whether the longest prompt is read whole; a malformed or failing answer is its own row's affair."""
        loaded, form = self.loaded, spans.name if spans else generation
        try:
            if loaded.tokenizer is not None:
                seen = checks.check_longest(loaded, spans, self.longest)
            else:
                seen = checks.check_text_length(loaded.completions.complete, _message(generation), self.longest)
        except (AnswerError, RefusedError, AlignmentError, ServerError) as error:
            if getattr(error, "check", None) == Check.LENGTH:
                self._note(Check.LENGTH, form, False, str(error))
                self.reasons["length"] = str(error)
                return
            seen = f"not comparable: {error}"
        self._note(Check.LENGTH, form, True, seen)

    def _check_chats(self, forms: Forms) -> bool:
        """Return whether a chat begins with reasoning. Raises ModelError for a setting that the server ignores."""
        loaded, record = self.loaded, self.loaded.record
        if loaded.tokenizer is not None and forms.generation in ("ids", "native"):  # prompts are rendered here
            try_template(loaded)
            check_settings(loaded)
            return record.chat is not False and has_template(loaded) and thinks(loaded)
        if record.chat_template:
            raise ModelError(f"model {record.name}: chat_template: the server reads no token IDs, and applies its own.")
        if not forms.chat or record.chat is False:
            return False
        arguments = server_arguments(loaded)

        def begin(arguments: dict, system: str | None = record.system_instruction) -> Completion:
            turns = [{"role": "system", "content": system}] if system else []
            fields = {"chat_template_kwargs": arguments} if arguments else {}
            return loaded.completions.complete(turns + CHAT, _BEGINNING, **fields)

        try:
            found = begin(arguments)
            changed: dict[str, list[Completion]] = {}  # what is seen with another value, by setting
            if (wanted := record.enable_thinking) is not None:
                names = server_arguments(loaded).keys() - (record.chat_template_args or {}).keys()
                changed["enable_thinking"] = [begin(arguments | dict.fromkeys(names, not wanted))]
            for name, value in (record.chat_template_args or {}).items():
                others = [{key: item for key, item in arguments.items() if key != name}]
                others += [arguments | {name: not value}] if isinstance(value, bool) else []
                changed[f"chat_template_args.{name}"] = [begin(other) for other in others]
            if record.system_instruction:
                changed["system_instruction"] = [begin(arguments, None)]
        except (RefusedError, AnswerError) as error:
            if record.rendering:
                message = f"model {record.name}: the server refuses chats with these settings ({error})."
                raise ModelError(message) from error
            return False
        seen = [found.prompt_tokens, found.text, found.reasoning]
        for name, others in changed.items():
            if all([other.prompt_tokens, other.text, other.reasoning] == seen for other in others):
                raise ModelError(
                    f"model {record.name}: {name}: the server ignores it: a chat has {found.prompt_tokens} tokens and "
                    "begins in the same way with another value; remove it, or set it where the server is started."
                )
        start = markers.start if (markers := markers_of(loaded)) else None
        by = found.reasoning_field or ("text" if start and found.text.lstrip().startswith(start) else None)
        self._note(Check.CHATS, "chat", True, f"reasoning first, in {by}" if by else "answered without reasoning")
        return by is not None

    def _check_samples(self, form) -> str:
        """Check the lists of the most probable tokens; see `check_samples`."""
        completions = self.loaded.completions
        if "temperature" not in completions.fields and not hasattr(form, "listed"):
            return "samples not comparable: the server accepts no temperature"
        by_text, message = isinstance(form, TextLabels), _message("chat" if getattr(form, "chat", False) else "text")
        prompts = [message(text) for text in checks.OPEN_PROMPTS]
        if not by_text:
            prompts = [checks.ids_of(self.loaded, text) for text in prompts]
        lister = getattr(form, "listed", completions.listed)
        if (source := (lister.__self__, by_text)) not in self.samples:  # several forms have one source of lists
            try:
                self.samples[source] = check_samples(lister, prompts)
            except AnswerError as error:
                self.samples[source] = error
        if isinstance(seen := self.samples[source], AnswerError):
            raise seen
        return seen

    def _answers(self, spans, generation: str | None) -> dict:
        """Return answers to compare at the next start: values of texts, and greedy texts; None: refused."""
        loaded, answers = self.loaded, {}
        if spans is not None:
            texts = checks.TEXTS[: 1 if self.server.trial else None]
            answers["values"] = [checks.values_of(spans.score(checks.ids_of(loaded, text), 0)) for text in texts]
        message, part = _message(generation), 1 if generation == "chat" else 2
        answers["texts"] = [self._text(message(text[: len(text) // part])) for text in checks.TEXTS]
        return answers

    def _text(self, prompt: str | list) -> str | None:
        """Return a greedy text; None without one, because a filter refuses it, for example."""
        try:
            completion = self.loaded.completions.complete(prompt, 8)
            return (completion.reasoning or "") + completion.text
        except (RefusedError, AnswerError) as error:
            problem = "refused" if isinstance(error, RefusedError) else "malformed"
            self._note(Check.STOP, None, True, f"a text of the probe is {problem} ({error})")
            return None

    def _note(self, number: int, form: str | None, passed: bool, seen: str, *, failed: str = "failed") -> None:
        by_form = f" of {form}" if form else ""
        compared = not seen.startswith(("not ", "samples not "))  # what a check states that had nothing to compare
        outcome = ("passed" if compared else seen) if passed else failed
        self.report(f"check {number} ({CHECKS[number]}){by_form}: {outcome}")
        self.checks.append({"check": number, "name": CHECKS[number], "form": form, "passed": passed, "seen": seen})

    def _fail(self, number: int, form: str | None, error: Exception, *protocols: str) -> str:
        """Note a failed check; return one sentence, which is the reason of `protocols`."""
        number = getattr(error, "check", None) or number
        self._note(number, form, False, str(error), failed="failed" if protocols else "failed; the form is not used")
        reason = f"the server fails check {number} ({CHECKS[number]}): {error}"
        self.reasons |= dict.fromkeys(protocols, reason)
        return reason


def _message(form: str | None) -> Callable[[str], str | list[dict]]:
    """Return what makes a prompt of a text: the text itself, or chat messages."""
    return lambda text: [{"role": "user", "content": text}] if form == "chat" else text


_OBTAINED = {"generation": "texts", "spans": "log-probabilities of texts", "labels": "log-probabilities of labels"}


def changed_forms(stored: ServerRecord, current: ServerRecord) -> str | None:
    """Return which outputs are no longer obtained in the same way; None if all are."""
    for kind, name in _OBTAINED.items():
        before, now = getattr(stored.forms, kind), getattr(current.forms, kind)
        if before != now:
            was = f"obtained by {before}" if before else "not available"
            return f"{name} were {was}, and {current.reasons.get(kind) or f'are now obtained by {now}'}"
    return None


def differences(stored: ServerRecord, current: ServerRecord) -> str | None:
    """Return how a server's answers differ from those of a record; None if they do not.

    Of greedy texts, without log-probabilities, all must differ: one may change with the noise of a batch.
    """
    if stored.model != current.model:
        return f'it serves "{current.model}" instead of "{stored.model}"'
    if difference := changed_forms(stored, current):
        return difference
    pairs = list(zip(stored.answers.get("values", []), current.answers.get("values", []), strict=False))
    for values, others in pairs:
        if not checks.agree(values, others):
            return f"log-probabilities differ by up to {checks.deviations(values, others)[1]:.2f} nats"
    if difference := _other_names(stored.stated or {}, current.stated or {}):
        return difference
    texts = list(zip(stored.answers["texts"], current.answers["texts"], strict=True))
    texts = [pair for pair in texts if None not in pair]
    if not pairs and texts and all(a != b for a, b in texts):
        return f"a text is continued as {texts[0][1]!r} instead of {texts[0][0]!r}"
    return None


def _other_names(stored: dict, current: dict) -> str | None:
    """Return how the name of the model in the answers differs; None if it does not."""
    for path in stored.keys() & current.keys():
        names, others = stored[path]["models"], current[path]["models"]
        if names and others and names[0] != others[0]:
            return f'it answers as the model "{others[0]}" instead of "{names[0]}"'
    return None


_LONGEST = 200  # characters of what a server says about itself
_PATHS = {"version": "/version", "props": "/props", "info": "/get_model_info"}


def identify(client: Client, model: str | None) -> ServerRecord:
    """Return the model's name in requests, and what the server reports. Raises ModelError if it is not found."""
    try:
        listed = [e for e in elements(read(client.get("/models"), "data")) if isinstance(read(e, "id"), str)]
    except (RefusedError, DeniedError) as error:
        if model is None and isinstance(error, DeniedError):
            raise
        listed = []  # some keys are valid for answers only
    entry = next((e for e in listed if model in (e["id"], read(e, "root"))), None)
    if model is None and len(listed) == 1:
        entry = listed[0]
    if entry is None and (listed or model is None):
        names = [one_line(file_name(e["id"]))[:100] for e in listed]
        found = f"lists {', '.join(names[:12])}" if names else "lists no models"
        hint = suggest(model, names) if model else " Set model."
        raise ModelError(f'{client.source}: the server {found}, and the model is "{model or ""}".{hint}')
    answers = {name: _get(client, path) for name, path in _PATHS.items()}
    meta, props, info = read(entry, "meta") or {}, answers["props"], answers["info"]
    template = read(props, "chat_template")
    digest = fingerprint(template)[:16] if isinstance(template, str) else None
    reported = {"listed": bool(entry), "chat_template": digest}
    numbers = {"parameters": read(meta, "n_params"), "slots": read(props, "total_slots")}
    texts = {
        "owned_by": read(entry, "owned_by"),
        "version": read(answers["version"], "version") or read(props, "build_info"),
        "file": file_name(read(props, "model_path") or read(info, "model_path") or read(entry, "root")),
        "file_type": read(props, "model_ftype") or read(meta, "ftype"),
    }
    lengths = (read(entry, "max_model_len"), read(meta, "n_ctx"), read(props, "default_generation_settings", "n_ctx"))
    lengths += (read(props, "n_ctx"), read(info, "max_model_len"))
    max_length = min(filter(None, map(_positive, lengths)), default=None)
    name = entry["id"] if entry else model
    reported |= {key: _positive(value) for key, value in numbers.items()}
    for key, value in texts.items():
        reported[key] = text_of(value, key)[:_LONGEST] if isinstance(value, str) else _positive(value)
    reported = {key: value for key, value in reported.items() if value is not None}
    return ServerRecord(text_of(name, "name of a model"), reported, max_length, _positive(read(meta, "n_vocab")))


def _positive(value) -> int | None:
    """Return a positive number that the tables can hold; None for any other value."""
    return value if type(value) is int and 0 < value < 2**63 else None


def _get(client: Client, path: str) -> dict | None:
    try:
        content = client.get(path, root=True)
    except (RefusedError, AnswerError):
        return None
    return content if isinstance(content, dict) else None


CHAT = _message("chat")(checks.PROMPT)
_BEGINNING = 16  # tokens of an answer that show whether it begins with reasoning
_FIELD_SETS = ({**STANDARD, **EXTENDED}, STANDARD, {"temperature": 0.0}, {})  # tried until one is accepted


def negotiate(client: Client, model: str) -> tuple[Completions, set[str]]:
    """Return (completions with the fields that a server accepts, kinds of prompts: text, chat).

    All sampling fields are sent if accepted, because servers take missing ones from the model's settings; else those of
    OpenAI's API, the temperature, or none. Raises ModelError if it generates no text, and DeniedError.
    """
    refusals = []
    for fields, limit in itertools.product(_FIELD_SETS, LIMITS):
        completions = Completions(client, model, fields, limit)
        prompts, denied = set(), []
        for name, prompt in (("text", checks.PROMPT), ("chat", CHAT)):
            try:
                completions.complete(prompt, 1)
                prompts.add(name)
            except (RefusedError, AnswerError) as error:
                refusals.append(str(error))
            except DeniedError as error:  # of one kind of prompts, where there is no such endpoint
                denied.append(error)
        if prompts:
            return completions, prompts
        if len(denied) == 2:
            raise denied[0]
    raise ModelError(f"{client.source}: the server generates no text ({refusals[0]}).")
