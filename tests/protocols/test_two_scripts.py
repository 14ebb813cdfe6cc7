"""Values in one script: a correct answer in the other script of its language counts, and raw values stay."""

import numpy as np
import pytest
from sacrebleu.metrics import BLEU, CHRF
from support.sample_items import item
from support.scoring import build_requests
from vernacular.core.languages import has_two_scripts, in_one_script
from vernacular.metrics.aggregate import aggregate
from vernacular.protocols.evaluate import evaluate
from vernacular.protocols.translation import metrics as translation

CYRILLIC = ["Кућа је велика и стара.", "Његов џеп је пун љешника.", "Данас пада киша у Београду."]
LATIN = ["Kuća je velika i stara.", "Njegov džep je pun lješnika.", "Danas pada kiša u Beogradu."]


@pytest.mark.parametrize(
    ("language", "cyrillic", "latin"),
    [
        ("sr", CYRILLIC[1], LATIN[1]),
        ("sr-Cyrl", "ЉУБЉАНА, Љубљана, ЏЕП", "LJUBLJANA, Ljubljana, DŽEP"),
        ("sr", "ǆep, ǈubav", "džep, Ljubav"),  # letters that are two
        ("bs-Latn", "ђак и ћевап", "đak i ćevap"),
        ("cnr", "с́утра, из́ести", "śutra, iźesti"),
        ("uz", "Ер ўғли менга шеър ўқиди, эртага келаман", "Yer o‘g‘li menga she’r o‘qidi, ertaga kelaman"),
        ("uz", "Мен Бек. ПОЕЗД, ЕР, Ер, съезд, объект, цирк", "Men Bek. POYEZD, YER, Yer, syezd, obyekt, sirk"),
        ("kk", "Иса, КІСІ, кісі", "İsa, KISI, kısı"),
        ("az", "Инди ИРАН, ҝәлир", "İndi İRAN, gəlir"),
        ("kk", "Қазақ әдебиеті мен өнері", "Qazaq ädebietı men önerı"),
        ("az", "Азәрбајҹан, ҝөзәл өлкә, чичәк", "Azərbaycan, gözəl ölkə, çiçək"),
        ("tk", "Түркменистан, җан, ңемеч", "Türkmenistan, jan, ňemeç"),
    ],
)
def test_texts_of_both_scripts_are_equal_in_one(language, cyrillic, latin):
    assert has_two_scripts(language)
    assert in_one_script(cyrillic, language) == in_one_script(latin, language)
    assert in_one_script(in_one_script(cyrillic, language), language) == in_one_script(cyrillic, language)


@pytest.mark.parametrize("language", ["ru", "hr", "gl", "mk", None])
def test_other_languages_have_one_script(language):
    assert not has_two_scripts(language)


def outputs_of(requests, texts):
    names = ("item_id", "role", "request_id")
    own = {"flags": None, "finish_reason": "stop", "n_tokens": 5, "rendered": None}
    return [
        {name: request[name] for name in names} | {"raw_output": text, "output": text} | own
        for request, text in zip(requests, texts, strict=True)
    ]


def values_of(rows, metrics):
    return {row["metric"]: row["value"] for row in aggregate(rows, metrics, seed=0, categories=False)}


def test_a_correct_answer_in_the_other_script_counts():
    questions = [item(f"i{n}", question="?", target=text) for n, text in enumerate(CYRILLIC)]
    requests = build_requests(questions, "open_question", "generation")
    outputs = outputs_of(requests, [LATIN[0], LATIN[1], "Drugo."])
    similarities = [{"item_id": f"i{n}", "metric": "cosine_script", "similarities": [1.0 - n / 10]} for n in range(3)]
    values = values_of(*evaluate("generation", questions, requests, outputs, similarities, language="sr-Cyrl"))
    assert values["exact_match"] == 0
    assert values["exact_match_script"] == pytest.approx(2 / 3)
    assert values["token_f1"] == 0
    assert values["token_f1_script"] == pytest.approx(2 / 3)
    assert values["chrf_script"] > 66 > 10 > values["chrf"]
    assert values["cosine_correct_script"] == pytest.approx(0.9)
    assert "cosine_correct" not in values
    rows, metrics = evaluate("generation", questions, requests, outputs, [], language="ru")
    assert not [name for name in values_of(rows, metrics) if name.endswith("_script")]


def test_a_translation_into_the_other_script_has_the_values_of_transliterated_texts():
    counts = [
        translation.script_values({"target": a}, b, {}, "sr-Cyrl") | translation.statistics(b, a, "sr-Cyrl")
        for a, b in zip(CYRILLIC, LATIN, strict=True)
    ]
    metrics = {metric.name: metric for metric in (*translation.METRICS, *translation.SCRIPT_METRICS)}

    def value(name):
        return float(metrics[name].corpus(*(np.array([each[key] for each in counts]) for key in metrics[name].needs)))

    sacre = CHRF(word_order=2), BLEU()
    assert [value("chrf2pp"), value("bleu")] == [each.corpus_score(LATIN, [CYRILLIC]).score for each in sacre]
    assert [value("chrf2pp_script"), value("bleu_script")] == [
        each.corpus_score(LATIN, [LATIN]).score for each in sacre
    ]
    assert value("chrf2pp") < 3
    assert value("chrf2pp_script") == pytest.approx(100)
    assert metrics["chrf2pp_script"].tool_signature == metrics["chrf2pp"].tool_signature
