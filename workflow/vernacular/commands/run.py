"""Command `run`: the workflow on a config file, or on a dataset and models, of which it writes the config first."""

import contextlib
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import yaml

from vernacular.commands.check import TEMPLATE, model_entries, without_location
from vernacular.commands.tasks import check_languages
from vernacular.config.directories import run_command
from vernacular.config.files import read
from vernacular.config.load import load
from vernacular.config.references import check_models
from vernacular.core.errors import DataError, UserError, first_of, format_count, suggest
from vernacular.core.paths import WORKFLOW
from vernacular.core.validate import Problems
from vernacular.data import hub_benchmark
from vernacular.data.columns import Cells, RowRejected, as_text, parse_literal
from vernacular.data.load import load_items, read_source
from vernacular.data.readers import detect_format
from vernacular.data.tasks import load_task, task_names
from vernacular.protocols.prompts import language_of_lines, prompt_lines, prompts_directory
from vernacular.protocols.registry import OWN, uses_prompt_lines

_PROFILES = WORKFLOW.parent / "profiles"
_TASKS = Path("my_tasks")  # directory of the task files that are written
DEFAULT, ENGLISH = "default", "english"  # styles
_SPLITS = ("test", "validation", None)  # the first that exists is evaluated; None: the only one
_PROTOCOLS = {  # of the items of a type; the first is evaluated
    "question": ("options", "letters", "choice", "generation"),
    "passage": ("options", "letters", "choice", "generation"),
    "story": ("options", "generation"),
    "multi_answer": ("options", "generation"),
    "open_question": ("generation",),
    "summary": ("generation",),
    "continuation": ("last_word", "generation"),
    "pair": ("minimal_pair",),
    "sentence": ("acceptability",),
    "cloze": ("cloze",),
    "target_word": ("target_word",),
    "text": ("text",),
    "translation": ("translation", "translation_bits"),
    "entities": ("entities", "entities_bits"),
}
# names of columns that have one meaning in the datasets of the Hub; a `label` or a `sentence` has several
_KNOWN = {
    "good": ("sentence_good", "good_sentence", "good", "grammatical"),
    "bad": ("sentence_bad", "bad_sentence", "bad", "ungrammatical"),
    "question": ("question", "question_stem"),
    "context": ("passage", "flores_passage", "context", "premise"),
    "choices": ("choices", "options"),
    "gold": ("answerkey", "answer_key", "correct_answer_num", "correct_answer", "gold", "answer", "answer_index"),
}
_NUMBERED = re.compile(r"(.*?)(?:([a-jA-J])|(\d))$")  # columns of single options: option_a, option_b; choice1, choice2


def run(args) -> None:
    """Replace this process by Snakemake with the config, the profile of the workflow, and the options of the user.

    Of a dataset, the config and, unless it is that of a known task, the task file are written first.

    Raises:
        ConfigError: The file cannot be read: Snakemake would find that first, and print a traceback.
        UserError: The meaning of a dataset is not clear, or the files exist with another content.
    """
    config = args.config
    exists = os.path.exists(config)
    if not config.endswith((".yaml", ".yml")) and (not exists or detect_format(config)):
        if not args.models:
            problem = "is a data file" if exists else "file not found"
            command = _command(args, models=[("model", "SOURCE")])
            raise UserError(f"{config}: {problem}. To run a dataset or task, name a model: {command}")
        config = str(_write_files(args))
    elif given := [name for name in ("models", *_DATASET_OPTIONS) if getattr(args, name)]:
        option = f"--{given[0].removesuffix('s')}"
        raise UserError(f"{config}: expected no {option} with a config file, which has it as a key.")
    read([config], None, "--config").problems.raise_all()
    options = list(args.options)
    for i, value in enumerate(options[1:], start=1):
        if options[i - 1] == "--profile" and not Path(value).exists() and (_PROFILES / value).is_dir():
            options[i] = str(_PROFILES / value)  # Snakemake looks for names of profiles in the working directory only
    if not any(re.match("-(c|j|-cores|-jobs|-profile)", option) for option in options):
        options += ["--cores", "all"]
    files = {"--snakefile": WORKFLOW / "Snakefile", "--workflow-profile": _PROFILES / "default"}
    arguments = [str(part) for entry in (files | {"--configfile": config}).items() for part in entry]
    sys.stdout.flush()
    # jobs start `python`: the one of this environment, also where it is not activated
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"}
    os.execve(sys.executable, [sys.executable, "-m", "snakemake", *arguments, *options], environment)


