"""Loading of external results in detail: evaluation of a file, parsed lines, and notes."""

import pytest
from support import stages
from support.external_notes import REFERENCES, join_results, line
from support.external_results import ITEMS, NAME, QUESTIONS, SAMPLES, by_id, item, reference, sample, write_jsonl
from support.messages import assert_states
from support.result_rows import EVALUATION
from vernacular.comparison.schema import COMPARISONS
from vernacular.core import artifacts
from vernacular.core.errors import DataError
from vernacular.data import schema
from vernacular.exchange.classify import ExternalResult, MatchResult, normalize_unicode
from vernacular.exchange.external_results import load_external_results, read_results, read_samples
from vernacular.metrics.schema import METRICS, TASK_RESULTS
from vernacular.stages import changes, external
from vernacular.stages.sides import Results
from vernacular.types import SETTING

SHOTS_UNKNOWN = ("few-shot", "unknown")
CORRECT = {"r1": True, "r2": True, "r3": False}  # of SAMPLES
FIVE_QUESTIONS = {f"i{n}": (f"Pregunta número {n}?", [f"si {n}", f"non {n}"], 0) for n in range(5)}
FIVE_ITEMS_REFERENCE = reference(items=[item(name, *fields) for name, fields in FIVE_QUESTIONS.items()])


def load_single_row(path, references, lines):
    """Return the single row that is loaded from a file with one line."""
    (row,) = load_external_results(write_jsonl(path, lines), references)[0]["e"].to_pylist()
    return row | {"metrics": dict(row["metrics"])}


def test_evaluation_of_moved_parquet_comes_from_metadata_or_file_name(tmp_path):
    written = artifacts.write(tmp_path / "there" / "e.parquet", TASK_RESULTS, reference().rows, {"evaluation": "e"})
    written.rename(tmp_path / "moved.parquet")
    assert list(load_external_results(tmp_path / "moved.parquet", REFERENCES)[0]) == ["e"]
    unnamed = artifacts.write(tmp_path / "there" / "e.parquet", TASK_RESULTS, reference().rows, {})
    assert list(load_external_results(unnamed, REFERENCES)[0]) == ["e"]
    (note,) = join_results(unnamed, {"e2": reference()})[1]
    assert_states(note, "e.parquet", "unknown", '"e"', '"e2"')


@pytest.mark.parametrize(("n", "accepted"), [(5, True), (4, True), (3, False)])
def test_minimum_matched_share(tmp_path, n, accepted):
    other_items = [item(f"x{k}", f"Outra {k}?", ["a", "b"]) for k in range(5 - n)]
    items = FIVE_ITEMS_REFERENCE.items[:n] + other_items
    artifacts.write(tmp_path / "e.parquet", TASK_RESULTS, reference(items=items).rows, {"evaluation": "e"})
    assert bool(join_results(tmp_path / "e.parquet", {"e": FIVE_ITEMS_REFERENCE})[0]) == accepted
    lines = [line(item_row["item_id"]) for item_row in items]
    assert bool(join_results(tmp_path / "m.jsonl", {"e": FIVE_ITEMS_REFERENCE}, lines)[0]) == accepted


def test_directory_notes_per_file_and_duplicate_evaluations(tmp_path):
    write_jsonl(tmp_path / "e.jsonl", [line(name) for name in QUESTIONS])
    write_jsonl(tmp_path / "e2.jsonl", [line("q1", 0)])
    outcomes, notes = join_results(tmp_path, REFERENCES)
    assert outcomes == {"e": dict.fromkeys(QUESTIONS, True), "e2": {"q1": False}}
    note, note2 = notes
    assert_states(note, "/e.jsonl", "3 of 3", "3 items of e")
    assert_states(note2, "/e2.jsonl", "1 of 1", "1 item of e2")
    write_jsonl(tmp_path / "e2.jsonl", [line("zz")])
    write_jsonl(tmp_path / "e.jsonl", [line("zz")])
    note, note2 = join_results(tmp_path, REFERENCES)[1]
    assert_states(note, "/e.jsonl", "0 of 1", "3 items of e", "(1 unmatched)", "80 %")
    assert_states(note2, "/e2.jsonl", "0 of 1", "1 item of e2", "(1 unmatched)", "80 %")
    write_jsonl(tmp_path / "e.jsonl", [line(name, evaluation="e") for name in QUESTIONS])
    write_jsonl(tmp_path / "e2.jsonl", [line(name, evaluation="e") for name in QUESTIONS])
    with pytest.raises(DataError) as error:
        load_external_results(tmp_path, REFERENCES)
    assert_states(error.value, f"{tmp_path}/e2.jsonl: ", "second file", "of e.")


