"""Corrupted sentences of treebanks: which words are deleted or swapped, and that pairs stay together."""

import pytest
from support.messages import assert_states
from vernacular.core.errors import ConfigError
from vernacular.data.load import load_items
from vernacular.data.tasks import load_task
from vernacular.data.treebank.patterns import load_pattern
from vernacular.data.treebank.sentences import read_sentences
from vernacular.data.treebank.source import corrupted_pairs

SENTENCES = """# sent_id = a
1	A	o	DET	_	_	2	det	_	_
2	nena	nena	NOUN	_	_	3	nsubj	_	_
3	come	comer	VERB	_	_	0	root	_	_
4	pan	pan	NOUN	_	_	3	obj	_	SpaceAfter=No
5	.	.	PUNCT	_	_	3	punct	_	_

# sent_id = b
1	Moi	moi	ADV	_	_	2	advmod	_	_
2	ben	ben	ADV	_	_	0	root	_	SpaceAfter=No
3	!	!	PUNCT	_	_	2	punct	_	_

# sent_id = c
1-2	Do	_	_	_	_	_	_	_	_
1	De	de	ADP	_	_	3	case	_	_
2	o	o	DET	_	_	3	det	_	_
3	mar	mar	NOUN	_	_	0	root	_	_

"""


@pytest.fixture
def sentences(tmp_path):
    (tmp_path / "own.conllu").write_text(SENTENCES)
    return list(read_sentences(tmp_path / "own.conllu"))


def test_a_word_that_a_sentence_needs_is_deleted(sentences):
    pairs = corrupted_pairs(sentences, load_pattern("deleted_word"))
    texts = {row["sentence_id"]: (row["form_grammatical"], row["ungrammatical_text"]) for row in pairs.rows}
    assert texts["a"] in [("nena", "A come pan."), ("come", "A nena pan."), ("pan", "A nena come.")]
    assert texts["c"] == ("mar", "Do")
    assert pairs.rejections == {"no place for this corruption": 1}


def test_neighbors_of_different_parts_of_speech_are_swapped(sentences):
    pairs = corrupted_pairs(sentences, load_pattern("swapped_words"))
    (row,) = pairs.rows
    assert row["ungrammatical_text"] in ("A come nena pan.", "A nena pan come.")
    assert row["original_text"] == "A nena come pan."
    assert pairs.rejections == {"no place for this corruption": 2}


def test_the_first_word_after_punctuation_is_not_changed(tmp_path):
    words = [("«", "PUNCT"), ("Come", "VERB"), ("el", "PRON"), ("»", "PUNCT")]
    lines = [f"{i}\t{form}\t_\t{upos}\t_\t_\t{2 * (i != 2)}\t_\t_\t_" for i, (form, upos) in enumerate(words, 1)]
    (tmp_path / "own.conllu").write_text("\n".join(lines) + "\n")
    own = list(read_sentences(tmp_path / "own.conllu"))
    assert [row["form_grammatical"] for row in corrupted_pairs(own, load_pattern("deleted_word")).rows] == ["el"]
    assert not corrupted_pairs(own, load_pattern("swapped_words")).rows


def test_no_space_remains_after_an_opening_bracket(tmp_path):
    words = [("Come", "VERB", "_"), ("(", "PUNCT", "SpaceAfter=No"), ("el", "PRON", "_"), ("só", "ADV", "_")]
    lines = [f"{i}\t{form}\t_\t{upos}\t_\t_\t{i - 1}\t_\t_\t{misc}" for i, (form, upos, misc) in enumerate(words, 1)]
    (tmp_path / "own.conllu").write_text("\n".join(lines) + "\n")
    (row,) = corrupted_pairs(list(read_sentences(tmp_path / "own.conllu")), load_pattern("deleted_word")).rows
    assert (row["original_text"], row["ungrammatical_text"]) == ("Come (el só", "Come (só")


def test_the_place_depends_on_the_sentence_alone(sentences):
    rows = corrupted_pairs(sentences, load_pattern("deleted_word")).rows
    reversed_rows = corrupted_pairs(sentences[::-1], load_pattern("deleted_word")).rows
    assert sorted(rows, key=str) == sorted(reversed_rows, key=str)


TASK = "task: mine\nprotocols: [{}]\nitem_type: {}\nlanguages:\n  gl: {{source: {{treebank: own.conllu, pattern: [deleted_word, swapped_words]}}}}\n"


def test_pairs_of_a_sentence_are_items_of_one_cluster(sentences, tmp_path):
    (tmp_path / "mine.yaml").write_text(TASK.format("minimal_pair", "pair"))
    items, metadata = load_items(load_task(tmp_path / "mine.yaml"), "gl")
    assert [(item["cluster_id"], item["category"]) for item in items] == [
        ("a", "deleted word"),
        ("c", "deleted word"),
        ("a", "swapped words"),
    ]
    assert all(item["choices"][0] == "A nena come pan." for item in items if item["cluster_id"] == "a")
    assert metadata["rows"]["dropped"] == {"no place for this corruption": 3}


def test_target_words_cannot_be_corrupted(sentences, tmp_path):
    (tmp_path / "mine.yaml").write_text(TASK.format("target_word", "target_word"))
    with pytest.raises(ConfigError) as raised:
        load_task(tmp_path / "mine.yaml")
    assert_states(raised.value, "languages.gl", "deleted_word", "pair or sentence")


def test_a_corruption_has_no_target(tmp_path):
    (tmp_path / "mine.yaml").write_text("pattern: mine\ncorrupt: delete\nswap: {Number: Plur}\n")
    with pytest.raises(ConfigError) as raised:
        load_pattern("mine.yaml", tmp_path)
    assert_states(raised.value, "line 3", "swap", "corrupt")
