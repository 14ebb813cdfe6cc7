"""Arbitrary files of external results: each line is matched or counted, or the file is rejected with an error."""

import json
import re

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support.external_results import NAME, QUESTIONS, SAMPLES, reference
from support.soak import examples
from vernacular.core import artifacts
from vernacular.core.errors import DataError
from vernacular.exchange.external_results import load_external_results
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
REQUIRED_FIELDS = {name: FIELDS.pop(name) for name in ("item_id", "correct")}
USER_LINES = st.fixed_dictionaries(REQUIRED_FIELDS, optional=FIELDS)
RESPONSES = (
    st.lists(st.tuples(st.sampled_from([-1.0, "-2.5", "nan", None]) | SCALAR, SCALAR).map(list), max_size=4) | VALUE
)
SAMPLE_LINES = st.builds(
    lambda sample, fields: sample | fields,
    st.sampled_from(SAMPLES),
    st.fixed_dictionaries(
        {}, optional={"filtered_resps": RESPONSES, "arguments": VALUE, "doc": VALUE, "acc": VALUE, "filter": VALUE}
    ),
)
NOTE_PATTERN = re.compile(r": (\d+) of (\d+) results match the 3 items of (\w+)(?: \(([^)]*)\))?")
SETTINGS = settings(
    deadline=None, max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def check_matched_or_rejected(path, lines=None):
    if lines is not None:
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    try:
        tables, notes = load_external_results(path, REFERENCES)
    except DataError as error:
        messages = str(error).splitlines()
        assert messages
        assert all(message.startswith(str(path)) for message in messages)
        return
    for name, table in tables.items():
        artifacts.write(path.with_suffix(".parquet"), TASK_RESULTS, table, {})
        used_notes = [note for note in notes if not note.endswith("not used.")]
        (counts,) = [match for match in map(NOTE_PATTERN.search, used_notes) if match and match[3] == name]
        n_matched, n_results = int(counts[1]), int(counts[2])
        n_unused = sum(int(count) for count in re.findall(r"\d+", counts[4] or ""))
        assert n_matched == table.num_rows
        assert n_matched + n_unused == n_results
        n_unreadable = sum(flag is not None for flag in table["flags"].to_pylist())
        (note,) = [note for note in used_notes if f" items of {name}" in note]
        assert (f"; {n_unreadable} unreadable" in note) == bool(n_unreadable)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


@SETTINGS
@given(st.lists(USER_LINES, min_size=1, max_size=5))
@example([{"item_id": "r1", "correct": 1, "evaluation": "options"}, {"item_id": "r1", "correct": 0}])
def test_arbitrary_user_lines(directory, lines):
    check_matched_or_rejected(directory / "m.jsonl", lines)


@SETTINGS
@given(st.lists(SAMPLE_LINES, min_size=1, max_size=4))
def test_arbitrary_samples(directory, lines):
    check_matched_or_rejected(directory / NAME, lines)


@SETTINGS
@given(
    st.binary(max_size=60)
    | st.text(alphabet='item_d,corect\n\r\t"r1;|\ufeff\0', max_size=60).map(lambda text: text.encode())
)
@example(b"item_id,correct\nr1,1\nr2,0\n")
def test_arbitrary_bytes(directory, content):
    for name in ("m.csv", "m.tsv", "m.jsonl"):
        (directory / name).write_bytes(content)
        check_matched_or_rejected(directory / name)
