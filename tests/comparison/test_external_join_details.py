"""Joining results from elsewhere, to the letter: which file is which evaluation, what its lines are, what is told."""

from types import SimpleNamespace

import pytest
from support.external_notes import TWO, line, told
from support.external_results import ITEMS, NAME, QUESTIONS, SAMPLES, by_id, item, reference, sample, write_jsonl
from support.result_rows import FACTS
from vernacular.commands import compare as comparing
from vernacular.comparison.external.join import join
from vernacular.comparison.external.judge import Matched, as_written
from vernacular.comparison.external.lm_eval_samples import samples_in
from vernacular.comparison.external.results import Answer, answers_in
from vernacular.comparison.schema import COMPARISONS
from vernacular.core import artifacts
from vernacular.core.errors import DataError
from vernacular.data import schema
from vernacular.metrics.schema import METRICS, TASK_RESULTS

SHOTS = "; number of few-shot examples unknown"
RIGHT = {"r1": True, "r2": True, "r3": False}  # of SAMPLES
FIVE = {f"i{n}": (f"Pregunta número {n}?", [f"si {n}", f"non {n}"], 0) for n in range(5)}
OF_FIVE = reference(items=[item(name, *of) for name, of in FIVE.items()])


def only(path, references, lines):
    """The one row that is joined of a file with one line."""
    (row,) = join(write_jsonl(path, lines), references)[0]["e"].to_pylist()
    return row | {"metrics": dict(row["metrics"])}


def test_an_earlier_run_is_named_by_its_metadata_wherever_it_lies_now(tmp_path):
    written = artifacts.write(tmp_path / "there" / "e.parquet", TASK_RESULTS, reference().rows, {"evaluation": "e"})
    written.rename(tmp_path / "moved.parquet")
    assert list(join(tmp_path / "moved.parquet", TWO)[0]) == ["e"]
    unnamed = artifacts.write(tmp_path / "there" / "e.parquet", TASK_RESULTS, reference().rows, {})
    assert list(join(unnamed, TWO)[0]) == ["e"]
    assert told(unnamed, {"e2": reference()})[1] == ['e.parquet: unknown evaluation "e". Did you mean "e2"?']


@pytest.mark.parametrize(("n", "joined"), [(5, True), (4, True), (3, False)])
def test_four_in_five_items_are_enough(tmp_path, n, joined):
    others = [item(f"x{k}", f"Outra {k}?", ["a", "b"]) for k in range(5 - n)]
    items = OF_FIVE.items[:n] + others
    artifacts.write(tmp_path / "e.parquet", TASK_RESULTS, reference(items=items).rows, {"evaluation": "e"})
    assert bool(told(tmp_path / "e.parquet", {"e": OF_FIVE})[0]) == joined
    lines = [line(each["item_id"]) for each in items]
    assert bool(told(tmp_path / "m.jsonl", {"e": OF_FIVE}, lines)[0]) == joined


def test_each_file_of_a_folder_is_told_and_two_of_one_evaluation_are_refused(tmp_path):
    write_jsonl(tmp_path / "e.jsonl", [line(name) for name in QUESTIONS])
    write_jsonl(tmp_path / "e2.jsonl", [line("q1", 0)])
    found, notes = told(tmp_path, TWO)
    assert found == {"e": dict.fromkeys(QUESTIONS, True), "e2": {"q1": False}}
    assert [note.partition("/")[2] for note in notes] == [
        "e.jsonl: 3 of 3 results match the 3 items of e", "e2.jsonl: 1 of 1 results match the 1 item of e2"
    ]  # fmt: skip
    write_jsonl(tmp_path / "e2.jsonl", [line("zz")])
    write_jsonl(tmp_path / "e.jsonl", [line("zz")])
    refused = "(1 unmatched): fewer than 80%; not used."
    assert [note.partition("/")[2] for note in told(tmp_path, TWO)[1]] == [
        f"e.jsonl: 0 of 1 results match the 3 items of e {refused}",
        f"e2.jsonl: 0 of 1 results match the 1 item of e2 {refused}",
    ]
    write_jsonl(tmp_path / "e.jsonl", [line(name, evaluation="e") for name in QUESTIONS])
    write_jsonl(tmp_path / "e2.jsonl", [line(name, evaluation="e") for name in QUESTIONS])
    with pytest.raises(DataError) as error:
        join(tmp_path, TWO)
    assert str(error.value) == f"{tmp_path}/e2.jsonl: second file with results of e. Specify one of the files."


