"""Treebank files: the text is rebuilt exactly, and every word knows its characters in it."""

import gzip

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vernacular.core.errors import DataError
from vernacular.data.treebank.sentences import read_sentences


def line(number, form, *, lemma="_", upos="X", feats="_", head="0", deprel="root", misc="_"):
    return "\t".join([str(number), form, lemma, upos, "_", feats, head, deprel, "_", misc])


def read(folder, text):
    (folder / "t.conllu").write_text(text, "utf-8")
    return list(read_sentences(folder / "t.conllu"))


def test_multiword_token_stands_in_the_text_and_its_words_have_no_characters(tmp_path):
    # "Díxollo ao can." : díxo+lle+o, a+o
    rows = [
        line("1-3", "Díxollo"),
        line(1, "Díxo", upos="VERB"),
        line(2, "lle", head="1"),
        line(3, "o", head="1"),
        line("4-5", "ao"),
        line(4, "a", head="6"),
        line(5, "o", head="6"),
        line(6, "can", head="1", misc="SpaceAfter=No"),
        line(7, ".", head="1"),
    ]
    [sentence] = read(tmp_path, "# sent_id = a\n# text = Díxollo ao can.\n" + "\n".join(rows) + "\n\n")
    assert sentence.text == "Díxollo ao can."
    assert not sentence.mismatch
    spans = {word.form: (word.start, word.end) for word in sentence.words.values()}
    assert spans == {
        "Díxo": (None, None),
        "lle": (None, None),
        "o": (None, None),
        "a": (None, None),
        "can": (11, 14),
        ".": (14, 15),
    }
    assert [word.form for word in sentence.children[1]] == ["lle", "o", "can", "."]


def test_empty_nodes_are_no_part_of_the_text(tmp_path):
    rows = [line(1, "Eu"), line(2, "canto", misc="SpaceAfter=No"), line("2.1", "canto"), line(3, "!")]
    [sentence] = read(tmp_path, "# text = Eu canto!\n" + "\n".join(rows) + "\n")
    assert (sentence.text, sentence.mismatch, list(sentence.words)) == ("Eu canto!", False, [1, 2, 3])


def test_space_inside_a_multiword_token_is_that_of_the_token(tmp_path):
    rows = [
        line("1-2", "d'el", misc="SpaceAfter=No"),
        line(1, "de", misc="SpaceAfter=No"),
        line(2, "el"),
        line(3, "home"),
    ]
    [sentence] = read(tmp_path, "\n".join(rows))
    assert sentence.text == "d'elhome"
    assert sentence.words[3].start == 4


def test_text_that_is_not_the_tokens_is_noted_and_the_tokens_count(tmp_path):
    [sentence] = read(tmp_path, "# text = O  neno\n" + line(1, "O") + "\n" + line(2, "neno") + "\n")
    assert (sentence.text, sentence.mismatch) == ("O neno", True)


def test_two_blanks_inside_a_form_part_no_columns(tmp_path):
    rows = [line(1, "10  000", lemma="10  000"), line(2, "euros", misc="Gloss=two  words|SpaceAfter=No")]
    [sentence] = read(tmp_path, "# text = 10  000 euros\n" + "\n".join(rows))
    assert not sentence.mismatch
    assert (sentence.words[1].lemma, sentence.words[2].start) == ("10  000", 8)


def test_sentence_without_id_is_called_by_file_and_number(tmp_path):
    assert [s.id for s in read(tmp_path, line(1, "a") + "\n\n\n" + line(1, "b") + "\n")] == ["t.1", "t.2"]


def test_right_to_left_text_has_its_characters_in_reading_order(tmp_path):
    rows = [line(1, "الولد"), line(2, "يكتب", misc="SpaceAfter=No"), line(3, ".")]
    [sentence] = read(tmp_path, "# text = الولد يكتب.\n" + "\n".join(rows))
    assert not sentence.mismatch
    assert sentence.text[sentence.words[2].start : sentence.words[2].end] == "يكتب"


def test_missing_head_is_no_root(tmp_path):
    [sentence] = read(tmp_path, line(1, "a", head="_"))
    assert sentence.words[1].head == -1


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("# text = a\na b c\n", r"sentence 1 \(it ends before line 3\): not CoNLL-U"),
        (line("x", "a"), "not CoNLL-U"),
        ("1\ta\ta\tX\t_\t_\t0\troot\t_", "expected 10 columns in each line, got 9"),
        (line("_", "a"), "a line without an ID"),
    ],
)
def test_damaged_file_is_named_with_its_line(tmp_path, text, complaint):
    with pytest.raises(DataError, match=complaint):
        read(tmp_path, text)


def test_missing_and_undecodable_files_are_named(tmp_path):
    with pytest.raises(DataError, match=r"none\.conllu: file not found\."):
        list(read_sentences(tmp_path / "none.conllu"))
    (tmp_path / "latin.conllu").write_bytes("1\tniño".encode("latin-1"))
    with pytest.raises(DataError, match=r"latin\.conllu: not UTF-8 text"):
        list(read_sentences(tmp_path / "latin.conllu"))


def test_gzipped_file_with_windows_line_ends_and_a_mark_is_read(tmp_path):
    text = "\ufeff# sent_id = 1\r\n" + line(1, "Oi", misc="SpaceAfter=No") + "\r\n" + line(2, "!") + "\r\n\r\n"
    (tmp_path / "t.conllu.gz").write_bytes(gzip.compress(text.encode()))
    [sentence] = read_sentences(tmp_path / "t.conllu.gz")
    assert (sentence.id, sentence.text) == ("1", "Oi!")


FORMS = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=6).filter(
    lambda form: form.strip() == form
)
TOKENS = st.lists(st.tuples(FORMS, st.integers(1, 3), st.booleans()), min_size=1, max_size=12)


@settings(deadline=None)  # a file is written each time
@given(tokens=TOKENS)
def test_any_text_is_rebuilt_from_its_tokens(tmp_path_factory, tokens):
    """Tokens are (surface, number of words in it, is there a blank behind it)."""
    rows, text, expected, number = [], "", {}, 1
    for surface, words, blank in tokens:
        misc = "_" if blank else "Other=1|SpaceAfter=No"
        if words > 1:
            rows.append(line(f"{number}-{number + words - 1}", surface, misc=misc))
            rows += [line(number + i, f"part{i}") for i in range(words)]
        else:
            rows.append(line(number, surface, misc=misc))
            expected[number] = surface
        number += words
        text += surface + (" " if blank else "")
    [sentence] = read(tmp_path_factory.mktemp("any"), "\n".join(rows) + "\n")
    assert sentence.text == text.rstrip(" ")
    assert len(sentence.words) == number - 1
    found = {
        word.id: sentence.text[word.start : word.end] for word in sentence.words.values() if word.start is not None
    }
    assert found == expected
