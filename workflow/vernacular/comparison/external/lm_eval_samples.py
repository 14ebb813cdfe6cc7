"""lm-eval sample files (`--log_samples`, `samples_{task}_{time}.jsonl`) as external results.

Each line holds `doc` (the dataset's row), `arguments` (context and continuation, or context and generation settings),
`filtered_resps` ((log-likelihood, greedy) per continuation, or the generated text), and lm-eval's metrics. Of several
filters, the first in the file is used.
"""

import contextlib
import json
from pathlib import Path

from vernacular.comparison.external.results import ExternalResult, as_text, read_rows
from vernacular.core.errors import DataError, format_count


def is_sample(row: dict) -> bool:
    return "doc" in row and "filtered_resps" in row and "arguments" in row


def read_samples(path: Path) -> list[ExternalResult]:
    """Read one sample file. Raises DataError, with file and line, for a line that is not an lm-eval sample."""
    results, filter_name = [], None
    for location, row in read_rows(path):
        if not is_sample(row):
            raise DataError(f"{location}: not an lm-eval sample: doc, arguments or filtered_resps not found.")
        filter_name = filter_name if results else row.get("filter")
        if row.get("filter") == filter_name:
            results.append(_parse_sample(location, row))
    return results


def read_shots(path: Path) -> int | None:
    """Return the number of few-shot examples, from the results file next to `path`; None if unavailable."""
    task, _, timestamp = path.stem.removeprefix("samples_").rpartition("_")
    results_file = path.with_name(f"results_{timestamp}.json")
    if not results_file.is_file():  # opening a pipe blocks until it has a writer
        return None
    try:
        shots = json.loads(results_file.read_text("utf-8"))["n-shot"].get(task)
    except (OSError, ValueError, KeyError, AttributeError, TypeError, RecursionError):
        return None
    return shots if isinstance(shots, int) else None


def _parse_sample(location: str, row: dict) -> ExternalResult:
    requests = _requests(location, row["arguments"])
    responses = row["filtered_resps"]
    responses = responses if isinstance(responses, list) else [responses]
    texts = [*_strings(row["doc"]), *dict.fromkeys(context for context, _ in requests)]
    if not requests or not isinstance(requests[0][1], str):  # generation: the second argument holds the settings
        prediction = as_text(responses[0]) if responses and isinstance(responses[0], str) else None
        return ExternalResult(location, tuple(texts), prediction=prediction, correct=_binary_metric(row, "exact_match"))
    try:
        pairs = [(float(loglik), _is_true(greedy)) for loglik, greedy in responses]
    except (TypeError, ValueError, OverflowError):
        raise DataError(f"{location}: filtered_resps: expected (log-likelihood, greedy) per continuation.") from None
    correct = _binary_metric(row, "acc")
    if len(pairs) > len(requests):
        raise DataError(
            f"{location}: expected one response per request, got {len(pairs)} for "
            f"{format_count(len(requests), 'request')}."
        )
    # for acc_mutual_info, each continuation is scored again without context: those requests come last and are ignored
    half = len(requests) // 2
    if len(requests) % 2 == 0 and requests[0][0] != "" and all(context == "" for context, _ in requests[half:]):
        requests = requests[:half]
    requests, pairs = requests[: len(pairs)], pairs[: len(requests)]
    texts += [continuation for _, continuation in requests]
    greedy = pairs[0][1] if len(pairs) == 1 else None
    return ExternalResult(
        location, tuple(texts), None, tuple(requests), tuple(loglik for loglik, _ in pairs), greedy, None, correct
    )


def _requests(location: str, arguments) -> list[tuple]:
    """Return (context, continuation or settings) per request, in order.

    Accepts {"gen_args_0": {"arg_0": …, "arg_1": …}, …}, and lists as written before lm-eval 0.4.4. A request of one
    text (`loglikelihood_rolling`) has an empty context.
    """
    # keys without a number, and values that are not dicts, are rejected below like other types
    with contextlib.suppress(ValueError, AttributeError):
        if isinstance(arguments, dict):
            numbered = sorted(arguments.items(), key=lambda item: int(item[0].rpartition("_")[2]))
            arguments = [[request.get("arg_0"), request.get("arg_1")] for _, request in numbered]
        if isinstance(arguments, list) and all(isinstance(request, list) and request for request in arguments):
            return [(str(request[0]), request[1]) if len(request) > 1 else ("", request[0]) for request in arguments]
    raise DataError(f"{location}: arguments: expected the requests in the format of lm-eval.")


def _strings(value) -> list[str]:
    """Return all strings of a document, in order."""
    strings, stack = [], [value]
    while stack:  # iterative: nesting may exceed Python's recursion limit
        match stack.pop():
            case str(text):
                strings.append(text)
            case dict(mapping):
                stack += reversed(mapping.values())
            case list(sequence):
                stack += reversed(sequence)
    return strings


def _binary_metric(row: dict, metric: str) -> bool | None:
    value = row.get(metric)
    return bool(value) if isinstance(value, int | float) and value in (0, 1) else None


def _is_true(value) -> bool:
    return str(value).casefold() == "true"