# of the command line, which describe a dataset
_DATASET_OPTIONS = ("language", "protocol", "styles", "shots", "limit", "columns", "item_type", "configuration",
                    "split")  # fmt: skip


def _write_files(args) -> Path:
    """Write the config of a dataset, and its task file unless the task is known; return the path of the config."""
    known = {name: load_task(path) for name, path in task_names([WORKFLOW / "tasks"]).items()}
    tasks = [known[args.config]] if args.config in known else [t for t in known.values() if _is_source(args.config, t)]
    if args.columns or args.item_type or args.configuration or args.split:
        tasks = []  # the user describes the dataset
    if len(tasks) > 1:
        names, command = ", ".join(task["task"] for task in tasks), _command(args, config=tasks[0]["task"])
        raise UserError(f"{args.config}: the dataset of several tasks: {names}. For example: {command}")
    os.environ["VERNACULAR_RUN"] = _command(args)  # for the message of a dataset that cannot be reached
    files: dict[Path, str] = {}
    if tasks:
        task = tasks[0]
        is_task = args.config == task["task"]
        of_dataset = [code for code in task["languages"] if is_task or _is_source(args.config, task, code)]
        if not args.language and len(of_dataset) > 1:
            names, command = first_of(of_dataset, 8), _command(args, language=of_dataset[:1])
            raise UserError(f"{args.config}: task {task['task']} has the languages {names}. For example: {command}")
        languages = check_languages(args.language, [task]) if args.language else of_dataset
    else:
        task = _benchmark(args) or _own_task(args)
        languages = list(task["languages"])
        files[_TASKS / f"{task['task']}.yaml"] = yaml.safe_dump(task, sort_keys=False, allow_unicode=True, width=110)
    name = task["task"]
    entry = {"task": name, "languages": languages, "protocols": args.protocol or task["protocols"][:1]}
    entry |= {key: value for key in ("styles", "shots", "limit") if (value := getattr(args, key)) is not None}
    entries = [entry]
    if lacking := [] if args.styles else _without_lines(entry, {"directory": str(_TASKS)} | task):
        entries = [entry | {"languages": [code for code in languages if code not in lacking]}]
        entries = [
            *filter(lambda each: each["languages"], entries),
            entry | {"languages": lacking, "styles": [ENGLISH]},
        ]
        print(
            f"run: no prompt lines in {', '.join(lacking)}: English lines are around the items, which the results name "
            f"(style english). `vernacular init {_TASKS}/prompts/{lacking[0]}.yaml --prompts-from en` writes the lines "
            "to translate."
        )
    path = Path(f"{name}.yaml")
    settings = f"output: results-{name}\n" + (f"tasks: [{_TASKS}]\n" if files else "")
    files[path] = TEMPLATE.format(
        name=path,
        run=run_command(path),
        models="\n".join(model_entries(args.models)),
        settings=settings,
        evaluations="\n".join(
            f"  - {yaml.safe_dump(each, default_flow_style=True, sort_keys=False, width=1000).strip()}"
            for each in entries
        ),
    )
    _write(files)
    task_file = "".join(f" and {file}" for file in files if file != path)
    print(f"run: {path}{task_file} written; `{run_command(path)}` runs it again", flush=True)
    return path


def _without_lines(entry: dict, task: dict) -> list[str]:
    """Return the languages without prompt lines, where the protocols need some and may have those of English."""
    protocols = [name for name in entry["protocols"] if name in OWN and uses_prompt_lines(name, DEFAULT)]
    if not protocols or not all(ENGLISH in OWN[name].styles for name in protocols):
        return []
    codes = {language: language_of_lines(language, DEFAULT, task) for language in entry["languages"]}
    return [name for name, code in codes.items() if prompt_lines(code, prompts_directory(code, task)) is None]


def _write(files: dict[Path, str]) -> None:
    """Write files and validate the last one, the config; on a mistake, remove them.

    Raises UserError if a file exists with another content, or the config is not valid.
    """
    for path, text in files.items():
        if path.exists() and path.read_text("utf-8") != text:
            raise UserError(
                f"{path}: the file exists, and this command would write another content. Remove or rename it, or run "
                f"it as it is: `vernacular run {shlex.quote(str([*files][-1]))}`"
            )
    *_, config = files
    new = [path for path in files if not path.exists()]
    for path in new:
        path.parent.mkdir(exist_ok=True)
        path.write_text(files[path], "utf-8")
    try:
        check_models(load([config]), problems := Problems())
        problems.raise_all()
    except UserError as error:
        for path in new:
            path.unlink()
        with contextlib.suppress(OSError):  # not empty
            _TASKS.rmdir()
        raise UserError(without_location(error, config)) from None


