"""Series: the checkpoints of one training run, listed as one entry of `models:`.

    mine:   {series: "./out/checkpoint-*"}                              local directories or GGUF files
    pythia: {source: EleutherAI/pythia-70m, revisions: [step1000, …]}   revisions on the Hub, or a pattern: "step*"
    gl:     {base: mine-base, series: "./lora/checkpoint-*"}            adapters on one base

Each checkpoint becomes a model `mine.step500`. A directory that was deleted after its evaluation remains in the series.
Nothing is written and the Hub is not asked: `vernacular revisions` lists the branches that match a pattern.

Positions in training that the names of checkpoints state: steps, tokens, words and samples.

Directories of Trainer (`checkpoint-500`), Megatron and GPT-NeoX (`iter_0001000`, `global_step143000`), NeMo and
Lightning (`…-step=1000-consumed_samples=8000.0`), and revisions of Pythia (`step1000`), OLMo (`step1000-tokens4B`,
`stage1-step1610000-tokens3377B`), DataDecide (`step1250-seed-default`), FineWeb (`step-001000-2BT`), BLOOM, OpenCoder
(`pretrain_iter_0373000`), RedPajama (`240b_tokens`) and BabyLM (`chck_10M`, words). A number that is an index or an
epoch (`ckpt_356`, `epoch_0`) is not a position.
"""

import functools
import glob
import os
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from vernacular.checkpoints.inputs import is_deleted, is_path
from vernacular.core.errors import ArtifactError, suggest
from vernacular.core.model_record import read_model, read_record
from vernacular.core.names import portable_problem, quoted
from vernacular.core.paths import display_path

_FACTORS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}
_NUMBER = r"(\d+(?:\.\d+)?)"
_SAMPLES = re.compile(r"(?<![a-z])consumed_samples[-_=]?(\d+)(?:\.0+)?(?![0-9a-z])", re.IGNORECASE)
_TOKENS = re.compile(rf"(?:consumed_)?tokens[-_=]?{_NUMBER}([kmbt]?)(?![0-9a-z])", re.IGNORECASE)
_TOKENS_AFTER = re.compile(rf"(?<![a-z0-9.]){_NUMBER}([kmbt]?)[-_]?tokens(?![0-9a-z])", re.IGNORECASE)
_TOKENS_SHORT = re.compile(rf"(?<![A-Za-z0-9.]){_NUMBER}([KMBT])T(?![0-9A-Za-z])")  # 2BT
_WORDS = re.compile(r"(?<![a-z])chck[-_=]?(\d+)([kmb])(?![0-9a-z])", re.IGNORECASE)
_STEP = re.compile(
    r"(?<![a-z])(?:global_?steps?|steps?|iter(?:ation)?|checkpoint|chck)[-_=]?(\d+)(?![0-9a-z])", re.IGNORECASE
)
_KEY_VALUE = re.compile(r"(?<![A-Za-z0-9])[A-Za-z_]+=[^-]*")  # val_loss=2.34
_MAX_DIGITS = 18  # a number of more digits is not a position, and no column can hold it
_SEPARATORS = re.compile(r"[^A-Za-z0-9.]+")


@dataclass(frozen=True)
class Position:
    """Position of a checkpoint in training; None where its name does not state it."""

    step: int | None = None
    tokens: int | None = None  # as rounded in the name
    words: int | None = None
    samples: int | None = None
    phase: str = ""  # the rest of the name: steps restart in another stage, and another seed is another run

    @property
    def is_known(self) -> bool:
        return any(number is not None for number in (self.step, self.tokens, self.words, self.samples))


