"""The models of a config: bases, adapters with the settings of their bases, and who is compared with whom."""

from itertools import combinations

from vernacular.core.errors import closest

# What an adapter says for itself; all else is its base's, so that both are asked in the same way.
_OF_ADAPTER = {"base", "adapter", "chat", "allow_pickle", "allow_other_base"}
_RESERVED = {"requests", "summary", "store", "report", "compat", "asked", "comparisons"}  # results/ folders of our own
# what Windows takes for a device, whatever follows the first dot
_DEVICES = {"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(1, 10))}


def check_models(models: dict, fail) -> None:
    """What the schema cannot say, about `models` as the person wrote it; `fail(keys, sentence)` raises."""
    seen: dict[str, str] = {}
    for name, entry in models.items():
        if name.casefold() in _RESERVED:
            fail((name,), f'"{name}" is a folder of the workflow\'s own; choose another name.')
        check_name(name, fail)
        if other := seen.get(name.casefold()):
            fail((name,), f'"{name}" and "{other}" differ only in case; some file systems cannot keep them apart.')
        seen[name.casefold()] = name
        if "adapter" not in entry and "base" not in entry:
            if "source" not in entry:
                fail((name,), 'the key "source" is missing (or "base" and "adapter").')
            continue
        for key, other in (("adapter", "base"), ("base", "adapter")):
            if key not in entry:
                fail((name,), f'"{other}" needs the key "{key}" beside it.')
        for key in entry:
            if key not in _OF_ADAPTER:
                fail((name, key), f"an adapter takes its {key} from its base; set it there.")
        base = entry["base"]
        bases = [other for other, settings in models.items() if "adapter" not in settings]
        if base not in bases:
            what = "is an adapter itself" if base in models else "is no model of this config"
            fail((name, "base"), f'"{base}" {what}.{closest(base, bases)}')
        if models[base].get("engine") == "vllm":
            fail((name, "base"), f"{base} has engine: vllm, which takes no adapters here; use engine: transformers.")


def check_name(name: str, fail) -> None:
    """Results are sent around: a folder that Windows cannot keep is refused."""
    if name.split(".")[0].casefold() in _DEVICES or name.endswith("."):
        fail((name,), f'"{name}" is no name for a folder on Windows; choose another.')


def with_bases(models: dict) -> dict:
    """Settings by name, an adapter's filled up with those of its base; the order of the file."""
    filled = {}
    for name, settings in models.items():
        if "adapter" in settings:
            base, own = models[settings["base"]], {key: settings[key] for key in _OF_ADAPTER if key in settings}
            chat = base["chat"] if own.get("chat", "auto") == "auto" else own["chat"]
            filled[name] = {**{key: value for key, value in base.items() if key != "source"}, **own, "chat": chat}
        else:
            filled[name] = settings
    return filled


def pairs(entries: list | None, models: dict, joined: dict, fail) -> list[tuple[str, str]]:
    """(baseline, candidate) of every comparison, each once; by default every adapter with its base.

    `fail(keys, sentence)` raises; keys lead from the list of comparisons.
    """
    if entries is None:
        found = [(settings["base"], name) for name, settings in models.items() if "adapter" in settings]
        return _told_apart(found + [(name, model) for name in joined for model in models], fail)
    found = []
    known = [*models, *joined]
    for i, entry in enumerate(entries):
        if isinstance(entry, str):
            if entry != "all_pairs":
                fail((i,), f'found "{entry}", expected all_pairs or {{baseline: NAME, candidate: NAME}}.')
            found += combinations(known, 2)
            continue
        baseline, candidates = entry["baseline"], entry["candidate"]
        every = [name for name in models if name != baseline]
        candidates = every if candidates == "all" else candidates if isinstance(candidates, list) else [candidates]
        for key, names in (("baseline", [baseline]), ("candidate", candidates)):
            for name in names:
                if name not in known:
                    fail((i, key), f'"{name}" is no model of this config.{closest(name, known)}')
        if baseline in candidates:
            fail((i, "candidate"), f'"{baseline}" is compared with itself.')
        found += [(baseline, candidate) for candidate in candidates]
    return _told_apart(found, fail)


def _told_apart(found: list[tuple[str, str]], fail) -> list[tuple[str, str]]:
    """Each pair once; two pairs may not share the folder `baseline--candidate`."""
    folders: dict[str, tuple[str, str]] = {}
    for pair in found:
        other = folders.setdefault("--".join(pair).casefold(), pair)
        if other != pair:
            fail((), f"{' with '.join(pair)} and {' with '.join(other)} would share a folder; rename one.")
    return list(dict.fromkeys(found))
