"""Command `audit`: reading lists from the results of a config; and `tasks --audit`: checks of items without a model."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

from vernacular.commands.reading_lists import ReadingLists, lists_of, reading_lists, results_path
from vernacular.config.dependencies import audit_spec
from vernacular.config.directories import run_command
from vernacular.config.load import load
from vernacular.core.errors import DataError, UserError, first_line, format_count, suggest
from vernacular.core.tables import text_table
from vernacular.data.audit import (
    ERRORS,
    REFERENCE,
    Finding,
    audit_between,
    finding,
    in_language,
    item_findings,
    missing_ids,
    set_findings,
)
from vernacular.data.load import load_items
from vernacular.data.tasks import load_task, shows_order
from vernacular.metrics.language import NOT_INSTALLED, OTHER, clean, identify, is_available
from vernacular.types import Item

_LISTED = 20  # findings of a language and kind
_MIN_LETTERS = 60  # of a text whose language is identified


def audit(args) -> str:
    """Write reading lists from the results of a config, and print what each shows."""
    if args.items is not None and args.items < 1:
        raise UserError(f"--items: expected at least 1, got {args.items}.")
    config = load([args.config])
    spec = audit_spec(config, args.items)
    if args.evaluation:
        if args.evaluation not in spec.evaluations:
            raise UserError(f'evaluation "{args.evaluation}" not found.{suggest(args.evaluation, spec.evaluations)}')
        group = next(names for names in lists_of(spec).values() if args.evaluation in names)
        spec = replace(spec, evaluations={name: spec.evaluations[name] for name in group})
    for model in spec.models:
        for name in spec.evaluations:
            if not (path := results_path(Path(config.output), model, name)).exists():
                raise UserError(f"{path}: file not found. Run `{run_command(args.config)}` first.")
    out = args.out or Path(config.output, "summary")
    return reading_lists(
        ReadingLists(spec=spec, results=Path(config.output), items_dir=Path(config.resources, "items"), out=out)
    )


def audit_task(name: str, files: dict[str, Path], languages: list[str] | None, data: str) -> str:
    """Print what is suspicious about the items of a task in each language, and between the languages if parallel.

    Languages that are unavailable are named and left out.
    """
    if name not in files:
        raise UserError(f'task "{name}" not found.{suggest(name, files)}')
    task = load_task(files[name])
    items, findings = {}, []
    for language in languages or task["languages"]:
        if language not in task["languages"]:
            raise UserError(f'{name}: language "{language}" not found.{suggest(language, task["languages"])}')
        try:
            loaded, metadata = load_items(task, language, source=data)
            items[language] = [in_language(item, language) for item in loaded]
        except DataError as error:
            print(f"{language}: unavailable ({first_line(error)})")
            continue
        for reason, count in metadata["rows"]["repaired"].items():
            print(f"{language}: repaired in {format_count(count, 'row')}: {reason}")
        findings += item_findings(items[language], language) + _in_other_languages(items[language], language)
        findings += set_findings(items[language], language, in_order=shows_order(task))
    if not items:
        raise UserError(f"{name}: no language is available.")
    if task.get("parallel"):
        for language, count in missing_ids(items).items():
            print(f"{language}: {format_count(count, 'item')} of other languages not found")
        findings += audit_between(items)
    else:
        findings += [found for language, own in items.items() for found in audit_between({language: own})]
    findings.sort(key=lambda found: list(items).index(found.language))
    counts = Counter((found.language, found.kind) for found in findings)
    sizes = {language: sum(not item["few_shot"] for item in own) for language, own in items.items()}
    rows = [
        (language, kind, f"{count:,}", f"{count / sizes[language]:.1%}", "error" if kind in ERRORS else "warning")
        for (language, kind), count in counts.items()
    ]
    print(*text_table([("language", "check", "findings", "of items", "severity"), *rows], right=[2, 3]), sep="\n")
    for (language, kind), count in counts.items():
        print(f"{language}: {kind}: {format_count(count, 'item')}")
        own = [found for found in findings if (found.language, found.kind) == (language, kind)]
        for found in own[:_LISTED]:
            reference = next((each for each in items.get(REFERENCE, ()) if each["item_id"] == found.item_id), None)
            is_other = task.get("parallel") and language != REFERENCE and reference
            original = f"  ({REFERENCE}: {reference['context'] or reference['question']})" if is_other else ""
            print(f"    {found.item_id}: {found.detail}: {found.text}{original}")
        if count > _LISTED:
            print(f"    and {count - _LISTED} more")
    if not is_available():
        print(NOT_INSTALLED.replace("responses", "items"))
    return f"tasks: {name}: {format_count(len(findings), 'finding')} in {format_count(len(items), 'language')}"


def _in_other_languages(items: list[Item], language: str) -> list[Finding]:
    """Return the items whose text is in another language, if the identifier is installed."""
    findings = []
    for item in items if is_available() else []:
        text = clean("\n".join(filter(None, (item["context"], item["question"], *item["choices"]))))
        found = None if item["few_shot"] else identify(text, language, None, min_letters=_MIN_LETTERS)
        if found not in (None, OTHER, language):
            findings.append(finding(language, item, "language", f"{found}, expected {language}"))
    return findings
