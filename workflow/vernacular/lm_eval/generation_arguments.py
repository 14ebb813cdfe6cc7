"""Generation arguments of an lm-eval task as fields of a request; arguments without an equivalent are named.

The defaults are those of lm-eval's `hf` model (normalize_gen_kwargs in lm_eval/models/utils.py, 0.4.13) and, for
sampling, of `generate` in transformers.
"""

from vernacular.core.errors import DataError

_TOKEN_LIMITS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")  # in lm-eval's priority
_DECODING = ("top_k", "top_p", "repetition_penalty")
_SUPPORTED = {"until", "do_sample", "temperature", "num_beams", *_TOKEN_LIMITS, *_DECODING}
_DEFAULT_TOKENS = 256
_RANGES = {
    **dict.fromkeys(_TOKEN_LIMITS, (int, 1, 1_000_000)),
    "top_k": (int, 0, 1_000_000),
    "temperature": (float, 0, 1000),
    "top_p": (float, 0, 1),
    "repetition_penalty": (float, 0.001, 1000),
}
_DEFAULT_TOP_K = 50  # of transformers, when it samples
_OWN = ("min_p", "think_max_toks")  # of an evaluation, which lm-eval's hf model passes on, or does not have
GREEDY = {"temperature": 0.0, "top_k": None, "top_p": None, "repetition_penalty": None, "seed": None}


def unsupported(arguments: dict) -> list[str]:
    """Return the arguments that the generation engine does not have.

    >>> unsupported({"until": ["\\n"], "num_beams": 1}), unsupported({"num_beams": 10, "penalty_alpha": 0.6})
    ([], ['num_beams', 'penalty_alpha'])
    """
    names = {name for name in arguments if name not in _SUPPORTED}
    names |= {"num_beams"} if arguments.get("num_beams", 1) != 1 else set()
    return sorted(names)


def task_kwargs(gen_kwargs: dict) -> dict:
    """Return the arguments of an evaluation with which a task's are updated, as by `--gen_kwargs`."""
    return {name: value for name, value in gen_kwargs.items() if name not in _OWN}


def own_kwargs(gen_kwargs: dict) -> dict:
    """Return the arguments of an evaluation that only its requests have."""
    return {name: value for name, value in gen_kwargs.items() if name in _OWN}


def check(arguments: dict) -> None:
    """Raise DataError unless all arguments are supported, and numbers in the range that they can have.

    >>> check({"until": None, "max_gen_toks": 0.5})
    Traceback (most recent call last):
    vernacular.core.errors.DataError: generation_kwargs.max_gen_toks: expected an integer from 1 to 1000000, got 0.5.
    """
    if names := unsupported(arguments):
        raise DataError(f"generation argument not supported: {', '.join(names)}.")
    for name, (kind, low, high) in _RANGES.items():
        value = arguments.get(name)
        if value is not None and not (type(value) in (int, kind) and low <= value <= high):
            noun = "an integer" if kind is int else "a number"
            raise DataError(f"generation_kwargs.{name}: expected {noun} from {low} to {high}, got {value!r:.100}.")
    until = arguments.get("until") or []
    if not isinstance(until, str | list | tuple) or not all(isinstance(stop, str) for stop in until):
        raise DataError(f"generation_kwargs.until: expected a text or a list of texts, got {until!r:.100}.")
    if type(arguments.get("do_sample")) not in (bool, type(None)):
        raise DataError(f"generation_kwargs.do_sample: expected true or false, got {arguments['do_sample']!r:.100}.")


def request_fields(arguments: dict, seed: int) -> dict:
    """Return `stop`, `max_new_tokens` and `decoding` of a request; `seed` distinguishes repeated samples.

    >>> request_fields({"until": "\\n", "max_gen_toks": 8, "do_sample": False, "temperature": 0.8}, 0)
    {'stop': ['\\n'], 'max_new_tokens': 8, 'decoding': None}
    """
    limit = next((arguments[name] for name in _TOKEN_LIMITS if arguments.get(name) is not None), _DEFAULT_TOKENS)
    return {"stop": stop_strings(arguments), "max_new_tokens": limit, "decoding": _decoding(arguments, seed)}


def stop_strings(arguments: dict) -> list[str]:
    until = arguments.get("until") or []
    return [stop for stop in ([until] if isinstance(until, str) else until) if stop]


def is_sampled(arguments: dict) -> bool:
    """Return whether tokens are drawn at random; without `do_sample`, a temperature above 0 decides."""
    do_sample = arguments.get("do_sample")
    return float(arguments.get("temperature") or 0.0) > 0 if do_sample is None else bool(do_sample)


def _decoding(arguments: dict, seed: int) -> dict | None:
    sampled = is_sampled(arguments)
    decoding = {name: arguments.get(name) for name in _DECODING}
    if not sampled:
        penalty = decoding["repetition_penalty"]
        return (
            {"temperature": 0.0, "top_k": None, "top_p": None, "repetition_penalty": penalty, "seed": None}
            if (penalty)
            else None
        )
    decoding["top_k"] = _DEFAULT_TOP_K if decoding["top_k"] is None else decoding["top_k"]
    return {"temperature": float(arguments.get("temperature") or 1.0), **decoding, "seed": seed}
