"""Pairs from hand-made treebanks, counted by hand: relations, wrong forms, capitals, syncretism, limits."""

from collections import Counter

import pytest
from vernacular.data.treebank.forms import is_right, like
from vernacular.data.treebank.match import Node
from vernacular.data.treebank.pairs import around
from vernacular.data.treebank.patterns import load_pattern
from vernacular.data.treebank.sentences import Word
from vernacular.data.treebank.source import extract

SING = "Number=Sing|Person=3"
PLUR = "Number=Plur|Person=3"
AGREEMENT = """\
pattern: mine
phenomenon: agreement
target: {upos: VERB, feats: {Number: [Sing, Plur]}}
related: [{name: subject, relation: child, deprel: nsubj, agrees: [Number]}]
swap: {Number: [Sing, Plur]}
"""


def treebank(folder, *sentences, name="t.conllu"):
    """Each sentence is rows of "form lemma UPOS feats head deprel" (and "SpaceAfter=No"), or of "2-3 form"."""
    blocks = []
    for number, rows in enumerate(sentences, start=1):
        lines, at = [f"# sent_id = s{number}"], 0
        for row in rows:
            cells = row.split()
            if len(cells) < 4:
                lines.append("\t".join([cells[0], cells[1], *["_"] * 7, *(cells[2:] or ["_"])]))
                continue
            at += 1
            form, lemma, upos, feats, head, deprel, *misc = cells
            lines.append("\t".join([str(at), form, lemma, upos, "_", feats, head, deprel, "_", *(misc or ["_"])]))
        blocks.append("\n".join(lines) + "\n")
    path = folder / name
    path.write_text("\n".join(blocks), "utf-8")
    return path


def pattern(folder, text, name="mine"):
    (folder / f"{name}.yaml").write_text(text, "utf-8")
    return load_pattern(f"{name}.yaml", folder)


def pairs_of(folder, text, *sentences, forms=()):
    [pairs] = extract([treebank(folder, *sentences)], [pattern(folder, text)], list(forms)).pairs
    return pairs


def forms_of(pairs):
    return [
        (row["sentence_id"], row["match_id"], row["form_grammatical"], row["form_ungrammatical"]) for row in pairs.rows
    ]


NENO = f"O o DET Number=Sing 2 det, neno neno NOUN Number=Sing 3 nsubj, canta cantar VERB {SING} 0 root".split(", ")
NENOS = f"Os o DET Number=Plur 2 det, nenos neno NOUN Number=Plur 3 nsubj, cantan cantar VERB {PLUR} 0 root".split(", ")


def test_pair_has_the_columns_of_grew_tse_and_what_it_loses(tmp_path):
    pairs = pairs_of(tmp_path, AGREEMENT, NENO, NENOS)
    assert pairs.rows[0] == {
        "sentence_id": "s1",
        "match_id": "3",
        "original_text": "O neno canta",
        "masked_text": "O neno [MASK]",
        "prompt_text": "O neno",
        "form_grammatical": "canta",
        "form_ungrammatical": "cantan",
        "ungrammatical_text": "O neno cantan",
        "lemma": "cantar",
        "upos": "VERB",
        "features": SING,
        "swapped": "Number=Plur",
        "deprel": "root",
        "distance": "1",
        "phenomenon": "agreement",
        "pattern": "mine",
        "treebank": "t.conllu",
    }
    assert (pairs.targets, pairs.related, pairs.left_out) == (2, 2, {})


def test_every_match_of_a_sentence_is_kept(tmp_path):
    both = [
        f"Canta cantar VERB {SING} 0 root",
        "Ana Ana PROPN Number=Sing 1 nsubj",
        "e e CCONJ _ 4 cc",
        f"cantan cantar VERB {PLUR} 1 conj",
        "eles el PRON Number=Plur 4 nsubj",
    ]
    assert forms_of(pairs_of(tmp_path, AGREEMENT, both)) == [
        ("s1", "1", "Canta", "Cantan"),
        ("s1", "4", "cantan", "canta"),
    ]


