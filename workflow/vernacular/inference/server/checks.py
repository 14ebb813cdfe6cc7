"""The checks of a server: each raises AnswerError, or returns what it saw as a short text.

The texts are short and in several scripts. A difference between two values of one log-probability is allowed up to
the noise of a 16-bit model, whose sums depend on the other requests of a batch.
"""

import math
import random
from statistics import fmean

from vernacular.core.errors import format_count
from vernacular.inference.model.loaded import LoadedModel
from vernacular.inference.model.tokenization import AlignmentError, encode
from vernacular.inference.server.client import Client, RefusedError
from vernacular.inference.server.forms import (
    BATCH,
    BOUNDARY,
    BYTES,
    CONSISTENT,
    LETTERS,
    PENALTIES,
    PLAUSIBLE,
    REPETITION,
    TOKENIZER,
    AnswerError,
    LabelForm,
    LengthError,
    SpanForm,
    TokenScore,
)

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
_POWERS = (0.5, 0.6, math.log(2), 0.8, 1.25, 1.5, 2.0, math.log(10))  # of listed probabilities, of `check_samples`
_ERROR_RATE = 1e-6
_SAMPLED_LENGTH, _SAMPLED_TOKENS = 64, 256  # per request, and in all
_SAMPLED_REQUESTS = 128  # at most, of servers that return the list of the first token only
_SUM_ROUNDING = 0.005  # of ln of a sum of probabilities
_REPEATED_TEXTS = 4  # equal texts of a prompt after which a server does not sample
OPEN_PROMPTS = ("Write some random words.", "Begin a story about a", "Here is a list of things:")


def ids_of(loaded: LoadedModel, text: str) -> list[int]:
    """Return the token IDs of `text`, with the special tokens that the tokenizer puts before it."""
    try:
        encoded = encode(loaded, text)
    except AlignmentError as error:
        raise AnswerError(TOKENIZER, f"the tokenizer provides no offsets, and {error}") from error
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


def check_structure(loaded: LoadedModel, form: SpanForm) -> str:
    """Check that every token of a text has one plausible value; the form itself checks IDs and nulls."""
    values = values_of(form.score(ids_of(loaded, TEXTS[0]), 0))
    if len(set(values)) == 1 or min(values) < -100:
        raise AnswerError(BOUNDARY, f"{form.name}: all values are {values[0]}, or one is {min(values):.1f}")
    return f"{format_count(len(values), 'value')} from {min(values):.2f} to {max(values):.2f}"


def check_bytes(loaded: LoadedModel, form: SpanForm) -> str:
    """Check that tokens that are parts of a character have values, too."""
    try:
        scores = [score for text in TEXTS[1:] for score in form.score(ids_of(loaded, text), 0)]
    except LengthError:
        raise
    except AnswerError as error:
        raise AnswerError(BYTES, f"{error}, in a text with tokens inside of characters") from error
    return format_count(len(values_of(scores)), "value")


def check_repetition(loaded: LoadedModel, form: SpanForm) -> str:
    """Check that values do not depend on the requests before: the same texts forward, backward and extended."""
    ids = [ids_of(loaded, text) for text in TEXTS]
    forward = [values_of(form.score(text, 0)) for text in ids]
    backward = [values_of(form.score(text, 0)) for text in reversed(ids)][::-1]
    extended = [values_of(form.score(text + ids[0], 0))[: len(text) - 1] for text in ids]
    for name, others in (("repeated", backward), ("followed by another text", extended)):
        if not all(map(agree, forward, others)):
            largest = max(deviations(a, b)[1] for a, b in zip(forward, others, strict=True))
            raise AnswerError(REPETITION, f"{form.name}: a text has other values if it is {name} (by {largest:.2f})")
    return f"largest difference {max(deviations(a, b)[1] for a, b in zip(forward, backward, strict=True)):.4f}"