def test_file_named_like_an_evaluation_matches_only_that_one(tmp_path):
    references = {"e": reference(), "e.5shot": reference(shots=5)}
    lines = [line(name) for name in QUESTIONS]
    assert list(join_results(tmp_path / "e.jsonl", references, lines)[0]) == ["e"]
    assert list(join_results(tmp_path / "mine.jsonl", references, lines)[0]) == ["e", "e.5shot"]


def test_shots_apply_only_to_lm_eval_samples(tmp_path):
    (tmp_path / "results_2026.json").write_text('{"n-shot": {"mine": 5, "rios_gl": 5}}')
    lines = [line(name) for name in QUESTIONS]
    assert join_results(tmp_path / "samples_mine_2026.jsonl", {"e": reference(shots=0)}, lines)[0] != {}
    result = join_results(
        tmp_path / "samples_rios_gl_2026.jsonl", {"zero": reference(), "five": reference(shots=5)}, SAMPLES
    )
    assert list(result[0]) == ["five"]


def test_evaluations_of_other_items_are_skipped(tmp_path):
    outcomes, notes = join_results(tmp_path / NAME, {"five": FIVE_ITEMS_REFERENCE, "e": reference()}, SAMPLES)
    assert outcomes == {"e": CORRECT}
    assert len(notes) == 1


def test_results_without_matching_protocol_are_not_used(tmp_path):
    (note,) = join_results(tmp_path / "m.jsonl", {"e": reference("last_word")}, [line("r1")])[1]
    assert_states(note, "m.jsonl", "no evaluation", "1 result ")


def test_protocols_supported_only_as_parquet(tmp_path):
    (note,) = join_results(tmp_path / "e.jsonl", {"e": reference("acceptability")}, [line("r1")])[1]
    assert_states(note, "e.jsonl: e: ", "acceptability", "Parquet")


@pytest.mark.parametrize("protocol", ["cloze", "minimal_pair", "options", "target_word"])
def test_scored_options_match_each_option_protocol(tmp_path, protocol):
    assert join_results(tmp_path / NAME, {"e": reference(protocol)}, SAMPLES)[0] == {"e": CORRECT}


def test_note_with_all_counts(tmp_path):
    duplicates = [item(name, "Cando?", ["si", "non"]) for name in ("t1", "t2")]
    all_items = reference(items=[*ITEMS, *duplicates])
    invalid = SAMPLES[0] | {"filtered_resps": [["nan", "False"]] * 3}
    lines = [invalid, SAMPLES[1], SAMPLES[2], SAMPLES[1], sample("Cando?", ["si", "non"], [-1.0, -2.0], 1.0)]
    lines.append(sample("Quen?", ["a", "b"], [-1.0, -2.0], 1.0))
    (note,) = join_results(tmp_path / NAME, {"e": reference()}, lines[:4])[1]
    outcomes = ("(1 repeated)", "1 unreadable", "1 classified differently")
    assert_states(note, NAME, "3 of 4", "3 items of e", *outcomes, *SHOTS_UNKNOWN)
    (note,) = join_results(tmp_path / NAME, {"e": all_items}, lines)[1]
    outcomes = ("(1 unmatched, 1 ambiguous, 1 repeated)", "80 %")
    assert_states(note, NAME, "3 of 6", "5 items of e", *outcomes)


def test_share_without_results_or_items_is_0():
    assert MatchResult({}, 0, 3, {}).share == MatchResult({}, 3, 0, {"unmatched": 3}).share == 0.0


