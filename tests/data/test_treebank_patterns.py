"""Pattern files: those shipped are sound, mistakes in one's own are named; UniMorph tables; GREW where it is there."""

import re
import sys
from types import ModuleType, SimpleNamespace

import pytest
from vernacular.core.errors import ConfigError, DataError
from vernacular.data.treebank import source
from vernacular.data.treebank.forms import Inflections, features
from vernacular.data.treebank.match import Request
from vernacular.data.treebank.patterns import WORKFLOW, load_pattern, ready_patterns
from vernacular.data.treebank.sentences import read_sentences
from vernacular.data.treebank.source import extract

GOOD = "pattern: mine\ntarget: {upos: VERB}\nswap: {Number: Plur}\n"


def load(folder, text):
    (folder / "mine.yaml").write_text(text, "utf-8")
    return load_pattern("mine.yaml", folder)


@pytest.mark.parametrize("name", ready_patterns())
def test_ready_patterns_are_sound_and_say_what_they_are_for(name):
    pattern = load_pattern(name)
    assert pattern["phenomenon"] != pattern["pattern"]
    assert pattern["swap"]
    assert Request.of(pattern).related


def test_defaults_are_filled_in(tmp_path):
    assert load(tmp_path, GOOD) == {
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
    ("old", "new", "complaint"),
    [
        ("upos:", "ups:", r'mine\.yaml, line 2: target\.ups: unknown key\. Did you mean "upos"'),
        ("pattern: mine", "pattern: other", r'line 1: pattern: expected the file\'s name, "mine", got "other"'),
        ("{upos: VERB}", "V", r"line 2: target: expected constraints, such as"),
        ("swap: {Number: Plur}", "grew: 'pattern {}'\nswap: {Number: Plur}", r"target: expected the name of a node"),
        (
            "swap: {Number: Plur}",
            "swap: {Number: true}",
            r"line 3: swap\.Number: expected the value to swap to, or false .*, got true",
        ),
        ("swap: {Number: Plur}", "swap: {}", r"swap: expected at least 1 key, got \{\}"),
        ("swap: {Number: Plur}\n", "", r'the key "swap" is missing'),
        ("swap:", "related: [{relation: son}]\nswap:", r'related\[0\]\.relation: unknown value "son"\.'),
        ("swap:", "related: [{upos: NOUN}]\nswap:", r'related\[0\]: the key "relation" is missing'),
        ("swap:", "related: [{relation: child, of: subjct}]\nswap:", r'of: no earlier word has the name "subjct"\.'),
        (
            "swap:",
            "related: [{relation: head, name: a}, {relation: head, name: a}]\nswap:",
            r'name: duplicate name "a"',
        ),
        ("swap:", "limits: {max_wrds: 4}\nswap:", r'limits\.max_wrds: unknown key\. Did you mean "max_words"'),
    ],
)
def test_mistake_in_a_pattern_is_named(tmp_path, old, new, complaint):
    with pytest.raises(ConfigError, match=complaint):
        load(tmp_path, GOOD.replace(old, new))


def test_unknown_ready_pattern_names_the_closest():
    with pytest.raises(
        ConfigError, match=r'included pattern "subject_verb_numbr" not found.* Did you mean "subject_verb_number"'
    ):
        load_pattern("subject_verb_numbr")


def test_of_may_name_a_word_before_it(tmp_path):
    text = GOOD + "related: [{name: noun, relation: child}]\nwithout: [{relation: child, of: noun}]\n"
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


def write(folder, name, text):
    (folder / name).write_text(text, "utf-8")
    return folder / name


def test_unimorph_tags_become_features():
    assert features(["IND", "PST", "3", "SG", "PFV"]) == {
        "Tense": "Past",
        "Mood": "Ind",
        "Person": "3",
        "Number": "Sing",
    }
    assert features(["MASC", "FEM", "SG"]) == {"Number": "Sing"}
    assert features(["SG", "LGSPEC1"]) is None


def test_unimorph_form_agrees_in_everything_that_the_table_states(tmp_path):
    table = Inflections(write(tmp_path, "glg", TABLE))
    present = {"Mood": "Ind", "Number": "Plur", "Person": "3", "Tense": "Pres", "VerbForm": "Fin"}
    assert table.find("cantar", "VERB", present, ("Number",)) == {"cantan"}
    assert table.find("cantar", "AUX", {**present, "Tense": "Imp"}, ("Number",)) == {"cantaban"}
    assert table.find("cantar", "VERB", {**present, "Mood": "Sub"}, ("Number",)) == set()
    assert table.find("novo", "ADJ", {"Gender": "Fem", "Number": "Sing", "Degree": "Pos"}, ("Gender",)) == {"nova"}
    # a case that the table does not speak of cannot be swapped with it
    assert table.find("novo", "ADJ", {"Gender": "Fem", "Number": "Sing", "Case": "Nom"}, ("Case",)) == set()
    assert table.skipped == {"not a single word": 1, "tags without UD equivalent": 1}


