"""Pattern files: built-in ones are valid, invalid ones raise errors; UniMorph tables; GREW requests."""

import re
import sys
from types import ModuleType, SimpleNamespace

import pytest
from support.messages import assert_states
from vernacular.core.errors import ConfigError, DataError
from vernacular.data.treebank import source
from vernacular.data.treebank.pairs import Inflections, features
from vernacular.data.treebank.patterns import WORKFLOW, builtin_patterns, load_pattern
from vernacular.data.treebank.sentences import Request, read_sentences
from vernacular.data.treebank.source import extract

PATTERN = "pattern: mine\ntarget: {upos: VERB}\nswap: {Number: Plur}\n"


def load(directory, text):
    (directory / "mine.yaml").write_text(text, "utf-8")
    return load_pattern("mine.yaml", directory)


@pytest.mark.parametrize("name", builtin_patterns())
def test_builtin_patterns_are_valid(name):
    pattern = load_pattern(name)
    assert pattern["phenomenon"] != pattern["pattern"]
    if "corrupt" not in pattern:
        assert pattern["swap"]
        assert Request.of(pattern).related


def test_pattern_defaults(tmp_path):
    assert load(tmp_path, PATTERN) == {
        "pattern": "mine",
        "phenomenon": "mine",
        "target": {"upos": "VERB"},
        "related": [],
        "without": [],
        "swap": [{"Number": "Plur"}],
        "ignore": [],
        "open": [],
        "limits": {},
    }


@pytest.mark.parametrize(
    ("old", "new", "parts"),
    [
        ("upos:", "ups:", ("line 2", "target.ups", "unknown", '"upos"')),
        ("pattern: mine", "pattern: other", ("line 1", "pattern", '"mine"', '"other"')),
        ("{upos: VERB}", "V", ("line 2", "target", "constraints")),
        ("swap: {Number: Plur}", "grew: 'pattern {}'\nswap: {Number: Plur}", ("line 2", "target", "name of a node")),
        ("swap: {Number: Plur}", "swap: {Number: true}", ("line 3", "swap.Number", "false", "got true")),
        ("swap: {Number: Plur}", "swap: {}", ("line 3", "swap", "at least 1 key", "{}")),
        ("swap: {Number: Plur}\n", "", ('"swap"', "missing")),
        ("swap:", "related: [{relation: son}]\nswap:", ("line 3", "related[0].relation", "unknown", '"son"')),
        ("swap:", "related: [{upos: NOUN}]\nswap:", ("line 3", "related[0]", '"relation"', "missing")),
        (
            "swap:",
            "related: [{relation: child, of: subjct}]\nswap:",
            ("line 3", "related[0].of", "earlier", '"subjct"'),
        ),
        (
            "swap:",
            "related: [{relation: head, name: a}, {relation: head, name: a}]\nswap:",
            ("line 3", "related[1].name", "duplicate", '"a"'),
        ),
        ("swap:", "limits: {max_wrds: 4}\nswap:", ("line 3", "limits.max_wrds", "unknown", '"max_words"')),
    ],
)
def test_invalid_pattern_raises_config_error(tmp_path, old, new, parts):
    with pytest.raises(ConfigError) as raised:
        load(tmp_path, PATTERN.replace(old, new))
    assert_states(raised.value, "mine.yaml", *parts)


def test_unknown_pattern_name_error_suggests_the_closest():
    with pytest.raises(ConfigError) as raised:
        load_pattern("subject_verb_numbr")
    assert_states(raised.value, 'pattern "subject_verb_numbr"', "not found", '"subject_verb_number"')


def test_of_may_refer_to_an_earlier_word(tmp_path):
    text = PATTERN + "related: [{name: noun, relation: child}]\nwithout: [{relation: child, of: noun}]\n"
    assert load(tmp_path, text)["without"] == [{"relation": "child", "of": "noun", "name": "without_1"}]


TABLE = (
    "cantar\tcanto\tV;IND;PRS;1;SG\n"
    "cantar\tcanta\tV;IND;PRS;3;SG\n"
    "cantar\tcantan\tV;IND;PRS;3;PL\n"
    "cantar\tcantaban\tV;IND;PST;3;PL;IPFV\n"
    "cantar\tteño cantado\tV;IND;PRS;1;SG\n"
    "cantar\tcantade\tV;IMP;2;PL;LGSPEC1\n"
    "novo\tnova\tADJ;FEM;SG\n"
)


def write(directory, name, text):
    (directory / name).write_text(text, "utf-8")
    return directory / name


def test_unimorph_tags_to_ud_features():
    assert features(["IND", "PST", "3", "SG", "PFV"]) == {
        "Tense": "Past",
        "Mood": "Ind",
        "Person": "3",
        "Number": "Sing",
    }
    assert features(["MASC", "FEM", "SG"]) == {"Number": "Sing"}
    assert features(["SG", "LGSPEC1"]) is None


def test_unimorph_form_matches_all_stated_features(tmp_path):
    table = Inflections(write(tmp_path, "glg", TABLE))
    present = {"Mood": "Ind", "Number": "Plur", "Person": "3", "Tense": "Pres", "VerbForm": "Fin"}
    assert table.find("cantar", "VERB", present, ("Number",)) == {"cantan"}
    assert table.find("cantar", "AUX", {**present, "Tense": "Imp"}, ("Number",)) == {"cantaban"}
    assert table.find("cantar", "VERB", {**present, "Mood": "Sub"}, ("Number",)) == set()
    assert table.find("novo", "ADJ", {"Gender": "Fem", "Number": "Sing", "Degree": "Pos"}, ("Gender",)) == {"nova"}
    # the table states no case: it has no forms with a swapped case
    assert table.find("novo", "ADJ", {"Gender": "Fem", "Number": "Sing", "Case": "Nom"}, ("Case",)) == set()
    assert table.skipped == {"not a single word": 1, "tags without UD equivalent": 1}


