"""External results (an earlier run, a user file, lm-eval samples) as one side of a comparison.

Results of other tools are matched to the items of this workflow and become TASK_RESULTS rows with their ID, prompt,
options and gold; values without items are read by `aggregates`. Correctness follows this workflow's rules: with
log-likelihoods, a tie with an incorrect option is incorrect. A note per file and evaluation reports what matched and
what did not.

User files are CSV, TSV or JSONL with one item per line:

* the item: `item_id` as in this workflow's results, or its text in any of `prompt`, `context`, `question`, `sentence`,
  `text`, with its `choices` or `options` (a list, or separated by `|`) if it has any;
* the output: `prediction` (the option's text, its letter for the protocol letters, or the generated text), `correct` (1
  or 0, true or false), or both; with both, `correct` counts;
* `evaluation`, if one file holds several.

A line of lm-eval's sample files (`--log_samples`, `samples_{task}_{time}.jsonl`) holds `doc` (the dataset's row),
`arguments` (context and continuation, or context and generation settings), `filtered_resps` ((log-likelihood, greedy)
per continuation, or the generated text), and lm-eval's metrics. Of several filters, the first in the file is used.
"""

import contextlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from vernacular.core import artifacts
from vernacular.core.errors import ArtifactError, DataError, format_count, suggest
from vernacular.core.names import check_readable
from vernacular.core.paths import display_path
from vernacular.data.columns import replace_surrogates
from vernacular.data.readers import detect_format, located_rows
from vernacular.exchange import classify
from vernacular.exchange.aggregates import is_aggregates
from vernacular.metrics.schema import TASK_RESULTS, as_table
from vernacular.protocols.registry import PROTOCOLS
from vernacular.types import Item

TEXT_COLUMNS = ("context", "prompt", "question", "sentence", "text")
COLUMNS = {*TEXT_COLUMNS, "item_id", "choices", "options", "prediction", "correct", "evaluation"}
_BOOLEANS = {"1": True, "1.0": True, "true": True, "yes": True, "0": False, "0.0": False, "false": False, "no": False}


@dataclass(frozen=True)
class Reference:
    """Evaluation of this workflow, to which external results are matched."""

    protocol: str
    shots: int
    rows: pa.Table  # TASK_RESULTS of any model of this workflow
    items: list[Item]  # rows per ITEMS
    few_shot_examples: list[str] | None = None  # IDs of the few-shot examples; None: unknown


def load_external_results(path, references: dict[str, Reference]) -> tuple[dict[str, pa.Table], list[str]]:
    """Match the results in a file or directory to evaluations.

    Supported are this workflow's Parquet files (a model's results directory, or its `tasks`), lm-eval's
    `samples_*.jsonl`, and user files. A file that does not name its evaluation is matched to every evaluation that
    fits. At least 80 % of the file's items or of the evaluation's items, whichever are fewer, have to match.

    Args:
        references: evaluations of this workflow by name.

    Returns:
        TASK_RESULTS tables by evaluation, and notes.

    Raises:
        DataError: no file matches an evaluation, two files match the same one, or a file is malformed.
    """
    tables: dict[str, pa.Table] = {}
    notes: list[str] = []
    for file in (file for file in result_files(Path(path)) if not is_aggregates(file)):
        read = _load_parquet if file.suffix == ".parquet" else _load_lines
        file_tables, file_notes = read(file, references)
        for evaluation, table in file_tables.items():
            if evaluation in tables:
                location = display_path(file)
                raise DataError(f"{location}: second file with results of {evaluation}. Specify one of the files.")
            tables[evaluation] = table
        notes += file_notes
    if notes and not tables:
        raise DataError("\n".join(notes))
    return tables, notes