def check_plausible(loaded: LoadedModel, form: SpanForm) -> str:
    """Check that a sentence is more probable than its tokens in another order."""
    ids = ids_of(loaded, TEXTS[0])
    shuffled = ids[:1] + random.Random(_SHUFFLE_SEED).sample(ids[1:], len(ids) - 1)
    natural, other = (fmean(values_of(form.score(tokens, 0))) for tokens in (ids, shuffled))
    if natural <= other:
        values = f"{natural:.2f} and {other:.2f} nats per token"
        raise AnswerError(PLAUSIBLE, f"{form.name}: a sentence is less probable than its shuffled tokens ({values})")
    return f"{natural:.2f} nats per token, shuffled {other:.2f}"


def check_consistency(loaded: LoadedModel, form: SpanForm) -> str:
    """Check that generated tokens have the values that the same tokens have as part of a prompt."""
    seen = [_compare_generated(form, ids_of(loaded, text), CONSISTENT) for text in (PROMPT, QUESTION)]
    return f"largest difference {max(seen):.4f}"


def _compare_generated(form: SpanForm, ids: list[int], check: int, **sampling) -> float:
    generated = form.generated(ids, 3, **sampling)
    scored = form.score(ids + [score.token_id for score in generated], len(ids), **sampling)
    mean, largest = deviations(values_of(generated), values_of(scored))
    if mean > MEAN_TOLERANCE or largest > TOLERANCE:
        raise AnswerError(
            check, f"{form.name}: generated tokens have other values as part of a prompt (by {largest:.2f})"
        )
    return largest


def check_batch(loaded: LoadedModel, form: SpanForm, client: Client) -> str:
    """Check the values of eight concurrent requests against those of single ones."""
    ids = [ids_of(loaded, f"{text} {TEXTS[0]}") for text in (*TEXTS, PROMPT)]
    single = [values_of(form.score(text, len(text) - 8)) for text in ids]
    largest = 0.0
    for index, scores in client.map(lambda i: form.score(ids[i % 4], len(ids[i % 4]) - 8), range(8)):
        largest = max(largest, deviations(values_of(scores), single[index % 4])[1])
    if largest > _BATCH_TOLERANCE:
        raise AnswerError(BATCH, f"{form.name}: concurrent requests change a value by {largest:.2f}")
    return f"largest difference {largest:.4f}" + (": noise of the batch" if largest > MEAN_TOLERANCE else "")


def check_penalties(loaded: LoadedModel, form: SpanForm) -> str:
    """Check that neither the temperature of the request nor the server's own penalties are in the values."""
    ids = ids_of(loaded, TEXTS[0])
    cold, hot = (values_of(form.score(ids, 0, temperature=temperature, seed=1)) for temperature in (1.0, 2.0))
    if not agree(cold, hot):
        raise AnswerError(
            PENALTIES, f"{form.name}: values change with the temperature (by {deviations(cold, hot)[1]:.2f})"
        )
    return f"repeated words differ by {_compare_generated(form, ids_of(loaded, _REPEATED), PENALTIES):.4f}"


def check_labels(loaded: LoadedModel, form: LabelForm, spans: SpanForm | None) -> str:
    """Check the labels of a question against their values as part of a prompt."""
    ids = ids_of(loaded, QUESTION)
    labels = [ids_of(loaded, QUESTION + label)[-1] for label in LABELS]
    values = [score.logprob for score in form.label_scores(ids, labels)]
    found = [value for value in values if value is not None]
    if spans is not None:
        pairs = [(v, spans.score([*ids, t], len(ids))[0].logprob) for v, t in zip(values, labels, strict=True)]
        compared = [pair for pair in pairs if pair[0] is not None]
        if compared and not agree(*map(list, zip(*compared, strict=True))):
            raise AnswerError(LETTERS, f"{form.name}: labels have other values as part of a prompt")
    elif found and not agree(found, values_of(form.label_scores(ids, labels))):
        raise AnswerError(LETTERS, f"{form.name}: repeated labels have other values")
    return f"{len(found)} of {len(labels)} labels found"