def parse_name(name: str) -> Position:
    """Return the position that the last part of a path, or a revision, states.

    >>> parse_name("stage2-ingredient3-step21000-tokens45B")
    Position(step=21000, tokens=45000000000, words=None, samples=None, phase='stage2-ingredient3')
    >>> parse_name("out/checkpoint-500").step, parse_name("main").is_known
    (500, False)
    """
    rest = name.rstrip("/").rpartition("/")[2]
    has_settings = "=" in rest
    samples, rest = _take(_SAMPLES, rest)
    tokens = None
    for pattern in (_TOKENS, _TOKENS_AFTER, _TOKENS_SHORT):
        if tokens is None:
            tokens, rest = _take(pattern, rest)
    words, rest = _take(_WORDS, rest)
    step, rest = _take(_STEP, rest)
    if has_settings:  # NeMo's names start with that of the experiment and contain losses
        stages = re.findall(r"(?:stage|ingredient)\d+", _KEY_VALUE.sub("", rest), re.IGNORECASE)
        rest = "-".join(stages)
    return Position(step, tokens, words, samples, _SEPARATORS.sub("-", rest).strip("-."))


def natural_key(text: str) -> list:
    """Return a sort key that orders numbers inside a text by value: stage2 before stage10."""
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.findall(r"\d+|\D+", text)]


def _take(pattern: re.Pattern, text: str) -> tuple[int | None, str]:
    """Return the number of the first match, with its factor, and the text without the match."""
    match = pattern.search(text)
    if not match or len(match[1]) > _MAX_DIGITS:
        return None, text
    number, factor = (*match.groups(), "")[:2]
    value = round(float(number) * _FACTORS[factor.lower()]) if "." in number else int(number) * _FACTORS[factor.lower()]
    if value >= 2**63:
        return None, text
    return value, f"{text[: match.start()]}-{text[match.end() :]}"


KEYS = ("series", "revisions", "steps", "tokens_per_step", "tokens_per_sample")
AXES = ("step", "tokens", "words")
_NO_HUB_ID = ("package:", "http://", "https://")
RECORDS = Path("resources", "models", ".known")  # copies of the records, which remain when a record is rewritten


@dataclass(frozen=True)
class Checkpoint:
    """A model of the config that is a checkpoint of a series."""

    series: str  # its name in the config
    curve: str  # the series, and its phase if the names state one: "olmo/stage1"; steps of two phases do not continue
    name: str  # of the directory or revision
    step: int | None
    tokens: int | None
    words: int | None


def is_series(entry: dict) -> bool:
    return "series" in entry or "revisions" in entry


def representative(entry: dict) -> dict:
    """Return the entry of a series as that of a single model, for the checks that both have in common."""
    single = {key: value for key, value in entry.items() if key not in KEYS}
    if "series" in entry and "adapter" not in entry and "source" not in entry:
        single["adapter" if "base" in entry else "source"] = entry["series"]
    return single


def check_keys(entries: dict, report) -> None:
    """Check the keys of series, as written by the user; `report(keys, message)` mistakes."""
    for name, entry in entries.items():
        location = next((key for key in ("adapter", "source") if key in entry), None)
        if not is_series(entry):
            for key in KEYS:
                if key in entry:
                    report((name, key), f"{key} requires series: or revisions:.")
        elif "series" in entry and (other := location or ("revisions" if "revisions" in entry else None)):
            report((name, "series"), f"series: is a pattern of directories; it cannot be combined with {other}:.")
        elif "revisions" in entry and location is None:
            report((name, "revisions"), "revisions: requires source: owner/name (or base: and adapter:).")
        elif "revisions" in entry and (is_path(entry[location]) or entry[location].startswith(_NO_HUB_ID)):
            message = f'revisions: requires a Hub ID, got "{entry[location]}"; use series: for directories.'
            report((name, location), message)
        elif "revisions" in entry and "@" in entry[location]:
            report((name, location), "the revision is given in source: and in revisions:; remove one.")
        elif "**" in entry.get("series", ""):
            report((name, "series"), "** is not supported; * matches within one directory.")
    for name, entry in entries.items():
        if is_series(entries.get(entry.get("base"), {})):
            report((name, "base"), f'"{entry["base"]}" is a series; the base of an adapter is a single model.')


