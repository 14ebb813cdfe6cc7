"""Minimal pairs from small treebanks: relations, incorrect forms, capitalization, syncretism and limits."""

from collections import Counter

import pytest
from vernacular.core.errors import DataError
from vernacular.data.treebank.pairs import MISSPELLED, NO_CASE, NO_WORDS, is_correct, match_case, shorten_context
from vernacular.data.treebank.patterns import load_pattern
from vernacular.data.treebank.sentences import Node, Word
from vernacular.data.treebank.source import extract, fetch

SING = "Number=Sing|Person=3"
PLUR = "Number=Plur|Person=3"
AGREEMENT = """\
pattern: mine
phenomenon: agreement
target: {upos: VERB, feats: {Number: [Sing, Plur]}}
related: [{name: subject, relation: child, deprel: nsubj, agrees: [Number]}]
swap: {Number: [Sing, Plur]}
"""


def write_treebank(directory, *sentences, name="t.conllu"):
    """Write a treebank; sentences are rows of "form lemma UPOS feats head deprel [SpaceAfter=No]" or "2-3 form"."""
    blocks = []
    for sentence_number, rows in enumerate(sentences, start=1):
        lines, token_id = [f"# sent_id = s{sentence_number}"], 0
        for row in rows:
            cells = row.split()
            if len(cells) < 4:
                lines.append("\t".join([cells[0], cells[1], *["_"] * 7, *(cells[2:] or ["_"])]))
                continue
            token_id += 1
            form, lemma, upos, feats, head, deprel, *misc = cells
            lines.append("\t".join([str(token_id), form, lemma, upos, "_", feats, head, deprel, "_", *(misc or ["_"])]))
        blocks.append("\n".join(lines) + "\n")
    path = directory / name
    path.write_text("\n".join(blocks), "utf-8")
    return path


def write_pattern(directory, text, name="mine"):
    (directory / f"{name}.yaml").write_text(text, "utf-8")
    return load_pattern(f"{name}.yaml", directory)


def pairs_of(directory, text, *sentences, forms=()):
    [pairs] = extract([write_treebank(directory, *sentences)], [write_pattern(directory, text)], list(forms)).pairs
    return pairs


def forms_of(pairs):
    return [
        (row["sentence_id"], row["match_id"], row["form_grammatical"], row["form_ungrammatical"]) for row in pairs.rows
    ]


NENO = f"O o DET Number=Sing 2 det, neno neno NOUN Number=Sing 3 nsubj, canta cantar VERB {SING} 0 root".split(", ")
NENOS = f"Os o DET Number=Plur 2 det, nenos neno NOUN Number=Plur 3 nsubj, cantan cantar VERB {PLUR} 0 root".split(", ")


def test_pair_has_the_grew_tse_columns(tmp_path):
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
    assert (pairs.targets, pairs.related, pairs.rejections) == (2, 2, {})


def test_all_matches_of_a_sentence_give_pairs(tmp_path):
    sentence = [
        f"Canta cantar VERB {SING} 0 root",
        "Ana Ana PROPN Number=Sing 1 nsubj",
        "e e CCONJ _ 4 cc",
        f"cantan cantar VERB {PLUR} 1 conj",
        "eles el PRON Number=Plur 4 nsubj",
    ]
    assert forms_of(pairs_of(tmp_path, AGREEMENT, sentence)) == [
        ("s1", "1", "Canta", "Cantan"),
        ("s1", "4", "cantan", "canta"),
    ]


def test_word_inside_a_multiword_token_is_rejected_and_attests_no_form(tmp_path):
    clitic = [
        "1-2 Cantano",
        f"Cantan cantar VERB {PLUR} 0 root",
        "o o PRON _ 1 obj",
        "nenos neno NOUN Number=Plur 1 nsubj",
    ]
    pairs = pairs_of(tmp_path, AGREEMENT, NENO, clitic)
    assert pairs.rows == []
    assert pairs.rejections == {"inside a multiword token": 1, "no form with the swapped feature": 1}
    assert pairs.rejection_examples["inside a multiword token"] == ["Cantano nenos  [[Cantan]]"]


def test_incorrect_form_is_the_most_frequent_with_equal_other_features(tmp_path):
    sentences = [
        [f"cantaban cantar VERB {PLUR}|Tense=Imp 0 root"],  # another tense
        [f"cantan cantar NOUN {PLUR} 0 root"],  # another part of speech
        [f"chantan chantar VERB {PLUR} 0 root"],  # another lemma
        [f"cantam cantar VERB {PLUR} 0 root"],
        [f"cantan cantar VERB {PLUR} 0 root"],
        [f"Cantan cantar VERB {PLUR} 0 root"],  # the same form, except for case
    ]
    assert forms_of(pairs_of(tmp_path, AGREEMENT, NENO, *sentences)) == [("s1", "3", "canta", "cantan")]


