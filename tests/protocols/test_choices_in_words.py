"""choice: figures of its parser on labeled responses, its prompts, and its metrics by hand."""

from collections import Counter

import pytest
from support.choice_responses import PHRASES, adversarial, responses
from support.sample_items import item
from support.scoring import build_requests, results_of
from vernacular.core.metadata import RequestsMetadata
from vernacular.core.model_record import ModelRecord
from vernacular.inference.job.work import not_answerable
from vernacular.metrics.aggregate import aggregate
from vernacular.protocols.build import inference_metadata
from vernacular.protocols.choice.metrics import METRICS
from vernacular.protocols.choice.parser import extract
from vernacular.protocols.diagnosis import Diagnoser, disagreement
from vernacular.protocols.observations import Subject
from vernacular.protocols.prompts import PROMPTS_DIR, additional_lines, answer_words, load_labels

GL = ("Lugo", "A Coruña", "Ourense", "O Grove")
EN = ("the wind", "the fog", "the rain", "A Coruña")
# forms that were tried after the labeled responses
LATER = [
    ("en", EN, "The answer is A because it says so.", 0), ("en", EN, "Answer: Option B", 1), ("en", EN, "B - the fog", 1),
    ("en", EN, "Answer: The fog (B)", 1), ("en", EN, '{"answer": "B"}', 1), ("en", EN, "If it rains, the answer is A.", None),
    ("en", EN, "According to the text, the answer is B.", 1), ("en", EN, "Final Answer: The final answer is B. I hope so.", 1),
    ("en", EN, "The answer is A Coruña.", 3), ("en", EN, "Answer:\nA) the wind\nB) the fog", None), ("en", EN, "Option B is wrong.", None),
    ("en", EN, "Answer: neither A nor B", None), ("en", EN, "Neither A nor B is correct.", None), ("en", EN, "Answer: C. It rained.", None),
    ("gl", GL, "A resposta é A Coruña.", 1), ("gl", GL, "Respuesta: B", 1), ("gl", GL, "A B é a correcta.", 1),
    ("gl", GL, "A resposta non é A nin B.", None), ("gl", GL, "Resposta: A opción B", 1), ("gl", GL, "Se chove, a resposta é A.", None),
    ("ar", ("الريح", "الضباب", "المطر"), "الجواب: ب", 1), ("sr-Cyrl", ("ветар", "магла", "киша"), "Odgovor: В", 1),
    # with marks of direction
    ("ar", ("الريح", "الضباب", "المطر"), "الجواب: \u200fB", 1), ("ar", ("الريح", "الضباب", "المطر"), "الضباب\u200f", 1),
    ("eu", ("haizea", "lainoa", "euria"), "Erantzun zuzena B da.", 1), ("ka", ("ქარი", "ნისლი", "წვიმა"), "პასუხი: გ) წვიმა", 2),
]  # fmt: skip


@pytest.mark.parametrize("language", PHRASES)
def test_no_wrong_letter_and_few_abstentions(language):
    """Of 360 responses per language, 170 were opened after the parser: 0 wrong in both parts, 0 and 1 abstentions."""
    answers, rows = answer_words(language), responses(language)
    found = [(row, extract(row.text, row.options, answers)[0]) for row in rows]
    assert [(row.text, index) for row, index in found if index not in (None, row.label)] == []
    abstained = [row.text for row, index in found if index is None and row.label is not None]
    named = sum(row.label is not None for row in rows)
    assert len(rows) >= 200
    assert len(abstained) <= 0.03 * named, abstained


@pytest.mark.parametrize("language", PHRASES)
def test_words_that_look_like_letters_are_none(language):
    answers, rows = answer_words(language), adversarial(language)
    assert len(rows) == 50
    assert [row.text for row in rows if extract(row.text, row.options, answers)[0] not in (None, row.label)] == []


@pytest.mark.parametrize(("language", "options", "text", "expected"), LATER)
def test_other_forms(language, options, text, expected):
    assert extract(text, options, answer_words(language))[0] == expected