def test_word_inside_a_multiword_token_is_counted_not_dropped_and_lends_no_form(tmp_path):
    clitic = [
        "1-2 Cantano",
        f"Cantan cantar VERB {PLUR} 0 root",
        "o o PRON _ 1 obj",
        "nenos neno NOUN Number=Plur 1 nsubj",
    ]
    pairs = pairs_of(tmp_path, AGREEMENT, NENO, clitic)
    assert pairs.rows == []
    assert pairs.left_out == {"inside a multiword token": 1, "no form with the swapped feature": 1}
    assert pairs.lost["inside a multiword token"] == ["Cantano nenos  [[Cantan]]"]


def test_wrong_form_is_the_most_frequent_of_those_equal_in_all_other_features(tmp_path):
    others = [
        [f"cantaban cantar VERB {PLUR}|Tense=Imp 0 root"],  # another tense
        [f"cantan cantar NOUN {PLUR} 0 root"],  # another part of speech
        [f"chantan chantar VERB {PLUR} 0 root"],  # another lemma
        [f"cantam cantar VERB {PLUR} 0 root"],
        [f"cantan cantar VERB {PLUR} 0 root"],
        [f"Cantan cantar VERB {PLUR} 0 root"],  # capitals aside, the same form
    ]
    assert forms_of(pairs_of(tmp_path, AGREEMENT, NENO, *others)) == [("s1", "3", "canta", "cantan")]


def test_syncretic_forms_are_left_out_and_counted(tmp_path):
    same = [[f"sabes saber VERB {SING} 0 root", "el el PRON Number=Sing 1 nsubj"], [f"sabes saber VERB {PLUR} 0 root"]]
    pairs = pairs_of(tmp_path, AGREEMENT, *same)
    assert (pairs.rows, pairs.left_out) == ([], {"syncretic: correct and incorrect form are spelled alike": 1})


def test_variant_of_the_right_form_is_no_wrong_form(tmp_path):
    # "van" is attested in the singular too, and not by a slip: it cannot be held against "vai"
    rows = [
        [f"vai ir VERB {SING} 0 root", "el el PRON Number=Sing 1 nsubj"],
        [f"van ir VERB {SING} 0 root"],
        [f"van ir VERB {PLUR} 0 root"],
    ]
    assert pairs_of(tmp_path, AGREEMENT, *rows).left_out == {
        "syncretic: correct and incorrect form are spelled alike": 1
    }


def test_slip_of_annotation_makes_no_syncretism():
    right = Counter(é=900, son=1)
    assert is_right("son", 20, right)
    assert not is_right("son", 21, right)
    assert not is_right("eran", 1, right)


def test_misspelt_and_foreign_words_lend_no_form(tmp_path):
    rows = [[f"cantan cantar VERB {PLUR}|Typo=Yes 0 root"], [f"cantan cantar VERB Foreign=Yes|{PLUR} 0 root"]]
    pairs = pairs_of(tmp_path, AGREEMENT + "ignore: [Typo, Foreign]\n", NENO, *rows)
    assert pairs.left_out == {"no form with the swapped feature": 1}


@pytest.mark.parametrize(
    ("form", "model", "expected"),
    [
        ("cantan", "Canta", "Cantan"),
        ("cantan", "CANTA", "CANTAN"),
        ("son", "É", "Son"),
        ("Häuser", "Haus", "Häuser"),
        ("певају", "Пева", "Певају"),
        ("يكتبون", "يكتب", "يكتبون"),
        ("cantan", "canta", "cantan"),
        ("Cantan", "canta", "cantan"),
        ("d'", "L'", "D'"),
        ("😀", "Ok", "😀"),
    ],
)
def test_capitals_follow_the_target(form, model, expected):
    assert like(form, model) == expected


def test_cyrillic_first_word_is_swapped_in_capitals(tmp_path):
    rows = [
        [f"Пева певати VERB {SING} 0 root", "дечак дечак NOUN Number=Sing 1 nsubj"],
        [f"певају певати VERB {PLUR} 0 root"],
    ]
    assert forms_of(pairs_of(tmp_path, AGREEMENT, *rows)) == [("s1", "1", "Пева", "Певају")]


