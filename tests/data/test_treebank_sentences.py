"""CoNLL-U files: the text is rebuilt exactly, with the character offsets of each word."""

import gzip

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vernacular.core.errors import DataError
from vernacular.data.treebank.sentences import read_sentences


def conllu_line(token_id, form, *, lemma="_", upos="X", feats="_", head="0", deprel="root", misc="_"):
    return "\t".join([str(token_id), form, lemma, upos, "_", feats, head, deprel, "_", misc])


def read(directory, text):
    (directory / "t.conllu").write_text(text, "utf-8")
    return list(read_sentences(directory / "t.conllu"))


def test_words_of_a_multiword_token_have_no_offsets(tmp_path):
    # "Díxollo ao can." : díxo+lle+o, a+o
    rows = [
        conllu_line("1-3", "Díxollo"),
        conllu_line(1, "Díxo", upos="VERB"),
        conllu_line(2, "lle", head="1"),
        conllu_line(3, "o", head="1"),
        conllu_line("4-5", "ao"),
        conllu_line(4, "a", head="6"),
        conllu_line(5, "o", head="6"),
        conllu_line(6, "can", head="1", misc="SpaceAfter=No"),
        conllu_line(7, ".", head="1"),
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


def test_empty_nodes_are_not_part_of_the_text(tmp_path):
    rows = [
        conllu_line(1, "Eu"),
        conllu_line(2, "canto", misc="SpaceAfter=No"),
        conllu_line("2.1", "canto"),
        conllu_line(3, "!"),
    ]
    [sentence] = read(tmp_path, "# text = Eu canto!\n" + "\n".join(rows) + "\n")
    assert (sentence.text, sentence.mismatch, list(sentence.words)) == ("Eu canto!", False, [1, 2, 3])


def test_space_after_of_words_inside_a_multiword_token_is_ignored(tmp_path):
    rows = [
        conllu_line("1-2", "d'el", misc="SpaceAfter=No"),
        conllu_line(1, "de", misc="SpaceAfter=No"),
        conllu_line(2, "el"),
        conllu_line(3, "home"),
    ]
    [sentence] = read(tmp_path, "\n".join(rows))
    assert sentence.text == "d'elhome"
    assert sentence.words[3].start == 4


def test_mismatch_of_text_comment_is_flagged_and_tokens_are_used(tmp_path):
    [sentence] = read(tmp_path, "# text = O  neno\n" + conllu_line(1, "O") + "\n" + conllu_line(2, "neno") + "\n")
    assert (sentence.text, sentence.mismatch) == ("O neno", True)


def test_two_spaces_inside_a_form_do_not_separate_columns(tmp_path):
    rows = [conllu_line(1, "10  000", lemma="10  000"), conllu_line(2, "euros", misc="Gloss=two  words|SpaceAfter=No")]
    [sentence] = read(tmp_path, "# text = 10  000 euros\n" + "\n".join(rows))
    assert not sentence.mismatch
    assert (sentence.words[1].lemma, sentence.words[2].start) == ("10  000", 8)


def test_sentence_without_id_gets_file_name_and_number(tmp_path):
    assert [
        sentence.id for sentence in read(tmp_path, conllu_line(1, "a") + "\n\n\n" + conllu_line(1, "b") + "\n")
    ] == ["t.1", "t.2"]


def test_right_to_left_text_has_logical_offsets(tmp_path):
    rows = [conllu_line(1, "الولد"), conllu_line(2, "يكتب", misc="SpaceAfter=No"), conllu_line(3, ".")]
    [sentence] = read(tmp_path, "# text = الولد يكتب.\n" + "\n".join(rows))
    assert not sentence.mismatch
    assert sentence.text[sentence.words[2].start : sentence.words[2].end] == "يكتب"


def test_missing_head_is_not_a_root(tmp_path):
    [sentence] = read(tmp_path, conllu_line(1, "a", head="_"))
    assert sentence.words[1].head == -1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# text = a\na b c\n", r"sentence 1 \(lines 1 to 2\): not CoNLL-U"),
        (conllu_line("x", "a"), "not CoNLL-U"),
        ("1\ta\ta\tX\t_\t_\t0\troot\t_", "expected 10 columns in each line, got 9"),
        (conllu_line("_", "a"), "a line without an ID"),
        ("# sent_id = a\u202eb\n" + conllu_line("1", "a"), r'sent_id "a\\u202eb" contains U\+202E'),
        (f"# sent_id = {'n' * 10_000}\n" + conllu_line("1", "a"), r"sent_id .*…\" has 10000 characters"),
    ],
)
def test_damaged_file_raises_data_error_with_line(tmp_path, text, message):
    with pytest.raises(DataError, match=message):
        read(tmp_path, text)


