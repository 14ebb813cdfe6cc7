"""Stage `audit-lists`: results of all models -> the items that a speaker should read, as tables and a sheet."""

from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path

import pandas as pd
import pyarrow as pa
from openpyxl import Workbook
from openpyxl.utils import get_column_letter
from openpyxl.worksheet.datavalidation import DataValidation

from vernacular.comparison import audit
from vernacular.comparison.schema import AUDIT_LIST, VERDICT_COLUMNS
from vernacular.config.specs import AuditSpec
from vernacular.core import artifacts
from vernacular.core.artifacts import replacing
from vernacular.core.errors import format_count
from vernacular.core.fields import Stage, to_json
from vernacular.core.tables import sheet_names, write_csv
from vernacular.data.audit import audit_between, item_findings
from vernacular.metrics.schema import TASK_RESULTS
from vernacular.stages.common import items_in
from vernacular.summary.cells import EXCEL
from vernacular.summary.rows import Column, marked_options, write_rows
from vernacular.types import OPTIONS_ONLY

FILES = ("audit.csv", "audit_lists.csv", "audit.xlsx")


class AuditLists(Stage):
    """List the items of each evaluation that a speaker should read first."""

    spec: AuditSpec  # of the rule: what the results depend on
    results: Path  # directory with one directory per model
    items_dir: Path  # directory of the items files
    out: Path  # directory of the tables


def audit_lists(args: AuditLists) -> str:
    """List the items that a speaker should read first, of every evaluation with options."""
    spec, lists, items, without_question = args.spec, {}, {}, {}
    for first, names in lists_of(spec).items():
        tables = {model: [_read(results_path(args.results, model, name)) for name in names] for model in spec.models}
        asked = [name for name in names if not spec.evaluations[name].style.endswith(OPTIONS_ONLY)]
        given = audit.answered({model: own[: len(asked) or None] for model, own in tables.items()}, spec.families)
        if any(len(options) > 1 for options in given.choices):  # otherwise there is nothing to choose from
            evaluation = spec.evaluations[first]
            reason = None if asked else "no audit list: the items are evaluated without their question only."
            listing = audit.Listing(first, evaluation.task, evaluation.language, asked, reason)
            lists[first] = audit.audited(listing, given, spec.items)
            alone = audit.options_alone([table for own in tables.values() for table in own], given)
            without_question[first] = [alone] if alone else []
            stems = dict.fromkeys(spec.evaluations[name].items_stem for name in names)
            read = (items_in(args.items_dir / f"{stem}.parquet") for stem in stems)
            items[first] = {row["item_id"]: row for own in read for row in own}
    drops, notes = _translated(spec, lists)
    rows, listings = [], []
    for first, each in lists.items():
        checks = _checks(list(items[first].values()), each.listing.language) if each.found else {}
        other = drops[first].reference if first in drops else None
        own = audit.rows_of(each, items[first], drops.get(first), items.get(other, {}))
        added = {"reference_language": spec.evaluations[other].language if other else None}
        rows += [row | added | {"checks": checks.get(row["item_id"], "")} for row in own]
        about = [*each.listing.sentences, *without_question[first]]
        about += [*(drops[first].sentences if first in drops else []), *notes.get(first, [])]
        listings.append(replace(each.listing, sentences=about))
    sources = [results_path(args.results, model, name) for model in spec.models for name in spec.evaluations]
    metadata = {"lists": [asdict(listing) for listing in listings]}
    metadata |= {"fingerprint": artifacts.input_fingerprint(to_json(spec), *filter(Path.exists, sources))}
    path = artifacts.write(args.out / "audit.parquet", AUDIT_LIST, rows, metadata)
    _write_tables(args.out, artifacts.read(path, AUDIT_LIST), listings)
    for listing in listings:
        print(listing.evaluation, *(f"  {line}" for line in [listing.reason, *listing.sentences] if line), sep="\n")
    lists = format_count(sum(listing.reason is None for listing in listings), "list")
    return f"audit-lists: {lists} of {format_count(len(rows), 'item')} in {args.out / FILES[0]} and {FILES[2]}"


def _read(path: Path) -> pa.Table:
    """Return results; none if they are unavailable, of which only the rule has files."""
    return artifacts.read(path, TASK_RESULTS) if path.exists() else TASK_RESULTS.schema.empty_table()


