"""Language of generated texts: script, close varieties, short and mixed texts, the same rule for correct answers.

The sentences are written for this file. Tests of the identifier need heliport, which is not a dependency.
"""

import importlib.util
import sys

import pytest
from support.optional import needs_package
from support.sample_items import item
from vernacular.core.languages import language_name
from vernacular.core.paths import WORKFLOW
from vernacular.data.tasks import load_task, task_names
from vernacular.metrics.aggregate import aggregate
from vernacular.metrics.language import (
    METRICS,
    NOT_INSTALLED,
    LanguageMeter,
    candidates,
    clean,
    codes,
    identify,
    main_script,
    n_letters,
    unidentified,
)
from vernacular.protocols.diagnosis import Diagnoser
from vernacular.protocols.observations import Subject

needs_identifier = needs_package("heliport")

# subjects, verbs with their objects, and places: 50 sentences of each language
PARTS = {
    "gl": (
        ["A miña avoa", "O veciño do primeiro andar", "Aquela rapaza", "O mestre da aldea", "A xente do lugar"],
        ["sempre lle conta contos ás nenas", "aínda non atopou as chaves", "quere ir xunto dos seus irmáns",
         "fai o pan de millo polas mañás", "dille a todos que chove moito"],
        ["na beira do río, onde medran os carballos.", "cando chega a noite e hai lúa chea."],
    ),
    "pt": (
        ["A minha avó", "O vizinho do primeiro andar", "Aquela rapariga", "O professor da aldeia", "A gente do lugar"],
        ["conta sempre histórias às meninas", "ainda não encontrou as chaves", "quer ir ter com os seus irmãos",
         "faz o pão de milho pelas manhãs", "diz a todos que chove muito"],
        ["na beira do rio, onde crescem os carvalhos.", "quando chega a noite e há lua cheia."],
    ),
    "es": (
        ["Mi abuela", "El vecino del primer piso", "Aquella muchacha", "El maestro del pueblo", "La gente del lugar"],
        ["siempre les cuenta cuentos a las niñas", "todavía no ha encontrado las llaves", "quiere ir con sus hermanos",
         "hace el pan de maíz por las mañanas", "les dice a todos que llueve mucho"],
        ["en la orilla del río, donde crecen los robles.", "cuando llega la noche y hay luna llena."],
    ),
    "ca": (
        ["La meva àvia", "El veí del primer pis", "Aquella noia", "El mestre del poble", "La gent del lloc"],
        ["sempre explica contes a les nenes", "encara no ha trobat les claus", "vol anar amb els seus germans",
         "fa el pa de blat de moro als matins", "diu a tothom que plou molt"],
        ["a la vora del riu, on creixen els roures.", "quan arriba la nit i hi ha lluna plena."],
    ),
    "en": (
        ["My grandmother", "The neighbor on the first floor", "That girl", "The village teacher", "The people here"],
        ["always told stories to the children", "had not found the keys yet", "wanted to go with the brothers",
         "made corn bread in the morning", "told everybody that it rained a lot"],
        ["by the river, where the oaks grow.", "when the night came and the moon was full."],
    ),
    "sr": (
        ["Моја бака", "Комшија са првог спрата", "Она девојка", "Учитељ из села", "Народ у овом крају"],
        ["увек прича приче деци", "још није нашао кључеве", "жели да иде са браћом", "меси проју сваког јутра",
         "говори свима да много пада киша"],
        ["поред реке, где расту храстови.", "кад падне ноћ и месец је пун."],
    ),
}  # fmt: skip
CYRILLIC, LATIN = "абвгдђежзијклљмнњопрстћуфхцчџш", "a b v g d đ e ž z i j k l lj m n nj o p r s t ć u f h c č dž š"
LETTERS = dict(zip(CYRILLIC, LATIN.split(), strict=True))


def sentences(language: str) -> list[str]:
    return [f"{a} {b} {c}" for a in PARTS[language][0] for b in PARTS[language][1] for c in PARTS[language][2]]


def in_latin(text: str) -> str:
    letters = ((LETTERS.get(c.lower(), c), c) for c in text)
    return "".join(latin.capitalize() if c.isupper() else latin for latin, c in letters)


@needs_identifier
@pytest.mark.parametrize("language", PARTS)
def test_own_sentences_are_identified(language):
    texts = sentences(language)
    assert len(texts) == 50
    assert min(map(n_letters, texts)) >= 40
    right = [identify(text, language, main_script(text)[0]) == language for text in texts]
    assert sum(right) >= {"gl": 49, "ca": 47}.get(language, 49), [
        t for t, ok in zip(texts, right, strict=True) if not ok
    ]


@needs_identifier
def test_galician_of_100_letters_is_never_taken_for_portuguese():
    """Another identifier takes every third such text for Portuguese."""
    texts = sentences("gl")
    pairs = [f"{a} {b}" for a, b in zip(texts, texts[7:], strict=False)]
    assert min(map(n_letters, pairs)) >= 100
    assert {identify(text, "gl", "Latin") for text in pairs} == {"gl"}
    assert {identify(text, "pt", "Latin") for text in pairs} == {"gl"}, "nor if Portuguese is expected"
    assert {
        identify(f"{a} {b}", "gl", "Latin") for a, b in zip(sentences("pt"), sentences("pt")[7:], strict=False)
    } == {"pt"}


