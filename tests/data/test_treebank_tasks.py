"""Treebanks as the source of a task: items, errors, and the explanation of `vernacular treebank`."""

import csv
import io

import pytest
from support.messages import assert_states
from vernacular.commands.tasks import explain
from vernacular.core import artifacts
from vernacular.core.errors import ConfigError, DataError
from vernacular.core.fingerprint import fingerprint
from vernacular.data.load import WORKFLOW, load_items
from vernacular.data.schema import ITEMS
from vernacular.data.tasks import load_task
from vernacular.data.treebank.patterns import load_pattern, local_files
from vernacular.data.treebank.source import extract
from vernacular.exchange.source_tools import pairs_csv

# counted manually in the shipped samples: pairs by phenomenon, and number of rejected matches
AGREEMENT = {
    "gl": (
        {
            "subject-verb number": 22,
            "subject-verb person": 12,
            "adjective-noun gender": 15,
            "adjective-noun number": 15,
        },
        10,
    ),
    "ca": (
        {
            "subject-verb number": 23,
            "subject-verb person": 12,
            "adjective-noun gender": 13,
            "adjective-noun number": 15,
        },
        11,
    ),
    "es": (
        {
            "subject-verb number": 24,
            "subject-verb person": 13,
            "adjective-noun gender": 15,
            "adjective-noun number": 17,
        },
        9,
    ),
    "pt": (
        {
            "subject-verb number": 22,
            "subject-verb person": 12,
            "adjective-noun gender": 15,
            "adjective-noun number": 15,
        },
        10,
    ),
    "sr": (
        {
            "subject-verb number": 25,
            "subject-verb person": 7,
            "subject-participle gender": 5,
            "adjective-noun gender": 8,
            "adjective-noun number": 9,
        },
        15,
    ),
    "ar": (
        {"subject-verb number": 14, "subject-verb person": 11, "adjective-noun gender": 10, "adjective-noun number": 8},
        5,
    ),
}
CASE = {
    "sr": ({"case after a preposition": 10, "case of the object": 6}, 1),
    "ar": ({"case after a preposition": 4, "case of the object": 3}, 1),
}
SAMPLES = [("treebank_agreement", code, *AGREEMENT[code]) for code in AGREEMENT] + [
    ("treebank_case", code, *CASE[code]) for code in CASE
]


@pytest.mark.parametrize(("name", "language", "expected", "n_rejected"), SAMPLES)
def test_builtin_treebank_tasks_give_expected_pairs_of_samples(tmp_path, name, language, expected, n_rejected):
    rows, metadata = load_items(load_task(WORKFLOW / "tasks" / f"{name}.yaml"), language, source="samples")
    artifacts.write(tmp_path / "items.parquet", ITEMS, rows, metadata)
    pairs_by_category = {
        category: sum(row["category"] == category for row in rows) for category in {row["category"] for row in rows}
    }
    assert pairs_by_category == expected
    assert sum(metadata["rows"]["dropped"].values()) == n_rejected
    assert metadata["rows"]["first_dropped"].keys() == metadata["rows"]["dropped"].keys()
    assert all(
        (", sentence " in text and "[[" in text) or "lemma" in text
        for text in metadata["rows"]["first_dropped"].values()
    )
    assert metadata["rows"]["read"] == len(rows) + n_rejected
    assert metadata["source"]["text_mismatches"] == 0
    for row in rows:
        assert row["context"].replace("[MASK]", row["choices"][0]) == row["extra"]["original_text"]


TREEBANK = """\
# sent_id = a
# text = A nena canta.
1\tA\to\tDET\t_\tGender=Fem|Number=Sing\t2\tdet\t_\t_
2\tnena\tnena\tNOUN\t_\tGender=Fem|Number=Sing\t3\tnsubj\t_\t_
3\tcanta\tcantar\tVERB\t_\tNumber=Sing|Person=3\t0\troot\t_\tSpaceAfter=No
4\t.\t.\tPUNCT\t_\t_\t3\tpunct\t_\t_

# sent_id = b
# text = Elas cantan
1\tElas\tel\tPRON\t_\tGender=Fem|Number=Plur\t2\tnsubj\t_\t_
2\tcantan\tcantar\tVERB\t_\tNumber=Plur|Person=3\t0\troot\t_\t_
3\t!\t!\tPUNCT\t_\t_\t2\tpunct\t_\t_

"""