def _load_parquet(file: Path, references: dict[str, Reference]) -> tuple[dict[str, pa.Table], list[str]]:
    """Return an earlier run's results of one evaluation, unchanged, if at least 80 % of IDs and texts match."""
    try:
        metadata = artifacts.metadata(file, allow_moved=True)
        table = artifacts.read(file, TASK_RESULTS, allow_moved=True)
    except ArtifactError:  # its message advises deleting the file, which holds the user's results
        table = None
    if table is None or _is_edited(table):
        raise DataError(
            f"{display_path(file)}: damaged, or not per-item results of this version of the workflow. Specify a "
            "model's results directory, or a CSV file with the columns item_id and correct."
        )
    evaluation = metadata.get("evaluation", file.stem)
    if evaluation not in references:
        return {}, [f'{display_path(file)}: unknown evaluation "{evaluation}".{suggest(evaluation, references)}']
    reference_texts = _item_texts(references[evaluation].rows)
    texts = _item_texts(table)
    if not texts:
        return {}, [f"{display_path(file)}: no items found; not used."]
    n_matching = sum(reference_texts.get(item_id) == text for item_id, text in texts.items())
    n_possible = min(len(reference_texts), len(texts))
    message = f"{display_path(file)}: {n_matching} of {len(texts)} items match {evaluation}"
    if n_matching / n_possible < classify.MIN_MATCHED_SHARE:
        return {}, [f"{message}: {classify.TOO_FEW} The data or the prompts may differ."]
    few_shot_examples = [metadata.get("few_shot_examples"), references[evaluation].few_shot_examples]
    if None not in few_shot_examples and few_shot_examples[0] != few_shot_examples[1]:
        message += "; different few-shot examples"
    return {evaluation: table}, [f"{message}."]


def _is_edited(table: pa.Table) -> bool:
    """Return whether rows were edited: an ID or a text is missing, or an ID occurs twice."""
    ids = table.column("item_id").to_pylist()
    has_nulls = any(table.column(name).null_count for name in (*TASK_RESULTS.key, *TASK_RESULTS.required))
    return has_nulls or len(set(ids)) < len(ids)


def _item_texts(table: pa.Table) -> dict[str, tuple]:
    columns = (table.column(name).to_pylist() for name in ("item_id", "prompt", "choices", "gold"))
    return {item_id: (prompt, options, gold) for item_id, prompt, options, gold in zip(*columns, strict=True)}


def _load_lines(file: Path, references: dict[str, Reference]) -> tuple[dict[str, pa.Table], list[str]]:
    first_row = next((row for _, row in read_rows(file)), None)
    if not first_row:
        raise DataError(f"{display_path(file)}: no results found.")
    is_lm_eval = is_sample(first_row)
    shots = read_shots(file) if is_lm_eval else None
    results_by_evaluation = {None: read_samples(file)} if is_lm_eval else read_results(file)
    tables, notes = {}, []
    for evaluation, results in results_by_evaluation.items():
        evaluation = evaluation or (file.stem if file.stem in references else None)
        own_tables, own_notes = _match_evaluations(file, evaluation, results, references, shots, is_lm_eval)
        if duplicates := sorted(own_tables.keys() & tables.keys()):
            problem = f'some lines specify "{duplicates[0]}", and other lines match it too.'
            raise DataError(f"{display_path(file)}: evaluation: {problem}")
        tables |= own_tables
        notes += own_notes
    if not is_lm_eval and (unknown := [column for column in first_row if column not in COLUMNS]):
        notes.append(f"{display_path(file)}: columns without a meaning here, not used: {', '.join(map(str, unknown))}.")
    return tables, notes


def _match_evaluations(
    file: Path,
    evaluation: str | None,
    results: list[classify.ExternalResult],
    references: dict,
    shots: int | None,
    is_lm_eval: bool,
) -> tuple[dict[str, pa.Table], list[str]]:
    tables, notes, rejected = {}, [], []
    for name in _candidate_evaluations(file, evaluation, references, results, shots, is_lm_eval):
        reference = references[name]
        prompts = {item_id: texts[0] for item_id, texts in _item_texts(reference.rows).items()}
        match_result = classify.match_items(results, reference.items, prompts)
        message = _match_message(file, name, match_result)
        if match_result.share < classify.MIN_MATCHED_SHARE:
            rejected.append((match_result.share, f"{message}: {classify.TOO_FEW}"))
            continue
        tables[name], summary = _result_rows(match_result, reference)
        unknown_shots = "; number of few-shot examples unknown" * (is_lm_eval and shots is None)
        notes.append(f"{message}{summary}{unknown_shots}.")
    if not tables and rejected:
        notes = [max(rejected)[1]]
    elif not tables:
        count = format_count(len(results), "result")
        shots_label = "" if shots is None else f" ({shots}-shot)"
        notes = [f"{display_path(file)}: no evaluation matches results of this type{shots_label}; {count} not used."]
    return tables, notes