@needs_identifier
@pytest.mark.parametrize("expected", ["Cyrillic", "Latin"])
@pytest.mark.parametrize("language", ["sr", "hr"])
def test_serbian_is_correct_in_the_script_of_its_item(expected, language):
    cyrillic, latin = sentences("sr")[:20], list(map(in_latin, sentences("sr")[:20]))
    found = {
        script: [identify(text, language, expected) for text in texts]
        for script, texts in (("Cyrillic", cyrillic), ("Latin", latin))
    }
    other = {"Cyrillic": "Latin", "Latin": "Cyrillic"}[expected]
    assert found[expected].count(language) >= 19
    assert found[other] == [f"{other} script"] * 20


@needs_identifier
@pytest.mark.parametrize(
    "text",
    [
        "Das Haus meiner Großmutter steht oben im Dorf, und von dort sieht man das Meer bei jedem Wetter.",
        "Casa bunicii mele este în vârful satului și de acolo se vede marea.",
        "La casa di mia nonna si trova in cima al paese e da lì si vede il mare tutto l'anno.",
    ],
)
def test_language_outside_the_candidates_is_other(text):
    assert identify(text, "gl", "Latin") == "other"


def test_short_texts_are_undecided_and_another_script_needs_no_identifier(monkeypatch):
    monkeypatch.setitem(sys.modules, "heliport", None)  # an import would fail
    assert identify("Santiago de Compostela", "gl", "Latin") is None
    assert identify("Сантьяго", "gl", "Latin") is None, "eight letters: a name, perhaps"
    assert identify("Сантьяго-де-Компостела", "gl", "Latin") == "Cyrillic script"
    assert identify("", "gl", "Latin") is None
    assert identify("ひらがなだけのこたえ", "ja", main_script("東京都の漢字の質問文")[0]) is None, (
        "Kana and Han are one script"
    )


def test_cleaning_removes_code_addresses_and_copied_texts():
    text = "Mira https://example.org/a `print(x)` ```\nimport os\n``` **a casa** 1234"
    assert clean(text).split() == ["Mira", "a", "casa"]
    assert clean("Digo: a casa da miña avoa é grande, si.", ["a casa da miña avoa é grande"]).split() == [
        "Digo:",
        ",",
        "si.",
    ]
    assert "casa da avoa" in clean("a casa da avoa", ["casa da avoa"]), "fewer than five words"


def responses(texts, *, gold, language="gl", **columns):
    """Return (items, generations, results) of responses to items whose target is `gold(i)`."""
    items = [item(f"i{n}", question="Que pasa?", target=gold(n)) for n in range(len(texts))]
    outputs = [{"item_id": f"i{n}", "output": text, "raw_output": text} | columns for n, text in enumerate(texts)]
    rows = [
        {"item_id": f"i{n}", "cluster_id": None, "category": None, "prompt": "", "choices": [], "gold": [], "tie": None,
         "option_scores": None, "prediction": text, "predicted_indices": None, "correct": None, "metrics": {}, "flags": None}
        for n, text in enumerate(texts)
    ]  # fmt: skip
    return items, outputs, rows


def measured(texts, gold, language="gl", **columns):
    items, outputs, rows = responses(texts, gold=gold, **columns)
    meter = LanguageMeter(language)
    meter.add(items, outputs, rows, is_tool=False)
    values = [*aggregate(rows, METRICS, seed=0, categories=False), *meter.values()]
    return {row["metric"]: row for row in values}, meter, rows


@needs_identifier
def test_responses_with_one_line_in_another_language():
    own, other = sentences("gl"), sentences("es")
    texts = ["\n".join([own[i % 50], own[(i + 7) % 50], own[(i + 20) % 50], other[i % 50]]) for i in range(100)]
    values, _, _ = measured(texts, lambda i: own[i % 50])
    assert values["wrong_line_share"]["value"] == pytest.approx(0.25, abs=0.02)
    assert values["language_lpr"]["value"] == 0
    assert values["language_correct_gold"]["value"] >= 0.98
    assert all(values[name]["ci_low"] is not None for name in ("wrong_line_share", "language_lpr", "language_correct"))


def test_lines_in_scripts_without_spaces_count(monkeypatch):
    class Identifier:
        def identify_topk_with_score(self, text, _):
            return [("cmn" if "的" in text else "eng", 1.0)]

    monkeypatch.setattr("vernacular.metrics.language._identifier", Identifier)
    monkeypatch.setattr("vernacular.metrics.language.is_available", lambda: True)
    own, other = "猫在屋顶上睡觉的时候" * 5, "While the cat sleeps on the roof, the dog eats its food."
    values, _, _ = measured([f"{own}\n{own}\n{other}\n{own}", own], lambda _: own, "zh")
    assert (values["wrong_line_share"]["value"], values["language_lpr"]["value"]) == (0.2, 0.5)
    values, _, _ = measured([f"{other}\n{own}"], lambda _: other, "en")
    assert values["wrong_line_share"]["value"] == 0.5


