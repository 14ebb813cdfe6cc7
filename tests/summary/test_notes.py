"""Notes on missing, dropped, flagged and fallback results, and sources of the datasets."""

import pandas as pd
from vernacular.core.metadata import (
    EngineInfo,
    ItemsMetadata,
    MetricsMetadata,
    ModelInfo,
    OutputsMetadata,
    ResultsMetadata,
    RowCounts,
    decode,
    split_list,
    unavailable,
)
from vernacular.summary.notes import (
    group_notes,
    make_notes,
    mixed_script_notes,
    mixed_version_notes,
    no_interval_notes,
    notes_to_frame,
    unreviewed_notes,
)
from vernacular.summary.workbook import dataset_sources

DATASET = {
    "task": "cola",
    "language": "gl",
    "limit": None,
    "citation": "Me 2026",
    "source": {
        "kind": "hub",
        "repository": "a/b",
        "split": "test",
        "revision": "c0ffee",
        "sha256": "5a",
        "license": "x",
    },
    "rows": {"read": 12, "evaluated": 9, "dropped": {"empty sentence": 3}, "repaired": {"trailing full stop": 1}},
    "warnings": ["cola (gl): 12 rows, expected 14"],
}
METADATA = decode(
    MetricsMetadata,
    {
        "model": "mine",
        "evaluations": {
            "cola.gl.acceptability.0shot": {
                "dataset": DATASET,
                "skipped": {"i1": "no gap", "i2": "no gap"},
                "flags": {"truncated": 2},
                "inference": {"engine": {"fallback": ["tree: disagrees with plain by 0.3"]}},
                "outcome": {"missing": {"cosine": "e5: gone."}},
            },
            "lost.gl.cloze.0shot": {"outcome": {"state": "unavailable", "reason": "lost: gated."}},
            "openbookqa.gl.letters.0shot": {
                "outcome": {"state": "not applicable", "reason": "letters needs a causal model"}
            },
        },
    },
)


def test_headline_values_without_an_interval_are_noted_once():
    row = {"model": "a", "evaluation": "cola.gl", "metric": "auc_char", "category": "", "headline": True, "value": 0.7}
    row |= {"n": 9}
    rows = [
        row | {"ci_low": None},
        row | {"model": "b", "ci_low": 0.5},
        row | {"model": "c", "value": None, "ci_low": None, "n": 0},
        row | {"model": "d", "value": None, "ci_low": None},
        row | {"category": "short", "ci_low": None},
        row | {"headline": False, "ci_low": None},
        row | {"evaluation": "cola.es", "ci_low": None},
    ]
    note, undefined = group_notes(no_interval_notes(pd.DataFrame(rows)))
    assert (note["kind"], note["models"], note["evaluations"]) == ("no interval", "a", "cola.gl, cola.es")
    assert note["note"].startswith("ROC AUC, per character: no 95 % interval (too few items")
    assert (undefined["models"], undefined["note"].partition(" (")[0]) == ("d", "ROC AUC, per character: undefined")


def test_make_notes_covers_all_note_types():
    notes = [(row["evaluation"].split(".")[0], row["kind"], row["note"], row["count"]) for row in make_notes(METADATA)]
    assert notes == [
        ("cola", "unavailable", "cosine not computed: e5: gone.", None),
        ("cola", "dropped", "empty sentence", 3),
        ("cola", "repaired", "trailing full stop", 1),
        ("cola", "rows", "cola (gl): 12 rows, expected 14", None),
        ("cola", "skipped", "no gap", 2),
        ("cola", "flagged", "truncated", 2),
        ("cola", "fallback", "tree: disagrees with plain by 0.3", None),
        ("lost", "unavailable", "lost: gated.", None),
        ("openbookqa", "not applicable", "letters needs a causal model", None),
    ]