def test_arabic_is_swapped_in_reading_order(tmp_path):
    rows = [
        ["الولد ولد NOUN Number=Sing 2 nsubj", f"يكتب كتب VERB {SING} 0 root SpaceAfter=No", ". . PUNCT _ 2 punct"],
        [f"يكتبون كتب VERB {PLUR} 0 root"],
    ]
    [row] = pairs_of(tmp_path, AGREEMENT, *rows).rows
    assert (row["masked_text"], row["ungrammatical_text"]) == ("الولد [MASK].", "الولد يكتبون.")


def test_several_swaps_are_several_wrong_forms_each_spelling_once(tmp_path):
    text = AGREEMENT.replace("swap: {Number: [Sing, Plur]}", "swap: {Person: [1, 2, 3], Number: [Sing, Plur]}")
    rows = [
        [f"vai ir VERB {SING} 0 root", "el el PRON Number=Sing 1 nsubj"],
        [f"van ir VERB {PLUR} 0 root"],
        ["vou ir VERB Number=Sing|Person=1 0 root"],
        ["VAN ir VERB Number=Plur|Person=1 0 root"],
    ]
    [row] = pairs_of(tmp_path, text, *rows).rows
    assert [row[f"form_ungrammatical{n}"] for n in ("", "_2")] == ["vou", "van"]
    assert row["swapped"] == "Person=1|Number=Sing Person=1|Number=Plur"
    assert "form_ungrammatical_3" not in row


def test_feature_may_be_taken_away_and_others_ignored(tmp_path):
    text = "pattern: mine\ntarget: {upos: ADJ}\nswap: {Gender: Fem, Animacy: false}\nignore: [Definite]\n"
    rows = [
        ["nov nov ADJ Animacy=Inan|Definite=Ind|Gender=Masc 0 root"],
        ["nova nov ADJ Definite=Def|Gender=Fem 0 root"],
    ]
    pairs = pairs_of(tmp_path, text, *rows)
    assert forms_of(pairs) == [("s1", "1", "nov", "nova")]
    assert pairs.rows[0]["swapped"] == "Gender=Fem|Animacy="
    assert pairs.left_out == {"already has the value to swap to": 1}


def test_form_that_is_right_in_another_number_is_no_wrong_form(tmp_path):
    # "bez rezolucije, bez rezolucija": the nominative singular is the genitive plural, which is as right
    rows = [
        ["rezolucije rezolucija NOUN Case=Gen|Number=Sing 0 root"],
        ["rezolucija rezolucija NOUN Case=Nom|Number=Sing 0 root"],
        ["rezolucija rezolucija NOUN Case=Gen|Number=Plur 0 root"],
    ]
    text = "pattern: mine\ntarget: {upos: NOUN, feats: {Case: Gen, Number: Sing}}\nswap: {Case: Nom}\n"
    assert len(pairs_of(tmp_path, text, *rows).rows) == 1
    pairs = pairs_of(tmp_path, text + "open: [Number]\n", *rows)
    assert pairs.left_out == {"syncretic: correct and incorrect form are spelled alike": 1}


def test_word_without_lemma_has_no_other_forms(tmp_path):
    pairs = pairs_of(
        tmp_path,
        "pattern: mine\ntarget: {upos: X}\nswap: {Number: Plur}\n",
        ["a _ X Number=Sing 0 root"],
        ["b _ X Number=Plur 0 root"],
    )
    assert pairs.left_out == {"no lemma": 2}


def test_what_must_not_be_there_is_looked_for_after_what_must(tmp_path):
    coordinated = [
        "Xan Xan PROPN Number=Sing 2 nsubj",
        f"canta cantar VERB {SING} 0 root",
        "Ana Ana PROPN Number=Sing 1 conj",
    ]
    text = AGREEMENT + "without: [{relation: child, of: subject, deprel: conj}]\n"
    pairs = pairs_of(tmp_path, text, coordinated, NENO, NENOS)
    assert (pairs.targets, pairs.related, len(pairs.rows)) == (3, 2, 2)


