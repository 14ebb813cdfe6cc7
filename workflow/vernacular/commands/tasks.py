"""Commands `tasks`, `revisions` and `treebank`: what can be evaluated, before there is a config; and `audit`."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path

import huggingface_hub
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled

from vernacular.config.dependencies import audit_spec
from vernacular.config.directories import check_any_written
from vernacular.config.files import read
from vernacular.config.load import load
from vernacular.config.series import check_keys, listing_path
from vernacular.core import artifacts
from vernacular.core.errors import (
    DataError,
    ModelError,
    UserError,
    check_at_least,
    check_known,
    first_line,
    first_of,
    format_count,
    suggest,
)
from vernacular.core.hub_snapshot import TransportError
from vernacular.core.languages import base_language, english_names, fallbacks, language_name, matching_tags
from vernacular.core.model_record import write_record
from vernacular.core.paths import WORKFLOW
from vernacular.core.tables import text_table
from vernacular.data import audit as checks
from vernacular.data.audit import REFERENCE
from vernacular.data.load import load_items
from vernacular.data.tasks import load_task, shows_order, task_names
from vernacular.data.treebank.pairs import MASK, Pairs, shorten_context
from vernacular.data.treebank.patterns import builtin_patterns, load_pattern
from vernacular.data.treebank.source import Extraction, extract
from vernacular.lm_eval.catalog import load_catalog, prompt_names
from vernacular.lm_eval.expansion import DEFAULT_TYPE
from vernacular.metrics.language import OTHER, clean, identify, unidentified
from vernacular.protocols.prompts import language_of_lines, prompt_lines, prompts_directory
from vernacular.protocols.registry import uses_prompt_lines
from vernacular.stages.audit import AuditLists, audit_lists, lists_of, results_path
from vernacular.types import Item

_MAX_LANGUAGES = 8  # of a task that are listed by code
_LISTED = 20  # findings of a language and kind
_MIN_LETTERS = 60  # of a text whose language is identified


def tasks(args) -> str:
    """Print the included tasks and those of further directories; with a language, only those that have it.

    With `--lm-eval`, print the tasks of lm-eval, and of each whether it can be run; with `--audit`, what is
    suspicious about the items of a task.

    Raises:
        UserError: No task has the language.
        ConfigError: A task file is invalid.
    """
    if args.lm_eval is not None:
        return _lm_eval(args.lm_eval, args.lm_eval_python)
    files = task_names([WORKFLOW / "tasks", *args.directory])
    if args.audit:
        return audit_task(args.audit, files, args.languages, args.data)
    loaded = {name: load_task(path) for name, path in files.items()}
    if args.language is None:
        header = ("task", "languages", "protocols", "items", "license")
        rows = [_overview(name, task) for name, task in loaded.items()]
    else:
        tags = check_languages([args.language], loaded.values(), variants=True)
        header = ("task", "language", "protocols", "items", "license", "source", "lacks")
        rows = [row for name, task in loaded.items() for row in _in_language(name, task, tags)]
    print(*text_table([header, *rows]), sep="\n")
    count = format_count(len({row[0] for row in rows}), "task")
    return f"tasks: {count}" + (f" in {', '.join(tags)}" if args.language else "")


def check_languages(languages: Iterable[str], tasks: Iterable[dict], *, variants: bool = False) -> list[str]:
    """Return the tags of languages, given by tag or English name; raise UserError if one of them has no task.

    A tag without script or region stands for all of them, with `variants` also for these; what is left out is printed.
    """
    available = {code for task in tasks for code in task["languages"]}
    own_data = "For your own data, write a task file (docs/tasks.md) and name its directory with --directory."
    tags: dict[str, None] = {}
    for language in languages:
        found, others = matching_tags(language, available)
        if not found:
            names = [english_names().get(base) or base for base in sorted(set(map(base_language, available)))]
            hint = suggest(language, available if len(language) < 4 else names, own_data).removesuffix(f" {own_data}")
            raise UserError(f'no task in the language "{language}".{hint} {own_data}')
        if variants:
            found += [tag for tag in others if base_language(tag) == base_language(found[0])]
        tags |= dict.fromkeys(found)
        if others := [other for other in others if other not in (*languages, *found)]:
            print(f"Note: {language}: {', '.join(found)}; left out: {', '.join(map(language_name, others))}")
    return list(tags)


def _overview(name: str, task: dict) -> tuple[str, ...]:
    entries = task["languages"]
    languages = " ".join(entries) if len(entries) <= _MAX_LANGUAGES else f"{len(entries)} languages"
    counts = sorted({entry["expected_rows"] for entry in entries.values() if entry["expected_rows"]})
    items = f"{counts[0]:,} to {counts[-1]:,}" if len(counts) > 1 else f"{counts[0]:,}" if counts else "unknown"
    licenses = dict.fromkeys(str(entry["license"]) for entry in entries.values() if entry["license"])
    return name, languages, ", ".join(task["protocols"]), items, ", ".join(licenses) or "not stated"


def _in_language(name: str, task: dict, tags: list[str]) -> list[tuple[str, ...]]:
    """Return a row for each of the tags in a task, and for the more general ones."""
    tags = {general for tag in tags for general in fallbacks(tag)}
    rows = []
    for tag, entry in task["languages"].items():
        if tag in tags:
            source = str(next(iter(entry["source"][0].values())))
            count = f"{entry['expected_rows']:,}" if entry["expected_rows"] else "unknown"
            protocols, lacking = ", ".join(task["protocols"]), "; ".join(_lacking(task, tag)) or "nothing"
            rows.append((name, tag, protocols, count, str(entry["license"] or "not stated"), source, lacking))
    return rows


def has_lines(task: dict, language: str) -> bool:
    """Return whether there are the prompt lines of a task in a language."""
    lines = language_of_lines(language, "default", task)
    return prompt_lines(lines, prompts_directory(lines, task)) is not None


def _lacking(task: dict, tag: str) -> list[str]:
    """Return what has to be written before a task can be evaluated in a language, with the protocols that need it."""
    needing = [protocol for protocol in task["protocols"] if uses_prompt_lines(protocol, "default")]
    lacking = []
    if needing and not has_lines(task, tag):
        lacking.append("prompt lines" + (f" for {', '.join(needing)}" if needing != task["protocols"] else ""))
    if wordings := task["languages"][tag].get("lacks"):
        lacking.append(f"words for {', '.join(wordings)}")
    return lacking


def _lm_eval(name: str, python: str | None) -> str:
    """Print the tasks of lm-eval whose name matches, of a group or tag, or the prompts of a task; count the reasons."""
    catalog = load_catalog(python)
    entry = catalog.registry.get(name)
    if entry and entry.kind != "task":
        leaves = {leaf.name: leaf for unit in catalog.units(name, trust_functions=True) for leaf in unit.leaves}
        found = {leaf.name: (leaf.config, leaf.reason) for leaf in leaves.values()}
    else:
        tasks = {task: entry for task, entry in catalog.registry.items() if entry.kind == "task"}
        names = [task for task in sorted(tasks) if fnmatch(task, name or "*")] + prompt_names(name, catalog.registry)
        found = {task: (tasks[task].config, tasks[task].reason) for task in names}
    if not found:
        raise UserError(f'no task of lm_eval matches "{name}".{suggest(name, catalog.registry)}')
    rows = [
        (task, config.get("output_type", DEFAULT_TYPE), str(config.get("num_fewshot", "")), reason or "yes")
        for task, (config, reason) in found.items()
    ]
    print(*text_table([("task", "output_type", "shots", "can be run"), *rows]), sep="\n")
    reasons = Counter(reason for *_, reason in rows if reason != "yes")
    lines = [f"  {format_count(count, 'task')}: {reason}" for reason, count in reasons.most_common()]
    version = catalog.index["versions"]["lm_eval"]
    n_runnable = len(rows) - sum(reasons.values())
    lines.append(f"tasks: {n_runnable:,} of {len(rows):,} tasks of lm_eval {version} can be run")
    return "\n".join(lines)


def audit(args) -> str:
    """Write audit lists from the results of a config, and print what each shows."""
    check_at_least(1, items=args.items)
    config = load([args.config])
    spec = audit_spec(config, args.items)
    if args.evaluation:
        check_known("evaluation", args.evaluation, spec.evaluations)
        group = next(names for names in lists_of(spec).values() if args.evaluation in names)
        spec = replace(spec, evaluations={name: spec.evaluations[name] for name in group})
    paths = [results_path(Path(config.output), model, name) for model in spec.models for name in spec.evaluations]
    check_any_written(paths, args.config)
    out = args.out or Path(config.output, "summary")
    return audit_lists(
        AuditLists(spec=spec, results=Path(config.output), items_dir=Path(config.resources, "items"), out=out)
    )


def audit_task(name: str, files: dict[str, Path], languages: list[str] | None, data: str) -> str:
    """Print what is suspicious about the items of a task in each language, and between the languages if parallel.

    Languages that are unavailable are named and left out.
    """
    check_known("task", name, files)
    task = load_task(files[name])
    items, findings = {}, []
    for language in languages or task["languages"]:
        check_known("language", language, task["languages"], f"{name}: ")
        try:
            loaded, metadata = load_items(task, language, source=data)
            items[language] = [checks.in_language(item, language) for item in loaded]
        except DataError as error:
            print(f"{language}: unavailable ({first_line(error)})")
            continue
        for reason, count in metadata["rows"]["repaired"].items():
            print(f"{language}: repaired in {format_count(count, 'row')}: {reason}")
        findings += checks.item_findings(items[language], language) + _in_other_languages(items[language], language)
        findings += checks.set_findings(items[language], language, in_order=shows_order(task))
    if not items:
        raise UserError(f"{name}: no language is available.")
    if task.get("parallel"):
        for language, count in checks.missing_ids(items).items():
            print(f"{language}: {format_count(count, 'item')} of other languages not found")
        findings += checks.audit_between(items)
    else:
        findings += [found for language, own in items.items() for found in checks.audit_between({language: own})]
    findings.sort(key=lambda found: list(items).index(found.language))
    counts = Counter((found.language, found.kind) for found in findings)
    sizes = {language: sum(not item["few_shot"] for item in own) for language, own in items.items()}
    rows = [
        (
            language,
            kind,
            f"{count:,}",
            f"{count / sizes[language]:.1%}",
            "error" if kind in checks.ERRORS else "warning",
        )
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
    if reason := unidentified(items):
        print(reason.replace("responses", "items"))
    return f"tasks: {name}: {format_count(len(findings), 'finding')} in {format_count(len(items), 'language')}"


def _in_other_languages(items: list[Item], language: str) -> list[checks.Finding]:
    """Return the items whose text is in another language, if the identifier knows theirs."""
    findings = []
    for item in [] if unidentified([language]) else items:
        text = clean("\n".join(filter(None, (item["context"], item["question"], *item["choices"]))))
        found = None if item["few_shot"] else identify(text, language, None, min_letters=_MIN_LETTERS)
        if found not in (None, OTHER, language):
            findings.append(checks.finding(language, item, "language", f"{found}, expected {language}"))
    return findings


def revisions(args) -> str:
    """Write branches and tags of the repositories with `revisions: PATTERN`; planning reads them without a network."""
    files, counts = read(args.config, None, "--config"), []
    files.problems.raise_all()
    check_keys(files.values["models"], lambda keys, message: files.report(("models", *keys), message))
    files.problems.raise_all()
    for name, entry in files.values["models"].items():
        if isinstance(entry.get("revisions"), str):
            source = entry["adapter" if "base" in entry else "source"]
            commits = revisions_of(source)
            write_record(listing_path(name), {"name": name, "source": source, "revisions": commits})
            counts.append(f"{name}: {format_count(len(commits), 'revision')} of {source}")
    return f"revisions: {'; '.join(counts) or 'no series with a pattern of revisions'}"


def revisions_of(repository: str) -> dict[str, str]:
    """Return the commit of every branch and tag of a model repository, by name.

    Raises ModelError if the repository does not exist or may not be read, or the Hub cannot be reached.
    """
    try:
        refs = huggingface_hub.HfApi().list_repo_refs(repository, repo_type="model")
    except HfHubHTTPError as error:
        reason = f"HTTP {error.response.status_code}" if error.response is not None else first_line(error)
        raise ModelError(
            f"{repository}: revisions cannot be listed ({reason}). Check the spelling; for a private or gated "
            "repository, set HF_TOKEN to a token with read access."
        ) from None
    except (TransportError, HFValidationError, OfflineModeIsEnabled, OSError) as error:
        raise ModelError(f"{repository}: revisions cannot be listed ({type(error).__name__}).") from None
    return {ref.name: ref.target_commit for ref in (*refs.branches, *refs.tags)}


def treebank(args) -> str:
    """Extract minimal pairs from treebanks with patterns; print an explanation, write a CSV file, or both.

    Without a pattern, list the included ones.
    """
    if not args.pattern:
        patterns = {name: load_pattern(name)["phenomenon"] for name in builtin_patterns()}
        width = max(map(len, patterns))
        print("\n".join(f"{name:<{width}}  {phenomenon}" for name, phenomenon in patterns.items()))
        return f"treebank: {format_count(len(patterns), 'included pattern')}; choose with --pattern NAME"
    check_at_least(0, examples=args.examples)
    extracted = extract(args.treebank, [load_pattern(name) for name in args.pattern], args.forms)
    if args.csv:
        from vernacular.exchange.source_tools import pairs_csv

        artifacts.write_text(args.csv, pairs_csv(extracted.rows))
    if args.explain or not args.csv:
        print(explain(extracted, examples=args.examples))
    matches = sum(pairs.related for pairs in extracted.pairs)
    used = [format_count(matches, "match", "matches"), format_count(extracted.sentences, "sentence")]
    return f"treebank: {format_count(len(extracted.rows), 'pair')} from {' in '.join(used)}"


def explain(extracted: Extraction, examples: int = 5) -> str:
    """Return the steps of each pattern with counts, up to `examples` pairs, and a few rejected matches per reason."""
    lines = [f"{extracted.sentences:,} sentences, {extracted.words:,} words"]
    if different := extracted.mismatches:
        ids = first_of(different, 5)
        lines.append(f"{len(different)} of them: `# text` differs from the joined tokens, which are used ({ids})")
    for name, reasons in extracted.skipped_lines.items():
        lines.append(f"{name}: lines skipped: " + ", ".join(f"{reason} ({n})" for reason, n in reasons.items()))
    for pairs in extracted.pairs:
        lines += ["", *_steps(pairs), *_pairs(pairs, examples), *_rejected_matches(pairs, min(examples, 3))]
    return "\n".join(lines)


def _steps(pairs: Pairs) -> list[str]:
    pattern = pairs.pattern
    lines = [f"{pattern['pattern']} ({pattern['phenomenon']})"]
    if "corrupt" in pattern:
        lines.append(f"{pairs.related:9,}  sentences")
    elif "grew" in pattern:
        lines.append(f"{pairs.related:9,}  matches of the GREW request")
    else:
        lines.append(f"{pairs.targets:9,}  words match the target")
        lines.append(f"{pairs.related - pairs.targets:9,}    related words missing, or a forbidden word present")
        lines.append(f"{pairs.related:9,}  matches")
    lines += [f"{-n:9,}    {reason}" for reason, n in pairs.rejections.most_common()]
    return [*lines, f"{len(pairs.rows):9,}  pairs, {len({row['lemma'] for row in pairs.rows}):,} lemmas"]


def _pairs(pairs: Pairs, examples: int) -> list[str]:
    """Return pairs evenly spread over the treebank, so that a larger number of examples covers other texts."""
    step = max(1, len(pairs.rows) // examples) if examples else 1
    lines = []
    for row in pairs.rows[::step][:examples]:
        incorrect = [text for name, text in row.items() if name.startswith("form_ungrammatical")]
        forms = f"[[{row['form_grammatical']}|{'|'.join(incorrect)}]]"
        prefix, suffix = row["masked_text"].split(MASK, 1)
        lines.append(f"    {row['sentence_id']}  {shorten_context(prefix, forms, suffix)}")
        lines.append(f"        {row['lemma']}: {row['features']} -> {row['swapped']}")
    return lines


def _rejected_matches(pairs: Pairs, examples: int) -> list[str]:
    lines = []
    for reason, texts in pairs.rejection_examples.items() if examples else ():
        lines += [f"  {reason}, for example:", *(f"    {text}" for text in texts[:examples])]
    return lines