def test_a_file_named_like_an_evaluation_is_of_that_one_alone(tmp_path):
    same = {"e": reference(), "e.5shot": reference(shots=5)}
    lines = [line(name) for name in QUESTIONS]
    assert list(told(tmp_path / "e.jsonl", same, lines)[0]) == ["e"]
    assert list(told(tmp_path / "mine.jsonl", same, lines)[0]) == ["e", "e.5shot"]


def test_the_shots_of_samples_are_not_those_of_a_persons_file(tmp_path):
    (tmp_path / "results_2026.json").write_text('{"n-shot": {"mine": 5, "rios_gl": 5}}')
    lines = [line(name) for name in QUESTIONS]
    assert told(tmp_path / "samples_mine_2026.jsonl", {"e": reference(shots=0)}, lines)[0] != {}
    found = told(tmp_path / "samples_rios_gl_2026.jsonl", {"zero": reference(), "five": reference(shots=5)}, SAMPLES)
    assert list(found[0]) == ["five"]


def test_an_evaluation_of_other_items_is_passed_over(tmp_path):
    found, notes = told(tmp_path / NAME, {"five": OF_FIVE, "e": reference()}, SAMPLES)
    assert found == {"e": RIGHT}
    assert len(notes) == 1


def test_one_answer_that_is_not_asked_for(tmp_path):
    notes = told(tmp_path / "m.jsonl", {"e": reference("last_word")}, [line("r1")])[1]
    assert notes == ["m.jsonl: no evaluation matches results of this type; 1 result not used."]


def test_protocols_that_only_our_own_files_can_hold_are_named(tmp_path):
    notes = told(tmp_path / "e.jsonl", {"e": reference("acceptability")}, [line("r1")])[1]
    assert notes == ["e.jsonl: e: results of the protocol acceptability are only supported as Parquet."]


@pytest.mark.parametrize("protocol", ["cloze", "minimal_pair", "options", "target_word"])
def test_scored_options_are_joined_to_each_protocol_that_scores_them(tmp_path, protocol):
    assert told(tmp_path / NAME, {"e": reference(protocol)}, SAMPLES)[0] == {"e": RIGHT}


def test_all_that_became_of_the_answers_is_in_one_sentence(tmp_path):
    twins = [item(name, "Cando?", ["si", "non"]) for name in ("t1", "t2")]
    of = reference(items=[*ITEMS, *twins])
    wrong = SAMPLES[0] | {"filtered_resps": [["nan", "False"]] * 3}
    lines = [wrong, SAMPLES[1], SAMPLES[2], SAMPLES[1], sample("Cando?", ["si", "non"], [-1.0, -2.0], 1.0)]
    lines.append(sample("Quen?", ["a", "b"], [-1.0, -2.0], 1.0))
    told_of = told(tmp_path / NAME, {"e": reference()}, lines[:4])[1]
    judged = "; 1 unreadable; 1 classified differently by the file (here, a tie is incorrect)"
    assert told_of == [f"{NAME}: 3 of 4 results match the 3 items of e (1 repeated){judged}{SHOTS}"]
    told_of = told(tmp_path / NAME, {"e": of}, lines)[1]
    assert told_of == [
        f"{NAME}: 3 of 6 results match the 5 items of e (1 unmatched, 1 ambiguous, 1 repeated): fewer than 80%; not "
        "used."
    ]


def test_nothing_that_could_match_is_no_match():
    assert Matched({}, 0, 3, 0, 0, 0).share == Matched({}, 3, 0, 3, 0, 0).share == 0.0


def test_blanks_and_compatibility_forms_are_one():
    assert as_written(" \u00a0Vén\u3000 a \n\uff21\ufb01 ") == "Vén a Afi"


# lm-eval's samples


def test_the_first_filter_counts(tmp_path):
    lines = [SAMPLES[0] | {"filter": name, "filtered_resps": said} for name, said in (
        ("strict", SAMPLES[0]["filtered_resps"]), ("flexible", [["-1", "False"], ["-2", "False"], ["-3", "False"]])
    )]  # fmt: skip
    lines += [SAMPLES[1] | {"filter": "flexible"}, SAMPLES[1] | {"filter": "strict"}]
    assert told(tmp_path / NAME, {"e": reference()}, lines) == (
        {"e": {"r1": True, "r2": True}}, [f"{NAME}: 2 of 2 results match the 3 items of e{SHOTS}"]
    )  # fmt: skip