def expand_series(
    models: dict, output: str, report, records: Path = RECORDS, config_files: Sequence[os.PathLike | str] = ()
) -> tuple[dict, dict[str, Checkpoint]]:
    """Return (settings by model, checkpoint by model), series replaced by checkpoints in the order of training.

    `output`: of results, with which a deleted one remains; `records`: their copies; `report(keys, message)` mistakes.
    """
    expanded, checkpoints = {}, {}
    for name, entry in models.items():
        if not is_series(entry):
            expanded[name] = {key: value for key, value in entry.items() if key not in KEYS}
            continue
        deleted = functools.partial(_deleted, name, entry, output=output, records=records)
        found = _sources(name, entry, deleted, lambda keys, text, name=name: report((name, *keys), text), config_files)
        key, sources = found
        positions = {source: _position(source, entry) for source in sources}
        for model, (source, checkpoint) in _named(name, positions, report).items():
            if problem := portable_problem(model):
                report((name,), f"its checkpoint {quoted(_last(source))}: {quoted(model)} {problem}; exclude it.")
            if model.casefold() in {other.casefold() for other in (*expanded, *models)}:
                report((name,), f'its checkpoint "{model}" has the name of another model; rename one.')
            expanded[model] = representative(entry) | {key: source}
            checkpoints[model] = checkpoint
    return expanded, checkpoints


def without_earlier(models: dict, checkpoints: dict[str, Checkpoint]) -> dict:
    """Return the models without all checkpoints but the last of each curve: those that are compared by default."""
    last = {checkpoint.curve: model for model, checkpoint in checkpoints.items()}
    return {name: entry for name, entry in models.items() if name not in checkpoints or name in last.values()}


def families(models: dict, checkpoints: dict[str, Checkpoint]) -> dict[str, str]:
    """Return the family of each model: adapters with their base, checkpoints of a series, entries of one source."""
    origins: dict[str, str] = {}
    for name, entry in models.items():
        base = models.get(entry.get("base"), entry)
        source = base["source"]
        if not is_path(source) and not source.startswith(_NO_HUB_ID):
            source = "/".join(source.partition("@")[0].split("/")[:2])  # without revision and GGUF file
        series = checkpoints.get(entry.get("base", name))
        origins[name] = f"series {series.series}" if series and is_path(source) else f"{source} {base.get('model', '')}"
    first: dict[str, str] = {}
    return {name: first.setdefault(origin, name) for name, origin in origins.items()}


def listing_path(name: str) -> Path:
    """Return the path of the record of the revisions that match the pattern of a series."""
    return Path("resources", "series", f"{name}.json")


def _sources(
    name: str, entry: dict, deleted: Callable[[str], list[str]], report, config_files: Sequence[os.PathLike | str]
) -> tuple[str, list[str]]:
    """Return the key of a model that holds a checkpoint's source, and the sources; `deleted(pattern)`: deleted ones."""
    key = "adapter" if "base" in entry else "source"
    if "series" in entry:
        pattern = os.path.expanduser(entry["series"])
        paths = [path for path in glob.glob(pattern) if os.path.isdir(path) or path.endswith(".gguf")]
        paths += [path for path in deleted(pattern) if path not in paths]
        if not paths:
            report(("series",), f"no directory or GGUF file matches {entry['series']}.")
        return key, paths
    revisions = entry["revisions"]
    if isinstance(revisions, str):
        revisions = _listed(name, entry[key], revisions, report, config_files)
    return key, [f"{entry[key]}@{revision}" for revision in dict.fromkeys(revisions)]