def _candidate_evaluations(
    file,
    evaluation: str | None,
    references,
    results: list[classify.ExternalResult],
    shots: int | None,
    is_lm_eval: bool,
) -> list[str]:
    """Return the evaluations to match a file against: the one it names, or all whose protocol and shots fit."""
    if evaluation is None:
        protocols = _matching_protocols(results, is_lm_eval)
        return [
            name
            for name, reference in references.items()
            if shots in (None, reference.shots) and reference.protocol in protocols
        ]
    if evaluation not in references:
        problem = f'unknown evaluation "{evaluation}".{suggest(evaluation, references)}'
        raise DataError(f"{display_path(file)}: evaluation: {problem}")
    if (protocol := references[evaluation].protocol) not in classify.SUPPORTED_PROTOCOLS:
        problem = f"results of the protocol {protocol} are only supported as Parquet."
        raise DataError(f"{display_path(file)}: {evaluation}: {problem}")
    return [evaluation]


def _matching_protocols(results: list[classify.ExternalResult], is_lm_eval: bool) -> tuple[str, ...]:
    """Return the protocols that such results fit; lines without scores are ignored if other lines have scores."""
    scored_results = [result for result in results if result.scores]
    if not scored_results:
        return _protocols_of_type("text") if is_lm_eval else _protocols_of_type("text", "options")
    if all(len(result.scores) == 1 for result in scored_results):
        return _protocols_of_type("word")
    letters = all(len(text.strip()) == 1 for result in scored_results for _, text in result.continuations)
    return tuple(name for name in _protocols_of_type("options") if PROTOCOLS[name].letters == letters)


def _protocols_of_type(*types: str) -> tuple[str, ...]:
    return tuple(name for name in classify.SUPPORTED_PROTOCOLS if PROTOCOLS[name].external in types)


def _match_message(file: Path, evaluation: str, match_result: classify.MatchResult) -> str:
    details = ", ".join(f"{count} {outcome}" for outcome, count in match_result.counts.items() if count)
    message = f"{display_path(file)}: {len(match_result.results)} of {match_result.n_results} results match "
    message += f"the {format_count(match_result.n_items, 'item')} of {evaluation}"
    if missing := match_result.n_items - len(match_result.results):
        message += f", {missing} of which have no result: values are those of a selection"
    return f"{message} ({details})" if details else message


def _result_rows(match_result: classify.MatchResult, reference: Reference) -> tuple[pa.Table, str]:
    by_id = {row["item_id"]: row for row in as_table(reference.rows).drop_columns(["metrics"]).to_pylist()}
    items = {item["item_id"]: item for item in reference.items}
    rows, counts = [], Counter()
    for item_id, result in match_result.results.items():
        row, differs = classify.build_row(by_id[item_id], result, reference.protocol, items[item_id])
        counts["unreadable"] += row["flags"] is not None
        counts["differs"] += differs
        rows.append(row)
    summary = f"; {counts['unreadable']} unreadable" if counts["unreadable"] else ""
    if counts["differs"]:
        summary += f"; {counts['differs']} classified differently by the file (here, a tie is incorrect)"
    return as_table(rows), summary


def is_sample(row: dict) -> bool:
    return "doc" in row and "filtered_resps" in row and "arguments" in row


def read_samples(path: Path) -> list[classify.ExternalResult]:
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


def _parse_sample(location: str, row: dict) -> classify.ExternalResult:
    requests = _requests(location, row["arguments"])
    responses = row["filtered_resps"]
    responses = responses if isinstance(responses, list) else [responses]
    texts = [*_strings(row["doc"]), *dict.fromkeys(context for context, _ in requests)]
    if not requests or not isinstance(requests[0][1], str):  # generation: the second argument holds the settings
        prediction = as_text(responses[0]) if responses and isinstance(responses[0], str) else None
        return classify.ExternalResult(
            location, tuple(texts), prediction=prediction, correct=_binary_metric(row, "exact_match")
        )
    try:
        pairs = [(float(loglik), str(greedy).casefold() == "true") for loglik, greedy in responses]
    except (TypeError, ValueError, OverflowError):
        raise DataError(f"{location}: filtered_resps: expected (log-likelihood, greedy) per continuation.") from None
    correct = _binary_metric(row, "acc")
    if len(pairs) > len(requests):
        requested = format_count(len(requests), "request")
        raise DataError(f"{location}: expected one response per request, got {len(pairs)} for {requested}.")
    # for acc_mutual_info, each continuation is scored again without context: those requests come last and are ignored
    half = len(requests) // 2
    if len(requests) % 2 == 0 and requests[0][0] != "" and all(context == "" for context, _ in requests[half:]):
        requests = requests[:half]
    requests, pairs = requests[: len(pairs)], pairs[: len(requests)]
    texts += [continuation for _, continuation in requests]
    greedy = pairs[0][1] if len(pairs) == 1 else None
    scores = tuple(loglik for loglik, _ in pairs)
    return classify.ExternalResult(location, tuple(texts), None, tuple(requests), scores, greedy, None, correct)


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


