"""Pattern files: which words to look for in a treebank, and which of their features to swap."""

import itertools
from pathlib import Path

from vernacular.core import validate as yamlfile
from vernacular.core.errors import ConfigError, closest
from vernacular.core.paths import WORKFLOW

_SCHEMA = WORKFLOW / "schemas" / "pattern.schema.yaml"
READY = WORKFLOW / "patterns"


def load_pattern(name: str, folder=".", *, where: str = "") -> dict:
    """A ready pattern by its name, or one of a file (`….yaml`, beside `folder`), with every default filled in.

    Keys: pattern (its name), phenomenon, target, related, without, swap (list of alternatives: feature -> value, None
    for "without it"), ignore, open, limits; or grew with the target's name. Raises ConfigError with file, line and key,
    or, for an unknown name, with `where` in front.
    """
    path = _path(name, Path(folder), where)
    content, lines = yamlfile.read(path)
    yamlfile.check(content, lines, yamlfile.schema(_SCHEMA), path)
    if content["pattern"] != path.stem:
        at = yamlfile.place(path, lines, ("pattern",))
        raise ConfigError(f'{at}: found "{content["pattern"]}", expected the file\'s name, "{path.stem}".')
    if isinstance(content["target"], str) is not ("grew" in content):
        at = yamlfile.place(path, lines, ("target",))
        wanted = "the name of a node of the request" if "grew" in content else "constraints, such as {upos: VERB}"
        raise ConfigError(f"{at}: expected {wanted}.")
    if "grew" in content and (extra := content.keys() & {"related", "without"}):
        at = yamlfile.place(path, lines, (min(extra),))
        raise ConfigError(f"{at}: beside grew there is no {min(extra)}; say it in the request.")
    named = _named(content, path, lines)
    return {
        "pattern": content["pattern"],
        "phenomenon": content.get("phenomenon", content["pattern"]),
        "target": content["target"],
        **({"grew": content["grew"]} if "grew" in content else named),
        "swap": alternatives(content["swap"]),
        "ignore": content.get("ignore", []),
        "open": content.get("open", []),
        "limits": content.get("limits", {}),
    }


def ready_patterns() -> list[str]:
    """Names of the patterns that come with the project."""
    return sorted(path.stem for path in READY.glob("*.yaml"))


def alternatives(swap) -> list[dict]:
    """Each way to be wrong: which features get which values (None: the feature is taken away).

    >>> alternatives({"Person": [1, 2]}), alternatives([{"Gender": "Fem", "Animacy": False}])
    ([{'Person': '1'}, {'Person': '2'}], [{'Gender': 'Fem', 'Animacy': None}])
    """
    found = []
    for entry in swap if isinstance(swap, list) else [swap]:
        values = [value if isinstance(value, list) else [value] for value in entry.values()]
        for combination in itertools.product(*values):
            found.append({k: None if v is False else str(v) for k, v in zip(entry, combination, strict=True)})
    return found


def _path(name: str, folder: Path, where: str) -> Path:
    if name.endswith((".yaml", ".yml")):
        path = Path(name).expanduser()
        return path if path.is_absolute() else folder / path
    if name not in ready_patterns():
        before = f"{where}: found" if where else "There is no ready pattern"
        after = ", expected the name of a ready pattern or a file (….yaml)." if where else "."
        raise ConfigError(f'{before} "{name}"{after}{closest(name, ready_patterns())}')
    return READY / f"{name}.yaml"


def _named(content: dict, path, lines) -> dict:
    """`related` and `without` with a name for each, and `of` checked: it must have been named before."""
    result = {}
    names = ["target"]
    for key in ("related", "without"):
        result[key] = []
        for i, spec in enumerate(content.get(key, [])):
            of = spec.get("of", "target")
            if of not in names:
                at = yamlfile.place(path, lines, (key, i, "of"))
                raise ConfigError(f'{at}: no word before it is called "{of}".{closest(of, names)}')
            name = spec.get("name", f"{key}_{i + 1}")
            if name in names:
                at = yamlfile.place(path, lines, (key, i, "name"))
                raise ConfigError(f'{at}: another word is called "{name}" already.')
            result[key].append({**spec, "name": name, "of": of})
            if key == "related":  # what must not be there cannot be referred to
                names.append(name)
    return result
