"""The checks of a server: each raises AnswerError, or returns what it saw as a short text.

The texts are short and in several scripts. A difference between two values of one log-probability is allowed up to
the noise of a 16-bit model, whose sums depend on the other requests of a batch.
"""

import math
import random
from functools import partial
from pathlib import Path
from statistics import fmean

from vernacular.core.errors import format_count
from vernacular.inference.model.tokenization import AlignmentError, TextModel, cycled, encode
from vernacular.inference.server.client import RefusedError
from vernacular.inference.server.completions import Echo, TopIds, count_tokens
from vernacular.inference.server.forms import (
    AnswerError,
    Check,
    LabelForm,
    LengthError,
    SpanForm,
    TokenScore,
    ValueLieError,
    read,
)
from vernacular.inference.server.served import ServedModel

MEAN_TOLERANCE, TOLERANCE = 0.15, 0.75  # nats: of the mean over a text's tokens, and of a single token
_BATCH_TOLERANCE = 1.0  # nats, of a single token among concurrent requests; more than MEAN_TOLERANCE is noted
TEXTS = (
    "The capital of France is Paris, and the capital of Italy is Rome.",
    "O gato dorme no tellado e a cadela ladra na rúa.",
    "დედაქალაქი არის თბილისი.",  # bytes of Georgian letters are tokens of their own in many vocabularies
)
PROMPT = "The capital of France is Paris. The capital of Italy is"
QUESTION = "Question: Which animal sleeps on the roof?\nA. the dog\nB. the cat\nC. the horse\nD. the bird\nAnswer:"
LABELS = (" A", " B", " C", " D")
_REPEATED = "yes yes yes yes yes no no no no yes yes yes"
_SHUFFLE_SEED = 0
_BEGINNING = 8  # tokens
_IMPROBABLE = 12  # tokens, of which at most half may have the same value: those of 16 bits coincide
_SAMPLED_HERE = 16  # tokens that are sampled to be scored
OPEN_PROMPTS = ("Write some random words.", "Begin a story about a", "Here is a list of things:")


def ids_of(loaded: TextModel, text: str) -> list[int]:
    """Return the token IDs of `text`, with the special tokens that the tokenizer puts before it."""
    try:
        encoded = encode(loaded, text)
    except AlignmentError as error:
        raise AnswerError(Check.TOKENIZER, f"the tokenizer provides no offsets, and {error}") from error
    return encoded.ids[: len(encoded) - encoded.tail].tolist()


def values_of(scores: list[TokenScore]) -> list[float]:
    """Return the log-probabilities, without that of a first token, which has none."""
    return [score.logprob for score in scores if score.logprob is not None]


def deviations(values: list[float], others: list[float]) -> tuple[float, float]:
    """Return (mean, largest) absolute difference of two lists of log-probabilities; infinite if lengths differ."""
    if len(values) != len(others) or not values:
        return math.inf, math.inf
    differences = [abs(a - b) for a, b in zip(values, others, strict=True)]
    return fmean(differences), max(differences)


def agree(values: list[float], others: list[float]) -> bool:
    """Return whether two lists of log-probabilities are equal up to the noise of a 16-bit model."""
    mean, largest = deviations(values, others)
    return mean <= MEAN_TOLERANCE and largest <= TOLERANCE


def check_structure(loaded: TextModel, form: SpanForm) -> str:
    """Check that every token of a text has one plausible value; the form itself checks IDs and nulls."""
    values = values_of(form.score(ids_of(loaded, TEXTS[0]), 0))
    if len(set(values)) == 1 or min(values) < -100:
        raise AnswerError(Check.BOUNDARY, f"{form.name}: all values are {values[0]}, or one is {min(values):.1f}")
    return f"{format_count(len(values), 'value')} from {min(values):.2f} to {max(values):.2f}"


def check_bytes(loaded: TextModel, form: SpanForm) -> str:
    """Check that tokens that are parts of a character have values, too."""
    try:
        scores = [score for text in TEXTS[1:] for score in form.score(ids_of(loaded, text), 0)]
    except LengthError:
        raise
    except AnswerError as error:
        raise AnswerError(Check.BYTES, f"{error}, in a text with tokens inside of characters") from error
    return format_count(len(values_of(scores)), "value")