def test_a_persons_columns_of_the_same_names_make_no_sample(tmp_path):
    found = told(tmp_path / "e.jsonl", {"e": reference()}, [line("r1", arguments="x", filtered_resps="y")])[0]
    assert found == {"e": {"r1": True}}


@pytest.mark.parametrize(
    ("said", "exact"), [("O Miño!", 1.0), (["o Miño"], 1.0), ([], None), ([None], None), ([["o Miño"]], None)]
)
def test_a_written_answer_stands_alone_or_first_in_a_list(tmp_path, said, exact):
    asked = {"gen_args_0": {"arg_0": QUESTIONS["r1"][0], "arg_1": {"until": []}}}
    row = only(
        tmp_path / NAME, {"e": reference("generation")}, [SAMPLES[0] | {"arguments": asked, "filtered_resps": said}]
    )
    assert row["metrics"].get("exact_match") == exact
    assert row["flags"] == (None if exact else "error: no output that can be classified")


OPTIONS = QUESTIONS["r1"][1]
ASKED = "Cal?"


@pytest.mark.parametrize(
    ("arguments", "scores"),
    [
        ([[ASKED, f" {each}"] for each in OPTIONS], [-5.0, -2.0, -9.0]),  # before 0.4.4
        ([[each] for each in OPTIONS], [-5.0, -2.0, -9.0]),  # whole texts
        ([["", f" {each}"] for each in OPTIONS], [-5.0, -2.0, -9.0]),  # without a question, and not half of them
        ([[ASKED, f" {each}"] for each in reversed(OPTIONS)], [-9.0, -2.0, -5.0]),
        ([["", f"{ASKED} {each}"] for each in OPTIONS], None),
        ([[f"{each[:3]}", each[3:]] for each in OPTIONS], [-5.0, -2.0, -9.0]),  # cut within the option
    ],
)
def test_what_was_asked_is_found_in_our_options(tmp_path, arguments, scores):
    row = only(tmp_path / NAME, {"e": reference()}, [SAMPLES[0] | {"arguments": arguments}])
    assert (row["option_scores"], row["flags"]) == (
        scores,
        None if scores else "error: options differ from those of the item",
    )


@pytest.mark.parametrize(
    ("contexts", "scores"),
    [
        (["Q", "Q", "", ""], [-1.0, -2.0]),  # acc_mutual_info of two options: the second half is asked alone
        (["", "", "", ""], None),
        (["Q", "Q", "", "x"], None),
        (["Q", "", "", ""], [-1.0, -2.0]),
    ],
)
def test_only_the_half_without_any_question_is_left_aside(tmp_path, contexts, scores):
    two = reference(items=[item("a", "Q", ["si", "non"])])
    arguments = [[context, [" si", " non"][i % 2]] for i, context in enumerate(contexts)]
    said = [[f"-{i + 1}", "False"] for i in range(4)]
    row = only(
        tmp_path / NAME, {"e": two}, [sample("Q", ["si", "non"], [0, 0], 0.0, arguments=arguments, filtered_resps=said)]
    )
    assert row["option_scores"] == scores


@pytest.mark.parametrize(
    ("acc", "judged"),
    [(1.0, ""), (1, ""), (True, ""), (0.5, ""), ("0", ""), (None, ""), (0.0, "; 1 class"), (False, "; 1 class")],
)
def test_only_a_plain_right_or_wrong_of_the_file_is_compared_with_ours(tmp_path, acc, judged):
    note = told(tmp_path / NAME, {"e": reference()}, [SAMPLES[0] | {"acc": acc}])[1][0]
    assert ("classified differently" in note) == bool(judged)
    assert judged in note


# a person's files


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("e.tsv", "item_id\tprediction\nr1\to Miño, claro\n"),
        ("e.TSV", "item_id\tprediction\nr1\to Miño, claro\n"),
        ("e.csv", 'item_id,prediction\nr1,"o Miño, claro"\n'),
        ("e.txt", 'item_id,prediction\nr1,"o Miño, claro"\n'),
        ("e.json", '\n{"item_id": "r1", "prediction": "o Miño, claro"}\n\n{"item_id": "r2", "prediction": ""}\n'),
        ("e.JSONL", '\ufeff{"item_id": "r1", "prediction": "o Miño, claro"}\n'),
    ],
)
def test_a_table_is_read_by_its_ending(tmp_path, name, text):
    (tmp_path / name).write_text(text, "utf-8")
    rows = by_id(join(tmp_path / name, {"e": reference("generation")})[0]["e"])
    assert rows["r1"]["prediction"] == "o Miño, claro"
    assert len(rows) == 1 + ("r2" in text)