def write_task(directory, source, *, item_type="target_word", protocol="target_word", extra_keys=""):
    (directory / "gl.conllu").write_text(TREEBANK, "utf-8")
    (directory / "mine.yaml").write_text(
        f"task: mine\ntitle: T\ncitation: C\nprotocols: [{protocol}]\nitem_type: {item_type}\n{extra_keys}languages:\n  gl: {{source: {source}}}\n",
        "utf-8",
    )
    return load_task(directory / "mine.yaml")


SOURCE = "{treebank: gl.conllu, pattern: subject_verb_number}"
LOCATION = "mine.yaml, line 7: languages.gl.source"


def test_treebank_as_target_word_items(tmp_path):
    rows, metadata = load_items(write_task(tmp_path, SOURCE), "gl")
    first = rows[0]
    assert first["item_id"] == "subject_verb_number#a#3"
    assert (first["context"], first["choices"], first["gold"]) == ("A nena [MASK].", ["canta", "cantan"], [0])
    assert (first["cluster_id"], first["category"]) == ("a", "subject-verb number")
    expected = {
        "lemma": "cantar",
        "features": "Number=Sing|Person=3",
        "swapped": "Number=Plur",
        "deprel": "root",
        "distance": "1",
    }
    assert expected.items() <= first["extra"].items()
    assert {"sentence_id": "a", "match_id": "3", "prompt_text": "A nena"}.items() <= first["extra"].items()
    assert metadata["source"]["patterns"] == ["subject_verb_number"]
    [warning] = metadata["warnings"]
    assert_states(warning, "gl.conllu", "1 sentence", "# text", "(b)")


def test_treebank_as_minimal_pairs(tmp_path):
    rows, _ = load_items(write_task(tmp_path, SOURCE, item_type="pair", protocol="minimal_pair"), "gl")
    assert [row["choices"] for row in rows] == [["A nena canta.", "A nena cantan."], ["Elas cantan !", "Elas canta !"]]
    assert rows[0]["gold"] == [0]


def test_treebank_as_acceptability_sentences(tmp_path):
    rows, _ = load_items(write_task(tmp_path, SOURCE, item_type="sentence", protocol="acceptability"), "gl")
    assert [(row["context"], row["extra"]["label"], row["cluster_id"]) for row in rows] == [
        ("A nena canta.", "1", "a"),
        ("A nena cantan.", "0", "a"),
        ("Elas cantan !", "1", "b"),
        ("Elas canta !", "0", "b"),
    ]
    assert len({row["item_id"] for row in rows}) == 4


def test_treebank_columns_can_be_overridden(tmp_path):
    rows, _ = load_items(write_task(tmp_path, SOURCE, extra_keys="columns: {category: lemma}\n"), "gl")
    assert {row["category"] for row in rows} == {"cantar"}


def test_user_data_replaces_the_treebank(tmp_path):
    task = write_task(tmp_path, SOURCE)
    (tmp_path / "own" / "mine" / "gl").mkdir(parents=True)
    for path in (tmp_path / "own.conllu", tmp_path / "own" / "mine" / "gl" / "x.conllu"):
        path.write_text(TREEBANK.replace("sent_id = ", "sent_id = x-"), "utf-8")
    for source in (tmp_path / "own.conllu", tmp_path / "own"):
        assert [row["cluster_id"] for row in load_items(task, "gl", source=str(source))[0]] == ["x-a", "x-b"]


def test_local_treebank_requires_no_samples(tmp_path):
    assert len(load_items(write_task(tmp_path, SOURCE), "gl", source="samples")[0]) == 2
    with pytest.raises(DataError) as raised:
        load_items(write_task(tmp_path, "{treebank: 'https://x.org/y', pattern: object_case}"), "gl", source="samples")
    assert_states(raised.value, "mine (gl)", "samples", "data: hub")


@pytest.mark.parametrize(
    ("source", "parts"),
    [
        ("{treebank: gl.conllu}", (f"{LOCATION}:", '"pattern"', "missing")),
        ("{treebank: gl.conllu, pattern: subject_verb}", (f"{LOCATION}:", "pattern", 'got "subject_verb"')),
        ("{treebank: gl.conllu, pattern: none.yaml}", ("none.yaml", "not found")),
        ("{file: gl.csv, pattern: subject_verb_number}", (f"{LOCATION}:", "pattern", "key treebank")),
        ("{treebank: gl.conllu, file: gl.csv}", (f"{LOCATION}:", "expected one of", "got file and treebank")),
        (
            "{treebank: {file: a, url: 'https://b'}, pattern: subject_verb_number}",
            (f"{LOCATION}:", "entry of treebank", "url or file"),
        ),
        (
            "{treebank: {fil: a}, pattern: subject_verb_number}",
            (f"{LOCATION}.treebank.fil:", "unknown", '"file"'),
        ),
        ("{treebank: [], pattern: subject_verb_number}", (f"{LOCATION}.treebank:", "at least 1", "[]")),
    ],
)
def test_invalid_treebank_source_raises_config_error(tmp_path, source, parts):
    with pytest.raises(ConfigError) as raised:
        write_task(tmp_path, source)
    assert_states(raised.value, *parts)


