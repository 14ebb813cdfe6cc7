"""Whatever a file of results holds, each of its lines is joined or counted, or the person is told in a sentence."""

import json
import re

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support.external_results import NAME, QUESTIONS, SAMPLES, reference
from support.soak import examples
from vernacular.comparison.external.join import join
from vernacular.core import artifacts
from vernacular.core.errors import DataError
from vernacular.metrics.schema import TASK_RESULTS

REFERENCES = {protocol: reference(protocol) for protocol in ("options", "letters", "generation", "cloze", "last_word")}
TEXT = st.text(max_size=4) | st.sampled_from(
    ["r1", "o Miño", "O MIÑO!", "🙂", "\ud83d", "=1+1", "e\u0301", "مرحبا", "-inf", "nan"]
)
SCALAR = st.none() | st.booleans() | st.integers(-2, 2) | st.just(10**400) | st.floats() | TEXT
VALUE = st.recursive(
    SCALAR, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3), max_leaves=6
)

FIELDS = {
    "item_id": st.sampled_from([*QUESTIONS, "zz", "", 7, None]) | VALUE,
    "question": st.sampled_from([question for question, _, _ in QUESTIONS.values()]) | VALUE,
    "choices": st.sampled_from([options for _, options, _ in QUESTIONS.values()]) | VALUE,
    "prediction": st.sampled_from(["o Miño", "B", "en León"]) | VALUE,
    "correct": st.sampled_from([0, 1, "true", "", None]) | VALUE,
    "evaluation": st.sampled_from([*REFERENCES, None, None]) | TEXT,
}
ALWAYS = {name: FIELDS.pop(name) for name in ("item_id", "correct")}
PERSONS = st.fixed_dictionaries(ALWAYS, optional=FIELDS)
SAID = st.lists(st.tuples(st.sampled_from([-1.0, "-2.5", "nan", None]) | SCALAR, SCALAR).map(list), max_size=4) | VALUE
SAMPLED = st.builds(
    lambda sample, more: sample | more,
    st.sampled_from(SAMPLES),
    st.fixed_dictionaries(
        {}, optional={"filtered_resps": SAID, "arguments": VALUE, "doc": VALUE, "acc": VALUE, "filter": VALUE}
    ),
)
COUNTED = re.compile(r": (\d+) of (\d+) results match the 3 items of (\w+)(?: \(([^)]*)\))?")
SETTINGS = settings(
    deadline=None, max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def joined_or_told(path, lines=None):
    if lines is not None:
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    try:
        tables, notes = join(path, REFERENCES)
    except DataError as error:
        told = str(error).splitlines()
        assert told
        assert all(each.startswith(str(path)) for each in told)
        return
    for name, table in tables.items():
        artifacts.write(path.with_suffix(".parquet"), TASK_RESULTS, table, {})
        joined = [note for note in notes if not note.endswith("not used.")]
        (found,) = [each for each in map(COUNTED.search, joined) if each and each[3] == name]
        matched, answers = int(found[1]), int(found[2])
        left = sum(int(count) for count in re.findall(r"\d+", found[4] or ""))
        assert matched == table.num_rows
        assert matched + left == answers
        unread = sum(flag is not None for flag in table["flags"].to_pylist())
        (note,) = [each for each in joined if f" items of {name}" in each]
        assert (f"; {unread} unreadable" in note) == bool(unread)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


@SETTINGS
@given(st.lists(PERSONS, min_size=1, max_size=5))
@example([{"item_id": "r1", "correct": 1, "evaluation": "options"}, {"item_id": "r1", "correct": 0}])
def test_a_persons_lines(folder, lines):
    joined_or_told(folder / "m.jsonl", lines)


@SETTINGS
@given(st.lists(SAMPLED, min_size=1, max_size=4))
def test_samples(folder, lines):
    joined_or_told(folder / NAME, lines)


@SETTINGS
@given(
    st.binary(max_size=60)
    | st.text(alphabet='item_d,corect\n\r\t"r1;|\ufeff\0', max_size=60).map(lambda text: text.encode())
)
@example(b"item_id,correct\nr1,1\nr2,0\n")
def test_tables_of_any_bytes(folder, content):
    for name in ("m.csv", "m.tsv", "m.jsonl"):
        (folder / name).write_bytes(content)
        joined_or_told(folder / name)
