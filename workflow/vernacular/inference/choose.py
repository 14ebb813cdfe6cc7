"""The strategy to score with: the fastest that a model can do, by its own answers to some of what it is to be asked."""

from vernacular.core.errors import ModelError
from vernacular.inference.capability import MEND_NAN, NOTHING_BUT_NAN, check, incapable, with_numbers
from vernacular.inference.load import LoadedModel
from vernacular.inference.plan import STRATEGIES
from vernacular.inference.trie import Path, grow, size


def choose(loaded: LoadedModel, wanted: str, paths: dict[str, Path], tokens: int) -> tuple[str, dict]:
    """(the strategy to use, what the metadata says about the choice); `tokens`: those of the paths' trie."""
    if wanted not in ("auto", *STRATEGIES):
        raise ModelError(f'strategy is "{wanted}"; allowed: auto, {", ".join(STRATEGIES)}.')
    facts = {"strategy_asked": wanted, "fallback": [], "self_check": {}, "head": "rows"}
    if not paths:
        return "plain", {**facts, "strategy": "plain"}
    begin = 0 if wanted == "auto" else STRATEGIES.index(wanted)
    asked = list(paths.values())
    for strategy in STRATEGIES[begin:]:
        reason = incapable(loaded, strategy)
        if reason is None:
            result = check(loaded, strategy, asked, tokens)
            facts["self_check"][strategy] = result.facts()
            if result.agrees:
                return strategy, {**facts, "strategy": strategy}
            reason = result.reason
        facts["fallback"].append(f"{strategy}: {reason}")
    # even plain batches differ: perhaps the head cannot be fed by itself, so let the model do all in one
    result = check(loaded, "plain", asked, tokens, whole_head=True)
    facts["self_check"]["plain, whole head"] = result.facts()
    if not result.agrees and NOTHING_BUT_NAN in (result.reason or ""):
        healthy = with_numbers(loaded, paths)
        if 0 < len(healthy) < len(paths):  # a broken token or two, and not a broken model
            return choose(loaded, wanted, healthy, size(grow(list(healthy.values()))))
        raise ModelError(f"model {loaded.record['name']}: {result.reason}. {MEND_NAN}")
    if not result.agrees:
        raise ModelError(
            f"model {loaded.record['name']}: scores in a batch disagree with one text at a time ({result.reason}); "
            "its numbers would depend on the batch. Try dtype float32."
        )
    return "plain", {**facts, "strategy": "plain", "head": "whole"}


def joined(engines: list[dict]) -> dict:
    """What the metadata says of an evaluation: the slowest strategy, and the worst outcome of each check."""
    slowest = max(engines, key=lambda facts: STRATEGIES.index(facts["strategy"]))
    checks: dict[str, dict] = {}
    for name, found in (pair for facts in engines for pair in facts["self_check"].items()):
        checks[name] = max(checks.get(name, found), found, key=lambda f: (not f["agrees"], f["difference"] or 0.0))
    whole = {**slowest, "self_check": checks}
    whole["fallback"] = list(dict.fromkeys(reason for facts in engines for reason in facts["fallback"]))
    if "head" in slowest:
        whole["head"] = "whole" if any(facts["head"] == "whole" for facts in engines) else "rows"
    if "pll" in slowest:
        whole["pll"] = sorted({variant for facts in engines for variant in facts["pll"]})
    return whole