def test_unclosed_reasoning_and_samples_are_noted():
    def notes(share, **fields):
        reasoning = {"asked_for": True, "budgets": [8192, 8192], "notes": ["greedy decoding"]}
        outputs = {"tokenizer": {"reasoning": reasoning}}
        evaluation = {"inference": outputs, "unclosed": share, **fields}
        return [
            (note["kind"], note["note"])
            for note in make_notes(decode(MetricsMetadata, {"model": "m", "evaluations": {"e": evaluation}}))
        ]

    assert notes(0.0) == [("reasoning", "greedy decoding")]
    text = "of the responses end within their reasoning of 8,192 tokens"
    assert notes(0.01)[1][1] == f"1.0 % {text}"
    assert notes(0.05)[1][1] == f"5.0 % {text}; consider a larger think_max_toks"
    assert notes(0.0625)[1][1].startswith("6.3 % of the responses")  # a half is rounded up, as everywhere
    assert notes(0.2)[1][1] == f"20.0 % {text}: the values measure the budget; raise think_max_toks"
    assert "few-shot examples contain no reasoning" in notes(None, few_shot_examples=["i1"])[1][1]
    [_, samples] = notes(None, repeats=4)
    assert samples == ("samples", "avg@4: values are means over items of the means of their samples")


def test_make_notes_is_empty_without_issues():
    dataset = ItemsMetadata(rows=RowCounts())
    metadata = MetricsMetadata(model="mine", evaluations={"x": ResultsMetadata(dataset=dataset)})
    assert make_notes(metadata) == []
    assert list(notes_to_frame([]).columns) == ["kind", "note", "count", "models", "evaluations"]


def test_note_counts_are_nullable_integers():
    frame = notes_to_frame(make_notes(METADATA))
    assert frame["count"].dtype == pd.Int64Dtype()
    assert frame["count"].isna().sum() == 5


def test_dataset_sources_lists_each_dataset_once():
    assert dataset_sources([METADATA]) == [
        {
            "task": "cola",
            "language": "gl",
            "limit": None,
            "kind": "hub",
            "from": "a/b",
            "split": "test",
            "revision": "c0ffee",
            "sha256": "5a",
            "license": "x",
            "citation": "Me 2026",
            "rows read": 12,
            "items": 9,
        }
    ]


def test_trusted_code_and_unused_weights_are_noted_once_per_model():
    model = {"remote_code": True, "unused_weights": {"count": 2, "first": "mtp.weight"}}
    model["adapter"] = {"type": "LORA", "without_effect": True}
    evaluations = {name: {"inference": {"model": model}} for name in ("x", "y")}
    metadata = decode(MetricsMetadata, {"model": "mine", "evaluations": evaluations})
    assert [(row["evaluation"], row["kind"], row["count"]) for row in make_notes(metadata)] == [
        (None, "trusted code", None),
        (None, "adapter", None),
        (None, "unused weights", 2),
    ]


def metadata_of(model: str, version: str, *evaluations: str) -> MetricsMetadata:
    engine, libraries = EngineInfo(version=f"of-{version}"), ModelInfo(torch="2.13.0", transformers=version)
    results = ResultsMetadata(inference=OutputsMetadata(engine=engine, model=libraries))
    lost = {"lost": ResultsMetadata(outcome=unavailable("gone"))}
    return MetricsMetadata(model=model, evaluations=dict.fromkeys(evaluations, results) | lost)


def test_no_note_for_models_of_one_version():
    assert mixed_version_notes([metadata_of("a", "5.1", "x", "y"), metadata_of("b", "5.1", "x", "y")]) == []
    assert mixed_version_notes([metadata_of("a", "5.1", "x"), metadata_of("b", "5.2", "y")]) == [], (
        "nothing is compared"
    )


def test_mixed_versions_are_one_note_with_evaluation_count():
    models = [metadata_of("a", "5.1", "x", "y"), metadata_of("b", "5.2", "x", "y"), metadata_of("c", "5.1", "x", "y")]
    [note] = mixed_version_notes(models)
    assert (note["kind"], note["count"], note["model"]) == ("mixed versions", 2, None)
    assert "a, c: torch 2.13.0, transformers 5.1" in note["note"]
    assert "b: torch 2.13.0, transformers 5.2" in note["note"]


def test_tokenizer_that_each_version_converts_anew_is_noted_and_in_the_comparison_of_versions():
    def metadata_with(version: str) -> MetricsMetadata:
        library = ModelInfo(transformers=version, converted_tokenizer="spiece.model")
        outputs = OutputsMetadata(engine=EngineInfo(version=version), model=library)
        return MetricsMetadata(model=f"of-{version}", evaluations={"x": ResultsMetadata(inference=outputs)})

    models = [metadata_with("5.23.0"), metadata_with("5.24.0")]
    [own] = make_notes(models[0])
    assert (own["kind"], own["evaluation"]) == ("converted tokenizer", None)
    assert "spiece.model was converted by transformers 5.23.0" in own["note"]
    [mixed] = mixed_version_notes(models)
    assert mixed["note"].count("may give it other token IDs") == 2


