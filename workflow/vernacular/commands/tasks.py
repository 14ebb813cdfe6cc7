"""Command `tasks`: the available tasks, with their languages, protocols, numbers of items and licenses."""

from collections import Counter
from collections.abc import Iterable
from fnmatch import fnmatch

from vernacular.core.errors import UserError, format_count, suggest
from vernacular.core.paths import WORKFLOW
from vernacular.data.tasks import load_task, task_names
from vernacular.lm_eval.catalog import load_catalog
from vernacular.lm_eval.expansion import DEFAULT_TYPE
from vernacular.lm_eval.prompts import prompt_names

_MAX_LANGUAGES = 8  # of a task that are listed by code
# English names of the languages of the included tasks (ISO 639-3), by which they are also found
_NAMES = """\
ab Abkhazian; aln Gheg Albanian; am Amharic; apu Apurinã; aqz Akuntsu; ar Arabic; azz Highland Puebla Nahuatl;
be Belarusian; bg Bulgarian; bho Bhojpuri; bn Bengali; bor Borôro; br Breton; bua Buriat; ca Catalan; cs Czech;
cu Old Church Slavonic; cy Welsh; da Danish; de German; egy Ancient Egyptian; el Greek; en English; es Spanish;
et Estonian; eu Basque; fa Persian; fi Finnish; fo Faroese; fr French; frm Middle French; fro Old French; ga Irish;
gd Scottish Gaelic; gl Galician; got Gothic; grc Ancient Greek; gu Gujarati; hbo Ancient Hebrew; he Hebrew; hi Hindi;
hit Hittite; hsb Upper Sorbian; hu Hungarian; hy Armenian; hyw Western Armenian; is Icelandic; it Italian; ka Georgian;
kk Kazakh; kmr Northern Kurdish; koi Komi-Permyak; kpv Komi-Zyrian; krl Karelian; kxh Karo; ky Kyrgyz; la Latin;
lij Ligurian; lt Lithuanian; lv Latvian; mdf Moksha; mk Macedonian; mr Marathi; myv Erzya; nds Low German;
nhi Zacatlán Nahuatl; nl Dutch; olo Livvi; orv Old Russian; ota Ottoman Turkish; pcm Nigerian Pidgin; pl Polish;
pt Portuguese; quc K'iche'; ro Romanian; ru Russian; sa Sanskrit; sah Yakut; se Northern Sami; sk Slovak; sl Slovenian;
sms Skolt Sami; sq Albanian; sr Serbian; sv Swedish; ta Tamil; tpn Tupinambá; tr Turkish; ttc Tektiteko; ug Uyghur;
uk Ukrainian; ur Urdu; urb Urubú-Kaapor; uz Uzbek; vep Veps; wbp Warlpiri; wo Wolof; xcl Classical Armenian; xnr Kangri;
xpg Phrygian; yrl Nhengatu"""
_CODES = {name.casefold(): code for code, name in (entry.split(None, 1) for entry in _NAMES.split(";"))}


def tasks(args) -> str:
    """Print the included tasks and those of further directories; with a language, only those that have it.

    With `--lm-eval`, print the tasks of lm-eval, and of each whether it can be run.

    Raises:
        UserError: No task has the language.
        ConfigError: A task file is invalid.
    """
    if args.lm_eval is not None:
        return _lm_eval(args.lm_eval, args.lm_eval_python)
    files = task_names([WORKFLOW / "tasks", *args.directory])
    loaded = {name: load_task(path) for name, path in files.items()}
    if args.language is None:
        header = ("task", "languages", "protocols", "items", "license")
        rows = [_overview(name, task) for name, task in loaded.items()]
    else:
        [args.language] = check_languages([args.language], loaded.values())
        header = ("task", "protocols", "items", "license", "source")
        rows = [_in_language(name, task, args.language) for name, task in loaded.items()]
        rows = [row for row in rows if row]
    _print_table(header, rows)
    return f"tasks: {format_count(len(rows), 'task')}" + (f" in {args.language}" if args.language else "")


def check_languages(languages: Iterable[str], tasks: Iterable[dict]) -> list[str]:
    """Return the codes of languages, given by code or English name; raise UserError if one of them has no task."""
    available = {code for task in tasks for code in task["languages"]}
    own_data = "For your own data, write a task file (docs/tasks.md) and name its directory with --directory."
    codes = [name if name in available else _CODES.get(name.casefold(), name) for name in languages]
    for language, code in zip(languages, codes, strict=True):
        if code not in available:
            names = {name.title() for name, known in _CODES.items() if known in available}
            hint = suggest(language, available if len(language) < 4 else names, own_data)
            raise UserError(f'no task in the language "{language}".{hint}')
    return codes


def _overview(name: str, task: dict) -> tuple[str, ...]:
    entries = task["languages"]
    languages = " ".join(entries) if len(entries) <= _MAX_LANGUAGES else f"{len(entries)} languages"
    counts = sorted({entry["expected_rows"] for entry in entries.values() if entry["expected_rows"]})
    items = f"{counts[0]:,} to {counts[-1]:,}" if len(counts) > 1 else f"{counts[0]:,}" if counts else "unknown"
    licenses = dict.fromkeys(str(entry["license"]) for entry in entries.values() if entry["license"])
    return name, languages, ", ".join(task["protocols"]), items, ", ".join(licenses) or "not stated"


def _in_language(name: str, task: dict, language: str) -> tuple[str, ...] | None:
    entry = task["languages"].get(language)
    if entry is None:
        return None
    source = next(iter(entry["source"][0].values()))
    count = f"{entry['expected_rows']:,}" if entry["expected_rows"] else "unknown"
    return name, ", ".join(task["protocols"]), count, str(entry["license"] or "not stated"), str(source)


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
    _print_table(("task", "output_type", "shots", "can be run"), rows)
    reasons = Counter(reason for *_, reason in rows if reason != "yes")
    lines = [f"  {format_count(count, 'task')}: {reason}" for reason, count in reasons.most_common()]
    version = catalog.index["versions"]["lm_eval"]
    n_runnable = len(rows) - sum(reasons.values())
    lines.append(f"tasks: {n_runnable:,} of {len(rows):,} tasks of lm_eval {version} can be run")
    return "\n".join(lines)


def _print_table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header) - 1)]
    for row in (header, *rows):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        print("  ".join([*cells, row[-1]]).rstrip())