def check_repetition(loaded: TextModel, form: SpanForm) -> str:
    """Check that values do not depend on the requests before: the same texts forward, backward and extended."""
    ids = [ids_of(loaded, text) for text in TEXTS]
    forward = [values_of(form.score(text, 0)) for text in ids]
    backward = [values_of(form.score(text, 0)) for text in reversed(ids)][::-1]
    extended = [values_of(form.score(text + ids[0], 0))[: len(text) - 1] for text in ids]
    seen = []
    for name, others in (("repeated", backward), ("followed by another text", extended)):
        largest = max(deviations(a, b)[1] for a, b in zip(forward, others, strict=True))
        if not all(map(agree, forward, others)):
            error = f"{form.name}: a text has other values if it is {name} (by {largest:.2f})"
            raise ValueLieError(Check.REPETITION, error)
        seen.append(largest)
    beginning, other, text = ids[1][:_BEGINNING], ids[0][:_BEGINNING], ids[2][-_BEGINNING:]
    middle = [*beginning[: _BEGINNING // 2], other[-1], *beginning[_BEGINNING // 2 + 1 :]]
    values = [tuple(values_of(form.score(each + text, len(each) + 1))) for each in (beginning, other, middle)]
    if len(set(values)) < len(values):
        error = f"{form.name}: a text has the same values after another beginning of the same length"
        raise ValueLieError(Check.REPETITION, error)
    return f"largest difference {seen[0]:.4f}"


def check_plausible(loaded: TextModel, form: SpanForm) -> str:
    """Check that sentences are more probable than their tokens shuffled, on average over three languages."""
    texts = [ids_of(loaded, text) for text in TEXTS]
    shuffled = [ids[:1] + random.Random(_SHUFFLE_SEED).sample(ids[1:], len(ids) - 1) for ids in texts]
    natural, other = (fmean(fmean(values_of(form.score(ids, 0))) for ids in order) for order in (texts, shuffled))
    if natural <= other:
        values = f"{natural:.2f} and {other:.2f} nats per token"
        error = f"{form.name}: sentences are less probable than their shuffled tokens ({values})"
        raise ValueLieError(Check.PLAUSIBLE, error)
    check_improbable(loaded, form.name, lambda ids, tokens: [_next_value(form, ids, token) for token in tokens])
    return f"{natural:.2f} nats per token, shuffled {other:.2f}"


def _next_value(form: SpanForm, ids: list[int], token: int) -> float:
    """Return the log-probability of a token after `ids`."""
    return form.score([*ids, token], len(ids))[0].logprob


def check_improbable(loaded: TextModel, name: str, score) -> None:
    """Check that tokens of other texts, improbable here, have values of their own, and not that of a limit.

    `score(ids, tokens)` returns the log-probabilities of tokens as the next one.
    """
    found = sorted({token for text in TEXTS for token in ids_of(loaded, text)[1:]})
    values = score(ids_of(loaded, PROMPT), random.Random(_SHUFFLE_SEED).sample(found, _IMPROBABLE))
    if len(set(values)) <= len(values) // 2:
        error = f"{name}: improbable tokens have the same value ({min(values):.2f}), a limit or a default"
        raise ValueLieError(Check.PLAUSIBLE, error)


def check_consistency(loaded: TextModel, form: SpanForm) -> str:
    """Check that generated tokens, also sampled ones, have the values that they have as part of a prompt."""
    seen = [_compare_generated(form, ids_of(loaded, text), Check.CONSISTENT) for text in (PROMPT, QUESTION)]
    sampled = {"n": _SAMPLED_HERE, "temperature": 1.0}
    for seed, text in enumerate(OPEN_PROMPTS[:2], start=1):
        seen.append(_compare_generated(form, ids_of(loaded, text), Check.CONSISTENT, seed=seed, **sampled))
    return f"largest difference {max(seen):.4f}"


def _compare_generated(form: SpanForm, ids: list[int], check: int, n: int = 3, **sampling) -> float:
    generated = form.generated(ids, n, **sampling)
    scored = form.score(ids + [score.token_id for score in generated], len(ids))
    largest = deviations(values_of(generated), values_of(scored))[1]
    if not agree(values_of(generated), values_of(scored)):
        problem = f"generated tokens have other values as part of a prompt (by {largest:.2f})"
        raise ValueLieError(check, f"{form.name}: {problem}")
    return largest


def check_batch(loaded: ServedModel, form: SpanForm) -> str:
    """Check the values of eight concurrent requests against those of single ones."""
    ids = [ids_of(loaded, f"{text} {TEXTS[0]}") for text in (*TEXTS, PROMPT)]
    single = [values_of(form.score(text, len(text) - 8)) for text in ids]
    largest = 0.0
    for index, scores in loaded.client.map(lambda i: form.score(ids[i % 4], len(ids[i % 4]) - 8), range(8)):
        largest = max(largest, deviations(values_of(scores), single[index % 4])[1])
    if largest > _BATCH_TOLERANCE:
        raise ValueLieError(Check.BATCH, f"{form.name}: concurrent requests change a value by {largest:.2f}")
    return f"largest difference {largest:.4f}" + (": noise of the batch" if largest > MEAN_TOLERANCE else "")


def check_penalties(loaded: TextModel, form: SpanForm) -> str:
    """Check that neither the temperature of the request nor the server's own penalties are in the values."""
    ids = ids_of(loaded, TEXTS[0])
    cold, hot = (values_of(form.score(ids, 0, temperature=temperature, seed=1)) for temperature in (1.0, 2.0))
    if not agree(cold, hot):
        largest = deviations(cold, hot)[1]
        raise ValueLieError(Check.PENALTIES, f"{form.name}: values change with the temperature (by {largest:.2f})")
    return f"repeated words differ by {_compare_generated(form, ids_of(loaded, _REPEATED), Check.PENALTIES):.4f}"


def check_labels(loaded: ServedModel, form: LabelForm, spans: SpanForm | None, *, in_doubt: bool = False) -> str:
    """Check the labels of a question against their values as part of a prompt, or else those of sampled tokens.

    `in_doubt`: other values of the server are wrong, so that labels without a comparison are refused.
    """
    ids = ids_of(loaded, QUESTION)
    labels = [ids_of(loaded, QUESTION + label)[-1] for label in LABELS]
    values = [score.logprob for score in form.label_scores(ids, labels)]
    found = [value for value in values if value is not None]
    if spans is not None:
        pairs = [(value, _next_value(spans, ids, label)) for value, label in zip(values, labels, strict=True)]
        compared = [pair for pair in pairs if pair[0] is not None]
        if compared and not agree(*map(list, zip(*compared, strict=True))):
            raise AnswerError(Check.LETTERS, f"{form.name}: labels have other values as part of a prompt")
    elif found and not agree(found, values_of(form.label_scores(ids, labels))):
        raise AnswerError(Check.LETTERS, f"{form.name}: repeated labels have other values")
    else:
        n = _compare_sampled(loaded, form)
        if in_doubt and not n:
            raise AnswerError(Check.LETTERS, f"{form.name}: other values are wrong, and these cannot be compared")
    if not isinstance(form, TopIds):  # whose lists lack improbable tokens
        check_improbable(loaded, form.name, partial(_next_values, form))
    return f"{len(found)} of {len(labels)} labels found"


def _next_values(form: LabelForm, ids: list[int], tokens: list[int]) -> list[float | None]:
    return [score.logprob for score in form.label_scores(ids, tokens)]


def _compare_sampled(loaded: ServedModel, form: LabelForm) -> int:
    """Compare the values of sampled tokens with those of the same tokens as labels; return how many were compared."""
    pairs = []
    for seed, text in enumerate(OPEN_PROMPTS[:2], start=1):
        ids = ids_of(loaded, text)
        try:
            generated = getattr(form, "generated", Echo(loaded.completions).generated)(
                ids, _SAMPLED_HERE // 2, temperature=1.0, seed=seed
            )
        except (AnswerError, RefusedError):
            continue
        for score in generated:
            pairs += [
                (value, score.logprob) for value in _next_values(form, ids, [score.token_id]) if value is not None
            ]
            ids = [*ids, score.token_id]
    if pairs and not agree(*map(list, zip(*pairs, strict=True))):
        raise ValueLieError(Check.LETTERS, f"{form.name}: sampled tokens have other values as labels")
    return len(pairs)


_TOKENIZED = ("Avión, año, pingüíno.", "დედაქალაქი", "🙂 ok", "  two spaces", "<|im_start|>user")
_LONG = 320  # tokens of a prompt that must be read completely
_JOINED = 8  # tokens that can be fewer in a text than in its halves


def check_ids(loaded: ServedModel) -> str:
    """Check that token IDs are accepted as the prompt, all of them and no others."""
    ids = ids_of(loaded, PROMPT)
    try:
        by_ids, by_text = (loaded.completions.complete(prompt, 1) for prompt in (ids, PROMPT))
    except LengthError as error:
        raise AnswerError(Check.IDS, str(error)) from error
    if by_text.prompt_tokens == by_ids.prompt_tokens and by_text.text != by_ids.text:
        raise AnswerError(Check.IDS, f"a text and its token IDs are continued as {by_text.text!r} and {by_ids.text!r}")
    added = (by_text.prompt_tokens or len(ids)) - len(ids)
    return f"{format_count(len(ids), 'ID')} read" + (f"; the server adds {added} to a text" if added else "")


def check_tokenizer(loaded: ServedModel) -> str:
    """Check that the local tokenizer and the server's give the same token IDs, or without `/tokenize` as many."""
    for text in _TOKENIZED:
        expected = loaded.tokenizer(text, add_special_tokens=False)["input_ids"]
        body = {"model": loaded.completions.model, "prompt": text, "content": text, "add_special_tokens": False}
        body |= {"add_special": False, "parse_special": True}
        try:
            tokens = read(loaded.client.post("/tokenize", body, root=True), "tokens")
        except RefusedError:
            return _check_token_counts(loaded)
        if tokens != expected:
            error = f"the server's tokenizer gives other token IDs than the local one for {text!r}"
            raise AnswerError(Check.TOKENIZER, error)
    return f"equal token IDs of {format_count(len(_TOKENIZED), 'text')}"


def _check_token_counts(loaded: ServedModel) -> str:
    for text in TEXTS:
        expected, got = len(ids_of(loaded, text)), loaded.completions.complete(text, 1).prompt_tokens
        if got is None:
            return "not comparable: the server has no /tokenize and reports no number of tokens"
        if abs(got - expected) > 1:  # BOS
            error = f"the server counts {got} tokens in {text!r}, the local tokenizer {expected}"
            raise AnswerError(Check.TOKENIZER, error)
    return f"equal numbers of tokens of {format_count(len(TEXTS), 'text')}"


def check_length(loaded: ServedModel, form: SpanForm) -> str:
    """Check that long prompts are read completely, and that one beyond the context is refused instead of cut."""
    size = _check_whole(loaded, form, _LONG)
    limit = loaded.record.server.max_length
    if limit is None:
        return f"{size} tokens read; the length of the context is unknown"
    if limit > loaded.max_length:  # as configured
        return f"{size} tokens read; no prompt is longer than the context"
    size = limit + 1
    try:
        loaded.completions.complete(cycled(ids_of(loaded, TEXTS[0]), size), 1)
    except RefusedError as error:
        return f"{size} tokens refused (HTTP {error.status})"
    return f"{size} tokens accepted"


def check_longest(loaded: ServedModel, form: SpanForm | None, longest: str) -> str:
    """Check that a prompt as long as the longest one of the run is read completely; `form` None: to generate."""
    n = len(ids_of(loaded, longest))
    size = _check_whole(loaded, form, n if form is None else max(n, _LONG))
    return f"{size} tokens read, as in the longest request"


def _check_whole(loaded: ServedModel, form: SpanForm | None, size: int) -> int:
    """Return the length of a prompt, `size` or what fits; raise AnswerError unless all of it has an effect."""
    size = min(size, (loaded.max_length or math.inf) - 8)
    ids, other = (cycled(ids_of(loaded, text), size) for text in TEXTS[:2])
    loaded.completions.complete(ids, 1)
    if form is None:
        return size
    changed = max(4, size // 16)
    expected = values_of(form.score(ids, size - 8))
    for part, start in (("beginning", 1), ("middle", size // 2)):
        prompt = [*ids[:start], *other[start : start + changed], *ids[start + changed :]]
        if values_of(form.score(prompt, size - 8)) == expected:
            raise AnswerError(Check.LENGTH, f"{form.name}: the {part} of a prompt of {size} tokens has no effect")
    _compare_generated(form, ids[: size - 4], Check.LENGTH)
    return size


def check_text_length(complete, message, text: str) -> str:
    """Check that a text is read completely: as many tokens as its two halves, in prompts `message(text)`."""

    def count(part: str) -> int | None:
        return complete(message(part), 1).prompt_tokens

    middle = max(text.rfind(" ", 0, len(text) // 2), 0) or len(text) // 2
    whole = count(text)
    parts = [count(part) for part in (text[:middle], text[middle:], TEXTS[0], f"{TEXTS[0]} {TEXTS[0]}")]
    if None in (whole, *parts):
        return "not comparable: the server does not report the number of tokens"
    expected = parts[0] + parts[1] - (2 * parts[2] - parts[3])  # without the tokens around a text, counted twice
    if whole < expected - _JOINED:
        of = format_count(expected, "token")
        raise AnswerError(Check.LENGTH, f"of a prompt of about {of}, the server read {whole}")
    return f"{whole} tokens read, {expected} in its halves"


def learn_offset(tokenizer, complete, message) -> int | None:
    """Return the number of tokens that a server counts in addition to those of a text; None if it is not constant."""
    try:
        counts = [(complete(message(text), 1).prompt_tokens, count_tokens(tokenizer, text)) for text in TEXTS]
    except RefusedError:  # of one of the texts, by a filter
        return None
    offsets = [read_tokens - sent for read_tokens, sent in counts if read_tokens is not None]
    constant = len(offsets) == len(TEXTS) and max(offsets) - min(offsets) <= 2
    return min(offsets) if constant else None


def check_generation(complete, prompt: str | list, *, stops: bool, lister) -> str:
    """Check that greedy texts are equal, and if `stops` (not of chats), that a stop string ends one.

    Where `lister` (see `Completions.listed`) returns lists, greedy tokens must be the most probable ones.
    """
    try:
        lists = [(token, values) for token, values in lister(prompt, 12, 5) if values and None not in values.values()]
    except (AnswerError, RefusedError):
        lists = []
    if not any(token in values for token, values in lists):  # lists may have other names than texts
        lists = []
    if any(values.get(token, -math.inf) < max(values.values()) - MEAN_TOLERANCE for token, values in lists):
        raise AnswerError(Check.STOP, "with temperature 0, a token is not the most probable one of its list")
    first, second = (complete(prompt, 12).text for _ in range(2))
    # servers compare bytes: parts of a character, and in llama.cpp what follows them, are not found in the text
    whole = first.partition("\ufffd")[0]
    stop = next((word for word in whole.split(" ")[1:] if word.strip()), None)
    if stops and stop is not None:
        stopped = complete(prompt, 12, stop=[stop]).text
        if (stop in stopped and not stopped.endswith(stop)) or not first.startswith(
            stopped.removesuffix(stop).rstrip()
        ):
            raise AnswerError(Check.STOP, f"the stop string {stop!r} did not end the text")
    sampled = [complete(prompt, 12, temperature=1.0, seed=7).text for _ in range(2)]
    notes = ["greedy texts repeat" if first == second else "greedy texts differ"]
    notes += ["the seed repeats" if sampled[0] == sampled[1] else "the seed is ignored"]
    notes += ["no stop string compared"] if stops and stop is None else []
    return ", ".join([*notes, *([] if lists else ["greedy tokens not compared, without lists"])])


def known_answers(name: str, source: str, conversion_dir: Path) -> dict[str, list[float]]:
    """Return {text: log-probabilities of its tokens, nats} of the model at `source`, in float32 on the CPU."""
    import torch  # here: a probe without known answers loads no model

    from vernacular.checkpoints.resolve import resolve
    from vernacular.inference.model.load import load

    loaded = load(resolve(name, source, conversion_dir, kind="causal") | {"dtype": "float32", "device": "cpu"})
    answers = {}
    for text in TEXTS:
        ids = torch.tensor(ids_of(loaded, text))
        with torch.inference_mode():
            logits = loaded.model(input_ids=ids[None]).logits[0, :-1].float()
        answers[text] = logits.log_softmax(-1).gather(1, ids[1:, None])[:, 0].tolist()
    return answers


_KNOWN_TOLERANCE = 0.5  # nats, of a text's mean: a quantized copy differs by less, another model by more


def check_known_answers(loaded: TextModel, form: SpanForm, known: dict[str, list[float]] | None) -> str:
    """Compare the values of texts with `known`, {text: log-probabilities in nats}; None: there is no local copy."""
    if known is None:
        return "not run: no local copy (reference) is configured"
    means = []
    for text, expected in known.items():
        mean, _ = deviations(values_of(form.score(ids_of(loaded, text), 0)), expected)
        if mean > _KNOWN_TOLERANCE:
            raise ValueLieError(
                Check.KNOWN, f"{form.name}: values of the local copy differ by {mean:.2f} nats per token"
            )
        means.append(mean)
    return f"mean difference {max(means):.4f} nats per token"
