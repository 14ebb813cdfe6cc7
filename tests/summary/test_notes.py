"""Notes: what no number says is said."""

import pandas as pd
from vernacular.summary.provenance import as_frame, data_sets_of, mixed_engines, notes_of

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
    "rows": {"read": 12, "taken": 9, "dropped": {"empty sentence": 3}, "repaired": {"trailing full stop": 1}},
    "warnings": ["cola (gl): 12 rows, expected 14"],
}
TOLD = {
    "model": "mine",
    "evaluations": {
        "cola.gl.acceptability.0shot": {
            "dataset": DATASET,
            "skipped": {"i1": "no gap", "i2": "no gap"},
            "flags": {"truncated": 2},
            "inference": {"engine": {"fallback": ["tree: disagrees with plain by 0.3"]}},
            "without": {"cosine": "e5: gone."},
        },
        "lost.gl.cloze.0shot": {"unavailable": "lost: gated."},
        "openbookqa.gl.letters.0shot": {"not_applicable": "letters needs a causal model"},
    },
}


def test_everything_that_went_otherwise_is_a_note():
    found = [(row["evaluation"].split(".")[0], row["kind"], row["note"], row["count"]) for row in notes_of(TOLD)]
    assert found == [
        ("cola", "unavailable", "cosine not computed: e5: gone.", None),
        ("cola", "dropped", "empty sentence", 3),
        ("cola", "repaired", "trailing full stop", 1),
        ("cola", "rows", "cola (gl): 12 rows, expected 14", None),
        ("cola", "not asked", "no gap", 2),
        ("cola", "flagged", "truncated", 2),
        ("cola", "fallback", "tree: disagrees with plain by 0.3", None),
        ("lost", "unavailable", "lost: gated.", None),
        ("openbookqa", "not applicable", "letters needs a causal model", None),
    ]


def test_an_evaluation_without_a_hitch_has_no_notes():
    quiet = {"model": "mine", "evaluations": {"x": {"dataset": {"rows": {"dropped": {}}}, "flags": {}, "skipped": {}}}}
    assert notes_of(quiet) == []
    assert list(as_frame([]).columns) == ["model", "evaluation", "kind", "note", "count"]


def test_counts_stay_whole_numbers_where_some_are_missing():
    frame = as_frame(notes_of(TOLD))
    assert frame["count"].dtype == pd.Int64Dtype()
    assert frame["count"].isna().sum() == 5


def test_each_data_set_is_listed_once_with_commit_hash_licence_and_citation():
    assert data_sets_of(TOLD) == [
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


def test_code_that_was_trusted_and_weights_without_a_place_are_said_once_a_model():
    model = {"remote_code": True, "unused_weights": {"count": 2, "first": "mtp.weight"}}
    told = {"model": "mine", "evaluations": {name: {"inference": {"model": model}} for name in ("x", "y")}}
    assert [(row["evaluation"], row["kind"], row["count"]) for row in notes_of(told)] == [
        (None, "trusted code", None),
        (None, "unused weights", 2),
    ]


def computed_by(model: str, version: str, *evaluations: str) -> dict:
    libraries = {"torch": "2.13.0", "transformers": version}
    facts = {"inference": {"engine": {"version": f"of-{version}"}, "model": libraries}}
    return {"model": model, "evaluations": dict.fromkeys(evaluations, facts) | {"lost": {"unavailable": "gone"}}}


def test_models_of_one_version_need_no_note():
    assert mixed_engines([computed_by("a", "5.1", "x", "y"), computed_by("b", "5.1", "x", "y")]) == []
    assert mixed_engines([computed_by("a", "5.1", "x"), computed_by("b", "5.2", "y")]) == [], "nothing is compared"


def test_models_of_different_versions_are_noted_once_with_the_number_of_evaluations():
    models = [computed_by("a", "5.1", "x", "y"), computed_by("b", "5.2", "x", "y"), computed_by("c", "5.1", "x", "y")]
    [note] = mixed_engines(models)
    assert (note["kind"], note["count"], note["model"]) == ("mixed versions", 2, None)
    assert "a, c: torch 2.13.0, transformers 5.1" in note["note"]
    assert "b: torch 2.13.0, transformers 5.2" in note["note"]