def read_results(path: Path) -> dict[str | None, list[classify.ExternalResult]]:
    """Read a user file: results by evaluation, None for lines that do not name one.

    Raises DataError with file, line and column.
    """
    results: dict[str | None, list[classify.ExternalResult]] = {}
    for location, row in read_rows(path):
        _check_columns(location, row)
        texts = [as_text(row[name]) for name in TEXT_COLUMNS if name in row]
        texts += _parse_options(row.get("choices")) + _parse_options(row.get("options"))
        result = classify.ExternalResult(
            location,
            tuple(text for text in texts if text.strip()),
            item_id=as_text(row.get("item_id")) or None,
            prediction=as_text(row["prediction"]) if row.get("prediction") is not None else None,
            correct=_parse_bool(location, row.get("correct")),
            is_judged=True,
        )
        if evaluation := as_text(row.get("evaluation")) or None:
            check_readable(evaluation, location, "evaluation")
        results.setdefault(evaluation, []).append(result)
    return results


def read_rows(path: Path) -> Iterator[tuple[str, dict]]:
    """Yield (file and line, row) of a CSV, TSV or JSONL file; a file with another extension is read as CSV.

    Rows of empty cells, which spreadsheets write after the last one, are omitted.
    """
    rows = located_rows(path, detect_format(path) or "csv", name=display_path(path))
    return ((location, row) for location, row in rows if not row or any(map(str.strip, map(as_text, row.values()))))


def _check_columns(location: str, row: dict) -> None:
    columns = ", ".join(map(str, row))
    if "item_id" not in row and not any(name in row for name in TEXT_COLUMNS):
        expected = f"expected one of the columns item_id, {', '.join(TEXT_COLUMNS)}"
        raise DataError(f"{location}: no item: {expected}, got {columns}.")
    if "prediction" not in row and "correct" not in row:
        raise DataError(f"{location}: no output: expected a column prediction or correct, got {columns}.")


def _parse_options(cell) -> list[str]:
    if isinstance(cell, list):
        return [as_text(option) for option in cell]
    return [option.strip() for option in as_text(cell).split("|")]


def _parse_bool(location: str, cell) -> bool | None:
    text = as_text(cell).strip().casefold()
    if not text:
        return None
    if text not in _BOOLEANS:
        raise DataError(f"{location}: correct: expected 1, 0, true, false or an empty value, got {cell!r}.")
    return _BOOLEANS[text]


def as_text(cell) -> str:
    """Convert a cell to text; lone surrogates, which JSON can hold and Parquet cannot, become U+FFFD."""
    return replace_surrogates("" if cell is None else str(cell))


def result_files(path: Path) -> list[Path]:
    """Return the result files at `path`. Raises DataError if there are none, or of several types."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise DataError(f"{display_path(path)}: file or directory not found.")
    parquet = sorted((path / "tasks").glob("*.parquet")) or sorted(path.glob("*.parquet"))
    samples = sorted(path.rglob("samples_*.jsonl"))
    tables = [file for pattern in ("*.csv", "*.tsv", "*.jsonl") for file in sorted(path.glob(pattern))]
    # samples of Every Eval Ever belong to a record, whose values are read
    records = {file: file.with_name(f"{file.stem.removesuffix('_samples')}.json") for file in tables}
    tables = [file for file, record in records.items() if file not in samples and not record.is_file()]
    groups = [files for files in (parquet, samples, tables) if files]
    if not groups and (aggregates := [file for file in sorted(path.rglob("*.json")) if is_aggregates(file)]):
        groups = [aggregates]
    if not groups:
        expected = "expected .parquet, samples_*.jsonl, .csv, .tsv, .jsonl or .json"
        raise DataError(f"{display_path(path)}: no results found ({expected}).")
    if len(groups) > 1:
        names = " and ".join(files[0].name for files in groups)
        problem = f"results of several types ({names}). Specify one file, or separate them."
        raise DataError(f"{display_path(path)}: {problem}")
    return groups[0]
