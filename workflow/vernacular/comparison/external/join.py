"""External results (an earlier run, a user file, lm-eval samples) as one side of a comparison.

Results of other tools are matched to the items of this workflow and become TASK_RESULTS rows with their ID, prompt,
options and gold. Correctness follows this workflow's rules: with log-likelihoods, a tie with an incorrect option is
incorrect. A note per file and evaluation reports what matched and what did not.
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from vernacular.comparison.external.judge import JUDGED, LEAST, Matched, match, row_of
from vernacular.comparison.external.lm_eval_samples import is_sample, samples_in, shots_of
from vernacular.comparison.external.results import Answer, answers_in, files_in, rows_in
from vernacular.core import artifacts
from vernacular.core.errors import ArtifactError, DataError, closest, counted
from vernacular.core.paths import display_path
from vernacular.metrics.schema import TASK_RESULTS, as_table
from vernacular.protocols.registry import PROTOCOLS
from vernacular.types import Item


@dataclass(frozen=True)
class Reference:
    """Evaluation of this workflow, to which external results are matched."""

    protocol: str
    shots: int
    rows: pa.Table  # TASK_RESULTS of any model of this workflow
    items: list[Item]  # rows per ITEMS
    few_shot_examples: list[str] | None = None  # IDs of the few-shot examples; None: unknown


def join(path, references: dict[str, Reference]) -> tuple[dict[str, pa.Table], list[str]]:
    """Match the results in a file or directory to evaluations.

    Supported are this workflow's Parquet files (a model's results directory, or its `tasks`), lm-eval's
    `samples_*.jsonl`, and user files in CSV, TSV or JSONL (columns: see `results`). A file that does not name its
    evaluation is matched to every evaluation that fits. At least 80 % of the file's items or of the evaluation's items,
    whichever are fewer, have to match.

    Args:
        path: file or directory.
        references: evaluations of this workflow by name.

    Returns:
        TASK_RESULTS tables by evaluation, and notes.

    Raises:
        DataError: no file matches an evaluation, two files match the same one, or a file is malformed.
    """
    path = Path(path)
    found: dict[str, pa.Table] = {}
    notes: list[str] = []
    for file in files_in(path):
        tables, said = _parquet(file, references) if file.suffix == ".parquet" else _answers(file, references)
        for evaluation, table in tables.items():
            if evaluation in found:
                raise DataError(
                    f"{display_path(file)}: second file with results of {evaluation}. Specify one of the files."
                )
            found[evaluation] = table
        notes += said
    if not found:
        raise DataError("\n".join(notes))
    return found, notes


def _parquet(file: Path, references: dict[str, Reference]) -> tuple[dict[str, pa.Table], list[str]]:
    """Return an earlier run's results of one evaluation, unchanged, if at least 80 % of IDs and texts match."""
    try:
        note = artifacts.metadata(file, anywhere=True)
        table = artifacts.read(file, TASK_RESULTS, anywhere=True)
    except ArtifactError:  # its message advises deleting the file, which holds the user's results
        table = None
    if table is None or _edited(table):
        raise DataError(
            f"{display_path(file)}: damaged, or not per-item results of this version of the workflow. Specify a "
            "model's results directory, or a CSV file with the columns item_id and correct."
        )
    evaluation = note.get("evaluation", file.stem)
    if evaluation not in references:
        return {}, [f'{display_path(file)}: unknown evaluation "{evaluation}".{closest(evaluation, references)}']
    ours = _keys(references[evaluation].rows)
    theirs = _keys(table)
    if not theirs:
        return {}, [f"{display_path(file)}: no items found; not used."]
    same = sum(ours.get(item_id) == key for item_id, key in theirs.items())
    possible = min(len(ours), len(theirs))
    told = f"{display_path(file)}: {same} of {len(theirs)} items match {evaluation}"
    if same / possible < LEAST:
        return {}, [f"{told}: fewer than {LEAST:.0%}; not used. The data or the prompts may differ."]
    solved = [note.get("few_shot_examples"), references[evaluation].few_shot_examples]
    if None not in solved and solved[0] != solved[1]:
        told += "; different few-shot examples"
    return {evaluation: table}, [told]


def _edited(table: pa.Table) -> bool:
    """Return whether rows were edited: an ID or a text is missing, or an ID occurs twice."""
    ids = table.column("item_id").to_pylist()
    empty = any(table.column(name).null_count for name in (*TASK_RESULTS.key, *TASK_RESULTS.required))
    return empty or len(set(ids)) < len(ids)


def _keys(table: pa.Table) -> dict[str, tuple]:
    columns = (table.column(name).to_pylist() for name in ("item_id", "prompt", "choices", "gold"))
    return {item_id: (prompt, options, gold) for item_id, prompt, options, gold in zip(*columns, strict=True)}


