"""Lines of a results file, and the notes that joining it produces."""

from vernacular.core.errors import DataError
from vernacular.exchange.external_results import load_external_results

from support.external_results import by_id, item, reference, write_jsonl

REFERENCES = {"e": reference(), "e2": reference(items=[item("q1", "Outra cousa?", ["si", "non"])])}


def join_results(path, references, text=None):
    """Return ({evaluation: {item: correct}}, notes) of a file, or ({}, error lines); file names without directory."""
    if isinstance(text, list):
        write_jsonl(path, text)
    elif text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8"))
    try:
        tables, notes = load_external_results(path, references)
    except DataError as error:
        return {}, [line.replace(f"{path.parent}/", "") for line in str(error).splitlines()]
    outcomes = {name: {i: row["correct"] for i, row in by_id(table).items()} for name, table in tables.items()}
    return outcomes, [note.replace(f"{path.parent}/", "") for note in notes]


def line(item_id, correct=1, **fields):
    return {"item_id": item_id, "correct": correct} | fields