def test_normalize_unicode():
    assert normalize_unicode(" \u00a0Vén\u3000 a \n\uff21\ufb01 ") == "Vén a Afi"


# lm-eval's samples


def test_first_filter_is_used(tmp_path):
    lines = [SAMPLES[0] | {"filter": name, "filtered_resps": responses} for name, responses in (
        ("strict", SAMPLES[0]["filtered_resps"]), ("flexible", [["-1", "False"], ["-2", "False"], ["-3", "False"]])
    )]  # fmt: skip
    lines += [SAMPLES[1] | {"filter": "flexible"}, SAMPLES[1] | {"filter": "strict"}]
    outcomes, (note,) = join_results(tmp_path / NAME, {"e": reference()}, lines)
    assert outcomes == {"e": {"r1": True, "r2": True}}
    assert_states(note, NAME, "2 of 2", "3 items of e", *SHOTS_UNKNOWN)


def test_user_columns_named_like_sample_fields(tmp_path):
    lines = [line("r1", arguments="x", filtered_resps="y")]
    outcomes, _ = join_results(tmp_path / "e.jsonl", {"e": reference()}, lines)
    assert outcomes == {"e": {"r1": True}}


@pytest.mark.parametrize(
    ("response", "exact_match"), [("O Miño!", 1.0), (["o Miño"], 1.0), ([], None), ([None], None), ([["o Miño"]], None)]
)
def test_generated_text_as_string_or_list(tmp_path, response, exact_match):
    arguments = {"gen_args_0": {"arg_0": QUESTIONS["r1"][0], "arg_1": {"until": []}}}
    row = load_single_row(
        tmp_path / NAME,
        {"e": reference("generation")},
        [SAMPLES[0] | {"arguments": arguments, "filtered_resps": response}],
    )
    assert row["metrics"].get("exact_match") == exact_match
    assert row["flags"] == (None if exact_match else "error: no output that can be classified")


OPTIONS = QUESTIONS["r1"][1]
CONTEXT = "Cal?"


@pytest.mark.parametrize(
    ("arguments", "scores"),
    [
        ([[CONTEXT, f" {option}"] for option in OPTIONS], [-5.0, -2.0, -9.0]),  # before 0.4.4
        ([[option] for option in OPTIONS], [-5.0, -2.0, -9.0]),  # full texts
        # without context, but not only in the second half
        ([["", f" {option}"] for option in OPTIONS], [-5.0, -2.0, -9.0]),
        ([[CONTEXT, f" {option}"] for option in reversed(OPTIONS)], [-9.0, -2.0, -5.0]),
        ([["", f"{CONTEXT} {option}"] for option in OPTIONS], None),
        ([[f"{option[:3]}", option[3:]] for option in OPTIONS], [-5.0, -2.0, -9.0]),  # split within the option
    ],
)
def test_scored_continuations_are_matched_to_options(tmp_path, arguments, scores):
    row = load_single_row(tmp_path / NAME, {"e": reference()}, [SAMPLES[0] | {"arguments": arguments}])
    assert (row["option_scores"], row["flags"]) == (
        scores,
        None if scores else "error: options differ from those of the item",
    )


@pytest.mark.parametrize(
    ("contexts", "scores"),
    [
        (["Q", "Q", "", ""], [-1.0, -2.0]),  # acc_mutual_info of two options: the second half is scored without context
        (["", "", "", ""], None),
        (["Q", "Q", "", "x"], None),
        (["Q", "", "", ""], [-1.0, -2.0]),
    ],
)
def test_only_a_second_half_without_context_is_ignored(tmp_path, contexts, scores):
    two_options = reference(items=[item("a", "Q", ["si", "non"])])
    arguments = [[context, [" si", " non"][i % 2]] for i, context in enumerate(contexts)]
    responses = [[f"-{i + 1}", "False"] for i in range(4)]
    row = load_single_row(
        tmp_path / NAME,
        {"e": two_options},
        [sample("Q", ["si", "non"], [0, 0], 0.0, arguments=arguments, filtered_resps=responses)],
    )
    assert row["option_scores"] == scores