def test_version_of_a_served_model_is_that_of_the_engine_only():
    results = ResultsMetadata(inference=OutputsMetadata(engine=EngineInfo(version="0123456789"), model=ModelInfo()))
    [note] = mixed_version_notes([metadata_of("a", "5.1", "x"), MetricsMetadata(model="b", evaluations={"x": results})])
    assert note["note"].endswith("; b: a server (engine 01234567)")


def test_languages_whose_datasets_are_in_two_scripts_are_noted():
    def results(task: str, language: str, script: str | None) -> ResultsMetadata:
        return ResultsMetadata(dataset=ItemsMetadata(task=task, language=language, script=script))

    evaluations = {
        "piqa.sr.options.0shot": results("piqa", "sr", "Latn"),
        "flores.sr.text.0shot": results("flores", "sr", "Cyrl"),
        "flores.sr-Cyrl.text.0shot": results("flores", "sr-Cyrl", "Cyrl"),
        "piqa.sr-Latn.options.0shot": results("piqa", "sr-Latn", "Latn"),
        "numbers.sr.text.0shot": results("numbers", "sr", None),
    }
    models = [MetricsMetadata(model=model, evaluations=evaluations) for model in ("a", "b")]
    [note] = mixed_script_notes(models)
    assert (note["kind"], note["count"]) == ("mixed scripts", 2)
    assert note["note"].endswith(": Cyrl (flores); Latn (piqa)")
    assert " sr " in note["note"]


def test_version_of_the_engine_is_named_by_its_first_digits():
    models = [metadata_of("a", "0123456789", "x"), metadata_of("b", "9876543210", "x")]
    [note] = mixed_version_notes(models)
    assert note["note"] == (
        "computed with different versions, which may cause differences between these models: "
        "a: torch 2.13.0, transformers 0123456789 (engine of-01234); "
        "b: torch 2.13.0, transformers 9876543210 (engine of-98765)"
    )


def note(model, evaluation, count=None, text="empty output", kind="flagged") -> dict:
    return {"model": model, "evaluation": evaluation, "kind": kind, "note": text, "count": count}


def expand(rows: list[dict]) -> list[dict]:
    """Return the notes that grouped rows stand for."""
    notes = []
    for row in rows:
        for model in split_list(row["models"]) or [None]:
            for entry in split_list(row["evaluations"]) or [None]:
                evaluation, _, count = (entry or "").rstrip(")").partition(" (")
                count = int(count) if count else row["count"]
                notes.append(note(model, evaluation or None, count, row["note"], row["kind"]))
    return notes


def test_notes_with_one_text_are_one_row_per_group_of_models_with_equal_counts():
    notes = [note(model, evaluation, 2) for model in "ab" for evaluation in "xyz"]
    notes += [note("c", "x", 2), note("c", "y", 5)]
    notes += [note(model, "x", text="gated", kind="unavailable") for model in "abc"]
    notes += [note(None, None, 3, "two versions", "mixed versions")]
    rows = group_notes(notes)
    assert [tuple(row.values()) for row in rows] == [
        ("flagged", "empty output", 2, "a, b", "x, y, z"),
        ("flagged", "empty output", None, "c", "x (2), y (5)"),
        ("unavailable", "gated", None, "a, b, c", "x"),
        ("mixed versions", "two versions", 3, None, None),
    ]
    assert sorted(map(str, expand(rows))) == sorted(map(str, notes))


def test_grouped_notes_of_many_evaluations_fit_cells_without_loss():
    notes = [note(model, f"evaluation-{i:04d}", 1) for model in "ab" for i in range(3000)]
    rows = group_notes(notes)
    assert len(rows) == 2
    assert all(len(row["evaluations"]) <= 32_767 for row in rows)
    assert sorted(map(str, expand(rows))) == sorted(map(str, notes))


def test_prompts_that_no_speaker_has_read_are_noted_once_per_language():
    notes = notes_to_frame(
        unreviewed_notes({"a.eu.letters.0shot": "eu", "b.eu.options.0shot": "eu", "a.ga.letters.0shot": "ga"})
    )
    assert notes["evaluations"].tolist() == ["a.eu.letters.0shot, b.eu.options.0shot", "a.ga.letters.0shot"]
    assert notes["note"].str.contains("not reviewed by a speaker").all()
    assert '"ga"' in notes["note"][1]