def test_unimorph_line_without_tabs_is_named(tmp_path):
    with pytest.raises(DataError, match=r"glg, line 2: expected lemma, form and tags"):
        Inflections(write(tmp_path, "glg", "a\tb\tN;SG\na b N\n"))


SENTENCE = """\
# sent_id = {id}
1\tEu\teu\tPRON\t_\tNumber=Sing|Person=1\t2\tnsubj\t_\t_
2\tcanto\tcantar\tVERB\t_\tMood=Ind|Number=Sing|Person=1|Tense=Pres|VerbForm=Fin\t0\troot\t_\t_

"""


def test_table_gives_what_the_treebank_does_not_attest(tmp_path):
    text = "pattern: mine\ntarget: {upos: VERB}\nrelated: [{relation: child, deprel: nsubj}]\nswap: {Person: [2, 3]}\n"
    treebank = write(tmp_path, "t.conllu", SENTENCE.format(id=1))
    found = extract([treebank], [load(tmp_path, text)], [write(tmp_path, "glg.tsv", TABLE)])
    assert [(row["form_ungrammatical"], row["swapped"]) for row in found.rows] == [("canta", "Person=3")]
    assert found.unused == {str(tmp_path / "glg.tsv"): {"not a single word": 1, "tags without UD equivalent": 1}}


REQUEST = "pattern: mine\ngrew: 'pattern {V [upos=VERB]; V -[nsubj]-> S}'\ntarget: V\nswap: {Person: 3}\n"


def fake_grewpy(monkeypatch, ids, answers):
    """A grewpy that answers so; what it was asked is noted in `asked`."""
    asked = []

    class GrewError(Exception):
        def __init__(self, value):
            self.value = value

    def search(request):
        if isinstance(answers, dict):
            raise GrewError(answers)
        return answers

    package = ModuleType("grewpy")
    package.grew = ModuleType("grewpy.grew")
    package.grew.GrewError = GrewError
    package.set_config = asked.append
    package.Request = lambda text: asked.append(text) or text
    package.Corpus = lambda files: asked.append(files) or SimpleNamespace(get_sent_ids=lambda: ids, search=search)
    monkeypatch.setitem(sys.modules, "grewpy", package)
    monkeypatch.setitem(sys.modules, "grewpy.grew", package.grew)
    return asked


def test_grew_request_gives_every_target_once_in_the_order_of_the_text(tmp_path, monkeypatch):
    treebank = write(tmp_path, "t.conllu", SENTENCE.format(id="a") + SENTENCE.format(id="b"))
    nodes = {"V": "2", "S": "1"}
    answers = [{"sent_id": name, "matching": {"nodes": nodes}} for name in ("b", "a", "b")]
    asked = fake_grewpy(monkeypatch, ["a", "b"], answers)
    found = extract([treebank], [load(tmp_path, REQUEST)], [write(tmp_path, "glg.tsv", TABLE)])
    assert [(row["sentence_id"], row["form_ungrammatical"], row["distance"]) for row in found.rows] == [
        ("a", "canta", "1"),
        ("b", "canta", "1"),
    ]
    assert asked == ["ud", [str(treebank)], "pattern {V [upos=VERB]; V -[nsubj]-> S}"]


def test_grew_complaints_are_passed_on(tmp_path, monkeypatch):
    sentences = list(read_sentences(write(tmp_path, "t.conllu", SENTENCE.format(id="a"))))
    pattern = load(tmp_path, REQUEST)
    fake_grewpy(monkeypatch, ["a"], {"message": "syntax error"})
    with pytest.raises(DataError, match="mine: GREW rejected the request \\(syntax error"):
        source.search([], sentences, pattern)
    fake_grewpy(monkeypatch, ["a"], [{"sent_id": "a", "matching": {"nodes": {"X": "2"}}}])
    with pytest.raises(DataError, match='mine: node "V" not found'):
        source.search([], sentences, pattern)
    fake_grewpy(monkeypatch, [], [])
    with pytest.raises(DataError, match="GREW requires a unique sent_id"):
        source.search([], sentences, pattern)


def test_without_grew_the_message_says_what_our_patterns_cover(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "grewpy", None)
    with pytest.raises(DataError, match=r"grewpy is not installed.*\nVernacular's own patterns require neither"):
        source.search([], [], load(tmp_path, REQUEST))


def test_pattern_in_the_documentation_is_sound(tmp_path):
    text = (WORKFLOW.parent / "docs" / "treebanks.md").read_text("utf-8")
    [(name, example)] = re.findall(r"<!-- my_tasks/(\S+) -->\n```yaml\n(.*?)```", text, re.DOTALL)
    (tmp_path / name).write_text(example, "utf-8")
    assert load_pattern(name, tmp_path)["swap"] == [{"Gender": "Masc"}, {"Gender": "Fem"}]
    assert all(f"`{ready}`" in text for ready in ready_patterns())