def _translated(
    spec: AuditSpec, lists: dict[str, audit.Audited]
) -> tuple[dict[str, audit.Translated], dict[str, list[str]]]:
    """Return the drops in each language of parallel tasks, and why there are none, by the name of the list."""
    parallel: dict[tuple, list[audit.Audited]] = {}
    for first, each in lists.items():
        evaluation = spec.evaluations[first]
        if evaluation.task in spec.parallel:
            names = ("task", "protocol", "style", "shots", "seed", "prompt")
            parallel.setdefault(tuple(getattr(evaluation, name) for name in names), []).append(each)
    drops, notes = {}, {}
    for languages in parallel.values():
        found, why = audit.translated(languages)
        for each in languages:
            first = each.listing.evaluation
            notes[first] = [note.partition(": ")[2] for note in why if note.startswith(f"{first}: ")]
            if each.listing.language in found:
                drops[first] = found[each.listing.language]
    return drops, notes


def _checks(items: list[dict], language: str) -> dict[str, str]:
    """Return what is suspicious about the text of each item, by ID."""
    checks: dict[str, list[str]] = {}
    for found in [*item_findings(items, language), *audit_between({language: items})]:
        checks.setdefault(found.item_id, []).append(f"{found.kind} ({found.detail})")
    return {item_id: "; ".join(dict.fromkeys(texts)) for item_id, texts in checks.items()}


def lists_of(spec: AuditSpec) -> dict[str, list[str]]:
    """Return the evaluations of each list, by the first of them."""
    return audit.groups({name: vars(evaluation) for name, evaluation in spec.evaluations.items()})


def results_path(results: Path, model: str, evaluation: str) -> Path:
    return results / model / "tasks" / f"{evaluation}.parquet"


def _write_tables(out: Path, table: pa.Table, listings: list[audit.Listing]) -> None:
    rows = table.to_pylist()
    texts = [
        row | {"choices": " | ".join(row["choices"]), "gold": " | ".join(row["choices"][i] for i in row["gold"])}
        for row in rows
    ]
    write_csv(out / FILES[0], pd.DataFrame(texts, columns=AUDIT_LIST.schema.names))
    lists = [asdict(listing) | {"evaluations": " ".join(listing.evaluations)} for listing in listings]
    lists = [row | {"sentences": " ".join(row["sentences"])} for row in lists]
    write_csv(out / FILES[1], pd.DataFrame(lists, columns=list(audit.Listing.__dataclass_fields__)))
    book = Workbook()
    names = sheet_names(["about", *(listing.evaluation for listing in listings if not listing.reason)])
    book.active.title = names[0]
    about = [{"evaluation": each.evaluation, "text": text} for each in listings for text in _about(each)]
    write_rows(book.active, [Column("evaluation", "evaluation", 36), Column("about the list", "text", 120)], about, 1)
    for name, listing in zip(names[1:], (each for each in listings if not each.reason), strict=True):
        own = [row for row in rows if row["evaluation"] == listing.evaluation]
        for sheet, part in write_rows(book.create_sheet(name), _SHEET, own, 1, EXCEL):
            add_choice(sheet, _SHEET, "decision", audit.DECISIONS, len(part))
    with replacing(out / FILES[2]) as temporary:
        book.save(temporary)


def _about(listing: audit.Listing) -> list[str]:
    how = f"Fill in {', '.join(VERDICT_COLUMNS)}: one of {', '.join(audit.DECISIONS)}."
    return [listing.reason, *listing.sentences] if listing.reason else [*listing.sentences, how]


_SHEET = [
    Column("rank", "rank", 6, cell_format="0"),
    Column("text", "prompt", 70),
    Column("options", lambda row: marked_options(row["choices"], row["gold"]), 60, "✓ gold, · other options"),
    Column("in another language", "reference", 60, "✓ gold, · other options"),
    Column("models' favorite", "favorite", 24, "the incorrect option that the models prefer"),
    Column("why it is listed", "reason", 50),
    Column("checks of the text", lambda row: row["checks"] or None, 24),
    Column("decision", "decision", 18, f"one of: {', '.join(audit.DECISIONS)}"),
    Column("annotator", "annotator", 16, "your name"),
    Column("date", "date", 12, "2026-11-30"),
    *(Column(name, name, 12) for name in ("task", "language", "item_id", "content")),
]


def add_choice(sheet, columns: list[Column], title: str, words: Iterable[str], n_rows: int) -> None:
    """Offer words in a list, in the cells of a column to fill in."""
    letter = get_column_letter([column.title for column in columns].index(title) + 1)
    choice = DataValidation(type="list", formula1=f'"{",".join(words)}"', allow_blank=True)
    choice.add(f"{letter}2:{letter}{n_rows + 1}")
    sheet.add_data_validation(choice)
