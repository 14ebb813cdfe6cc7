"""Notes: whatever a reader of the numbers should know and no number says. Nothing is left out in silence."""

import pandas as pd

_NOTE_COLUMNS = ["model", "evaluation", "kind", "note", "count"]


def notes_of(told: dict) -> list[dict]:
    """One model's notes from the metadata of its metrics file; a row per thing to know.

    kind: "unavailable" (a data set, model or encoder could not be had), "not applicable", "left out", "repaired" (rows
    of the data set), "rows" (other than expected), "not asked" (items), "flagged" (answers), "fallback" (the engine
    took a slower way), "trusted code" and "unused weights" (of the model itself, said once).
    """
    found = []

    def note(evaluation: str | None, kind: str, text: str, count: int | None = None) -> None:
        found.append({"model": told["model"], "evaluation": evaluation, "kind": kind, "note": text, "count": count})

    for evaluation, facts in told["evaluations"].items():
        for key, kind in (("unavailable", "unavailable"), ("not_applicable", "not applicable")):
            if key in facts:
                note(evaluation, kind, facts[key])
        for metric, reason in facts.get("without", {}).items():
            note(evaluation, "unavailable", f"no {metric}: {reason}")
        dataset = facts.get("dataset", {})
        for key, kind in (("dropped", "left out"), ("repaired", "repaired")):
            for reason, count in dataset.get("rows", {}).get(key, {}).items():
                note(evaluation, kind, reason, count)
        for warning in dataset.get("warnings", []):
            note(evaluation, "rows", warning)
        unasked = list(facts.get("unasked", {}).values())
        for reason in dict.fromkeys(unasked):
            note(evaluation, "not asked", reason, unasked.count(reason))
        for flag, count in facts.get("flags", {}).items():
            note(evaluation, "flagged", flag, count)
        for fallback in facts.get("inference", {}).get("engine", {}).get("fallback", []):
            note(evaluation, "fallback", str(fallback))
    models = [facts.get("inference", {}).get("model", {}) for facts in told["evaluations"].values()]
    if any(model.get("remote_code") for model in models):
        note(None, "trusted code", "code of the model's own was run (trust_remote_code)")
    if unused := next((model["unused_weights"] for model in models if "unused_weights" in model), None):
        text = f"weights that its architecture has no place for, {unused['first']} the first of them"
        note(None, "unused weights", text, unused["count"])
    return found


def mixed_engines(models: list[dict]) -> list[dict]:
    """Return a note for each way in which models were computed by different versions of the engine or its libraries.

    models: metadata of their metrics files. Numbers of one evaluation are compared across models, so all of them should
    come from one version; they do not where some models could not be run again after an upgrade.
    """
    versions: dict[str, dict[str, list[str]]] = {}  # evaluation -> version -> models
    for told in models:
        for evaluation, facts in told["evaluations"].items():
            if (engine := facts.get("inference", {}).get("engine", {})).get("version"):
                model = facts["inference"].get("model", {})
                libraries = ", ".join(f"{name} {model[name]}" for name in ("torch", "transformers") if name in model)
                version = f"{libraries} (engine {engine['version'][:8]})"
                versions.setdefault(evaluation, {}).setdefault(version, []).append(told["model"])
    # scores and generations have engines of their own: what counts is which models go together
    ways: dict[tuple, list[str]] = {}
    for of_version in versions.values():
        if len(of_version) > 1:
            ways.setdefault(tuple(map(tuple, of_version.values())), []).append(_way(of_version))
    text = "computed by different versions, so that differences between these models may be due to them: "
    return [
        {"model": None, "evaluation": None, "kind": "mixed versions", "note": text + of_way[0], "count": len(of_way)}
        for of_way in ways.values()
    ]


def _way(of_version: dict[str, list[str]]) -> str:
    return "; ".join(f"{', '.join(names)}: {version}" for version, names in of_version.items())


def data_sets_of(told: dict) -> list[dict]:
    """Where one model's items came from, by task, language and limit: repository, commit, hash, licence, counts."""
    found = {}
    for facts in told["evaluations"].values():
        if dataset := facts.get("dataset"):
            source, rows = dataset["source"], dataset["rows"]
            found[dataset["task"], dataset["language"], dataset["limit"]] = {
                "task": dataset["task"],
                "language": dataset["language"],
                "limit": dataset["limit"],
                "kind": source["kind"],
                "from": source.get("repository") or source.get("url") or source.get("file") or source["kind"],
                "split": source.get("split"),
                "revision": source.get("revision"),
                "sha256": source["sha256"],
                "licence": source.get("licence"),
                "citation": dataset.get("citation"),
                "rows read": rows["read"],
                "items": rows["taken"],
            }
    return list(found.values())


def as_frame(notes: list[dict]) -> pd.DataFrame:
    """The notes as a table, in the order given."""
    return pd.DataFrame(notes, columns=_NOTE_COLUMNS).astype({"count": "Int64"})
