"""Fuzz tests of the data loaders: rows become items or are counted by reason, or the file raises a short DataError."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.malformed import damaged_bytes
from support.soak import examples
from vernacular.core.errors import DataError
from vernacular.data.columns import check_columns, replace_surrogates
from vernacular.data.load import make_items
from vernacular.data.readers import read_rows
from vernacular.data.treebank.pairs import Inflections
from vernacular.data.treebank.sentences import read_sentences

COLUMNS = {
    "question": {"id": "id|", "question": "q|a", "choices": "c|b", "gold": "g|", "gold_format": "letter"},
    "multi_answer": {"question": "q|a", "correct_answers": "r|c", "incorrect_answers": "w|d", "separator": ";"},
    "cloze": {"context": "q|a", "choices": "c|b", "gold": "g|", "gold_format": "text"},
    "sentence": {"context": "q|a", "label": "l|b"},
    "pair": {"good": "q|a", "bad": "b*"},
}
SEEDS = {
    "a.csv": b"q,b,c,g\n?,x,\"['a', 'b']\",A\n",
    "a.tsv": b'q\tb\n?\tx\n"a""b"\ty\n',
    "a.json": b'{"data": [{"q": "a __ b", "c": ["x", "y"], "g": "x", "l": 1}]}',
    "a.jsonl": b'{"q": "?", "c": {"text": ["a", "b"], "label": ["A", "B"]}, "g": ["A"], "r": "a;b", "w": "c"}\n',
    "a.parquet": b"PAR1",
    "a.conllu": b"# sent_id = 1\n1-2\tOs\n1\tO\to\tDET\t_\tG=M\t2\tdet\t_\tSpaceAfter=No\n\n",
    "a.unimorph": b"cantar\tcantan\tV;IND;PRS;3;PL\n",
}


def load(path: Path) -> None:
    if path.suffix == ".conllu":
        for sentence in read_sentences(path):
            assert all(
                sentence.text[word.start : word.end] == word.form
                for word in sentence.words.values()
                if word.start is not None
            )
        return
    if path.suffix == ".unimorph":
        Inflections(path)
        return
    rows = read_rows(path)
    for item_type, columns in COLUMNS.items():
        try:
            check_columns(rows, columns, "a")
        except DataError:
            continue
        items, counts = make_items(rows, item_type, columns)
        assert counts["read"] == len(rows) == counts["kept"] + sum(counts["dropped"].values())
        assert counts["first_dropped"].keys() == counts["dropped"].keys()
        assert len({item["item_id"] for item in items}) == len(items) == counts["kept"]
        for item in items:
            assert all(0 <= index < len(item["choices"]) for index in item["gold"])
            str(item).encode("utf-8")


@pytest.mark.parametrize("name", SEEDS)
@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_arbitrary_bytes_are_loaded_or_raise_data_error(tmp_path, name, data):
    path = tmp_path / name
    path.write_bytes(data.draw(damaged_bytes(SEEDS[name])))
    message = None
    try:
        load(path)
    except DataError as error:
        message = str(error)
    assert message is None or (message.startswith(str(path)) and len(message.splitlines()) <= 2)


IDS = st.sampled_from(["", "x", "x~2", "x~2~", "x~3", "y"])


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(IDS, st.sampled_from("ab")), max_size=7))
def test_item_ids_are_unique_for_arbitrary_row_ids(rows):
    rows = [{"id": name, "q": text, "l": 1} for name, text in rows]
    items, counts = make_items(rows, "sentence", {"id": "id", "context": "q", "label": "l"})
    assert len({item["item_id"] for item in items}) == len(rows)
    assert counts["duplicates"] == len(rows) - len({(row["id"], row["q"]) for row in rows})


@settings(max_examples=examples(60), deadline=None)
@given(st.text(st.characters(), max_size=20))
def test_only_lone_surrogates_are_replaced(text):
    result = replace_surrogates(text)
    result.encode("utf-8")
    if all(not "\ud800" <= character <= "\udfff" for character in text):
        assert result == text
    assert replace_surrogates(result) == result