@needs_identifier
def test_wrong_language_is_a_diagnosis_beside_the_correct_answers():
    texts = [sentences("gl")[i] if i % 2 else sentences("pt")[i] for i in range(50)]
    values, meter, _ = measured(texts, lambda i: sentences("gl")[i])
    assert values["language_correct"]["value"] == pytest.approx(0.5, abs=0.02)
    assert values["language_decided"]["value"] == 1
    diagnoser = Diagnoser(Subject("generation", "open"))
    [found] = diagnoser.diagnose([row | {"category": ""} for row in values.values()], meter=meter)
    assert (found.code, found.severity) == ("language", "failure")
    assert found.sentence.startswith("25 of 50 responses are not in the language of the items, gl (pt 25")
    assert [each.item for each in found.examples] == ["i0", "i2", "i4"]
    counts = meter.counts()
    assert counts.answered == {"gl": 25, "pt": 25}
    assert counts.gold == {"gl": 50}
    same, meter, _ = measured(texts, lambda i: texts[i])
    assert diagnoser.diagnose([row | {"category": ""} for row in same.values()], meter=meter) == [], (
        "the dataset is mixed"
    )


@needs_identifier
def test_short_responses_are_joined_in_blocks():
    """Of answers of one or two words, only the blocks have a language; there is a block per 100 letters."""
    words = [word for text in sentences("es") for word in text.split()]
    own = [word for text in sentences("gl") for word in text.split()]
    values, meter, rows = measured(words, lambda i: own[i % len(own)])
    assert "language_correct" not in values
    assert meter.undecided == len(words)
    blocks = values["language_blocks"]
    assert blocks["n"] == meter.blocks.found.total() > 5
    assert blocks["value"] == 0, "Spanish, where Galician is expected"
    assert meter.blocks.found["es"] == blocks["n"]
    assert values["language_blocks_gold"]["value"] > 0.9
    assert all(row["metrics"]["language_decided"] == 0 for row in rows)


@needs_identifier
def test_empty_and_unclosed_responses_are_not_judged():
    for columns, text in (({}, " "), ({"think_state": "unclosed"}, sentences("en")[0])):
        values, meter, _ = measured([text], lambda i: sentences("gl")[0], **columns)
        assert set(values) == {"language_correct_gold"}
        assert meter.undecided == 0


def test_without_the_identifier_there_are_no_values(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    values, meter, rows = measured(["Ola"], lambda i: "Ola")
    assert values == {}
    assert rows[0]["metrics"] == {}
    assert meter.counts().missing == NOT_INSTALLED


INCLUDED = sorted({tag for path in task_names([WORKFLOW / "tasks"]).values() for tag in load_task(path)["languages"]})


@needs_identifier
@pytest.mark.parametrize("language", INCLUDED)
def test_every_language_of_an_included_task_has_a_code_of_the_identifier_or_no_values(language):
    """A language without a code is never "other": no values, and the reason names it."""
    meter = LanguageMeter(language)
    if codes(language):
        assert meter.missing is None
        assert language in candidates(language).values()
    else:
        text = sentences("gl")[0]
        values, meter, rows = measured([text] * 5, lambda i: text, language)
        assert (values, rows[0]["metrics"]) == ({}, {})
        assert language_name(language) in meter.counts().missing


@needs_identifier
def test_known_codes_are_those_of_the_identifier():
    import heliport

    ranked = {code for code, _ in heliport.Identifier().identify_topk_with_score("a", 1_000)} - {"und", "zxx"}
    own = {code for language in INCLUDED for code in codes(language)}
    assert own <= ranked
    assert {code for code in ranked if codes(code) == []} <= {"uzn"}


@needs_identifier
def test_codes_of_languages_written_in_other_ways():
    expected = {
        "ig": ["ibo"],
        "id": ["msa"],
        "om": ["gaz"],
        "cnr": ["hbs"],
        "no": ["nob", "nno"],
        "fil": ["tgl"],
        "ary": ["ara"],
    }
    assert {language: codes(language) for language in expected} == expected
    for language in ("ha", "xh", "ast", "uz", "uz-Latn", "hi-Latn", "azb", "yue", "sd-Deva"):
        assert codes(language) == [], language
    assert codes("uz-Cyrl") == ["uzn"]
    assert unidentified(["gl", "xh", "hsb", "ha"]).endswith("does not know Xhosa (xh), Hausa (ha)")


@needs_identifier
def test_correct_answers_taken_for_another_language_leave_no_values():
    """The same items with Galician responses: the identifier, or the dataset, is wrong about the correct answers."""
    texts = sentences("gl")
    values, meter, rows = measured(texts, lambda i: sentences("es")[i])
    assert values == {}
    assert all(row["metrics"] == {} for row in rows)
    assert meter.counts().missing.endswith("0 of 50 correct answers are taken for Galician (gl) (es 50)")
    assert Diagnoser(Subject("generation", "open")).diagnose([], meter=meter) == []