def _is_source(dataset: str, task: dict, language: str | None = None) -> bool:
    """Return whether a repository on the Hub is a source of a task, in one of its languages."""
    repository = dataset.partition("@")[0].casefold()
    languages = task["languages"].values() if language is None else [task["languages"][language]]
    return any(str(source.get("hub")).casefold() == repository for entry in languages for source in entry["source"])


def _benchmark(args) -> dict | None:
    """Return the task of a dataset with an eval.yaml; None if it has none, or the user describes it."""
    is_described = args.columns or args.item_type or args.configuration or args.split
    if is_described or os.path.exists(args.config) or len(args.language or ()) > 1:
        return None
    found = hub_benchmark.benchmark(args.config, *args.language or ())
    if found is None:
        return None
    task, needs_judge = found
    told = [f"{args.config}: {task['item_type']}, as in its eval.yaml.", task.get("note")]
    told += ["Its answers are scored by a judge: add one to judges (docs/judges.md)."] * needs_judge
    print("run:", *filter(None, told))
    return task


def _own_task(args) -> dict:
    """Return the content of the task file of a dataset.

    Raises UserError if language, type of items, split, configuration or the meaning of columns are not known.
    """
    if not args.language or len(args.language) > 1:
        command = _command(args, language=[(args.language or ["CODE"])[0]])
        raise UserError(f"{args.config}: name the language of the dataset, only one: {command}")
    if invalid := [part for part in args.columns or () if not re.fullmatch("[a-z_]+=.+", part)]:
        raise UserError(f'--columns: expected FIELD=COLUMN, such as question=q, got "{invalid[0]}".')
    if args.item_type and args.item_type not in _PROTOCOLS:
        raise UserError(f'--item-type: unknown value "{args.item_type}".{suggest(args.item_type, _PROTOCOLS)}')
    source, rows = _read(args)
    given = dict(part.split("=", 1) for part in args.columns or ())
    columns = _guess(rows) | {name: text.split(",") if "," in text else text for name, text in given.items()}
    if "gold" in columns and "choices" in columns and "gold_format" not in columns:
        columns |= {"gold_format": found} if (found := _gold_format(rows, columns)) else {}
    item_type = args.item_type or _type_of(columns)
    if item_type is None or ("gold" in columns) != ("gold_format" in columns):
        names = list(dict.fromkeys(name for row in rows[:100] for name in row if name != "_config"))
        raise UserError(
            f"{args.config}: what the columns {', '.join(names)} mean is not clear. Name them (docs/tasks.md), for "
            f"example:\n{_command(args, columns=_closest(columns, names))}"
        )
    stem = Path(args.config.partition("@")[0]).name.partition(".")[0]
    name = re.sub(r"[^a-z0-9]+", "_", stem.lower()).strip("_")[:60]
    protocols = list(dict.fromkeys([*(args.protocol or ()), *_PROTOCOLS[item_type]]))
    task = {"task": name or "dataset", "protocols": protocols, "item_type": item_type, "columns": columns}
    task |= {"languages": {args.language[0]: {"source": source}}}
    with tempfile.TemporaryDirectory(dir=".") as directory:  # relative paths are those of the directory of task files
        path = Path(directory, f"{task['task']}.yaml")
        path.write_text(yaml.safe_dump(task, allow_unicode=True), "utf-8")
        items, metadata = load_items(load_task(path, OWN), args.language[0])
    print(f"run: {args.config}: {item_type}, {_mapping(columns)}: {format_count(len(items), 'item')}")
    print(*metadata["warnings"], sep="\n", end="\n" if metadata["warnings"] else "")
    return task


def _mapping(columns: dict) -> str:
    return " ".join(f"{name}={','.join(c) if isinstance(c, list) else c}" for name, c in columns.items())


def _read(args) -> tuple[dict, list[dict]]:
    """Return the source of a dataset, as in a task file, and its rows; raise UserError with a command that may help."""
    if os.path.exists(args.config):
        if detect_format(args.config) is None:
            expected = "expected a config file (.yaml) or a data file (.csv, .tsv, .jsonl, .parquet)"
            raise UserError(f"{args.config}: {expected}.")
        rows = read_source({"file": os.path.abspath(args.config)}, Path())
        return {"file": os.path.relpath(args.config, _TASKS)}, rows
    repository, _, revision = args.config.partition("@")
    source = {"hub": repository} | ({"revision": revision} if revision else {})
    source |= {"config": args.configuration} if args.configuration else {}
    for split in [args.split] if args.split else _SPLITS:
        attempt = source | ({"split": split} if split else {})
        try:
            return attempt, read_source(attempt, Path())
        except DataError as error:
            last = error
    missing = next((name for name in ("configuration", "split") if name in str(last) and not getattr(args, name)), None)
    command = f"\nFor example: {_command(args, **{missing: 'NAME'})}" if missing else ""
    raise UserError(f"{last}{command}")


