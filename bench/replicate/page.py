"""The page docs/replication.md: tools and versions, differences by protocol, tool and language, and their reasons.

It contains nothing that changes between two runs on the same machine: no dates, paths or seconds.
"""

from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from string import Template

from replicate.bos import Effect
from replicate.compare import REASONS, TOLERANCE, Comparison
from replicate.published import Replicated

PROTOCOLS = (
    "acceptability",
    "minimal_pair",
    "cloze",
    "target_word",
    "last_word",
    "text",
    "options",
    "letters",
    "generation",
)
DEFINITIONS = "definitions"  # formulas of papers, which no tool has written
RESTATED = {  # tool: what was read, and why it is not installed
    "Simil-Eval": "commit 0f473ac; on no package index",
    "PalmX": "run_evaluation.py, commit 0fe6ef8; on no package index",
    "Serbian cloze": "Cloze_task_onBase.py, commit 595965d; on no package index",
    "Grew-TSE": "commit b89e17d; the package 0.1.3 cannot be imported without GREW's OCaml program",
    DEFINITIONS: "cosine, MoverScore and BERTScore; Pimentel and Meister (2024); Kauf and Ivanova (2023)",
}


def page(
    comparisons: list[Comparison],
    versions: dict[str, dict[str, str]],
    effects: list[Effect],
    published: list[Replicated],
) -> str:
    """Return the page; `versions`: by environment, versions of packages."""
    decisions = [c for c in comparisons if c.is_decision and c.reference["value"] is not None]
    unexplained = [c for c in comparisons if not c.equal and c.reason is None and not c.is_decision]
    parts = {
        "summary": _summary(comparisons),
        "tools": _tools(versions),
        "by_tool": _table(comparisons, ("protocol", "tool", "model"), with_tasks=True),
        "by_language": _table(comparisons, ("protocol", "tool", "language")),
        "reasons": _reasons(comparisons),
        "decisions": _differences([*decisions, *unexplained]),
        "bos": _effects(effects),
        "published": _published(published),
    }
    template = Path(__file__).with_name("page.md").read_text("utf-8")
    return Template(template).substitute({name: "\n".join(lines) for name, lines in parts.items()})


def _summary(comparisons: list[Comparison]) -> list[str]:
    compared = [c for c in comparisons if c.reference["value"] is not None]
    numbers, decisions = [c for c in compared if not c.is_decision], [c for c in compared if c.is_decision]
    of = {
        name: len({c.reference[name] for c in compared} - {DEFINITIONS}) for name in ("evaluation", "language", "tool")
    }
    unexplained = sum(not c.equal and c.reason is None for c in comparisons)
    return [
        f"{len(compared):,} values of {of['tool']} tools are compared, in {of['evaluation']} evaluations and "
        f"{of['language']} languages.",
        f"Of {len(numbers):,} numbers, {sum(c.equal for c in numbers):,} differ by at most {TOLERANCE:.0e}; "
        f"of {len(decisions):,} decisions and texts, {sum(c.equal for c in decisions):,} are equal.",
        f"Differences without a known reason: {unexplained}.",
    ]


def _tools(versions: dict[str, dict[str, str]]) -> list[str]:
    rows = ["| tool | version | run as |", "|---|---|---|"]
    for tool, package in (("lm-eval", "lm_eval"), ("minicons", "minicons")):
        rows.append(f"| {tool} | {versions['tools'][package]} | the package |")
    rows += [f"| {tool} | {read} | restated in [tests/oracles](../tests/oracles) |" for tool, read in RESTATED.items()]
    for environment, label in (("workflow", "Vernacular"), ("tools", "libraries of lm-eval and minicons")):
        packages = {
            name: v for name, v in versions[environment].items() if name not in ("lm_eval", "minicons", "vernacular")
        }
        own = versions[environment].get("vernacular")
        libraries = ", ".join(f"{name} {version}" for name, version in sorted(packages.items()))
        rows.append(f"| {label} | {own or ''} | {libraries} |")
    return rows


def _grouped(comparisons: list[Comparison], key: Callable) -> dict[tuple, list[Comparison]]:
    groups: dict[tuple, list[Comparison]] = {}
    for comparison in comparisons:
        groups.setdefault(key(comparison.reference), []).append(comparison)
    return groups