@pytest.mark.parametrize(
    ("related", "found"),
    [
        ("{relation: head, upos: VERB}", ["O", "neno"]),
        ("{relation: child, upos: DET}", ["neno", "canta"]),
        ("{relation: sibling, upos: DET}", ["neno"]),
        ("{relation: sibling, deprel: obj}", ["O", "neno"]),
        ("{relation: word, deprel: obj, order: before}", []),
        ("{relation: word, deprel: obj, order: after}", ["O", "neno", "canta"]),
        ("{relation: word, deprel: obj, order: after, within: 2}", ["canta"]),
        ("{relation: word, form: canta, agrees: [Number]}", ["neno"]),
        ("{relation: word, form: un*, assume: {Number: Sing}, agrees: [Number]}", ["neno", "canta"]),
    ],
)
def test_relations(tmp_path, related, found):
    rows = [
        "O o DET _ 3 det",
        "neno neno NOUN Number=Sing 3 nsubj",
        "canta cantar VERB Number=Sing 0 root",
        "unha un DET _ 2 det",
        "canción canción NOUN Number=Plur 3 obj",
    ]
    text = f"pattern: mine\ntarget: {{not: {{form: [unha, canción]}}}}\nrelated: [{related}]\nswap: {{Number: Plur}}\n"
    pairs = pairs_of(tmp_path, text, rows)
    lost = [text.split("[[")[1].split("]]")[0] for texts in pairs.lost.values() for text in texts]
    assert sorted(lost) == sorted(found)


@pytest.mark.parametrize(
    ("spec", "fits"),
    [
        ({"upos": ["VERB", "AUX"]}, True),
        ({"deprel": "nsubj"}, False),
        ({"deprel": "nsubj*"}, True),
        ({"lemma": "[x]*"}, False),
        ({"feats": {"PronType": "Rel"}}, True),  # one of Int,Rel
        ({"feats": {"Person": 3}}, True),
        ({"feats": {"Case": True}}, False),
        ({"feats": {"Case": False}}, True),
        ({"not": {"upos": "NOUN", "feats": {"Person": 3}}}, False),
        ({"not": {"upos": "NOUN", "feats": {"Person": 1}}}, True),
        ({"assume": {"Case": "Nom"}, "feats": {"Case": "Nom"}}, True),
    ],
)
def test_constraints(spec, fits):
    word = Word(1, "quen", "quen", "AUX", "_", {"PronType": "Int,Rel", "Person": "3"}, 0, "nsubj:pass", 0, 4)
    assert Node.of(spec).fits(word) is fits


def test_limits_are_reasons_of_their_own(tmp_path):
    text = AGREEMENT + "limits: {min_words: 3, max_words: 4, max_distance: 1, per_lemma: 1}\n"
    short = [f"Canta cantar VERB {SING} 0 root", "Ana Ana PROPN Number=Sing 1 nsubj"]
    far = ["Ana Ana PROPN Number=Sing 3 nsubj", "non non ADV _ 3 advmod", f"canta cantar VERB {SING} 0 root"]
    long = [*far, "moi moi ADV _ 5 advmod", "ben ben ADV _ 3 advmod"]
    pairs = pairs_of(tmp_path, text, short, far, long, NENO, NENOS)
    assert pairs.left_out == {
        "sentence of fewer than 3 words": 1,
        "more than 1 words apart": 1,
        "sentence of more than 4 words": 1,
        "more than 1 with the same lemma": 1,
    }
    assert len(pairs.rows) == 1


def test_second_sentence_of_a_name_gets_a_name_of_its_own(tmp_path):
    paths = [treebank(tmp_path, NENO, NENOS), treebank(tmp_path, NENO, name="u.conllu")]
    found = extract(paths, [pattern(tmp_path, AGREEMENT)])
    assert [(row["sentence_id"], row["treebank"]) for row in found.rows] == [
        ("s1", "t.conllu"),
        ("s2", "t.conllu"),
        ("s1~2", "u.conllu"),
    ]


def test_further_treebank_lends_forms_but_no_sentences(tmp_path):
    more = treebank(tmp_path, NENOS, name="more.conllu")
    found = extract([treebank(tmp_path, NENO)], [pattern(tmp_path, AGREEMENT)], [more])
    assert found.sentences == 1
    assert [row["form_ungrammatical"] for row in found.rows] == ["cantan"]


def test_long_surroundings_are_cut_at_blanks():
    assert around("unha dúas tres", "[[x]]", "catro cinco seis", width=8) == "… tres[[x]]catro …"
    assert around("a" * 9, "[[x]]", "b" * 9, width=4) == "…aaaa[[x]]bbbb…"
