"""Matches of a GREW request, where grewpy and its backend (OCaml) are installed; nothing else here needs them."""

from vernacular.core.errors import DataError
from vernacular.data.treebank.match import Match
from vernacular.data.treebank.sentences import Sentence

_OURS = (
    "Patterns of ours need neither: constraints on upos, xpos, lemma, form, deprel and feats of a target, on its head, "
    "child, sibling or any word, their order, distance and agreement, and on words that must not be there."
)


def search(paths: list, sentences: list[Sentence], pattern: dict) -> list[tuple[Sentence, Match]]:
    """Every match of the pattern's request in the files at `paths`, whose sentences in order are `sentences`.

    A word that several matches have as their target comes once. Raises DataError where GREW is not installed or
    refuses the request.
    """
    grewpy = _grewpy(pattern)
    try:
        grewpy.set_config("ud")
        corpus = grewpy.Corpus([str(path) for path in paths])
        ids = corpus.get_sent_ids()
        answers = corpus.search(grewpy.Request(pattern["grew"]))
    except grewpy.grew.GrewError as error:
        raise DataError(f"Pattern {pattern['pattern']}: GREW refuses the request: {_said(error)}") from None
    if len(ids) != len(sentences) or len(set(ids)) != len(ids):
        raise DataError(f"Pattern {pattern['pattern']}: GREW needs a sent_id of its own for every sentence.")
    places = {name: number for number, name in enumerate(ids)}
    found: dict[tuple[int, int], Match] = {}
    for answer in answers:
        place, nodes = places[answer["sent_id"]], answer["matching"]["nodes"]
        if pattern["target"] not in nodes:
            raise DataError(f'Pattern {pattern["pattern"]}: its request has no node "{pattern["target"]}".')
        known = sentences[place].words
        words = {name: known[int(node)] for name, node in nodes.items() if node.isdecimal() and int(node) in known}
        target = words.pop(pattern["target"], None)
        if target is not None:  # an empty node is no word of the text
            found.setdefault((place, target.id), Match(target, {"target": target, **words}))
    return [(sentences[place], match) for (place, _), match in sorted(found.items(), key=lambda entry: entry[0])]


def _grewpy(pattern: dict):
    try:
        import grewpy  # starts its backend, and fails where there is none
        import grewpy.grew
    except (ImportError, OSError, SystemExit, ValueError) as error:
        missing = "grewpy" if isinstance(error, ImportError) else "its backend, grewpy_backend,"
        raise DataError(
            f"Pattern {pattern['pattern']} is a GREW request, and {missing} is not installed (see grew.fr).\n{_OURS}"
        ) from None
    return grewpy


def _said(error) -> str:
    value = error.value
    return str(value.get("message", value) if isinstance(value, dict) else value).strip()