def test_missing_and_undecodable_files_raise_data_error(tmp_path):
    with pytest.raises(DataError, match=r"none\.conllu: file not found\."):
        list(read_sentences(tmp_path / "none.conllu"))
    (tmp_path / "latin.conllu").write_bytes("1\tniño".encode("latin-1"))
    with pytest.raises(DataError, match=r"latin\.conllu, line 1: not UTF-8 text"):
        list(read_sentences(tmp_path / "latin.conllu"))


def test_gzipped_file_with_crlf_and_byte_order_mark_is_read(tmp_path):
    text = (
        "\ufeff# sent_id = 1\r\n"
        + conllu_line(1, "Oi", misc="SpaceAfter=No")
        + "\r\n"
        + conllu_line(2, "!")
        + "\r\n\r\n"
    )
    (tmp_path / "t.conllu.gz").write_bytes(gzip.compress(text.encode()))
    [sentence] = read_sentences(tmp_path / "t.conllu.gz")
    assert (sentence.id, sentence.text) == ("1", "Oi!")


FORMS = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=6).filter(
    lambda form: form.strip() == form
)
TOKENS = st.lists(st.tuples(FORMS, st.integers(1, 3), st.booleans()), min_size=1, max_size=12)


@settings(deadline=None)  # each example writes a file
@given(tokens=TOKENS)
def test_text_is_rebuilt_from_its_tokens(tmp_path_factory, tokens):
    """Tokens are (surface, number of words, whether a space follows)."""
    rows, text, expected, token_id = [], "", {}, 1
    for surface, n_words, space_after in tokens:
        misc = "_" if space_after else "Other=1|SpaceAfter=No"
        if n_words > 1:
            rows.append(conllu_line(f"{token_id}-{token_id + n_words - 1}", surface, misc=misc))
            rows += [conllu_line(token_id + i, f"part{i}") for i in range(n_words)]
        else:
            rows.append(conllu_line(token_id, surface, misc=misc))
            expected[token_id] = surface
        token_id += n_words
        text += surface + (" " if space_after else "")
    [sentence] = read(tmp_path_factory.mktemp("any"), "\n".join(rows) + "\n")
    assert sentence.text == text.rstrip(" ")
    assert len(sentence.words) == token_id - 1
    actual = {
        word.id: sentence.text[word.start : word.end] for word in sentence.words.values() if word.start is not None
    }
    assert actual == expected


CONLLU = ["ID", "FORM", "LEMMA", "UPOS", "XPOS", "FEATS", "HEAD", "DEPREL", "DEPS", "MISC"]
WORDS = [
    ["1", "O", "o", "DET", "_", "Number=Sing", "2", "det", "_", "_"],
    ["2", "can", "can", "NOUN", "N", "Number=Sing", "3", "nsubj", "_", "_"],
    ["3", "ladra", "ladrar", "VERB", "_", "Number=Sing", "0", "root", "_", "SpaceAfter=No"],
    ["4", ".", ".", "PUNCT", "_", "_", "3", "punct", "_", "_"],
]


def in_columns(names):
    """Return the sentence with a header and its columns in that order; others are empty."""
    cells = [dict(zip(CONLLU, word, strict=True)) for word in WORDS]
    lines = ["\t".join(cell.get(name, "*") for name in names) for cell in cells]
    return f"# global.columns = {' '.join(names)}\n# sent_id = s\n" + "\n".join(lines) + "\n\n"


@pytest.mark.parametrize(
    "names",
    [
        CONLLU,
        CONLLU[::-1],
        ["ID", "UPOS", "FORM", "LEMMA", "FEATS", "HEAD", "DEPREL", "MISC"],
        [*CONLLU, "PARSEME:MWE"],
        ["NER:IOB", *CONLLU],
    ],
    ids=str,
)
def test_columns_of_conllu_plus_are_those_of_its_header(tmp_path, names):
    [expected] = read(tmp_path, in_columns(CONLLU))
    [sentence] = read(tmp_path, in_columns(names))
    has_xpos = "XPOS" in names
    words = [word if has_xpos else word._replace(xpos="_") for word in expected.words.values()]
    assert (sentence.text, sentence.id, list(sentence.words.values())) == ("O can ladra.", "s", words)


def test_files_of_conllu_plus_may_be_joined_and_begin_with_comments(tmp_path):
    text = "# license: CC0\n# of two files\n\n" + in_columns(CONLLU)
    text += in_columns(CONLLU[::-1]).replace("\n#", "\n\n#", 1)
    assert [sentence.text for sentence in read(tmp_path, text)] == ["O can ladra."] * 2


@pytest.mark.parametrize("name", ["FORM", "LEMMA", "HEAD", "FEATS"])
def test_a_header_without_a_column_that_patterns_need_is_an_error(tmp_path, name):
    with pytest.raises(DataError, match=rf"column {name} not found"):
        read(tmp_path, in_columns([each for each in CONLLU if each != name]))
    with pytest.raises(DataError, match="expected 11 columns"):
        read(tmp_path, in_columns(CONLLU).replace("MISC\n", "MISC PARSEME:MWE\n"))