def test_the_line_ends_of_a_cell_are_kept(tmp_path):
    (tmp_path / "e.csv").write_bytes(b'item_id,prediction\r\nr1,"a\r\nb"\r\n')
    assert join(tmp_path / "e.csv", {"e": reference("generation")})[0]["e"]["prediction"].to_pylist() == ["a\r\nb"]


def test_the_column_that_stands_twice_is_named(tmp_path):
    assert told(tmp_path / "e.csv", TWO, "correct,item_id,prediction,prediction\n1,r1,,\n")[1] == [
        'e.csv: duplicate column "prediction".'
    ]


def test_what_cannot_be_opened_is_named(tmp_path):
    (tmp_path / "e.csv").mkdir()
    assert [note.partition("/")[2] for note in told(tmp_path, TWO)[1]] == [
        "e.csv: expected a file, got a directory; give the path of a file in it."
    ]


@pytest.mark.parametrize("options", [["si", "quizais"], "si | quizais", "quizais|si"])
def test_options_tell_items_of_one_question_apart(tmp_path, options):
    twins = [item("t1", "Cando?", ["si", "non"]), item("t2", "Cando?", ["si", "quizais"])]
    lines = [{"question": "Cando?", "choices": options, "correct": 1}]
    assert told(tmp_path / "m.jsonl", {"e": reference(items=twins)}, lines)[0] == {"e": {"t2": True}}


@pytest.mark.parametrize(
    ("said", "right"),
    [("b", True), ("B.", True), (" b) ", True), ("D", None), ("BB", None), ("", None), ("O MIÑO", True), ("o Tambre", False)],
)  # fmt: skip
def test_a_letter_names_an_option_that_was_shown(tmp_path, said, right):
    row = only(tmp_path / "e.jsonl", {"e": reference("letters")}, [{"item_id": "r1", "prediction": said}])
    assert row["correct"] is right
    assert row["metrics"] == ({} if right is None else {"accuracy": float(right)})
    assert (row["predicted_indices"], row["tie"]) == ((None, None) if right is None else ([1 if right else 0], False))
    assert row["prediction"] == said
    assert row["flags"] == (None if right is not None else "error: the prediction is not one of the options")


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        ({"question": QUESTIONS["r1"][0]}, {"r1": True}),  # a part of it
        ({"question": "cal é o río MÁIS longo", "text": ""}, {"r1": True}),
        ({"choices": "o Miño"}, {"r1": True}),
        ({"question": "Cal é o río máis longo de Portugal?"}, {}),  # another item has that id there
        ({"question": QUESTIONS["r1"][0], "choices": "o Miño|o Douro"}, {}),
        ({"question": QUESTIONS["r2"][0], "choices": QUESTIONS["r2"][1]}, {"r2": True}),  # the text says which
    ],
)
def test_an_id_counts_unless_the_text_is_of_another_item(tmp_path, texts, found):
    lines = [{"item_id": "r1", "correct": 1} | texts]
    assert told(tmp_path / "m.jsonl", {"e": reference()}, lines)[0] == ({"e": found} if found else {})


def test_what_a_persons_line_says_to_the_letter(tmp_path):
    lines = [
        {"sentence": "S", "context": "C", "choices": " a|b c |", "item_id": 7, "prediction": 1.5, "correct": "No"},
        {"prompt": "", "question": None, "choices": ["a ", "", 3], "correct": True, "evaluation": "e"},
    ]
    path = write_jsonl(tmp_path / "m.jsonl", lines)
    assert answers_in(path) == {
        None: [Answer(f"{path}, line 1", ("C", "S", "a", "b c"), "7", prediction="1.5", correct=False)],
        "e": [Answer(f"{path}, line 2", ("a ", "3"), correct=True)],
    }