def check_samples(lister, prompts: list, lengths: tuple[int, ...] = (20, 5)) -> str:
    """Check that sampled tokens have the listed probabilities: the values are natural logarithms, and not scaled.

    `lister(prompt, n, k, **sampling)` samples `n` tokens and lists `k`; see `Completions.listed`. `lengths` are the
    values of `k`, of which the server may refuse some. Raises AnswerError if the samples refute the lists.
    """
    bets, n, texts, n_tokens = _Bets(), 0, {}, _SAMPLED_LENGTH
    for seed in range(1, _SAMPLED_REQUESTS + 1):
        place = seed % len(prompts)
        try:
            tokens = lister(prompts[place], n_tokens, lengths[0], temperature=1.0, seed=seed)
        except RefusedError as error:
            if lengths[1:]:
                return check_samples(lister, prompts, lengths[1:])
            return f"samples not comparable: the server refuses lists of sampled tokens (HTTP {error.status})"
        n_tokens = n_tokens if len(tokens) > 1 else 1
        texts.setdefault(place, []).append(tuple(token for token, _ in tokens))
        n += bets.add(tokens)
        is_constant = all(len(set(same)) == 1 for same in texts.values())
        if is_constant and len(texts[place]) >= _REPEATED_TEXTS:
            return "samples not comparable: the server does not sample"
        if not is_constant and bets.evidence() >= -math.log(_ERROR_RATE):
            raise AnswerError(
                PENALTIES,
                "sampled tokens do not have the listed probabilities: the values are not natural logarithms, or scaled",
            )
        if not is_constant and n >= _SAMPLED_TOKENS:
            break
    return f"{n} sampled tokens have the listed probabilities" if n else "samples not comparable: no lists are returned"


class _Bets:
    """Likelihood ratios of sampled tokens: true probabilities that are powers of the listed ones, against those listed.

    A power is that of a base (2, 10) or of a temperature. If the lists are right, the mean of the ratios ever reaches
    1/x with probability x at most, however dependent the tokens of a text are (Ville's inequality). In the first
    half, listed tokens are compared with each other; in the second one, all others are one further token, and a power
    is impossible if it gives a list a probability above 1, as most lists do with powers below 1 unless they are scaled.
    """

    def __init__(self):
        self._ratios = [0.0] * (2 * len(_POWERS))

    def add(self, tokens: list[tuple]) -> int:
        """Add the sampled tokens of one text; return the number of those that have lists."""
        lists = [(token, {t: v for t, v in values.items() if v is not None}) for token, values in tokens]
        lists = [(token, values) for token, values in lists if len(values) > 2]
        # without the last one: some servers list a token because it was sampled
        size = min((len(values) for _, values in lists), default=0) - 1
        for token, values in lists:
            known = dict(sorted(values.items(), key=lambda pair: -pair[1])[:size])
            listed, chosen = list(known.values()), known.get(token)
            total, rest = _log_sum(listed), _log_rest(_log_sum(listed))
            for i, power in enumerate(_POWERS):
                raised = _log_sum([power * value for value in listed])
                if chosen is not None:
                    self._ratios[i] += power * chosen - raised - (chosen - total)
                whole = i + len(_POWERS)
                if power >= 1 or raised > _SUM_ROUNDING:
                    self._ratios[whole] = -math.inf
                else:
                    self._ratios[whole] += (power - 1) * chosen if chosen is not None else _log_rest(raised) - rest
        return len(lists)

    def evidence(self) -> float:
        """Return ln of the mean ratio."""
        return _log_sum(self._ratios) - math.log(len(self._ratios))


def _log_sum(values: list[float]) -> float:
    """Return ln of the sum of the exponentials of some values."""
    return max(values) + math.log(sum(math.exp(value - max(values)) for value in values))


def _log_rest(value: float) -> float:
    """Return ln(1 - e^value), of a probability that values of few digits may put above 1."""
    return math.log(max(-math.expm1(value), 1e-4))
