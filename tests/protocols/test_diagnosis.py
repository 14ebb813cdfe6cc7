"""Diagnoses: each code is raised by rows made for it, and by no healthy run; the rules of counts; what is stored."""

import itertools
import math

import numpy as np
import pytest
from support.sample_items import item as make_item
from vernacular.metrics.aggregate import aggregate
from vernacular.metrics.metric import Metric
from vernacular.protocols.acceptability.metrics import METRICS as ACCEPTABILITY
from vernacular.protocols.diagnosis import CODES, Diagnoser, disagreement
from vernacular.protocols.observations import Subject

N = 400
ACCURACY = [Metric("accuracy", "share", True, "surprisal", proportion=True, headline=True)]
TOPICS = ["casa", "río", "monte", "mar", "camiño", "ponte", "vila", "praia", "forno", "muíño"]
CASES = {}  # code -> function that returns (subject, what `Diagnoser.add` takes, majority baseline)
# a code that the rows of another necessarily raise
ENTAILED = {
    "constant": {"below_chance", "position", "majority"},
    "below_chance": {"majority"},
    "position": {"constant"},
}


def case(code):
    return lambda function: CASES.setdefault(code, function)


def words(seed: int, n: int) -> str:
    """Return a text of n words, almost all of them distinct."""
    rng = np.random.default_rng(seed)
    return " ".join(f"{TOPICS[rng.integers(len(TOPICS))]}{rng.integers(10_000)}" for _ in range(n))


def letters_rows(chosen, gold, *, mass=0.9, top="ĠA", flags=None, n_options=4, texts=None):
    """Return (items, requests, scores, results) of the protocol `letters`."""
    items, requests, outputs, rows = [], [], [], []
    for number, (choice, correct) in enumerate(zip(chosen, gold, strict=True)):
        name = f"i{number}"
        choices = texts[number] if texts else [words(7 * number + i, 3) for i in range(n_options)]
        shares = [mass * (0.7 if i == choice else 0.3 / (n_options - 1)) for i in range(n_options)]
        items.append(make_item(name, question=words(number, 8), choices=choices, gold=[correct]))
        for i in range(n_options):
            common = {"item_id": name, "role": f"choice:{i}"}
            requests.append(common | {"text": words(number, 8), "decoding": None, "max_new_tokens": None})
            score = {"tokens": ["Ġ" + "ABCD"[i]], "top_tokens": [top], "rendered": None, "flags": None}
            outputs.append(common | score)
        flag = flags[number] if flags else None
        rows.append(result(items[-1], [choice], choice == correct, flag, [math.log(share) for share in shares]))
    return items, requests, outputs, rows


def result(item, chosen, correct, flag=None, scores=None, prediction=None, values=None):
    metrics = {"accuracy": float(correct)} | (values or {}) if correct is not None else {}
    return {
        "item_id": item["item_id"], "cluster_id": None, "category": None, "prompt": "", "choices": item["choices"],
        "gold": item["gold"], "option_scores": scores, "prediction": prediction, "predicted_indices": chosen,
        "correct": correct, "tie": chosen is not None and len(chosen) > 1, "metrics": metrics, "flags": flag,
    }  # fmt: skip


def generated_rows(answer, *, choices=None, gold=None, correct=None, prompt=None, rendered=None, finish="stop", **row):
    """Return (items, requests, generations, results) of the protocol `generation`; arguments are functions of i."""
    items, requests, outputs, rows = [], [], [], []
    for i in range(N):
        text, name = answer(i), f"i{i}"
        options = choices(i) if choices else []
        item = make_item(name, question=words(i, 30), choices=options, gold=[gold(i)] if gold else [])
        items.append(item | {"target": None if options else words(1_000 + i, 2)})
        body = prompt(i) if prompt else "\n".join([item["question"], *options])
        common = {"item_id": name, "role": "response"}
        requests.append(common | {"text": body, "decoding": None, "max_new_tokens": 100, "stop": ["\n"]})
        output = {"raw_output": text, "output": text.strip(), "flags": None, "finish_reason": finish}
        outputs.append(common | output | {"rendered": rendered(i) if rendered else None} | row)
        is_correct = correct(i) if correct else i % 2 == 0
        rows.append(result(item, None, is_correct, "empty answer" if not text.strip() else None, None, text.strip()))
    return items, requests, outputs, rows


def balanced(i: int) -> int:
    return i % 4


