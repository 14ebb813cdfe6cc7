"""Command `labels`: responses of all models to the first items of an evaluation -> a sheet for speakers to fill in."""

import itertools
from pathlib import Path

import pandas as pd
from openpyxl import Workbook
from openpyxl.utils import get_column_letter

from vernacular.comparison import sheets
from vernacular.config.directories import check_any_written
from vernacular.config.load import Config, load
from vernacular.core import artifacts, yaml
from vernacular.core.artifacts import replacing
from vernacular.core.errors import DataError, UserError, check_at_least, check_known, format_count
from vernacular.core.paths import WORKFLOW
from vernacular.core.tables import write_csv
from vernacular.metrics.schema import TASK_RESULTS
from vernacular.protocols.registry import PROTOCOLS
from vernacular.stages.audit import add_choice, results_path
from vernacular.stages.common import items_in
from vernacular.summary.rows import Column, write_rows
from vernacular.types import Evaluation, correct_answers

_FEW = 50  # labels, from which the coverage of intervals is known

_CONFIGS = (".yaml", ".yml")


def labels(args) -> str:
    """Write a sheet with the responses to the first items of an evaluation that have no label yet."""
    check_at_least(1, n=args.n)
    if args.config.suffix not in _CONFIGS and Path(args.evaluation).suffix in _CONFIGS:
        raise UserError(f"labels: the config comes first: vernacular labels {args.evaluation} {args.config}")
    config = load([args.config])
    check_known("evaluation", args.evaluation, config.evaluations)
    evaluation = config.evaluations[args.evaluation]
    if not PROTOCOLS[evaluation.protocol].generates:
        problem = f"{evaluation.protocol} has no responses to judge; use one that generates text."
        raise UserError(f"{evaluation.id}: {problem}")
    scale, instruction = _scale(config, evaluation)
    responses = _responses(config, evaluation, args.config)
    known = [
        label for path in config.labels for label in sheets.read_labels(Path(path)) if label.evaluation == evaluation.id
    ]
    if other := next((label for label in known if label.scale != scale), None):
        raise UserError(f"{other.file}: labels of {evaluation.id} on the scale {other.scale}, expected {scale}.")
    pairs = None
    if scale == sheets.PAIRS:
        pairs = [pair for pair in config.comparisons if set(pair) <= set(responses)] or list(
            itertools.combinations(responses, 2)
        )
        if not pairs:
            raise UserError(f"{evaluation.id}: two models are needed to compare their responses, got {len(responses)}.")
    items = items_in(Path(config.resources, "items", f"{evaluation.items_stem}.parquet"))
    references = {item["item_id"]: " | ".join(correct_answers(item)) for item in items}
    rows = sheets.rows_to_read(responses, args.n, pairs, references, known)
    read = {label.item_id for label in known}
    if not rows:
        total = len({item for own in responses.values() for item in own.ids})
        reason = f"all {total:,} items have labels" if args.n >= total else f"the first {args.n:,} items have labels"
        raise UserError(f"{evaluation.id}: {reason} already; nothing is left to read with --n {args.n}.")
    path = _write(args.out, evaluation.id, rows, scale, instruction)
    if args.n < _FEW:
        print(f"With fewer than {_FEW} labels, the coverage of the intervals is not known.")
    counts = f"{format_count(len(rows), 'row')} on {format_count(len({row.item_id for row in rows}), 'item')}"
    more = f", beside {format_count(len(read), 'item')} with labels" if read else ""
    return f"labels: {counts}{more} in {path} and {path.with_suffix('.csv').name}"


def _scale(config: Config, evaluation: Evaluation) -> tuple[str, str]:
    """Return the scale of a task and the instructions in the language of an evaluation."""
    settings = config.tasks.get(evaluation.task, {}).get("labels", {})
    scale, own = settings.get("scale", sheets.CORRECT), settings.get("instructions", {})
    common, _ = yaml.read(WORKFLOW / "instructions.yaml")
    language = evaluation.language
    text = own.get(language) or common.get(language, {}).get(scale)
    if text is None:
        missing = f'No instructions in "{language}", those in English are used'
        print(f"{missing}; add labels: instructions: to the task file.")
    return scale, text or own.get("en") or common["en"][scale]


def _responses(config: Config, evaluation: Evaluation, config_file: Path) -> dict[str, sheets.Responses]:
    """Return the responses of each model that has any."""
    found, paths = {}, {model: results_path(Path(config.output), model, evaluation.id) for model in config.models}
    check_any_written([*paths.values()], config_file)
    for model, path in paths.items():
        if path.exists() and (responses := sheets.Responses(artifacts.read(path, TASK_RESULTS))).rows:
            found[model] = responses
    if not found:
        raise UserError(f"{evaluation.id}: no model has a response.")
    return found


def _write(out: Path, name: str, rows: list[sheets.ToRead], scale: str, instruction: str) -> Path:
    """Write the sheet as a workbook and as CSV; a sheet in which somebody has begun to write is kept."""
    paths = (out / f"{name}{f'-{number}' if number > 1 else ''}.xlsx" for number in itertools.count(1))
    path = next(path for path in paths if not _is_filled(path) and not _is_filled(path.with_suffix(".csv")))
    added = {"evaluation": name, "scale": scale, "label": None, "annotator": None}
    written = [vars(row) | added | {"reference": row.reference or None} for row in rows]
    titles = ["response A", "response B"] if scale == sheets.PAIRS else ["response"]
    texts = [Column(title, lambda row, i=i: row["responses"][i], 50) for i, title in enumerate(titles)]
    columns = [
        Column("number", "number", 8, "of the item, in the order of the draw", "0"),
        Column("prompt", "prompt", 60),
        Column("reference", "reference", 40),
        *texts,
        Column("label", "label", 12, f"one of: {', '.join(sheets.SCALES[scale])}"),
        Column("annotator", "annotator", 16, "your name; without it, that of the file"),
        *(Column(each, each, 12) for each in sheets.LABEL_COLUMNS[:4]),
    ]
    book = Workbook()
    book.active.title = "labels"
    for sheet, part in write_rows(book.active, columns, written, 1):
        for number, column in enumerate(columns, 1):
            if column.title in ("label", "annotator"):  # empty, but to be filled in
                sheet.column_dimensions[get_column_letter(number)].hidden = False
        add_choice(sheet, columns, "label", sheets.SCALES[scale], len(part))
    about = [{"text": instruction}, {"text": f"label: {', '.join(sheets.SCALES[scale])}"}]
    write_rows(book.create_sheet("instructions"), [Column("instructions", "text", 120)], about, 1)
    with replacing(path) as temporary:
        book.save(temporary)
    frame = pd.DataFrame(
        [{each.title: each.key(row) if callable(each.key) else row[each.key] for each in columns} for row in written]
    )
    write_csv(path.with_suffix(".csv"), frame)
    return path


def _is_filled(path: Path) -> bool:
    """Return whether a file has labels, or is none of these sheets."""
    try:
        return path.exists() and bool(sheets.read_labels(path))
    except DataError:
        return True