@pytest.mark.parametrize(
    ("acc", "summary"),
    [(1.0, ""), (1, ""), (True, ""), (0.5, ""), ("0", ""), (None, ""), (0.0, "; 1 class"), (False, "; 1 class")],
)
def test_only_binary_accuracy_is_compared(tmp_path, acc, summary):
    note = join_results(tmp_path / NAME, {"e": reference()}, [SAMPLES[0] | {"acc": acc}])[1][0]
    assert ("classified differently" in note) == bool(summary)
    assert summary in note


# user files


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
def test_table_format_follows_the_file_extension(tmp_path, name, text):
    (tmp_path / name).write_text(text, "utf-8")
    rows = by_id(load_external_results(tmp_path / name, {"e": reference("generation")})[0]["e"])
    assert rows["r1"]["prediction"] == "o Miño, claro"
    assert len(rows) == 1 + ("r2" in text)


def test_line_ends_in_cells_are_preserved(tmp_path):
    (tmp_path / "e.csv").write_bytes(b'item_id,prediction\r\nr1,"a\r\nb"\r\n')
    table = load_external_results(tmp_path / "e.csv", {"e": reference("generation")})[0]["e"]
    assert table["prediction"].to_pylist() == ["a\r\nb"]


def test_empty_rows_of_a_spreadsheet_are_no_results(tmp_path):
    path, rows = tmp_path / "mine.csv", "".join(f"{name};1;e\n" for name in QUESTIONS)
    path.write_text(f"item_id;correct;evaluation\n{rows};;\n; ;\n", "utf-8")
    (note,) = load_external_results(path, REFERENCES)[1]
    assert_states(note, "mine.csv", "3 of 3", "3 items of e")
    path.write_text("item_id;correct;evaluation\n;;\n;;\n", "utf-8")
    with pytest.raises(DataError, match=r"mine\.csv: no results found"):
        load_external_results(path, REFERENCES)


def test_duplicate_column_is_an_error(tmp_path):
    (note,) = join_results(tmp_path / "e.csv", REFERENCES, "correct,item_id,prediction,prediction\n1,r1,,\n")[1]
    assert_states(note, "e.csv", "duplicate", '"prediction"')


def test_directory_named_like_a_file_is_an_error(tmp_path):
    (tmp_path / "e.csv").mkdir()
    (note,) = join_results(tmp_path, REFERENCES)[1]
    assert_states(note, "/e.csv: ", "file", "directory")


@pytest.mark.parametrize("options", [["si", "quizais"], "si | quizais", "quizais|si"])
def test_options_distinguish_items_with_the_same_question(tmp_path, options):
    items = [item("t1", "Cando?", ["si", "non"]), item("t2", "Cando?", ["si", "quizais"])]
    lines = [{"question": "Cando?", "choices": options, "correct": 1}]
    assert join_results(tmp_path / "m.jsonl", {"e": reference(items=items)}, lines)[0] == {"e": {"t2": True}}


@pytest.mark.parametrize(
    ("prediction", "correct"),
    [("b", True), ("B.", True), (" b) ", True), ("D", None), ("BB", None), ("", None), ("O MIÑO", True), ("o Tambre", False)],
)  # fmt: skip
def test_letter_predictions(tmp_path, prediction, correct):
    row = load_single_row(
        tmp_path / "e.jsonl", {"e": reference("letters")}, [{"item_id": "r1", "prediction": prediction}]
    )
    assert row["correct"] is correct
    assert row["metrics"] == ({} if correct is None else {"accuracy": float(correct)})
    assert (row["predicted_indices"], row["tie"]) == (
        (None, None) if correct is None else ([1 if correct else 0], False)
    )
    assert row["prediction"] == prediction
    assert row["flags"] == (None if correct is not None else "error: the prediction is not one of the options")


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ({"question": QUESTIONS["r1"][0]}, {"r1": True}),  # part of the item's text
        ({"question": "cal é o río MÁIS longo", "text": ""}, {"r1": True}),
        ({"choices": "o Miño"}, {"r1": True}),
        ({"question": "Cal é o río máis longo de Portugal?"}, {}),  # the text is of another item
        ({"question": QUESTIONS["r1"][0], "choices": "o Miño|o Douro"}, {}),
        ({"question": QUESTIONS["r2"][0], "choices": QUESTIONS["r2"][1]}, {"r2": True}),  # the text identifies the item
    ],
)
def test_id_matches_unless_the_text_contradicts_it(tmp_path, texts, expected):
    lines = [{"item_id": "r1", "correct": 1} | texts]
    assert join_results(tmp_path / "m.jsonl", {"e": reference()}, lines)[0] == ({"e": expected} if expected else {})