def _answers(file: Path, references: dict[str, Reference]) -> tuple[dict[str, pa.Table], list[str]]:
    first = next((row for _, row in rows_in(file)), None)
    if not first:
        raise DataError(f"{display_path(file)}: no results found.")
    sampled = is_sample(first)
    shots = shots_of(file) if sampled else None
    named = {None: samples_in(file)} if sampled else answers_in(file)
    tables, notes = {}, []
    for evaluation, answers in named.items():
        evaluation = evaluation or (file.stem if file.stem in references else None)
        found, said = _joined(file, evaluation, answers, references, shots, sampled)
        if both := sorted(found.keys() & tables.keys()):
            raise DataError(
                f'{display_path(file)}: evaluation: some lines specify "{both[0]}", and other lines match it too.'
            )
        tables |= found
        notes += said
    return tables, notes


def _joined(
    file: Path, evaluation: str | None, answers: list[Answer], references: dict, shots: int | None, sampled: bool
) -> tuple[dict[str, pa.Table], list[str]]:
    tables, notes, refused = {}, [], []
    for name in _candidates(file, evaluation, references, answers, shots, sampled):
        reference = references[name]
        prompts = {item_id: key[0] for item_id, key in _keys(reference.rows).items()}
        matched = match(answers, reference.items, prompts)
        told = _told(file, name, matched)
        if matched.share < LEAST:
            refused.append((matched.share, f"{told}: fewer than {LEAST:.0%}; not used."))
            continue
        tables[name], judged = _rows(matched, reference)
        notes.append(told + judged + ("; number of few-shot examples unknown" * (sampled and shots is None)))
    if not tables and refused:
        notes = [max(refused)[1]]
    elif not tables:
        count = counted(len(answers), "result")
        shown = "" if shots is None else f" ({shots}-shot)"
        notes = [f"{display_path(file)}: no evaluation matches results of this type{shown}; {count} not used."]
    return tables, notes


def _candidates(
    file, evaluation: str | None, references, answers: list[Answer], shots: int | None, sampled: bool
) -> list[str]:
    """Return the evaluations to match a file against: the one it names, or all whose protocol and shots fit."""
    if evaluation is None:
        fitting = _protocols(answers, sampled)
        return [
            name
            for name, reference in references.items()
            if shots in (None, reference.shots) and reference.protocol in fitting
        ]
    if evaluation not in references:
        raise DataError(
            f'{display_path(file)}: evaluation: unknown evaluation "{evaluation}".{closest(evaluation, references)}'
        )
    if references[evaluation].protocol not in JUDGED:
        raise DataError(
            f"{display_path(file)}: {evaluation}: results of the protocol {references[evaluation].protocol} are only "
            "supported as Parquet."
        )
    return [evaluation]


def _protocols(answers: list[Answer], sampled: bool) -> tuple[str, ...]:
    """Return the protocols that such results fit; lines without scores are ignored if other lines have scores."""
    scored = [answer for answer in answers if answer.scores]
    if not scored:
        return _judged_as("text") if sampled else _judged_as("text", "options")
    if all(len(answer.scores) == 1 for answer in scored):
        return _judged_as("word")
    letters = all(len(continuation.strip()) == 1 for answer in scored for _, continuation in answer.asked)
    return tuple(name for name in _judged_as("options") if PROTOCOLS[name].letters == letters)


def _judged_as(*kinds: str) -> tuple[str, ...]:
    return tuple(name for name in JUDGED if PROTOCOLS[name].external in kinds)


def _told(file: Path, evaluation: str, matched: Matched) -> str:
    rest = {"unmatched": matched.unmatched, "ambiguous": matched.ambiguous, "repeated": matched.repeated}
    more = ", ".join(f"{count} {what}" for what, count in rest.items() if count)
    told = f"{display_path(file)}: {len(matched.answers)} of {matched.n_answers} results match "
    return f"{told}the {counted(matched.n_items, 'item')} of {evaluation}" + (f" ({more})" if more else "")


def _rows(matched: Matched, reference: Reference) -> tuple[pa.Table, str]:
    by_id = {row["item_id"]: row for row in as_table(reference.rows).drop_columns(["metrics"]).to_pylist()}
    rows, counts = [], Counter()
    for item_id, answer in matched.answers.items():
        row, otherwise = row_of(by_id[item_id], answer, reference.protocol)
        counts["unread"] += row["flags"] is not None
        counts["otherwise"] += otherwise
        rows.append(row)
    said = f"; {counts['unread']} unreadable" if counts["unread"] else ""
    if counts["otherwise"]:
        said += f"; {counts['otherwise']} classified differently by the file (here, a tie is incorrect)"
    return as_table(rows), said