def test_what_a_sample_says_to_the_letter(tmp_path):
    scored = {"doc": {"q": ["Q", {"x": "X"}], "n": 3}, "arguments": [["C", " a"], [" b"], ["C", " c"]], "acc": 0.5}
    scored["filtered_resps"] = [["-1.5", "True"], [-2, False], ["-inf", ""]]
    alone = {"doc": "D", "arguments": [["C", " a"]], "filtered_resps": [["-1", "True"]], "acc": 1}
    written = {
        "doc": {},
        "arguments": {"gen_args_0": {"arg_0": "C", "arg_1": {}}},
        "filtered_resps": "w",
        "exact_match": "1",
    }
    path = write_jsonl(tmp_path / NAME, [scored, alone, written])
    assert samples_in(path) == [
        Answer(
            f"{path}, line 1",
            ("Q", "X", "C", "", " a", " b", " c"),
            asked=(("C", " a"), ("", " b"), ("C", " c")),
            scores=(-1.5, -2.0, float("-inf")),
        ),
        Answer(f"{path}, line 2", ("D", "C", " a"), None, (("C", " a"),), (-1.0,), True, correct=True),
        Answer(f"{path}, line 3", ("C",), prediction="w"),
    ]


@pytest.mark.parametrize(
    ("ours", "theirs", "told_so"),
    [(["d1"], ["d1"], False), (["d1"], ["d2"], True), (["d1", "d2"], ["d2", "d1"], True), ([], ["d1"], True),
     (None, ["d1"], False), (["d1"], None, False)],
)  # fmt: skip
def test_an_earlier_run_with_other_examples_before_its_prompts_is_joined_and_told(tmp_path, ours, theirs, told_so):
    """Through the verb's own reading of our results, whose metadata says which examples were solved."""
    table, place = reference().rows, tmp_path / "results" / "m" / "tasks" / "e.parquet"
    for path, solved in ((place, ours), (tmp_path / "old" / "e.parquet", theirs)):
        note = {"evaluation": "e"} | ({} if solved is None else {"few_shot_examples": solved})
        artifacts.write(path, TASK_RESULTS, table, note)
    rest = {"few_shot": False, "target": None, "cluster_id": None, "category": None, "source_row": 0, "extra": []}
    artifacts.write(tmp_path / "items" / "t.gl.parquet", schema.ITEMS, [each | rest for each in ITEMS], {})
    spec = {"models": ["m"], "evaluations": {"e": {"protocol": "options", "shots": 1, "items": "t.gl"}}}
    results = {"m": comparing.Results(tmp_path / "results" / "m", ["e"])}
    tables, notes = comparing._joined("old", tmp_path / "old", results, spec, tmp_path / "items")
    assert tables["e"].num_rows == 3
    other = "; different few-shot examples" if told_so else ""
    assert notes == [f"old: {tmp_path}/old/e.parquet: 3 of 3 items match e{other}"]


def test_the_verb_compares_what_is_joined_and_keeps_what_is_to_be_known_of_it(tmp_path):
    name = FACTS["evaluation"]
    artifacts.write(tmp_path / "m" / "tasks" / f"{name}.parquet", TASK_RESULTS, reference().rows, {"fingerprint": "f"})
    artifacts.write(tmp_path / "m" / "metrics.parquet", METRICS, [], {"fingerprint": "f"})
    rest = {"few_shot": False, "target": None, "cluster_id": None, "category": None, "source_row": 0, "extra": []}
    artifacts.write(tmp_path / "items" / "t.gl.parquet", schema.ITEMS, [each | rest for each in ITEMS], {})
    old = write_jsonl(tmp_path / "old.jsonl", [line("r1", 0), line("r2"), line("r2", 0), line("r3", None), line("r7")])
    spec = {"models": ["m"], "pairs": [["old", "m"]], "external_results": {"old": {"path": str(old)}}}
    spec["evaluations"] = {name: FACTS | {"items": "t.gl"}}
    folders = {"out": tmp_path / "out", "changes": tmp_path / "changes", "items_dir": tmp_path / "items"}
    said = comparing.compare(SimpleNamespace(spec=spec, results=tmp_path, threads=1, **folders))
    assert said == "compare: 1 pair, 1 difference, 1 item improved or regressed"
    path = tmp_path / "out" / "comparisons.parquet"
    assert artifacts.metadata(path)["notes"] == [
        f"old: {old}: 3 of 5 results match the 3 items of {name} (1 unmatched, 1 repeated); 1 unreadable"
    ]
    (row,) = artifacts.read(path, COMPARISONS).to_pylist()
    assert (row["n"], row["net_gain"], row["n_baseline"], row["n_candidate"]) == (2, 1, 2, 3)
    assert row["note"] == "1 item with a value for the candidate only"