@pytest.mark.parametrize("path", sorted(PROMPTS_DIR.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_response_as_asked_for_is_found_in_all_languages(path):
    lines = load_labels(path.stem) | additional_lines(("choice",), path.stem)
    assert lines["choice"].endswith("{cue} X")
    answers = answer_words(path.stem)
    for text in (f"{lines['letter']} C", f"A? B?\n\n**{lines['letter']}** C", f"{lines['letter']} (C) Ourense"):
        assert extract(text, GL, answers) == (2, "last_line"), text


def test_a_letter_at_the_end_of_a_cut_response_may_be_the_beginning_of_a_word():
    answers = answer_words("gl")
    assert extract("Resposta: A", GL, answers, is_complete=False) == (None, None)
    assert extract("Resposta: A\n", GL, answers, is_complete=True) == (0, "last_line")
    assert extract("Resposta: B.", GL, answers, is_complete=False) == (1, "last_line")


def test_prompt_is_that_of_letters_with_an_instruction():
    rows = build_requests([item(context="Choveu.", question="Onde?", choices=GL[:3], gold=[2])], "passage", "choice")
    (row,) = rows
    expected = "Choveu.\n\nOnde?\n\nA. Lugo\nB. A Coruña\nC. Ourense\n\n"
    expected += "Escolle a opción correcta e remata cunha última liña coa súa letra, así: Resposta: X"
    assert row["messages"] == [{"role": "user", "content": expected}]
    assert (row["stop"], row["max_new_tokens"], row["kind"], row["extras"]) == ([], 512, "generate", None)


@pytest.mark.parametrize("n", [23, 24])
def test_more_options_than_the_prompt_has_letters_are_skipped(n):
    (row,) = build_requests([item(question="?", choices=[str(i) for i in range(n)], gold=[0])], "question", "choice")
    assert (row["role"] == "response") == (n == 23)
    assert n == 23 or row["role"] == "skipped: expected at most 23 options, got 24"


def test_options_that_are_shown_in_another_order_are_counted_in_it():
    asked = item(question="Onde?", choices=["si", "non", "quizais"], gold=[0])
    (row,) = build_requests([asked], "multi_answer", "choice")
    shown = [line[3:] for line in row["text"].splitlines() if line[1:3] == ". "]
    assert sorted(shown) == sorted(asked["choices"])
    letter = "ABC"[shown.index("si")]
    (result,) = results_of("choice", [asked], [row], [output(row, f"Resposta: {letter}")], answers=answer_words("gl"))
    assert (result["correct"], result["choices"], result["prediction"]) == (True, shown, letter)


def output(request, text, **fields):
    row = {"request_id": request["request_id"], "item_id": request["item_id"], "role": request["role"], "flags": None}
    return row | {"raw_output": text, "output": text, "finish_reason": "eos", "think_state": None} | fields


def results(texts, gold, **options):
    items = [item(f"i{n}", question="Onde?", choices=GL, gold=[index]) for n, index in enumerate(gold)]
    requests = build_requests(items, "question", "choice", **options)
    outputs = [output(request, text) for request, text in zip(requests, texts, strict=True)]
    return items, requests, outputs, results_of("choice", items, requests, outputs, answers=answer_words("gl"))


def test_an_abstention_is_incorrect_and_counted():
    _, _, _, rows = results(["Resposta: A", "Resposta: B", "Non o sei.", "\\boxed{D}"], [0, 0, 0, 3])
    values = {row["metric"]: row["value"] for row in aggregate(rows, METRICS, seed=0, categories=False)}
    assert values["accuracy"] == 0.5
    assert values["accuracy_parsed"] == pytest.approx(2 / 3)
    assert values["extraction_failed"] == 0.25
    assert (values["found_in_last_line"], values["found_in_boxed"], values["found_in_cue"]) == (0.5, 0.25, 0)
    assert [(row["prediction"], row["correct"]) for row in rows] == [
        ("A", True),
        ("B", False),
        (None, False),
        ("D", True),
    ]


def test_values_of_samples_are_means():
    _, _, _, (row,) = results_of_samples(["Resposta: A", "Resposta: B", "Resposta: A", "?"])
    assert row["metrics"]["accuracy"] == 0.5
    assert row["metrics"]["pass_at_k"] == pytest.approx(1 - 1 / 6)
    assert row["metrics"]["extraction_failed"] == 0.25


def results_of_samples(texts):
    items = [item(question="Onde?", choices=GL, gold=[0])]
    requests = build_requests(items, "question", "choice", repeats=4, gen_kwargs={"temperature": 1.0})
    outputs = [output(request, text) for request, text in zip(requests, texts, strict=True)]
    return (
        items,
        requests,
        outputs,
        results_of("choice", items, requests, outputs, pass_at=2, answers=answer_words("gl")),
    )


def diagnoses(texts, gold):
    items, requests, outputs, rows = results(texts, gold)
    outputs = [row | {"rendered": row["raw_output"]} for row in outputs]
    diagnoser = Diagnoser(Subject("choice"))
    diagnoser.add(items, requests, outputs, rows)
    values = aggregate(rows, METRICS, seed=0, categories=False)
    return {diagnosis.code: diagnosis for diagnosis in diagnoser.diagnose(values)}


def test_responses_without_a_letter_are_diagnosed_as_format():
    found = diagnoses(["Non o sei."] * 60 + ["Resposta: A"] * 40, [0] * 100)
    assert found["format"].count == 60
    assert "no answer that can be extracted" in found["format"].sentence
    assert "empty" not in found


def test_one_letter_for_all_items_is_diagnosed_as_constant():
    gold = [n % 4 for n in range(100)]
    assert diagnoses(["Resposta: A"] * 100, gold)["constant"].severity == "failure"
    assert Counter(diagnoses([f"Resposta: {'ABCD'[n]}" for n in gold], gold)) == {}


def test_models_without_a_template_are_not_applicable(tmp_path):
    from support import reasoning, tiny

    metadata = RequestsMetadata(protocol="choice", has_turns=True, **inference_metadata("choice"))
    tiny.save("llama", tmp_path / "plain")
    record = ModelRecord(name="m", kind="causal", directory=str(tmp_path / "plain"), fingerprint="choice")
    assert not_answerable(record, metadata) == "choice asks in chats, and m has no chat template"
    loaded = reasoning.load("qwen3")
    loaded.tokenizer.save_pretrained(tmp_path / "chat")
    record = ModelRecord(name="m", kind="causal", directory=str(tmp_path / "chat"), fingerprint="chat")
    assert not_answerable(record, metadata) is None
    record = ModelRecord(name="m", kind="causal", directory=str(tmp_path / "chat"), fingerprint="chat", chat=False)
    assert not_answerable(record, metadata) == "choice asks in chats, and chat is false of m"


def test_letters_and_choice_that_disagree_are_diagnosed_as_protocols():
    """Of the same model and items: all correct by letters, a quarter in words, in which the rest names another one."""
    gold = [n % 4 for n in range(80)]
    texts = [f"Resposta: {'ABCD'[index if n % 8 < 2 else (index + 1) % 4]}" for n, index in enumerate(gold)]
    items, requests, outputs, rows = results(texts, gold)
    in_words, by_letter = Diagnoser(Subject("choice")), Diagnoser(Subject("letters"))
    in_words.add(items, requests, [row | {"rendered": ""} for row in outputs], rows)
    letters = [
        row | {"predicted_indices": row["gold"], "prediction": "ABCD"[row["gold"][0]], "correct": True} for row in rows
    ]
    by_letter.add(items, [], [], letters)
    headlines = [
        {"value": 1.0, "ci_low": 0.95, "ci_high": 1.0},
        next(row for row in aggregate(rows, METRICS, seed=0, categories=False) if row["metric"] == "accuracy"),
    ]
    (found,) = disagreement([by_letter, in_words], headlines)
    assert (found.code, found.count, found.n) == ("protocols", 60, 80)
    assert found.sentence.startswith("The same items: 100.0 % by letters, 25.0 % by choice; they agree on 25.0 % of 80")