def test_parsed_user_lines(tmp_path):
    lines = [
        {"sentence": "S", "context": "C", "choices": " a|b c |", "item_id": 7, "prediction": 1.5, "correct": "No"},
        {"prompt": "", "question": None, "choices": ["a ", "", 3], "correct": True, "evaluation": "e"},
    ]
    path = write_jsonl(tmp_path / "m.jsonl", lines)
    assert read_results(path) == {
        None: [ExternalResult(f"{path}, line 1", ("C", "S", "a", "b c"), "7", (), None, None, "1.5", False, True)],
        "e": [ExternalResult(f"{path}, line 2", ("a ", "3"), correct=True, is_judged=True)],
    }


def test_parsed_samples(tmp_path):
    scored = {"doc": {"q": ["Q", {"x": "X"}], "n": 3}, "arguments": [["C", " a"], [" b"], ["C", " c"]], "acc": 0.5}
    scored["filtered_resps"] = [["-1.5", "True"], [-2, False], ["-inf", ""]]
    single = {"doc": "D", "arguments": [["C", " a"]], "filtered_resps": [["-1", "True"]], "acc": 1}
    generated = {
        "doc": {},
        "arguments": {"gen_args_0": {"arg_0": "C", "arg_1": {}}},
        "filtered_resps": "w",
        "exact_match": "1",
    }
    path = write_jsonl(tmp_path / NAME, [scored, single, generated])
    assert read_samples(path) == [
        ExternalResult(
            f"{path}, line 1",
            ("Q", "X", "C", "", " a", " b", " c"),
            continuations=(("C", " a"), ("", " b"), ("C", " c")),
            scores=(-1.5, -2.0, float("-inf")),
        ),
        ExternalResult(f"{path}, line 2", ("D", "C", " a"), None, (("C", " a"),), (-1.0,), True, correct=True),
        ExternalResult(f"{path}, line 3", ("C",), prediction="w"),
    ]


@pytest.mark.parametrize(
    ("reference_examples", "examples", "noted"),
    [(["d1"], ["d1"], False), (["d1"], ["d2"], True), (["d1", "d2"], ["d2", "d1"], True), ([], ["d1"], True),
     (None, ["d1"], False), (["d1"], None, False)],
)  # fmt: skip
def test_earlier_run_with_other_few_shot_examples_is_noted(tmp_path, reference_examples, examples, noted):
    """Uses the loader of the `compare` command; few-shot examples come from the metadata of the results."""
    table, reference_path = reference().rows, tmp_path / "results" / "m" / "tasks" / "e.parquet"
    for path, few_shot_examples in ((reference_path, reference_examples), (tmp_path / "old" / "e.parquet", examples)):
        metadata = {"evaluation": "e"} | ({} if few_shot_examples is None else {"few_shot_examples": few_shot_examples})
        artifacts.write(path, TASK_RESULTS, table, metadata)
    artifacts.write(tmp_path / "items" / "t.gl.parquet", schema.ITEMS, ITEMS, {})
    spec = {"models": ["m"], "evaluations": {"e": {"protocol": "options", "shots": 1, "items_stem": "t.gl"}}}
    spec["external_results"] = {"old": {"path": str(tmp_path / "old")}}
    paths = {"results": tmp_path, "items_dir": tmp_path / "items", "out": tmp_path}
    args = stages.arguments(external.external, spec=spec, **paths)
    results = {"m": Results(tmp_path / "results" / "m", ["e"])}
    tables, notes = external._load_external_results(
        "old", args.spec.external_results["old"], results, args.spec, args.items_dir
    )
    assert tables["e"].num_rows == 3
    (note,) = notes
    assert_states(note, f"old: {tmp_path}/old/e.parquet: ", "3 of 3", "match e")
    assert ("different few-shot" in note) == noted