def healthy_choice(i: int) -> int:
    """Return a choice that is correct in three of four items, and otherwise any other letter in equal shares."""
    return balanced(i) if (i // 4) % 4 else (balanced(i) + 1 + (i // 16) % 3) % 4


BALANCED, HEALTHY_CHOICES = (list(map(function, range(N))) for function in (balanced, healthy_choice))


def options_of(i: int) -> list[str]:
    return [words(9 * i + k, 2) for k in range(4)]


def open_answers(i: int) -> str:
    return words(5_000 + i, 6)


@case("template")
def _template():
    rows = generated_rows(open_answers, rendered=lambda i: f"<s><s>[INST]{i}[/INST]")
    return Subject("generation", "open"), rows


@case("marker")
def _marker():
    return Subject("generation", "open"), generated_rows(lambda i: "<think>" if i % 20 == 0 else open_answers(i))


@case("truncated")
def _truncated():
    rows = generated_rows(open_answers, correct=lambda i: False, finish="length")
    return Subject("generation", "open"), rows


@case("empty")
def _empty():
    return Subject("generation", "open"), generated_rows(lambda i: "" if i % 5 == 0 else open_answers(i))


@case("format")
def _format():
    rows = generated_rows(
        lambda i: f"non sei {i}" if i % 4 == 0 else options_of(i)[i % 4], choices=options_of, gold=balanced
    )
    return Subject("generation"), rows


@case("refusal")
def _refusal():
    rows = generated_rows(lambda i: f"I’m sorry, {words(i, 6)}" if i % 5 == 0 else open_answers(i))
    return Subject("generation", "open", refusals=("i'm sorry",)), rows


@case("echo")
def _echo():
    return Subject("generation", "open"), generated_rows(lambda i: words(i, 30) if i % 5 == 0 else open_answers(i))


@case("loop")
def _loop():
    return Subject("generation", "open"), generated_rows(
        lambda i: f"{words(i, 5)} " * 6 if i % 5 == 0 else open_answers(i)
    )


@case("same_text")
def _same_text():
    return Subject("generation", "open"), generated_rows(lambda i: words(i % 3, 6))


@case("dropped")
def _dropped():
    flags = [None if i % 5 else "truncated: 2 few-shot examples dropped" for i in range(N)]
    return Subject("letters"), letters_rows(HEALTHY_CHOICES, BALANCED, flags=flags)


@case("label_mass")
def _label_mass():
    rows = letters_rows(HEALTHY_CHOICES, BALANCED, mass=0.02, top="<think>")
    return Subject("letters"), rows


@pytest.mark.parametrize(("top", "shown"), [("ĠÐ¥", " Х"), ("▁é", " é"), ("Ċ", "\\n"), ("<think>", "<think>")])
def test_most_probable_token_is_shown_as_its_characters(top, shown):
    diagnoser = Diagnoser(Subject("letters"))
    diagnoser.add(*letters_rows(HEALTHY_CHOICES, BALANCED, mass=0.02, top=top))
    assert list(diagnoser.profile().top_tokens) == [shown]


@case("constant")
def _constant():
    """The counts of a published result of CatCoLA: 3 true "sí", 297 missed, 0 false, 100 true "no"."""
    chosen = [0] * 3 + [1] * 297 + [1] * 100
    items, requests, outputs, rows = letters_rows(chosen, [0] * 300 + [1] * 100, n_options=2, texts=[["sí", "no"]] * N)
    for output in outputs:
        output["tokens"] = ["s", "í"]  # labels of several tokens: their mass is not that of one place
    return Subject("options"), (items, requests, outputs, rows), 0.75


@case("position")
def _position():
    """Correct at the first and last place only; the shares of the letters are those of the gold."""
    gold = BALANCED
    chosen = [g if g in (0, 3) else 3 - g for g in gold]
    return Subject("letters"), letters_rows(chosen, gold)


@case("length")
def _length():
    texts = [[words(7 * i + k, 2 + 3 * k) for k in range(4)] for i in range(N)]
    chosen = [balanced(i) if (i // 4) % 2 else 0 for i in range(N)]
    items, requests, outputs, rows = letters_rows(chosen, BALANCED, texts=texts)
    for output in outputs:
        output["tokens"] = ["a", "b"]
    return Subject("options"), (items, requests, outputs, rows)


@case("below_chance")
def _below_chance():
    gold = BALANCED
    chosen = [(g + 1 + (i // 4) % 3) % 4 if i % 25 else g for i, g in enumerate(gold)]
    return Subject("letters"), letters_rows(chosen, gold)


@case("majority")
def _majority():
    gold = BALANCED
    chosen = [g if (i // 4) % 10 < 4 else (g + 1 + (i // 4) % 3) % 4 for i, g in enumerate(gold)]
    return Subject("letters"), letters_rows(chosen, gold), 0.41


def values_of(rows, metrics=ACCURACY):
    return [row for row in aggregate(rows, metrics, seed=0, categories=False)]


def diagnose(subject, rows, majority=None):
    diagnoser = Diagnoser(subject)
    diagnoser.add(*rows)
    return diagnoser.diagnose(values_of(rows[-1]), majority)


@pytest.mark.parametrize("code", CASES)
def test_rows_made_for_a_code_raise_it_and_no_other_failure(code):
    subject, *arguments = CASES[code]()
    found = {each.code: each for each in diagnose(subject, *arguments)}
    assert code in found, list(found)
    others = {name for name, each in found.items() if each.severity == "failure"} - {code}
    assert others <= ENTAILED.get(code, set()), [found[name].sentence for name in others]
    diagnosis = found[code]
    assert diagnosis.sentence.endswith(".")
    assert diagnosis.threshold
    assert len(diagnosis.examples) == 3
    assert {each.item for each in diagnosis.examples} <= {row["item_id"] for row in arguments[0][-1]}


def test_incorrect_items_are_named_with_letters_where_those_are_predicted():
    subject, (*others, rows) = _below_chance()
    rows = [row | {"prediction": "ABCD"[row["predicted_indices"][0]]} for row in rows]
    [found] = [each for each in diagnose(subject, (*others, rows)) if each.code == "below_chance"]
    assert [(each.item, each.text) for each in found.examples[:2]] == [
        ("i1", "gold B, predicted C"), ("i2", "gold C, predicted D"),
    ]  # fmt: skip


def test_codes_without_rows_of_their_own_have_other_tests():
    assert set(CODES) - CASES.keys() == {"language", "protocols"}


HEALTHY = {
    "letters": lambda: (Subject("letters"), letters_rows(HEALTHY_CHOICES, BALANCED)),
    "open": lambda: (Subject("generation", "open"), generated_rows(open_answers)),
    "options shown": lambda: (
        Subject("generation"),
        generated_rows(
            lambda i: f"A resposta é {options_of(i)[healthy_choice(i)]}.",
            choices=options_of,
            gold=balanced,
            correct=lambda i: healthy_choice(i) == balanced(i),
        ),
    ),
    "classes": lambda: (
        Subject("generation"),
        generated_rows(
            lambda i: ["si", "non"][(i + (i % 5 == 0)) % 2], choices=lambda i: ["si", "non"], gold=lambda i: i % 2,
            correct=lambda i: i % 5 != 0,
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_runs_raise_nothing(name):
    assert diagnose(*HEALTHY[name]()) == []


def test_sentence_of_a_constant_answer_has_the_matrix():
    subject, rows, majority = _constant()
    [constant, *_] = [each for each in diagnose(subject, rows, majority) if each.code == "constant"]
    assert constant.severity == "failure"
    assert (constant.count, constant.n) == (397, 400)
    assert constant.sentence == (
        "397 of 400 choices are “no” (gold: 100): accuracy = (100 correct “no” + 3 others) / 400 = 25.8 %; MCC 0.050."
    )
    assert [each.item for each in constant.examples] == ["i3", "i4", "i5"]


@pytest.mark.parametrize("protocol", ["generation", "lm_eval_generation"])
def test_constant_answer_of_generated_labels(protocol):
    """The class names of generated texts are the options of all items, or the few texts that are correct."""
    answers = ["si"] * 3 + ["non"] * 397
    gold = ["si"] * 300 + ["non"] * 100
    items, requests, outputs, rows = generated_rows(lambda i: answers[i], correct=lambda i: answers[i] == gold[i])
    for each, row, text in zip(items, rows, gold, strict=True):
        if protocol == "generation":
            each |= {"choices": ["si", "non"], "gold": [["si", "non"].index(text)]}
            row |= {"choices": each["choices"], "gold": each["gold"]}
        each["target"] = text
    found = {each.code: each for each in diagnose(Subject(protocol), (items, requests, outputs, rows))}
    assert found["constant"].sentence.startswith("397 of 400 answers are “non” (gold: 100): accuracy = (100 correct")


def test_count_appears_if_it_can_move_the_value_by_half_the_width_of_its_interval():
    def codes(n_empty, n_correct):
        rows = generated_rows(lambda i: "" if i < n_empty else open_answers(i), correct=lambda i: i >= N - n_correct)
        return [(each.code, each.severity) for each in diagnose(Subject("generation", "open"), rows)]

    assert codes(18, 200) == [], "4.5 % of the answers, and an interval of ± 4.9 points"
    assert codes(18, 12) == [("empty", "warning")], "the same answers, and an interval of ± 1.7 points"
    assert codes(40, 200) == [("empty", "failure")]
    assert codes(7, 4) == [], "1.8 %: not more than 2 % with confidence"


def test_a_marker_is_never_legitimate_except_where_it_is_correct():
    def found(answer):
        return diagnose(Subject("generation", "open"), generated_rows(lambda i: answer if i == 0 else open_answers(i)))

    for text in ("<think>", "analysisThe user asks", "thought\n", "assistant", "<|channel|>final", "[THINK] si"):
        [marker] = found(text)
        assert (marker.code, marker.severity, marker.count) == ("marker", "warning", 1), text
    for text in ("analysis of the text", "assistants", "thoughtful", "a < b", "users", "<b>si</b>", "<i>"):
        assert found(text) == [], text


def test_unclosed_reasoning_is_truncated_and_not_empty():
    rows = generated_rows(lambda i: "", think_state="unclosed", correct=lambda i: False)
    found = {each.code: each for each in diagnose(Subject("generation", "open"), rows)}
    assert "empty" not in found
    assert found["truncated"].sentence == (
        "400 of 400 responses end before their answer is complete (the reasoning of 400 is unclosed)."
    )


@pytest.mark.parametrize(
    ("decoding", "state", "is_reported"),
    [
        ({"temperature": 0.0}, "closed", True),
        ({"temperature": 0.6}, "closed", False),
        ({"temperature": 0.0}, None, False),
    ],
)
def test_greedy_decoding_with_reasoning_is_named(decoding, state, is_reported):
    items, requests, outputs, rows = generated_rows(open_answers, think_state=state)
    requests = [request | {"decoding": decoding} for request in requests]
    found = diagnose(Subject("generation", "open"), (items, requests, outputs, rows))
    assert [each.code for each in found] == (["template"] if is_reported else [])
    assert all("greedy decoding with reasoning" in each.sentence for each in found)


def test_reasoning_by_the_default_of_the_template_is_named():
    rows = generated_rows(open_answers, rendered=lambda i: f"<|user|>{i}", think_state="closed")
    [found] = diagnose(Subject("generation", "open", reasons_by_default=True), rows)
    assert (found.code, found.severity, found.sentence) == (
        "template", "warning",
        "400 of 400 prompts ask for reasoning by the default of the chat template, because enable_thinking is not set.",
    )  # fmt: skip
    assert diagnose(Subject("generation", "open"), rows) == []


def rotated_rows(preference, n_rotations=3):
    """Return rows of `letters` with three options in rotations; `preference`: logits of the letters, beside 1.0 of gold."""
    items, requests, outputs, rows = [], [], [], []
    for i in range(60):
        choices, gold = [words(9 * i + k, 3) for k in range(3)], i % 3
        items.append(make_item(f"i{i}", question=words(i, 8), choices=choices, gold=[gold]))
        for rotation, option in itertools.product(range(n_rotations), range(3)):
            letter = (option - rotation) % 3
            common = {"item_id": f"i{i}", "role": f"choice:{option}" + (f"@{rotation}" if rotation else "")}
            text = f"{words(i, 8)} {'ABC'[letter]}"
            span = {"prefix": "", "text": text, "span_start": len(text) - 2, "span_end": len(text)}
            requests.append(common | span | {"decoding": None, "max_new_tokens": None})
            logit = preference[letter] + (option == gold)
            score = {"tokens": ["ĠA"], "top_tokens": ["ĠA"], "logprobs": [logit - 4.0]}
            outputs.append(common | score | {"rendered": None, "flags": None})
        rows.append(result(items[-1], [gold], True, None, [-0.2, -3.0, -3.0]))
    return items, requests, outputs, rows


def test_position_over_all_rotations():
    """Each option has each letter once, so that equal letters have a mean probability of a third."""
    [found] = [each for each in diagnose(Subject("letters"), rotated_rows([1.0, 0.0, 0.0])) if each.code == "position"]
    logits = [[1 + (letter == 0) * 1.0 - 1 + (letter == gold) for letter in range(3)] for gold in range(3)]
    shares = np.mean([np.exp(each) / np.exp(each).sum() for each in logits], axis=0)
    listed = ", ".join(f"{letter} {100 * share:.1f} %" for letter, share in zip("ABC", shares, strict=True))
    assert found.sentence == (
        f"Mean probability of the letters over all rotations of the options: {listed} (without a preference 33.3 % each; "
        f"total variation {100 * (shares[0] - 1 / 3):.1f} points, p < 0.001)."
    )
    assert found.share == pytest.approx(shares[0] - 1 / 3)
    assert [each.text for each in found.examples] == [f"A {100 * shares[0]:.1f} %"] * 3
    assert diagnose(Subject("letters"), rotated_rows([0.1, 0.0, 0.0])) == [], "a preference below 10 points"
    assert diagnose(Subject("letters"), rotated_rows([1.0, 0.0, 0.0], n_rotations=2)) == [], "not all rotations"


def test_auc_below_chance_names_the_most_surprising_sentences():
    rng = np.random.default_rng(0)
    items = [make_item(f"i{i}") for i in range(200)]
    rows = [
        result(item, None, None, values=None)
        | {"metrics": {"label": i % 2, "surprisal": 40 + 10 * (i % 2) + rng.normal()}}
        for i, item in enumerate(items)
    ]
    metrics = [metric for metric in ACCEPTABILITY if metric.name in ("difsur", "auc")]
    diagnoser = Diagnoser(Subject("acceptability"))
    diagnoser.add(items, [], [], rows)
    [found] = diagnoser.diagnose(values_of(rows, metrics))
    assert (found.code, found.severity) == ("below_chance", "warning")
    assert found.sentence.startswith("ROC AUC of 0.0 % is below the chance level of 50.0 %: as with inverted")
    highest = sorted(rows, key=lambda row: -row["metrics"]["label"] * row["metrics"]["surprisal"])[:3]
    assert [each.item for each in found.examples] == [row["item_id"] for row in highest]


def test_text_that_something_ends_is_complete():
    """A limit of tokens after the answer, as in a prompt whose parser takes the first line, cuts nothing."""
    rows = generated_rows(lambda i: f"{open_answers(i)}\nPREGUNTA: ", correct=lambda i: False, finish="length")
    for row in rows[-1]:
        row["prediction"] = row["prediction"].split("\n")[0]
    assert diagnose(Subject("generation", "simil-eval-open"), rows) == []


def test_letters_and_choice_that_disagree():
    gold = BALANCED
    diagnosers = []
    for chosen in (gold, [(g + 1) % 4 if i % 2 else g for i, g in enumerate(gold)]):
        rows = letters_rows(chosen, gold)
        diagnosers.append((Diagnoser(Subject("letters")), values_of(rows[-1])[0]))
        diagnosers[-1][0].add(*rows)
    pair = list(zip(*diagnosers, strict=True))
    [found] = disagreement(*pair)
    assert found.sentence == (
        "The same items: 100.0 % by letters, 50.0 % by choice; they agree on 50.0 % of 400 items (kappa 0.33)."
    )
    assert len(found.examples) == 3
    assert disagreement(pair[0], [pair[1][0]] * 2) == [], "intervals that overlap"


def test_parts_of_the_rows_give_the_same_diagnoses_and_profile():
    for code in CASES:
        subject, rows, *majority = CASES[code]()
        whole, parts = Diagnoser(subject), Diagnoser(subject)
        whole.add(*rows)
        names = [row["item_id"] for row in rows[-1]]
        for part in (set(names[:150]), set(names[150:151]), set(names[151:])):
            parts.add(*([row for row in table if row["item_id"] in part] for table in rows))
        values = values_of(rows[-1])
        assert parts.diagnose(values, *majority) == whole.diagnose(values, *majority), code
        assert parts.profile() == whole.profile(), code


def test_profile_of_letters():
    subject, rows = _label_mass()
    diagnoser = Diagnoser(subject)
    diagnoser.add(*rows)
    profile = diagnoser.profile()
    assert [each.label for each in profile.labels] == ["A", "B", "C", "D"]
    assert [each.gold for each in profile.labels] == [100] * 4
    assert sum(each.predicted for each in profile.labels) == 400
    assert profile.label_mass == pytest.approx(0.02)
    assert profile.top_tokens == {"<think>": 400}


def test_outputs_without_the_most_probable_token_omit_it():
    """Scores that an engine of another package has computed, or an earlier version."""
    subject, (items, requests, outputs, rows) = _label_mass()
    outputs = [{name: value for name, value in row.items() if name != "top_tokens"} for row in outputs]
    [found] = diagnose(subject, (items, requests, outputs, rows))
    assert found.sentence == "All labels together have a median probability of 0.02."
