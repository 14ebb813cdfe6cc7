"""Reading lists: the items of an evaluation that a speaker should read first, by what all models make of their options.

Evaluations that differ in shots, seed or prompt only are one list; scores of the style `options-only` do not order its
items. A list is refused, with the reason, if too few models or items could order it; what a list cannot show is stated
beside it (`sentences`).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from vernacular.comparison.schema import VERDICT_COLUMNS
from vernacular.core.errors import format_count
from vernacular.core.fingerprint import fingerprint
from vernacular.core.tables import decimals, percent, values_of
from vernacular.data.audit import REFERENCE
from vernacular.metrics.schema import value_arrays
from vernacular.metrics.spans import correct_options
from vernacular.statistics.audit import MIN_ITEMS, Audit, Drops, Responses, audit, complete, unsuitable
from vernacular.statistics.intervals import cluster_bootstrap
from vernacular.types import OPTIONS_ONLY, Item

# what a speaker can decide; all but the first are faults
DECISIONS = (OK, *FAULTS) = ("ok", "wrong gold", "several correct", "none correct", "unclear question",
                             "unclear options", "translation")  # fmt: skip

_HARD_OR_FAULTY = (
    "Items on this list are hard or faulty. Removing them raises every score (the first 40 of 300 faultless items: by "
    "7 points for every model); values before and after a correction are both shown."
)
_CULTURE = "Where the models follow another culture or norm, they agree and are wrong. A speaker decides."
READ_RANDOM_ITEMS = "Read as many random items, without the models' answers, to compare."
_CHOSEN = f"Verdicts are on items chosen by the models' answers. {READ_RANDOM_ITEMS}"
_WEAK_REACH = 0.25  # from which a list that shows no fault says more
_FALSE_RATE = 0.1  # of the sentence on drops
_AGREE = 0.5
_SHARED_IDS = 0.5  # of the items of the largest language, from which a language is compared
_FAR = 0.15  # accuracy of a language beyond those of all others
_DROP_COLUMNS = ("drop", "q", "accuracy_here", "accuracy_elsewhere")


@dataclass(frozen=True)
class Listing:
    """One list, or why there is none."""

    evaluation: str
    task: str
    language: str
    evaluations: list[str]  # whose scores are averaged
    reason: str | None = None  # why there is no list
    items: int = 0  # from which it is chosen
    listed: int = 0
    models: int = 0
    families: int = 0
    lowest_accuracy: float | None = None  # of a model
    highest_accuracy: float | None = None
    reliability: float | None = None  # h, of the slopes
    reach_favorite: float | None = None  # share of incorrect golds that are listed, if they are on the favorite option
    reach_any: float | None = None  # the same, on any option: an upper bound
    sentences: list[str] = field(default_factory=list)  # what it shows, and what it does not


@dataclass(frozen=True)
class Answered:
    """The items of one list, and what all models answered to them."""

    ids: list[str]
    choices: list[list[str]]
    gold: list[list[int]]
    responses: Responses
    models: list[str]
    differing: int  # rows of a model with other options or another gold than the first model's


def groups(evaluations: Mapping[str, Mapping]) -> dict[str, list[str]]:
    """Return the evaluations of each list, by the first of them: the same items and protocol, options alone last."""
    found: dict[tuple, list[str]] = {}
    for name, spec in sorted(evaluations.items(), key=lambda entry: entry[1]["style"].endswith(OPTIONS_ONLY)):
        style = spec["style"].removesuffix(OPTIONS_ONLY).removesuffix("-") or "default"
        found.setdefault((spec["dataset"], spec["protocol"], style), []).append(name)
    return {names[0]: names for names in found.values()}


def answered(tables: Mapping[str, Sequence[pa.Table]], families: Mapping[str, str]) -> Answered:
    """Return the scores of the options of all items, from TASK_RESULTS by model, a table per evaluation.

    Where a protocol stores no score of options, the chosen one has the score 1, and the others 0.
    """
    position: dict[str, int] = {}
    choices, gold, clusters = [], [], []
    runs: dict[str, list[list[tuple[int, list]]]] = {}
    differing = 0
    for model, own in tables.items():
        for table in own:
            run = []
            names = ("item_id", "cluster_id", "choices", "gold", "option_scores", "predicted_indices")
            columns = [values_of(table[name]) for name in names]
            for item_id, cluster, options, correct, scores, predicted in zip(*columns, strict=True):
                index = position.setdefault(item_id, len(choices))
                if index == len(choices):
                    choices.append(options)
                    gold.append(correct)
                    clusters.append(cluster)
                if scores is None and predicted:
                    scores = [float(i in predicted) for i in range(len(options))]
                if options != choices[index] or correct != gold[index]:
                    order = _order(options, correct, choices[index], gold[index])
                    if order is None:
                        differing += 1
                        continue
                    scores = scores and len(scores) == len(order) and [scores[i] for i in order]
                if scores and len(scores) == len(options):
                    run.append((index, scores))
            runs.setdefault(model, []).append(run)
    shape = len(choices), max(map(len, choices), default=0)
    correct, offered = np.zeros(shape, dtype=bool), np.zeros(shape, dtype=bool)
    for index, options in enumerate(choices):
        offered[index, : len(options)] = True
        correct[index, correct_options(options, gold[index])] = True
    models = [model for model, own in runs.items() if any(own)]
    scores = [[_matrix(run, shape) for run in runs[model] if run] for model in models]
    responses = Responses(scores, correct, offered, [families[model] for model in models], clusters)
    return Answered(list(position), choices, gold, responses, models, differing)


def _order(options: list[str], correct: list[int], expected: list[str], gold: list[int]) -> list[int] | None:
    """Return the positions of the same options in another order, as another seed shows them; None: they differ."""
    if sorted(options) != sorted(expected) or len(set(options)) < len(options):
        return None
    if {options[i] for i in correct} != {expected[i] for i in gold}:
        return None
    return [options.index(text) for text in expected]


def _matrix(run: list[tuple[int, list]], shape: tuple[int, int]) -> np.ndarray:
    matrix = np.full(shape, np.nan)
    for index, scores in run:
        matrix[index, : len(scores)] = np.array(scores, dtype=float)
    return matrix


@dataclass(frozen=True)
class Audited:
    """The scores of the items of one list."""

    listing: Listing  # what is known of the list
    given: Answered
    models: list[str]  # that take part
    indices: np.ndarray  # of the items that take part, in `given`
    ids: list[str]  # of these
    responses: Responses  # of these models to these items
    found: Audit | None  # None: the list is refused


@dataclass(frozen=True)
class Translated:
    """How much harder items are in one language than in the others."""

    items: dict[str, dict[str, float]]  # by ID: drop, q, accuracy_here and accuracy_elsewhere
    sentences: list[str]
    reference: str  # the list of the language whose texts are shown beside


def audited(listing: Listing, given: Answered, k: int) -> Audited:
    """Return the scores of all items of a list, of which k are listed."""
    if listing.reason:
        return Audited(listing, given, [], np.array([], dtype=int), [], given.responses, None)
    models, indices = complete(given.responses)
    responses = given.responses.part(models, indices)
    names, ids = [given.models[m] for m in models], [given.ids[index] for index in indices]
    listing = replace(listing, items=len(indices), models=len(models), families=len(set(responses.families)))
    if reason := unsuitable(responses):
        listing = replace(listing, reason=f"no audit list: {reason}.")
        return Audited(listing, given, names, indices, ids, responses, None)
    found = audit(responses)
    n_listed, accuracy = min(k, len(ids)), found.margins.accuracy
    numbers = {"lowest_accuracy": float(accuracy.min()), "highest_accuracy": float(accuracy.max())}
    numbers |= dict(zip(("reach_favorite", "reach_any"), found.reach(n_listed), strict=True))
    listing = replace(listing, listed=n_listed, reliability=found.reliability, **numbers)
    notes = [f"{format_count(given.differing, 'row')} with other options or gold not used."] if given.differing else []
    return Audited(replace(listing, sentences=sentences(listing) + notes), given, names, indices, ids, responses, found)


def translated(languages: Sequence[Audited]) -> tuple[dict[str, Translated], list[str]]:
    """Return the drops of a parallel task by language, and notes on what is not compared."""
    languages = [each for each in languages if each.found]
    notes, largest = [], max((each.ids for each in languages), key=len, default=[])
    compared = []
    for each in languages:
        shared = len(set(each.ids) & set(largest))
        if shared < _SHARED_IDS * len(largest):
            notes.append(f"{each.listing.evaluation}: not compared with other languages: "
                         f"{shared} of {format_count(len(largest), 'item')} have the same ID.")  # fmt: skip
        else:
            compared.append(each)
    common = set.intersection(*(set(each.ids) for each in compared)) if compared else set()
    models = [name for name in compared[0].models if all(name in each.models for each in compared)] if compared else []
    if len(compared) < 2 or not common or not models:
        return {}, notes
    ids = [item_id for item_id in compared[0].ids if item_id in common]
    parts = []
    for each in compared:
        position = {item_id: number for number, item_id in enumerate(each.ids)}
        items = np.array([position[item_id] for item_id in ids])
        parts.append(each.responses.part([each.models.index(name) for name in models], items))
    drops = Drops(parts)
    n_known = (~np.isnan(drops.right)).sum(1)
    right = np.nansum(drops.right, axis=1) / np.maximum(n_known, 1)  # (L, n)
    means = right.mean(1)
    found = {}
    for number, each in enumerate(compared):
        q, elsewhere = drops.rates(number), np.delete(right, number, axis=0).mean(0)
        columns = np.stack([drops.drop(number), q, right[number], elsewhere], axis=1).tolist()
        items = {item: dict(zip(_DROP_COLUMNS, own, strict=True)) for item, own in zip(ids, columns, strict=True)}
        others = np.delete(means, number)
        lines = _about_drops(each.listing.language, len(compared), int((q <= _FALSE_RATE).sum()))
        if means[number] < others.min() - _FAR or means[number] > others.max() + _FAR:
            lines.append(f"Accuracy in {each.listing.language} is more than 15 points from that of all other "
                         "languages, so that their drops are no measure of chance.")  # fmt: skip
        listings = [other.listing for other in compared if other is not each]
        reference = next((other for other in listings if other.language == REFERENCE), listings[0]).evaluation
        found[each.listing.language] = Translated(items, lines, reference)
    return found, notes


def _about_drops(language: str, n_languages: int, n_flagged: int) -> list[str]:
    lines = [
        f"drop: harder in {language} than elsewhere: a fault of the translation, or of the models' knowledge of it."
    ]
    if n_languages == 2:
        return [*lines, "With two languages, drops are a list to read; q, from rises of the same items, finds few."]
    flagged = f"{format_count(n_flagged, 'item')} with q up to {_FALSE_RATE}."
    if not n_flagged:
        return [*lines, flagged]
    return [*lines, f"{flagged} About one in ten of these items is expected to be no exception among languages (6 to "
                    "15 % in simulations)."]  # fmt: skip


def rows_of(
    each: Audited, items: Mapping[str, Item], drops: Translated | None, reference: Mapping[str, Item]
) -> list[dict]:
    """Return the listed items as rows of AUDIT_LIST: the first by score, then the first by drop.

    `items` and `reference`: by ID, of this language and of the one whose texts are shown beside.
    """
    found, k = each.found, each.listing.listed
    if found is None:
        return []
    ranks = {int(i): rank for rank, i in enumerate(found.order(each.ids)[:k], 1)}
    drop_ranks: dict[int, int] = {}
    if drops:
        size = {i: drops.items[item]["drop"] for i, item in enumerate(each.ids) if item in drops.items}
        dropped = sorted((i for i in size if size[i] > 0), key=lambda i: (-size[i], each.ids[i]))
        drop_ranks = {i: rank for rank, i in enumerate(dropped[:k], 1)}
    slopes = (found.slope - found.slope.mean()) / (found.slope.std() or 1)
    rows = []
    for i in dict.fromkeys([*ranks, *drop_ranks]):
        index, witnesses, item_id = each.indices[i], _Witnesses(found, each.responses, i), each.ids[i]
        item, options = items[item_id], each.given.choices[index]
        reason = witnesses.reason(options[found.favorite[i]], slopes[i], found.reliability)
        compared = drops.items.get(item_id, {}) if drops else {}
        if i in drop_ranks:
            here, elsewhere = compared["accuracy_here"], compared["accuracy_elsewhere"]
            shares = f"{percent(here, 0)} of the models, {percent(elsewhere, 0)} in other languages"
            reason += f"; harder here: {shares} choose the gold"
        rows.append(
            {
                **{name: getattr(each.listing, name) for name in ("evaluation", "task", "language")},
                "rank": ranks.get(i),
                "drop_rank": drop_ranks.get(i),
                "item_id": item_id,
                "content": content_of(item),
                "cluster_id": each.given.responses.clusters[index],
                "category": item["category"],
                **{name: float(getattr(found, name)[i]) for name in ("score", "level", "slope")},
                **{name: getattr(witnesses, name) for name in ("families", "families_wrong", "favorite_share")},
                "favorite": options[found.favorite[i]],
                "reason": reason,
                **compared,
                "prompt": _text(item),
                "reference": _text(reference[item_id], options=True) if item_id in reference else None,
                "choices": options,
                "gold": each.given.gold[index],
                **dict.fromkeys(VERDICT_COLUMNS, ""),
            }
        )
    return rows


class _Witnesses:
    """What the models make of one item, counted by family."""

    def __init__(self, found: Audit, responses: Responses, i: int):
        z, x = found.margins.z[:, i], found.margins.x[:, i]
        weights = np.where(np.isnan(z), 0.0, found.margins.by_ability)
        favorite = found.favorite[i]
        chooses = np.array([lead < 0 and np.nanargmin(row) == favorite for lead, row in zip(z, x, strict=True)])
        self.favorite_share = float((weights * chooses).sum() / weights.sum())
        known, wrong = Counter(), Counter()
        for family, lead in zip(responses.families, z, strict=True):
            if not np.isnan(lead):
                known[family] += 1
                wrong[family] += lead <= 0
        self.families = len(known)
        self.families_wrong = sum(wrong[family] > count / 2 for family, count in known.items())

    def reason(self, favorite: str, slope: float, reliability: float) -> str:
        """Return why the item is listed, for its reader."""
        text = f"{self.families_wrong} of {format_count(self.families, 'family', 'families')} do not choose the gold"
        if self.favorite_share >= _AGREE:
            text += f"; {percent(self.favorite_share, 0)} of the models, by ability, choose “{favorite}”"
        if reliability > 0 and slope < -1:
            text += "; abler models do worse on it"
        return text


def _text(item: Item, *, options: bool = False) -> str:
    marked = [f"{'✓' if i in item['gold'] else '·'} {text}" for i, text in enumerate(item["choices"])]
    return "\n".join(filter(None, (item["context"], item["question"], *(marked if options else []))))


def options_alone(tables: Sequence[pa.Table], given: Answered) -> str | None:
    """Return what options give away without their question, in a sentence; None if no model scored enough of them so.

    The accuracy after the cue alone, or by letters without the question, as a mean over models, is compared with the
    best rule that needs no model: chance, the most common position of the gold, or the longest option.
    """
    position = {item_id: number for number, item_id in enumerate(given.ids)}
    sums, counts = np.zeros(len(given.ids)), np.zeros(len(given.ids))
    for table in tables:
        values = value_arrays(table).get("accuracy_uncond")
        if values is not None:
            # an item may be an example of the other evaluations, and no item of them
            rows = np.array([position.get(item_id, -1) for item_id in table["item_id"].to_pylist()], dtype=int)
            known = ~np.isnan(values) & (rows >= 0)
            np.add.at(sums, rows[known], values[known])
            np.add.at(counts, rows[known], 1)
    items = np.flatnonzero(counts)
    if len(items) < MIN_ITEMS:
        return None
    accuracy, n = sums[items] / counts[items], len(items)
    gold = [given.gold[i] for i in items]
    lengths = [list(map(len, given.choices[i])) for i in items]
    common, _ = Counter(own[0] for own in gold).most_common(1)[0]
    longest = [
        sum(own[i] == max(own) for i in right) / own.count(max(own)) for own, right in zip(lengths, gold, strict=True)
    ]
    rules = {
        "chance": np.array([len(right) / len(own) for own, right in zip(lengths, gold, strict=True)]),
        f"always option {common + 1}": np.array([float(common in right) for right in gold]),
        "the longest option": np.array(longest),
    }
    rule, best = max(rules.items(), key=lambda entry: entry[1].mean())
    clusters = None if given.responses.clusters is None else [given.responses.clusters[i] for i in items]
    low, high = cluster_bootstrap(None, [accuracy - best], clusters, resamples=2_000, seed=0)
    found = f"{percent(accuracy.mean(), 0)} without the question, {percent(best.mean(), 0)} by {rule}"
    warning = "Options give answers away" if low > 0 else "Options alone"
    gain, *bounds = (decimals(100 * x, signed=True).replace("-", "−") for x in ((accuracy - best).mean(), low, high))
    return f"{warning}: {found} (difference {gain} points, {' to '.join(bounds)}; {format_count(n, 'item')})."


def content_of(item: Item) -> str:
    """Return the hash of an item's texts and gold: a verdict on one version says nothing about another.

    It starts with a letter: a spreadsheet would take digits, or 1e5, for a number.
    """
    texts = [item["context"], item["question"], item["choices"], item["gold"], item["target"]]
    return f"v{fingerprint(texts)[:15]}"


def sentences(listing: Listing) -> list[str]:
    """Return what a list shows, and what it does not, to be printed beside it."""
    reaches = listing.reach_favorite, listing.reach_any
    counts = f"{format_count(listing.families, 'family', 'families')}, {format_count(listing.models, 'model')}"
    range_of_faults = _range(*(reach * listing.items / 50 for reach in reaches))
    range_of_reach = f"{_range(*(100 * reach for reach in reaches))} %"
    lines = [
        f"{counts} with accuracies of {_range(100 * listing.lowest_accuracy, 100 * listing.highest_accuracy)} %; "
        f"{format_count(listing.items, 'item')}, of which {listing.listed} are listed.",
        _HARD_OR_FAULTY,
        f"If one gold in fifty is wrong, at most {range_of_faults} of these {listing.listed} items have one; the list "
        f"reaches at most {range_of_reach} of all wrong golds.",
    ]
    if reaches[1] < _WEAK_REACH:
        lines.append(
            f"These models would find at most {percent(reaches[1], 0)} of wrong golds: no finding says little."
        )
    if not listing.reliability:
        lines.append("The models' accuracies do not order the items: the list is by their common preference alone.")
    return [*lines, _CULTURE, _CHOSEN]


def _range(low: float, high: float) -> str:
    return " to ".join(dict.fromkeys((decimals(low, 0), decimals(high, 0))))
