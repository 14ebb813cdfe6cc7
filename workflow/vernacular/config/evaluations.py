"""An entry of `evaluations:` spelt out: one evaluation for each language, protocol, style, number of shots and seed."""

import itertools
from dataclasses import dataclass

from vernacular.core.errors import ConfigError, closest
from vernacular.core.paths import WORKFLOW
from vernacular.protocols.build import OPTIONS, STYLES, takes_shots, takes_words
from vernacular.protocols.prompts import load_labels

_OF_ONE = {  # options that mean something to one protocol alone
    "permutations": "letters",
    "bow_correction": "last_word",
    "legacy": "cloze",
    "evaluation_type": "target_word",
    "mask_token": "target_word",
}


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
        """The stem of its items file: `openbookqa.gl`, or `openbookqa.gl.limit50` where not all items are taken."""
        return f"{self.task}.{self.language}" + (f".limit{self.limit}" if self.limit else "")


def expand(entry: dict, task: dict, data: str, fail) -> list[Evaluation]:
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
    for option, only in _OF_ONE.items():
        if option in entry and only not in protocols:
            fail(option, f"means nothing to {' or '.join(protocols)}, only to {only}; leave it out.")
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