def _listed(name: str, source: str, pattern: str, report, config_files: Sequence[os.PathLike | str]) -> list[str]:
    """Return the listed revisions of `source` that match `pattern`; nothing is asked of the Hub here."""
    path = listing_path(name)
    try:
        record = read_record(path)
    except ArtifactError:
        record = {}
    command = f"Run `vernacular revisions {shlex.join(map(display_path, config_files))}` with a network"
    if not config_files:  # the config of a module is in the Snakefile
        command = "List them in revisions:, or run `vernacular revisions` with a config file that has this model"
    if record.get("source") != source:
        report(("revisions",), f'the revisions of {source} that match "{pattern}" are not listed yet. {command}.')
        return []
    matching = [revision for revision in record["revisions"] if fnmatchcase(revision, pattern)]
    if not matching:
        text = f'no revision of {source} matches "{pattern}".{suggest(pattern, record["revisions"])}'
        report(("revisions",), f"{text} {command} if there are new ones.")
    return matching


def _deleted(name: str, entry: dict, pattern: str, *, output: str, records: Path) -> list[str]:
    """Return the paths of deleted checkpoints of a series that have results."""
    paths = []
    for path in sorted(records.glob(f"{glob.escape(name)}.*.json")):
        try:
            record = read_model(path)
        except ArtifactError:  # written again if the checkpoint still exists
            continue
        source = (record.adapter or record).source or ""
        directory = os.path.expanduser(source)
        parts, patterns = (os.path.abspath(text).split(os.sep) for text in (directory, pattern))
        is_matching = len(parts) == len(patterns) and all(map(fnmatchcase, parts, patterns))
        kinds, root = ("scores", "generations", "tasks"), Path(output, record.name)
        has_results = any(next(root.glob(f"{kind}/*.parquet"), None) for kind in kinds)
        if not (is_matching and has_results and is_deleted(record)):
            continue
        if next(iter(_named(name, {source: _position(source, entry)}, lambda *_: None)), None) == record.name:
            paths.append(directory)
    return paths


def _position(source: str, entry: dict) -> Position:
    """Return the position of a checkpoint: as given under `steps`, or else as its name states."""
    position = parse_name(_last(source))
    given = (entry.get("steps") or {}).get(_last(source))
    step = position.step if given is None else given
    tokens = position.tokens
    if step is not None and entry.get("tokens_per_step"):  # more precise than a rounded number in the name
        tokens = step * entry["tokens_per_step"]
    elif position.samples is not None and entry.get("tokens_per_sample"):
        tokens = position.samples * entry["tokens_per_sample"]
    phase = position.phase if position.is_known else ""
    return Position(step, tokens, position.words, position.samples, phase)


def _named(series: str, positions: dict[str, Position], report) -> dict[str, tuple[str, Checkpoint]]:
    """Return (source, checkpoint) by the name of its model, in the order of training; report unusable names."""
    known = {s: position for s, position in positions.items() if any(getattr(position, a) is not None for a in AXES)}
    for source in sorted(positions.keys() - known.keys()):
        advice = f"give it under steps: {{{_last(source)}: NUMBER}}, or exclude it"
        report((series,), f'"{_last(source)}" states no step; {advice}.')
    axis = next((a for a in AXES if all(getattr(position, a) is not None for position in known.values())), None)
    if axis is None:
        source = next(source for source, position in known.items() if position.step is None)
        report((series,), f'"{_last(source)}" states no step, unlike other checkpoints; give it under steps:.')
        return {}
    order = sorted(known, key=lambda source: (natural_key(known[source].phase), getattr(known[source], axis)))
    named: dict[str, tuple[str, Checkpoint]] = {}
    for source in order:
        position = known[source]
        model = ".".join(part for part in (series, position.phase, f"{axis}{getattr(position, axis)}") if part)
        if model in named:
            report((series,), f'"{_last(named[model][0])}" and "{_last(source)}" state the same {axis}; exclude one.')
            continue
        curve = f"{series}/{position.phase}" if position.phase else series
        numbers = {name: getattr(position, name) for name in AXES}
        named[model] = source, Checkpoint(series, curve, _last(source), **numbers)
    return named


def _last(source: str) -> str:
    """Return the name of a checkpoint: the last part of a path, or the revision of a Hub ID."""
    return os.path.basename(source.rstrip("/")) if is_path(source) else source.rpartition("@")[2]
