"""All that is asked of several models' results at once: pairs, standings, across tasks.

Each evaluation is laid out once and all its pairs are compared on the same resamples. Evaluations are independent, so
several are worked on at a time.
"""

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa

from vernacular.comparison.align import align
from vernacular.comparison.overall import overall
from vernacular.comparison.pairwise import RESAMPLES, Pair, compare_sides
from vernacular.comparison.standings import standings
from vernacular.protocols.evaluate import PROTOCOLS
from vernacular.statistics.multiple import holm
from vernacular.statistics.paired import ALPHA


@dataclass(frozen=True)
class Found:
    comparisons: list[dict]  # rows per COMPARISONS
    standings: list[dict]  # rows per STANDINGS
    overall: list[dict]  # rows per OVERALL


def compare_all(
    pairs: list[Pair],
    results: Mapping[str, Mapping[str, pa.Table]],
    evaluations: Mapping[str, dict],
    *,
    signatures: Mapping[str, Mapping[tuple[str, str], str]] | None = None,
    outsiders: Iterable[str] = (),
    seed: int = 0,
    resamples: int = RESAMPLES,
    threads: int = 1,
) -> Found:
    """Compare pairs of models on every evaluation that both have.

    results      model -> evaluation -> TASK_RESULTS; a table without rows is an evaluation that was not possible
    evaluations  evaluation -> task, language, protocol, shots, seed, style
    signatures   model -> (evaluation, metric) -> signature, as in the model's METRICS; unequal ones are noted
    outsiders    names among `results` that were joined in: sides of pairs, but no models to be ranked
    """
    outsiders = set(outsiders)

    def work(evaluation: str):
        what = evaluations[evaluation]
        metrics = PROTOCOLS[what["protocol"]].METRICS
        facts = {"evaluation": evaluation} | {name: what[name] for name in _FACTS}
        items, sides = align({model: tables[evaluation] for model, tables in results.items() if evaluation in tables})
        there = [pair for pair in pairs if pair[0] in sides and pair[1] in sides]
        compared = compare_sides(items, sides, there, metrics, facts, seed=seed, resamples=resamples)
        ranked = {model: side for model, side in sides.items() if model not in outsiders}
        placed = standings(items, ranked, metrics, facts, compared=compared, seed=seed, resamples=resamples)
        return compared, placed, (facts, metrics, items, ranked)

    with ThreadPoolExecutor(max_workers=threads) as pool:
        found = list(pool.map(work, evaluations))
    rows = with_families([row for compared, _, _ in found for row in compared])
    for row in rows:
        _sign(row, signatures or {})
    return Found(
        rows, [row for _, placed, _ in found for row in placed], overall([each for *_, each in found], seed=seed)
    )


_FACTS = ("task", "language", "protocol", "shots", "seed", "style")


def _sign(row: dict, signatures: Mapping) -> None:
    """The signature that the sides have, or the one that has any (joined results have none); a note if they differ."""
    at = (row["evaluation"], row["metric"])
    one, other = (signatures.get(row[side], {}).get(at) for side in ("baseline", "candidate"))
    row["signature"] = one or other
    if one and other and one != other:
        row["signature"] = None
        note = f"measured differently: {one} and {other}"
        row["note"] = "; ".join(part for part in (row["note"], note) if part)


def with_families(rows: list[dict]) -> list[dict]:
    """The rows with `family`, `p_holm`, `significant` and `better`; without a p-value nothing is significant."""
    families: dict[tuple, list[dict]] = {}
    for row in rows:
        row |= {"p_holm": None, "family": None}
        if row["headline"] and not row["category"] and row["p_value"] is not None:
            families.setdefault((row["baseline"], row["candidate"]), []).append(row)
    for family in families.values():
        for row, adjusted in zip(family, holm([row["p_value"] for row in family]), strict=True):
            row |= {"p_holm": float(adjusted), "family": len(family)}
    for row in rows:
        p = row["p_value"] if row["family"] is None else row["p_holm"]
        row["significant"] = p is not None and p < ALPHA
        row["better"] = _better(row)
    return rows


def _better(row: dict) -> str | None:
    if not row["significant"] or row["higher_is_better"] is None or not row["difference"]:
        return None
    return "candidate" if (row["difference"] > 0) == row["higher_is_better"] else "baseline"
