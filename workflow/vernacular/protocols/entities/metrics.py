"""entities: F1 of the named entities of all sentences, from counts per sentence.

An entity is correct if type and text are those of an entity of the sentence; of several equal ones, each counts. The
counts of correct, listed and gold entities are values of an item (`entity_f1#0` …), so that bootstrap, categories and
paired differences compute the score of the drawn sentences from their sums.

The answer is the first JSON object of the output, also in a code fence; text around it is not read. Its values are
lists of texts, or one text; null and empty texts are no entities. Keys are compared without case. Entities under a key
that was not asked for are incorrect, and those of a repeated key are all read. Texts are compared in NFC, with spaces
collapsed, without invisible marks, and with case. Any other output, such as one that was cut, is unparsable: it lists
no entity, with a flag.

Not included is the score of EuroEval, in which each word of a listed entity marks all tokens that contain it ("Ana"
marks "banana").
"""

import json
import unicodedata
from collections import Counter
from collections.abc import Iterable

import numpy as np

from vernacular.core.languages import INVISIBLE_MARKS
from vernacular.metrics.bits import ratio
from vernacular.metrics.metric import Metric, count_names
from vernacular.metrics.similarity.outputs import ParsedOutput
from vernacular.metrics.spans import result_row
from vernacular.types import Item, Request, Result

TYPES = {"PER": "persons", "ORG": "organizations", "LOC": "places", "DATE": "dates", "MISC": "other names"}
_F1 = "entity_f1"
_UNPARSABLE, _UNKNOWN_KEY = "unparsable", "unknown key"


def f1(correct: np.ndarray, listed: np.ndarray, gold: np.ndarray) -> np.ndarray:
    """Compute the F1 score of counts per item, (…, n) to (…); NaN if no entity is listed or gold.

    >>> float(f1(np.array([1.0, 0]), np.array([2.0, 0]), np.array([2.0, 0])))
    0.5
    """
    return ratio(2 * correct, listed + gold)


METRICS = [
    Metric(_F1, "share", True, "similarity", headline=True, corpus=f1, needs=count_names(_F1, 3),
           about="2 · correct / (listed + gold) entities of all sentences, by type and text"),
    Metric("precision", "share", True, "similarity", corpus=ratio, needs=count_names(_F1, 3)[:2],
           about="correct entities, of those listed"),
    Metric("recall", "share", True, "similarity", corpus=ratio, needs=count_names(_F1, 3)[::2],
           about="correct entities, of those in the sentences"),
    *(Metric(f"{_F1}_{name}", "share", True, "similarity", corpus=f1,
             needs=count_names(f"{_F1}_{name}", 3), about=f"F1 of {noun}") for name, noun in TYPES.items()),
    Metric(_UNPARSABLE, "share", False, "similarity", proportion=True,
           about="outputs that are no JSON object with lists of texts, which therefore list no entity"),
]  # fmt: skip


def result_of(item: Item, request: Request, output: ParsedOutput) -> Result:
    """Return the row of an item."""
    keys = json.loads(request["extras"][0].partition(":")[2])
    gold, values, flags = json.loads(item["target"]), {}, [output.flag]
    if output.text is not None:
        listed = listed_entities(output.text, keys)
        expected = Counter((name, comparable(text)) for name, texts in gold.items() for text in texts)
        values = counts(listed or Counter(), expected, keys) | {_UNPARSABLE: float(listed is None)}
        flags += [_UNPARSABLE] if listed is None else []
        flags += [_UNKNOWN_KEY] if listed and any(name is None for name, _ in listed) else []
    answer = json.dumps({keys[name]: texts for name, texts in gold.items()}, ensure_ascii=False)
    shown = item | {"choices": [answer], "gold": [0]}  # beside the output in the report
    return result_row(shown, flags, request["text"], values | output.values, prediction=output.text)


def counts(listed: Counter, gold: Counter, types: Iterable[str]) -> dict[str, float]:
    """Return the counts of an item by name, of all entities and of each type, and its own F1 if that is defined.

    >>> gold = Counter({("LOC", "Beograd"): 1, ("LOC", "Priština"): 1})
    >>> values = counts(Counter({("LOC", "Beograd"): 1, ("LOC", "Brisel"): 1}), gold, ["LOC"])
    >>> values["entity_f1#0"], values["entity_f1#1"], values["entity_f1#2"], values["entity_f1"]
    (1.0, 2.0, 2.0, 0.5)
    """
    values = {}
    for metric, name in [(_F1, None), *((f"{_F1}_{name}", name) for name in types if name in TYPES)]:
        own = [entities if name is None else _of_type(entities, name) for entities in (listed, gold)]
        numbers = ((own[0] & own[1]).total(), own[0].total(), own[1].total())
        values |= zip(count_names(metric, 3), map(float, numbers), strict=True)
    correct, n_listed, n_gold = (values[name] for name in count_names(_F1, 3))
    return values | ({_F1: 2 * correct / (n_listed + n_gold)} if n_listed + n_gold else {})


def _of_type(entities: Counter, name: str) -> Counter:
    return Counter({entity: count for entity, count in entities.items() if entity[0] == name})


def listed_entities(output: str, keys: dict[str, str]) -> Counter[tuple[str | None, str]] | None:
    """Return how often an output lists each (type, text); type None: a key not in `keys`. None if it is unparsable.

    >>> keys = {"PER": "persona", "LOC": "lloc"}
    >>> dict(listed_entities('```json\\n{"Persona": ["Ana  Pi"], "lloc": []}\\n``` Fi.', keys))
    {('PER', 'Ana Pi'): 1}
    >>> listed_entities('{"persona": [["Ana"]]}', keys), listed_entities('{"persona": ["An', keys)
    (None, None)
    """
    try:
        # pairs, because a repeated key would replace the entities of the first
        answer, _ = json.JSONDecoder(object_pairs_hook=_Pairs).raw_decode(output, output.index("{"))
    except (ValueError, RecursionError):
        return None
    type_by_key = {comparable(key).casefold(): name for name, key in keys.items()}
    entities = Counter()
    for key, texts in answer:
        texts = [texts] if isinstance(texts, str) else [] if texts is None else texts
        if isinstance(texts, _Pairs) or not (isinstance(texts, list) and all(isinstance(text, str) for text in texts)):
            return None
        name = type_by_key.get(comparable(key).casefold())
        entities.update((name, text) for text in map(comparable, texts) if text)
    return entities


class _Pairs(list):
    """The keys and values of a JSON object."""


def comparable(text: str) -> str:
    """Return a text in NFC, with spaces collapsed and without invisible marks, such as those of direction."""
    return " ".join(unicodedata.normalize("NFC", INVISIBLE_MARKS.sub("", text)).split())