def test_compare_command_with_external_results(tmp_path):
    name = EVALUATION["evaluation"]
    artifacts.write(tmp_path / "m" / "tasks" / f"{name}.parquet", TASK_RESULTS, reference().rows, {"fingerprint": "f"})
    artifacts.write(tmp_path / "m" / "metrics.parquet", METRICS, [], {"fingerprint": "f"})
    artifacts.write(tmp_path / "items" / "t.gl.parquet", schema.ITEMS, ITEMS, {})
    external_path = write_jsonl(
        tmp_path / "old.jsonl", [line("r1", 0), line("r2"), line("r2", 0), line("r3", None), line("r7")]
    )
    spec = {"models": ["m"], "pairs": [["old", "m"]], "external_results": {"old": {"path": str(external_path)}}}
    spec["evaluations"] = {name: {name: EVALUATION[name] for name in SETTING} | {"items_stem": "t.gl"}}
    fields = {"results": tmp_path, "items_dir": tmp_path / "items"}
    path = tmp_path / "compared" / "external.parquet"
    message = external.external(stages.arguments(external.external, spec=spec, out=path, **fields))
    assert_states(message, "external", "1 pair,", "1 difference")
    spec = {name: spec[name] for name in ("models", "pairs", "evaluations")} | {"external": ["old"]}
    fields |= {"matched": path.with_suffix(""), "out": tmp_path / "changes"}
    assert_states(
        changes.changes(stages.arguments(changes.changes, spec=spec, **fields)), "changes", "1 item ", "1 pair "
    )
    (note,) = artifacts.metadata(path)["notes"]
    counts = ("3 of 5", f"3 items of {name}", "(1 unmatched, 1 repeated)", "1 unreadable")
    assert_states(note, f"old: {external_path}: ", *counts)
    (row,) = artifacts.read(path, COMPARISONS).to_pylist()
    assert (row["n"], row["net_gain"], row["n_baseline"], row["n_candidate"]) == (2, 1, 2, 3)
    assert row["note"] == "1 item with a value for the candidate only"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("question,options,prediction,topic\nOutra?,si|non,si,x\n", ("0 of 1", "not used", "columns", "topic")),
        ("question,topic\nOutra?,x\n", ("theirs.csv, line 2", "prediction or correct")),
    ],
)
def test_external_results_that_cannot_be_used_are_noted_and_the_others_compared(tmp_path, text, parts):
    name = EVALUATION["evaluation"]
    for model in ("m", "n"):
        path = tmp_path / model / "tasks" / f"{name}.parquet"
        artifacts.write(path, TASK_RESULTS, reference().rows, {"fingerprint": "f"})
        artifacts.write(tmp_path / model / "metrics.parquet", METRICS, [], {"fingerprint": "f"})
    artifacts.write(tmp_path / "items" / "t.gl.parquet", schema.ITEMS, ITEMS, {})
    (tmp_path / "theirs.csv").write_text(text, "utf-8")
    spec = {"models": ["m", "n"], "pairs": [["m", "theirs"]]}
    spec |= {"external_results": {"theirs": {"path": str(tmp_path / "theirs.csv")}}}
    spec["evaluations"] = {name: {name: EVALUATION[name] for name in SETTING} | {"items_stem": "t.gl"}}
    path = tmp_path / "compared" / "external.parquet"
    fields = {"results": tmp_path, "items_dir": tmp_path / "items", "out": path}
    external.external(stages.arguments(external.external, spec=spec, **fields))
    assert artifacts.read(path, COMPARISONS).num_rows == 0
    (reason,) = artifacts.metadata(path)["outcome"].missing.values()
    assert_states(reason, *parts)


def test_options_are_read_from_a_column_of_either_name(tmp_path):
    for name in ("options", "choices"):
        (tmp_path / "a.csv").write_text(f"question,{name},prediction\n?,si|non,si\n", "utf-8")
        [result] = read_results(tmp_path / "a.csv")[None]
        assert result.texts == ("?", "si", "non")