def test_syncretic_forms_are_rejected_and_counted(tmp_path):
    sentences = [
        [f"sabes saber VERB {SING} 0 root", "el el PRON Number=Sing 1 nsubj"],
        [f"sabes saber VERB {PLUR} 0 root"],
    ]
    pairs = pairs_of(tmp_path, AGREEMENT, *sentences)
    assert (pairs.rows, pairs.rejections) == ([], {"syncretic: correct and incorrect form are spelled alike": 1})


def test_variant_of_the_correct_form_is_not_an_incorrect_form(tmp_path):
    # "van" is attested in the singular, too, and not as an annotation error: it is not an incorrect form of "vai"
    rows = [
        [f"vai ir VERB {SING} 0 root", "el el PRON Number=Sing 1 nsubj"],
        [f"van ir VERB {SING} 0 root"],
        [f"van ir VERB {PLUR} 0 root"],
    ]
    assert pairs_of(tmp_path, AGREEMENT, *rows).rejections == {
        "syncretic: correct and incorrect form are spelled alike": 1
    }


PRONOUNS = """\
pattern: mine
phenomenon: case
target: {upos: PRON, feats: {Case: [Acc, Dat]}}
swap: {Case: [Dat, Nom]}
"""
GENDERS = """\
pattern: mine
phenomenon: gender
target: {upos: ADJ, feats: {Gender: [Masc, Fem, Neut]}}
related: [{name: noun, relation: head, agrees: [Gender]}]
swap: {Gender: [Fem, Neut]}
"""


def test_each_of_several_values_of_the_swapped_feature_is_correct(tmp_path):
    # of "te", which is also dative, "che" is no incorrect form
    rows = [["te ti PRON Case=Acc,Dat 0 root"], ["che ti PRON Case=Dat 0 root"], ["ti ti PRON Case=Nom 0 root"]]
    assert forms_of(pairs_of(tmp_path, PRONOUNS, *rows)) == [("s1", "1", "te", "ti"), ("s2", "1", "che", "ti")]


def test_form_attested_with_several_values_is_syncretic(tmp_path):
    rows = [
        [f"vai ir VERB {SING} 0 root", "el el PRON Number=Sing 1 nsubj"],
        ["van ir VERB Number=Plur,Sing|Person=3 0 root"],
        [f"van ir VERB {PLUR} 0 root"],
    ]
    assert pairs_of(tmp_path, AGREEMENT, *rows).rejections == {
        "syncretic: correct and incorrect form are spelled alike": 1
    }


def test_form_that_agrees_with_another_value_of_the_noun_is_not_incorrect(tmp_path):
    # "bok" is masculine or feminine: both "liten" and "lita" agree with it, "lite" does not
    rows = [
        ["liten liten ADJ Gender=Masc 2 amod", "bok bok NOUN Gender=Fem,Masc 0 root"],
        ["lita liten ADJ Gender=Fem 0 root"],
        ["lite liten ADJ Gender=Neut 0 root"],
    ]
    assert forms_of(pairs_of(tmp_path, GENDERS, *rows)) == [("s1", "1", "liten", "lite")]
    pairs = pairs_of(tmp_path, GENDERS.replace("[Fem, Neut]", "Fem"), *rows)
    assert pairs.rejections == {"also agrees with the value to swap to": 1}


def test_rare_analysis_is_not_syncretism():
    correct = Counter(é=900, son=1)
    assert is_correct("son", 20, correct)
    assert not is_correct("son", 21, correct)
    assert not is_correct("eran", 1, correct)


def test_misspelled_and_foreign_words_attest_no_form(tmp_path):
    rows = [[f"cantan cantar VERB {PLUR}|Typo=Yes 0 root"], [f"cantan cantar VERB Foreign=Yes|{PLUR} 0 root"]]
    pairs = pairs_of(tmp_path, AGREEMENT + "ignore: [Typo, Foreign]\n", NENO, *rows)
    assert pairs.rejections == {"no form with the swapped feature": 1}