def _table(comparisons: list[Comparison], key: tuple[str, ...], *, with_tasks: bool = False) -> list[str]:
    """Return a table with a row for each combination of the fields in `key`."""
    groups = _grouped(comparisons, lambda reference: tuple(reference[name] for name in key))
    columns = [*key, *(["tasks"] if with_tasks else []), "numbers", "largest", "mean", "decisions and texts equal"]
    rows = [f"| {' | '.join(columns)} | known differences |", "|---" * (len(columns) + 1) + "|"]
    for group in sorted(groups, key=lambda group: (PROTOCOLS.index(group[0]), group[1:])):
        members = groups[group]
        numbers = [c for c in members if not c.is_decision and c.reference["value"] is not None]
        plain = [c.difference for c in numbers if c.equal or c.reason is None]
        decisions = [c for c in members if c.is_decision and c.reference["value"] is not None]
        cells = [f"`{group[0]}`", *group[1:]]
        if with_tasks:
            cells.append(", ".join(sorted({c.reference["task"] for c in members})))
        largest, mean = (f"{max(plain):.0e}", f"{fmean(plain):.0e}") if plain else ("", "")
        equal = f"{sum(c.equal for c in decisions)} of {len(decisions)}" if decisions else ""
        known = sum(not c.equal and c.reason is not None for c in members)
        rows.append("| " + " | ".join([*cells, f"{len(numbers):,}", largest, mean, equal, str(known or "")]) + " |")
    return rows


def _reasons(comparisons: list[Comparison]) -> list[str]:
    rows = ["| reason | tool | numbers | largest | decisions and texts |", "|---|---|---|---|---|"]
    different = [c for c in comparisons if not c.equal and c.reason]
    for reason, text in REASONS.items():
        of_tool = _grouped([c for c in different if c.reason == reason], lambda reference: (reference["tool"],))
        for (tool,), members in sorted(of_tool.items()):
            numbers = [c.difference for c in members if c.difference is not None]
            largest = f"{max(numbers):.1e}" if numbers else ""
            rows.append(f"| {text} | {tool} | {len(numbers) or ''} | {largest} | {len(members) - len(numbers) or ''} |")
    return rows


def _differences(comparisons: list[Comparison]) -> list[str]:
    rows = ["| evaluation | item | model | tool | column | its value | ours | reason |", "|---" * 8 + "|"]
    fields = ("evaluation", "item", "model", "tool", "column")
    different = [c for c in comparisons if not c.equal]
    for c in sorted(different, key=lambda c: [str(c.reference[name]) for name in fields]):
        values = _cell(c.reference["value"]), _cell(c.ours), REASONS.get(c.reason, "unknown")
        rows.append("| " + " | ".join([*(str(c.reference[name]) for name in fields), *values]) + " |")
    return rows if different else ["All are equal."]


def _cell(value) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text[:60].replace("|", "\\|").replace("\n", " ⏎ ")


def _effects(effects: list[Effect]) -> list[str]:
    rows = ["| task | language | items | median | largest | metric | with BOS | without | changed decisions |"]
    rows.append("|---" * 9 + "|")
    for e in effects:
        cells = [e.task, e.language, str(e.n), f"{e.median:.1f}", f"{e.largest:.1f}", f"`{e.metric}`"]
        cells += [f"{e.value_with:.1f}", f"{e.value_without:.1f}", "" if e.changed is None else str(e.changed)]
        rows.append("| " + " | ".join(cells) + " |")
    return rows


def _published(rows: list[Replicated]) -> list[str]:
    table = ["| model | evaluation | metric | published | ± | ours | ± | explanation | source |", "|---" * 9 + "|"]
    for row in rows:
        of = row.published
        names = ", ".join(name.partition(":")[2] for name in of.evaluations)
        ours = ("", "") if row.value is None else (f"{row.value:.4f}", f"{row.stderr:.4f}")
        cells = (
            of.source,
            names,
            of.metric,
            f"{of.value:.4f}",
            f"{of.stderr:.4f}",
            *ours,
            row.explanation,
            of.citation,
        )
        table.append("| " + " | ".join(cells) + " |")
    return table