def test_unsupported_item_type_error_lists_supported_ones(tmp_path):
    with pytest.raises(ConfigError) as raised:
        write_task(tmp_path, SOURCE, item_type="question", protocol="options")
    assert_states(raised.value, LOCATION, "treebank", '"question"', "pair, sentence, target_word")


def test_missing_changed_and_unmatched_treebanks_raise_data_error(tmp_path):
    with pytest.raises(DataError) as raised:
        load_items(write_task(tmp_path, "{treebank: none.conllu, pattern: subject_verb_number}"), "gl")
    assert_states(raised.value, "mine (gl)", "none.conllu", "not found")
    source = "{treebank: gl.conllu, pattern: subject_verb_number, sha256: " + "a" * 64 + "}"
    with pytest.raises(DataError) as raised:
        load_items(write_task(tmp_path, source), "gl")
    assert_states(raised.value, "mine (gl)", "gl.conllu", "checksum", "a" * 64)
    with pytest.raises(DataError) as raised:
        load_items(write_task(tmp_path, "{treebank: gl.conllu, pattern: object_case}"), "gl")
    assert_states(raised.value, "mine (gl)", "gl.conllu", "no pairs", "object_case", "0 words")


def test_source_contains_the_loaded_patterns(tmp_path):
    (tmp_path / "own.yaml").write_text("pattern: own\ntarget: {upos: VERB}\nswap: {Number: Plur}\n")
    task = write_task(
        tmp_path,
        "{treebank: 'g*.conllu', forms: ['https://x.org/y', gl.conllu], pattern: [own.yaml, subject_verb_number]}",
    )
    [source] = task["languages"]["gl"]["source"]
    assert [pattern["pattern"] for pattern in source["pattern"]] == ["own", "subject_verb_number"]
    assert source["pattern"][0]["swap"] == [{"Number": "Plur"}]
    assert local_files(source, tmp_path) == [tmp_path / "gl.conllu"] * 2
    assert fingerprint(source) == fingerprint(load_task(tmp_path / "mine.yaml")["languages"]["gl"]["source"][0])


def test_explanation_has_counts_and_marked_targets(tmp_path):
    (tmp_path / "gl.conllu").write_text(TREEBANK + TREEBANK.replace("cantar", "=soñar"), "utf-8")
    extraction = extract([tmp_path / "gl.conllu"], [load_pattern("subject_verb_number"), load_pattern("object_case")])
    assert explain(extraction, examples=1).splitlines() == [
        "4 sentences, 14 words",
        "2 of them: `# text` differs from the joined tokens, which are used (b, b~2)",
        "",
        "subject_verb_number (subject-verb number)",
        "        4  words match the target",
        "        0    related words missing, or a forbidden word present",
        "        4  matches",
        "        4  pairs, 2 lemmas",
        "    a  A nena [[canta|cantan]].",
        "        cantar: Number=Sing|Person=3 -> Number=Plur",
        "",
        "object_case (case of the object)",
        "        0  words match the target",
        "        0    related words missing, or a forbidden word present",
        "        0  matches",
        "        0  pairs, 0 lemmas",
    ]


def test_csv_is_read_by_a_target_word_task(tmp_path):
    (tmp_path / "gl.conllu").write_text(TREEBANK, "utf-8")
    extraction = extract([tmp_path / "gl.conllu"], [load_pattern("subject_verb_number")])
    text = pairs_csv(extraction.rows)
    assert text.splitlines()[0].startswith(
        "sentence_id,match_id,form_grammatical,original_text,masked_text,prompt_text,form_ungrammatical,"
    )
    assert list(csv.DictReader(io.StringIO(text)))[1]["ungrammatical_text"] == "Elas canta !"
    (tmp_path / "gl.csv").write_text(text, "utf-8")
    columns = "columns: {context: masked_text, good: form_grammatical, bad: form_ungrammatical*}\n"
    rows, _ = load_items(write_task(tmp_path, "{file: gl.csv}", extra_keys=columns), "gl")
    assert [row["choices"] for row in rows] == [["canta", "cantan"], ["cantan", "canta"]]
