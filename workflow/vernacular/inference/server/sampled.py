"""Sampled tokens against the listed probabilities: whether values are natural logarithms, scaled, limited, shifted."""

import math

import numpy as np

from vernacular.inference.server.client import RefusedError
from vernacular.inference.server.forms import Check, ValueLieError

_POWERS = (0.5, 0.6, math.log(2), 0.8, 1.25, 1.5, 2.0, math.log(10))  # of listed probabilities, of `check_samples`
_SHIFTS = (0.1, 0.25, 0.5, 1.0, 2.0)  # nats by which listed values are too high, as if few tokens were all
_LISTED, _PROBABLE, _EXACT = 5, math.log(0.9), 2e-4  # of lists in which limits are looked for
_ENOUGH = 12  # lists that all show a limit or a renormalization
ERROR_RATE = 1e-6
_SAMPLED_LENGTH, _SAMPLED_TOKENS = 64, 256  # per request, and in all
_SAMPLED_REQUESTS = 128  # at most, of servers that return the list of the first token only
_SUM_ROUNDING = 0.005  # of ln of a sum of probabilities
_REPEATED_TEXTS = 4  # equal texts of a prompt after which a server does not sample


def check_samples(lister, prompts: list, lengths: tuple[int, ...] = (20, 5)) -> str:
    """Check that sampled tokens have the listed probabilities: the values are natural logarithms, and not scaled.

    `lister(prompt, n, k, **sampling)`: see `Completions.listed`; `lengths`: values of `k` to try.
    """
    bets, n, texts, n_tokens = Bets(), 0, {}, _SAMPLED_LENGTH
    for seed in range(1, _SAMPLED_REQUESTS + 1):
        index = seed % len(prompts)
        try:
            tokens = lister(prompts[index], n_tokens, lengths[0], temperature=1.0, seed=seed)
        except RefusedError as error:
            if lengths[1:]:
                return check_samples(lister, prompts, lengths[1:])
            return f"samples not comparable: the server refuses lists of sampled tokens (HTTP {error.status})"
        n_tokens = n_tokens if len(tokens) > 1 else 1
        texts.setdefault(index, []).append(tuple(token for token, _ in tokens))
        n += bets.add(tokens)
        if bets.n_limited >= _ENOUGH and bets.n_limited == bets.n_open:
            error = "the lists of the most probable tokens have the same value many times, or sum to exactly one"
            raise ValueLieError(Check.PENALTIES, f"{error}: a limit, or a renormalization over a few tokens")
        is_constant = all(len(set(same)) == 1 for same in texts.values())
        if is_constant and len(texts[index]) >= _REPEATED_TEXTS:
            return "samples not comparable: the server does not sample"
        if not is_constant and bets.evidence() >= -math.log(ERROR_RATE):
            cause = "the values are not natural logarithms, or scaled"
            raise ValueLieError(Check.PENALTIES, f"sampled tokens do not have the listed probabilities: {cause}")
        if not is_constant and n >= _SAMPLED_TOKENS:
            break
    return f"{n} sampled tokens have the listed probabilities" if n else "samples not comparable: no lists are returned"


class Bets:
    """Likelihood ratios of sampled tokens: true probabilities that are powers of the listed ones, against those listed.

    A power is that of a base (2, 10) or of a temperature; or listed values are too high by a shift, and the other
    tokens too improbable, as after a renormalization over the most probable ones. If the lists are right, the mean of
    the ratios ever reaches 1/x with probability x at most, however dependent the tokens of a text are (Ville's
    inequality). With the first powers, listed tokens are compared with each other; with the second ones, all others
    are one further token, and a power is impossible if it gives a list a probability above 1, as most lists do with
    powers below 1 unless they are scaled.
    """

    def __init__(self):
        self._ratios = [0.0] * (2 * len(_POWERS) + len(_SHIFTS))
        self.n_open = self.n_limited = 0  # lists without a probable token, and those of them that show a limit

    def add(self, tokens: list[tuple]) -> int:
        """Add the sampled tokens of one text; return the number of those that have lists."""
        lists = [(token, {t: v for t, v in values.items() if v is not None}) for token, values in tokens]
        lists = [(token, values) for token, values in lists if len(values) > 2]
        # without the last one: some servers list a token because it was sampled
        size = min((len(values) for _, values in lists), default=0) - 1
        for token, values in lists:
            known = dict(sorted(values.items(), key=lambda pair: -pair[1])[:size])
            listed, chosen = list(known.values()), known.get(token)
            total = np.logaddexp.reduce(listed)
            rest = _log_rest(total)
            self._count_limits(list(values.values()))
            for i, shift in enumerate(_SHIFTS, start=2 * len(_POWERS)):
                self._ratios[i] += -shift if chosen is not None else _log_rest(total - shift) - rest
            for i, power in enumerate(_POWERS):
                raised = np.logaddexp.reduce([power * value for value in listed])
                if chosen is not None:
                    self._ratios[i] += power * chosen - raised - (chosen - total)
                whole = i + len(_POWERS)
                if power >= 1 or raised > _SUM_ROUNDING:
                    self._ratios[whole] = -math.inf
                else:
                    self._ratios[whole] += (power - 1) * chosen if chosen is not None else _log_rest(raised) - rest
        return len(lists)

    def _count_limits(self, values: list[float]) -> None:
        if len(values) >= _LISTED and max(values) < _PROBABLE:
            is_sum = abs(math.fsum(map(math.exp, values)) - 1) < _EXACT
            self.n_open += 1
            self.n_limited += is_sum or len(set(values)) <= len(values) // 2

    def evidence(self) -> float:
        """Return ln of the mean ratio."""
        return np.logaddexp.reduce(self._ratios) - math.log(len(self._ratios))


def _log_rest(value: float) -> float:
    """Return ln(1 - e^value), of a probability that values of few digits may put above 1."""
    return math.log(max(-math.expm1(value), 1e-4))