@pytest.mark.parametrize(
    ("form", "reference", "expected"),
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
        ("istiyorum", "İSTİYOR", "İSTİYORUM"),  # dotted and dotless i
        ("İSTİYORUM", "istiyor", "istiyorum"),
        ("ISLANDIM", "ıslandı", "ıslandım"),
        ("içtim", "İçti", "İçtim"),
        ("ısındı", "Isındım", "Isındı"),
        ("μεγαλώνουν", "ΜΕΓΑΛΩΝΕΙ", "ΜΕΓΑΛΩΝΟΥΝ"),  # capitals without accents, or with
        ("μεγαλώνουν", "ΜΕΓΑΛΏΝΕΙ", "ΜΕΓΑΛΏΝΟΥΝ"),
        ("ρολόι", "ΡΟΛΟΓΙΑ", "ΡΟΛΟΪ"),
        ("ταΐζουν", "ΤΑΪΖΕΙ", "ΤΑΪΖΟΥΝ"),
        ("άνθρωποι", "Άνθρωπος", "Άνθρωποι"),
        ("ΜΕΓΑΛΩΝΟΥΝ", "μεγαλώνει", None),  # capitals that do not tell the letters
        ("STRASSEN", "Straße", None),
        ("ijsjes", "Ijs", None),  # Dutch, or not
        ("IJsjes", "ijs", "ijsjes"),
        ("արևներ", "ԱՐԵՎ", None),
        ("NATO", "NATO-u", "NATO"),  # abbreviations
        ("ONGs", "ONG", "ONGs"),
        ("NATO-u", "NATO-A", "NATO-U"),
        ("nGaeilge", "Gaeilge", "nGaeilge"),  # Irish: the capital is behind the letters of a mutation
        ("Gaeilge", "nGaeilge", "Gaeilge"),
        ("bhFíor", "tSeirbhís", "bhFíor"),
    ],
)
def test_match_case(form, reference, expected):
    assert match_case(form, reference) == expected


def test_cyrillic_first_word_is_capitalized(tmp_path):
    rows = [
        [f"Пева певати VERB {SING} 0 root", "дечак дечак NOUN Number=Sing 1 nsubj"],
        [f"певају певати VERB {PLUR} 0 root"],
    ]
    assert forms_of(pairs_of(tmp_path, AGREEMENT, *rows)) == [("s1", "1", "Пева", "Певају")]


def test_arabic_word_is_swapped_in_logical_order(tmp_path):
    rows = [
        ["الولد ولد NOUN Number=Sing 2 nsubj", f"يكتب كتب VERB {SING} 0 root SpaceAfter=No", ". . PUNCT _ 2 punct"],
        [f"يكتبون كتب VERB {PLUR} 0 root"],
    ]
    [row] = pairs_of(tmp_path, AGREEMENT, *rows).rows
    assert (row["masked_text"], row["ungrammatical_text"]) == ("الولد [MASK].", "الولد يكتبون.")


def test_several_swaps_give_distinct_incorrect_forms(tmp_path):
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


def test_swap_may_remove_a_feature_and_ignore_others(tmp_path):
    text = "pattern: mine\ntarget: {upos: ADJ}\nswap: {Gender: Fem, Animacy: false}\nignore: [Definite]\n"
    rows = [
        ["nov nov ADJ Animacy=Inan|Definite=Ind|Gender=Masc 0 root"],
        ["nova nov ADJ Definite=Def|Gender=Fem 0 root"],
    ]
    pairs = pairs_of(tmp_path, text, *rows)
    assert forms_of(pairs) == [("s1", "1", "nov", "nova")]
    assert pairs.rows[0]["swapped"] == "Gender=Fem|Animacy="
    assert pairs.rejections == {"already has the value to swap to": 1}


def test_form_correct_with_an_open_feature_is_rejected(tmp_path):
    # "bez rezolucije, bez rezolucija": the nominative singular equals the genitive plural, which is also correct
    rows = [
        ["rezolucije rezolucija NOUN Case=Gen|Number=Sing 0 root"],
        ["rezolucija rezolucija NOUN Case=Nom|Number=Sing 0 root"],
        ["rezolucija rezolucija NOUN Case=Gen|Number=Plur 0 root"],
    ]
    text = "pattern: mine\ntarget: {upos: NOUN, feats: {Case: Gen, Number: Sing}}\nswap: {Case: Nom}\n"
    assert len(pairs_of(tmp_path, text, *rows).rows) == 1
    pairs = pairs_of(tmp_path, text + "open: [Number]\n", *rows)
    assert pairs.rejections == {"syncretic: correct and incorrect form are spelled alike": 1}