def _command(args, **changes) -> str:
    """Return the command of a user with other values."""
    values = {name: getattr(args, name) for name in ("config", "models", *_DATASET_OPTIONS)} | changes
    parts = ["vernacular", "run", values.pop("config")]
    parts += [part for kind, source in values.pop("models") for part in (f"--{kind}", source)]
    for name, value in values.items():
        if value is not None:
            parts += [f"--{name.replace('_', '-')}", *map(str, value if isinstance(value, list) else [value])]
    return shlex.join(parts + args.options)


def _guess(rows: list[dict]) -> dict:
    """Return the fields of columns whose names have one meaning.

    >>> _guess([{"question": "q", "A": "x", "B": "y", "answer": "A"}])
    {'question': 'question', 'gold': 'answer', 'choices': ['A', 'B']}
    """
    names = {name.casefold(): name for row in rows[:100] for name in row}
    columns = {}
    for field, candidates in _KNOWN.items():
        found = [names[name] for name in candidates if name in names]
        if len(found) == 1:
            columns[field] = found[0]
    if "choices" not in columns:
        series: dict[str, list[str]] = {}
        for name in names.values():
            if match := _NUMBERED.fullmatch(name):
                series.setdefault(match[1], []).append(name)
        numbered = [group for group in series.values() if len(group) > 1 and _follow(group)]
        columns |= {"choices": numbered[0]} if len(numbered) == 1 else {}
    elif isinstance(options := parse_literal(rows[0].get(columns["choices"])), dict) and _follow(options):
        columns["choices"] = [f"{columns['choices']}.{key}" for key in options]
    return columns


def _follow(names: Iterable[str]) -> bool:
    """Return whether names end with letters or numbers that follow each other, from the first one on."""
    ends = [name[-1].lower() for name in names]
    return any(ends == list(first[: len(ends)]) for first in ("abcdefghij", "0123456789", "123456789"))


def _gold_format(rows: list[dict], columns: dict) -> str | None:
    """Return the format of the answers, if all have the same and only one fits; None otherwise."""
    answers, fitting = [], {"letter", "number", "index", "text"}
    for row in rows:
        cells = Cells(row, columns)
        try:
            options, answer = cells.texts("choices"), as_text(cells.value("gold"))
        except RowRejected:
            continue
        if not answer or not options:
            continue
        answers.append(answer)
        is_number = answer.isdigit()
        fits = {"text"} if answer in options else set()
        fits |= {"letter"} if answer in (cells.labels("choices") or "ABCDEFGHIJ"[: len(options)]) else set()
        fits |= {"number"} if is_number and 1 <= int(answer) <= len(options) else set()
        fits |= {"index"} if is_number and int(answer) < len(options) else set()
        fitting &= fits
    if fitting == {"index", "number"}:  # neither 0 nor the last number occurs
        return None
    return fitting.pop() if answers and len(fitting) == 1 else None


def _type_of(columns: dict) -> str | None:
    """Return the type of items that have these columns; None if it is not clear."""
    has = columns.keys().__contains__
    if has("good") and has("bad"):
        return "pair"
    if has("correct_answers") and has("incorrect_answers"):
        return "multi_answer"
    if has("choices") and has("gold") and (has("question") or has("context")):
        return "story" if not has("question") else "passage" if has("context") else "question"
    if has("context") and has("label"):
        return "sentence"
    return None


def _closest(columns: dict, names: list[str]) -> list[str]:
    """Return the argument of --columns that is likely to be meant, with COLUMN for what is missing."""
    fields = ("context", "label") if "label" in names and not columns.keys() & {"question", "choices"} else None
    fields = fields or ("question", "choices", "gold", "gold_format")
    missing = {"choices": "COLUMN,COLUMN", "gold_format": "letter", "label": "label"}
    text = next((name for name in ("sentence", "text") if name in names), "COLUMN")
    missing |= {"context": text}
    return _mapping({name: columns.get(name) or missing.get(name, "COLUMN") for name in fields}).split()