def test_unimorph_forms_are_composed_as_those_of_treebanks(tmp_path):
    # the letter ड़ has two forms in Unicode, of which UD has the one in NFC
    table = Inflections(write(tmp_path, "hin", "ल\u095cका\tल\u095cके\tN;NOM;PL\n"))
    lemma, form = "ल\u0921\u093cका", "ल\u0921\u093cके"
    assert table.find(lemma, "NOUN", {"Number": "Plur", "Case": "Nom"}, ("Number",)) == {form}


def test_unimorph_line_without_tabs_raises_data_error(tmp_path):
    with pytest.raises(DataError) as raised:
        Inflections(write(tmp_path, "glg", "a\tb\tN;SG\na b N\n"))
    assert_states(raised.value, "glg, line 2", "lemma", "tabs")


SENTENCE = """\
# sent_id = {id}
1\tEu\teu\tPRON\t_\tNumber=Sing|Person=1\t2\tnsubj\t_\t_
2\tcanto\tcantar\tVERB\t_\tMood=Ind|Number=Sing|Person=1|Tense=Pres|VerbForm=Fin\t0\troot\t_\t_

"""


def test_table_provides_forms_not_attested_in_the_treebank(tmp_path):
    text = "pattern: mine\ntarget: {upos: VERB}\nrelated: [{relation: child, deprel: nsubj}]\nswap: {Person: [2, 3]}\n"
    treebank = write(tmp_path, "t.conllu", SENTENCE.format(id=1))
    extraction = extract([treebank], [load(tmp_path, text)], [write(tmp_path, "glg.tsv", TABLE)])
    assert [(row["form_ungrammatical"], row["swapped"]) for row in extraction.rows] == [("canta", "Person=3")]
    assert extraction.skipped_lines == {
        str(tmp_path / "glg.tsv"): {"not a single word": 1, "tags without UD equivalent": 1}
    }


REQUEST = "pattern: mine\ngrew: 'pattern {V [upos=VERB]; V -[nsubj]-> S}'\ntarget: V\nswap: {Person: 3}\n"


def fake_grewpy(monkeypatch, ids, results):
    """Replace grewpy with a fake that returns `results`; return the list of arguments it is called with."""
    calls = []

    class GrewError(Exception):
        def __init__(self, value):
            self.value = value

    def search(request):
        if isinstance(results, dict):
            raise GrewError(results)
        return results

    package = ModuleType("grewpy")
    package.grew = ModuleType("grewpy.grew")
    package.grew.GrewError = GrewError
    package.set_config = calls.append
    package.Request = lambda text: calls.append(text) or text
    package.Corpus = lambda files: calls.append(files) or SimpleNamespace(get_sent_ids=lambda: ids, search=search)
    monkeypatch.setitem(sys.modules, "grewpy", package)
    monkeypatch.setitem(sys.modules, "grewpy.grew", package.grew)
    return calls


def test_grew_matches_are_unique_targets_in_text_order(tmp_path, monkeypatch):
    treebank = write(tmp_path, "t.conllu", SENTENCE.format(id="a") + SENTENCE.format(id="b"))
    nodes = {"V": "2", "S": "1"}
    results = [{"sent_id": name, "matching": {"nodes": nodes}} for name in ("b", "a", "b")]
    calls = fake_grewpy(monkeypatch, ["a", "b"], results)
    extraction = extract([treebank], [load(tmp_path, REQUEST)], [write(tmp_path, "glg.tsv", TABLE)])
    assert [(row["sentence_id"], row["form_ungrammatical"], row["distance"]) for row in extraction.rows] == [
        ("a", "canta", "1"),
        ("b", "canta", "1"),
    ]
    assert calls == ["ud", [str(treebank)], "pattern {V [upos=VERB]; V -[nsubj]-> S}"]


def test_grew_errors_raise_data_error(tmp_path, monkeypatch):
    sentences = list(read_sentences(write(tmp_path, "t.conllu", SENTENCE.format(id="a"))))
    pattern = load(tmp_path, REQUEST)
    fake_grewpy(monkeypatch, ["a"], {"message": "syntax error"})
    with pytest.raises(DataError) as raised:
        source.search([], sentences, pattern)
    assert_states(raised.value, "pattern mine", "GREW", "syntax error")
    fake_grewpy(monkeypatch, ["a"], [{"sent_id": "a", "matching": {"nodes": {"X": "2"}}}])
    with pytest.raises(DataError) as raised:
        source.search([], sentences, pattern)
    assert_states(raised.value, "pattern mine", 'node "V"', "not found")
    fake_grewpy(monkeypatch, [], [])
    with pytest.raises(DataError) as raised:
        source.search([], sentences, pattern)
    assert_states(raised.value, "pattern mine", "unique sent_id")


def test_missing_grew_error_lists_supported_constraints(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "grewpy", None)
    with pytest.raises(DataError) as raised:
        source.search([], [], load(tmp_path, REQUEST))
    assert_states(raised.value, "pattern mine", "grewpy", "not installed", "\n", "upos", "deprel", "distance")


def test_documented_pattern_is_valid(tmp_path):
    text = (WORKFLOW.parent / "docs" / "treebanks.md").read_text("utf-8")
    [(name, example)] = re.findall(r"<!-- my_tasks/(\S+) -->\n```yaml\n(.*?)```", text, re.DOTALL)
    (tmp_path / name).write_text(example, "utf-8")
    assert load_pattern(name, tmp_path)["swap"] == [{"Gender": "Masc"}, {"Gender": "Fem"}]
    assert all(f"`{pattern}`" in text for pattern in builtin_patterns())