def test_word_without_lemma_is_rejected(tmp_path):
    pairs = pairs_of(
        tmp_path,
        "pattern: mine\ntarget: {upos: X}\nswap: {Number: Plur}\n",
        ["a _ X Number=Sing 0 root"],
        ["b _ X Number=Plur 0 root"],
    )
    assert pairs.rejections == {"no lemma": 2}


def test_without_is_checked_after_related_words(tmp_path):
    coordinated = [
        "Xan Xan PROPN Number=Sing 2 nsubj",
        f"canta cantar VERB {SING} 0 root",
        "Ana Ana PROPN Number=Sing 1 conj",
    ]
    text = AGREEMENT + "without: [{relation: child, of: subject, deprel: conj}]\n"
    pairs = pairs_of(tmp_path, text, coordinated, NENO, NENOS)
    assert (pairs.targets, pairs.related, len(pairs.rows)) == (3, 2, 2)


@pytest.mark.parametrize(
    ("related", "expected"),
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
def test_relations(tmp_path, related, expected):
    rows = [
        "O o DET _ 3 det",
        "neno neno NOUN Number=Sing 3 nsubj",
        "canta cantar VERB Number=Sing 0 root",
        "unha un DET _ 2 det",
        "canción canción NOUN Number=Plur 3 obj",
    ]
    text = f"pattern: mine\ntarget: {{not: {{form: [unha, canción]}}}}\nrelated: [{related}]\nswap: {{Number: Plur}}\n"
    pairs = pairs_of(tmp_path, text, rows)
    targets = [text.split("[[")[1].split("]]")[0] for texts in pairs.rejection_examples.values() for text in texts]
    assert sorted(targets) == sorted(expected)


@pytest.mark.parametrize(
    ("spec", "fits"),
    [
        ({"upos": ["VERB", "AUX"]}, True),
        ({"deprel": "nsubj"}, False),
        ({"deprel": "nsubj*"}, True),
        ({"lemma": "[x]*"}, False),
        ({"feats": {"PronType": "Rel"}}, True),  # one of Int,Rel
        ({"not": {"feats": {"PronType": "Int,Rel"}}}, False),  # as in the file
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


def test_limits_are_separate_rejection_reasons(tmp_path):
    text = AGREEMENT + "limits: {min_words: 3, max_words: 4, max_distance: 1, per_lemma: 1}\n"
    short = [f"Canta cantar VERB {SING} 0 root", "Ana Ana PROPN Number=Sing 1 nsubj"]
    far = ["Ana Ana PROPN Number=Sing 3 nsubj", "non non ADV _ 3 advmod", f"canta cantar VERB {SING} 0 root"]
    long = [*far, "moi moi ADV _ 5 advmod", "ben ben ADV _ 3 advmod"]
    pairs = pairs_of(tmp_path, text, short, far, long, NENO, NENOS)
    assert pairs.rejections == {
        "sentence of fewer than 3 words": 1,
        "more than 1 words apart": 1,
        "sentence of more than 4 words": 1,
        "more than 1 with the same lemma": 1,
    }
    assert len(pairs.rows) == 1


def test_duplicate_sentence_id_gets_a_suffix(tmp_path):
    paths = [write_treebank(tmp_path, NENO, NENOS), write_treebank(tmp_path, NENO, name="u.conllu")]
    extraction = extract(paths, [write_pattern(tmp_path, AGREEMENT)])
    assert [(row["sentence_id"], row["treebank"]) for row in extraction.rows] == [
        ("s1", "t.conllu"),
        ("s2", "t.conllu"),
        ("s1~2", "u.conllu"),
    ]


def test_forms_treebank_adds_forms_but_no_sentences(tmp_path):
    forms_path = write_treebank(tmp_path, NENOS, name="more.conllu")
    extraction = extract([write_treebank(tmp_path, NENO)], [write_pattern(tmp_path, AGREEMENT)], [forms_path])
    assert extraction.sentences == 1
    assert [row["form_ungrammatical"] for row in extraction.rows] == ["cantan"]


def test_shorten_context_cuts_at_spaces():
    assert shorten_context("unha dúas tres", "[[x]]", "catro cinco seis", width=8) == "… tres[[x]]catro …"
    assert shorten_context("a" * 9, "[[x]]", "b" * 9, width=4) == "…aaaa[[x]]bbbb…"


def test_dotless_i_of_the_treebank_decides_capitals(tmp_path):
    """ALDI has neither ı nor İ; in a treebank without these, its plural is another word."""
    subject = "ali ali NOUN Number=Sing 2 nsubj"
    rows = [[subject, f"GELDI gelmek VERB {SING} 0 root"], [f"geldiler gelmek VERB {PLUR} 0 root"]]
    turkish = [f"kadın kadın NOUN Number=Sing {n} nsubj" for n in (2,)] + [f"aldı almak VERB {SING} 0 root"]
    [row] = pairs_of(tmp_path, AGREEMENT, *rows).rows
    assert row["form_ungrammatical"] == "GELDILER"
    row = pairs_of(tmp_path, AGREEMENT, *rows, turkish).rows[0]
    assert row["form_ungrammatical"] == "GELDİLER"


def test_a_form_in_capitals_that_is_the_target_gives_no_pair(tmp_path):
    subject = "κόρη κόρη NOUN Number=Sing 2 nsubj"
    rows = [[subject, f"ΓΕΛΑ γελάω VERB {SING} 0 root"], [f"γελά γελάω VERB {PLUR} 0 root"]]
    pairs = pairs_of(tmp_path, AGREEMENT, *rows)
    assert (pairs.rows, list(pairs.rejections)) == ([], ["syncretic: correct and incorrect form are spelled alike"])
    rows = [[subject, f"γελά γελάω VERB {SING} 0 root"], [f"ΓΕΛΟΥΝ γελάω VERB {PLUR} 0 root"]]
    pairs = pairs_of(tmp_path, AGREEMENT, *rows)
    assert (pairs.rows, list(pairs.rejections)) == ([], [NO_CASE])


@pytest.mark.parametrize("misc", ["Typo=Yes", "CorrectForm=cantan", "SpaceAfter=No|CorrectForm=canta"])
def test_misspelled_words_are_no_targets(tmp_path, misc):
    """Nor words that a target agrees with: the sentence is not correct."""
    pairs = pairs_of(
        tmp_path, AGREEMENT, [*NENO[:2], f"{NENO[2]} {misc}"], [NENO[0], f"{NENO[1]} {misc}", NENO[2]], NENOS
    )
    assert forms_of(pairs) == [("s3", "3", "cantan", "canta")]
    assert pairs.rejections == {MISSPELLED: 2}


def test_words_split_by_goeswith_are_no_targets_and_attest_no_form(tmp_path):
    split = [*NENO[:2], f"can cantar VERB {SING} 0 root", "ta _ X _ 3 goeswith"]
    pairs = pairs_of(tmp_path, AGREEMENT, split, NENOS)
    assert pairs.rows == []
    assert pairs.rejections == {MISSPELLED: 1, "no form with the swapped feature": 1}


@pytest.mark.parametrize("name", ["deleted_word", "swapped_words"])
def test_misspelled_and_missing_words_are_neither_deleted_nor_swapped(tmp_path, name):
    words = "Onte onte ADV _ 2 advmod", "vin ver VERB _ 0 root", "ao ao ADP _ 4 case", "can can NOUN _ 2 obj"
    sound = write_treebank(tmp_path, words)
    misspelled = write_treebank(tmp_path, [words[0], *(f"{word} Typo=Yes" for word in words[1:])], name="typo.conllu")
    missing = write_treebank(tmp_path, [" ".join(["_", "_", *word.split()[2:]]) for word in words], name="none.conllu")
    for path, reasons in ((sound, {}), (misspelled, {MISSPELLED: 1}), (missing, {NO_WORDS: 1})):
        [pairs] = extract([path], [load_pattern(name)]).pairs
        assert (len(pairs.rows), pairs.rejections) == (not reasons, reasons)


@pytest.mark.parametrize("stripped", ["_ vello ADJ _ 1 amod", "4-5 _"])
def test_a_word_without_its_form_anywhere_in_a_sentence_leaves_no_pair(tmp_path, stripped):
    """Also one that no pattern matches, or of several words; an underscore that is a sign is a word like others."""
    added = [stripped] if "-" not in stripped else [stripped, "de de ADP _ 1 case", "o o DET _ 1 det"]
    pairs = pairs_of(tmp_path, AGREEMENT, [*NENO, *added], [*NENO, "_ _ SYM _ 3 dep"], NENOS)
    assert [row["sentence_id"] for row in pairs.rows if "_" in row["original_text"]] == ["s2"]
    assert pairs.rejections == {NO_WORDS: 1}


def test_a_treebank_without_its_words_has_no_pairs_and_the_reason(tmp_path):
    write_treebank(tmp_path, [" ".join(["_", "_", *row.split()[2:]]) for row in NENO])
    source = {"treebank": "t.conllu", "pattern": [load_pattern("deleted_word")], "unit": "pair"}
    with pytest.raises(DataError, match="merge the words with the script"):
        fetch(source, tmp_path)
