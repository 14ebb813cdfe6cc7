"""lm-eval sample files (`--log_samples`, `samples_{task}_{time}.jsonl`) as external results.

Each line holds `doc` (the dataset's row), `arguments` (context and continuation, or context and generation settings),
`filtered_resps` ((log-likelihood, greedy) per continuation, or the generated text), and lm-eval's metrics. Of several
filters, the first in the file is used.
"""

import contextlib
import json
from pathlib import Path

from vernacular.comparison.external.results import Answer, as_text, rows_in
from vernacular.core.errors import DataError


def is_sample(row: dict) -> bool:
    return "doc" in row and "filtered_resps" in row and "arguments" in row


def samples_in(path: Path) -> list[Answer]:
    """Read one sample file. Raises DataError, with file and line, for a line that is not an lm-eval sample."""
    answers, chosen = [], None
    for where, row in rows_in(path):
        if not is_sample(row):
            raise DataError(f"{where}: not an lm-eval sample: doc, arguments or filtered_resps not found.")
        chosen = chosen if answers else row.get("filter")
        if row.get("filter") == chosen:
            answers.append(_answer(where, row))
    return answers


def shots_of(path: Path) -> int | None:
    """Return the number of few-shot examples, from the results file next to `path`; None if unavailable."""
    task, _, moment = path.stem.removeprefix("samples_").rpartition("_")
    beside = path.with_name(f"results_{moment}.json")
    try:
        found = json.loads(beside.read_text("utf-8"))["n-shot"].get(task)
    except (OSError, ValueError, KeyError, AttributeError, TypeError, RecursionError):
        return None
    return found if isinstance(found, int) else None


def _answer(where: str, row: dict) -> Answer:
    asked = _requests(where, row["arguments"])
    said = row["filtered_resps"]
    said = said if isinstance(said, list) else [said]
    texts = [*_leaves(row["doc"]), *dict.fromkeys(context for context, _ in asked)]
    if not asked or not isinstance(asked[0][1], str):  # generation: the second argument holds the settings
        prediction = as_text(said[0]) if said and isinstance(said[0], str) else None
        return Answer(where, tuple(texts), prediction=prediction, correct=_own(row, "exact_match"))
    try:
        pairs = [(float(loglik), _true(greedy)) for loglik, greedy in said]
    except (TypeError, ValueError, OverflowError):
        raise DataError(f"{where}: filtered_resps: expected (log-likelihood, greedy) per continuation.") from None
    own = _own(row, "acc")
    if len(pairs) > len(asked):
        raise DataError(f"{where}: expected one response per request, got {len(pairs)} for {len(asked)} requests.")
    # for acc_mutual_info, each continuation is scored again without context: those requests come last and are ignored
    if len(asked) % 2 == 0 and {context for context, _ in asked[len(asked) // 2 :]} == {""} != {asked[0][0]}:
        asked = asked[: len(asked) // 2]
    asked, pairs = asked[: len(pairs)], pairs[: len(asked)]
    texts += [continuation for _, continuation in asked]
    greedy = pairs[0][1] if len(pairs) == 1 else None
    return Answer(where, tuple(texts), None, tuple(asked), tuple(loglik for loglik, _ in pairs), greedy, None, own)


def _requests(where: str, arguments) -> list[tuple]:
    """Return (context, continuation or settings) per request, in order.

    Accepts {"gen_args_0": {"arg_0": …, "arg_1": …}, …}, and lists as written before lm-eval 0.4.4. A request of one
    text (`loglikelihood_rolling`) has an empty context.
    """
    # keys without a number, and values that are not dicts, are rejected below like other types
    with contextlib.suppress(ValueError, AttributeError):
        if isinstance(arguments, dict):
            named = sorted(arguments.items(), key=lambda item: int(item[0].rpartition("_")[2]))
            arguments = [[each.get("arg_0"), each.get("arg_1")] for _, each in named]
        if isinstance(arguments, list) and all(isinstance(each, list) and each for each in arguments):
            return [(str(each[0]), each[1]) if len(each) > 1 else ("", each[0]) for each in arguments]
    raise DataError(f"{where}: arguments: expected the requests in the format of lm-eval.")


def _leaves(value) -> list[str]:
    """Return all strings of a document, in order."""
    found, left = [], [value]
    while left:  # iterative: nesting may exceed Python's recursion limit
        match left.pop():
            case str(text):
                found.append(text)
            case dict(named):
                left += reversed(named.values())
            case list(parts):
                left += reversed(parts)
    return found


def _own(row: dict, metric: str) -> bool | None:
    value = row.get(metric)
    return bool(value) if isinstance(value, int | float) and value in (0, 1) else None


def _true(value) -> bool:
    return str(value).casefold() == "true"
