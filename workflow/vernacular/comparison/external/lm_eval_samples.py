"""lm-eval's sample files (`--log_samples`, `samples_{task}_{time}.jsonl`) as answers.

A line holds `doc` (the data set's row), `arguments` (what was asked: context and continuation, or context and settings)
and `filtered_resps` ((log-likelihood, greedy) per continuation, or the written answer), besides lm-eval's own metrics.
With several filters, the first named in the file counts.
"""

import contextlib
import json
from pathlib import Path

from vernacular.comparison.external.results import Answer, as_text, rows_in
from vernacular.core.errors import DataError


def is_sample(row: dict) -> bool:
    return "doc" in row and "filtered_resps" in row and "arguments" in row


def samples_in(path: Path) -> list[Answer]:
    """Answers of one sample file. Raises DataError naming file and line where a line is no sample of lm-eval's."""
    answers, chosen = [], None
    for where, row in rows_in(path):
        if not is_sample(row):
            raise DataError(f"{where}: no sample of lm-eval: doc, arguments or filtered_resps is missing.")
        chosen = chosen if answers else row.get("filter")
        if row.get("filter") == chosen:
            answers.append(_answer(where, row))
    return answers


def shots_of(path: Path) -> int | None:
    """How many demonstrations the samples had, from the results file beside them; None where there is none."""
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
    if not asked or not isinstance(asked[0][1], str):  # written answers: settings stand where the continuation would
        prediction = as_text(said[0]) if said and isinstance(said[0], str) else None
        return Answer(where, tuple(texts), prediction=prediction, correct=_own(row, "exact_match"))
    try:
        pairs = [(float(loglik), _true(greedy)) for loglik, greedy in said]
    except (TypeError, ValueError, OverflowError):
        raise DataError(f"{where}: filtered_resps: expected (log-likelihood, greedy) per continuation.") from None
    own = _own(row, "acc")
    if len(pairs) > len(asked):
        raise DataError(f"{where}: {len(pairs)} responses to {len(asked)} requests.")
    # acc_mutual_info asks each continuation again without the question: those come last and are left aside
    if len(asked) % 2 == 0 and {context for context, _ in asked[len(asked) // 2 :]} == {""} != {asked[0][0]}:
        asked = asked[: len(asked) // 2]
    asked, pairs = asked[: len(pairs)], pairs[: len(asked)]
    texts += [continuation for _, continuation in asked]
    greedy = pairs[0][1] if len(pairs) == 1 else None
    return Answer(where, tuple(texts), None, tuple(asked), tuple(loglik for loglik, _ in pairs), greedy, None, own)


def _requests(where: str, arguments) -> list[tuple]:
    """(context, continuation or settings) in order, of {"gen_args_0": {"arg_0": …, "arg_1": …}, …}; lists before 0.4.4.

    A request of one text (`loglikelihood_rolling`) continues nothing.
    """
    # names without a number, or no texts by name: as wrong as any other type
    with contextlib.suppress(ValueError, AttributeError):
        if isinstance(arguments, dict):
            named = sorted(arguments.items(), key=lambda item: int(item[0].rpartition("_")[2]))
            arguments = [[each.get("arg_0"), each.get("arg_1")] for _, each in named]
        if isinstance(arguments, list) and all(isinstance(each, list) and each for each in arguments):
            return [(str(each[0]), each[1]) if len(each) > 1 else ("", each[0]) for each in arguments]
    raise DataError(f"{where}: arguments: expected what was asked, as lm-eval writes it.")


def _leaves(value) -> list[str]:
    """All texts of a document, in their order."""
    found, left = [], [value]
    while left:  # not by recursion: a document may be nested deeper than that goes
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
