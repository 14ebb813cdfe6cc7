"""Notes on missing, dropped, flagged and fallback results, and sources of the datasets."""

import pandas as pd
from vernacular.summary.provenance import collect_notes, dataset_sources, mixed_version_notes, notes_to_frame

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
METADATA = {
    "model": "mine",
    "evaluations": {
        "cola.gl.acceptability.0shot": {
            "dataset": DATASET,
            "skipped": {"i1": "no gap", "i2": "no gap"},
            "flags": {"truncated": 2},
            "inference": {"engine": {"fallback": ["tree: disagrees with plain by 0.3"]}},
            "missing_metrics": {"cosine": "e5: gone."},
        },
        "lost.gl.cloze.0shot": {"unavailable": "lost: gated."},
        "openbookqa.gl.letters.0shot": {"not_applicable": "letters needs a causal model"},
    },
}


def test_collect_notes_covers_all_note_types():
    notes = [
        (row["evaluation"].split(".")[0], row["kind"], row["note"], row["count"]) for row in collect_notes(METADATA)
    ]
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


def test_collect_notes_is_empty_without_issues():
    metadata = {
        "model": "mine",
        "evaluations": {"x": {"dataset": {"rows": {"dropped": {}}}, "flags": {}, "skipped": {}}},
    }
    assert collect_notes(metadata) == []
    assert list(notes_to_frame([]).columns) == ["model", "evaluation", "kind", "note", "count"]


def test_note_counts_are_nullable_integers():
    frame = notes_to_frame(collect_notes(METADATA))
    assert frame["count"].dtype == pd.Int64Dtype()
    assert frame["count"].isna().sum() == 5


def test_dataset_sources_lists_each_dataset_once():
    assert dataset_sources(METADATA) == [
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
    metadata = {"model": "mine", "evaluations": {name: {"inference": {"model": model}} for name in ("x", "y")}}
    assert [(row["evaluation"], row["kind"], row["count"]) for row in collect_notes(metadata)] == [
        (None, "trusted code", None),
        (None, "unused weights", 2),
    ]


def metadata_of(model: str, version: str, *evaluations: str) -> dict:
    libraries = {"torch": "2.13.0", "transformers": version}
    evaluation_metadata = {"inference": {"engine": {"version": f"of-{version}"}, "model": libraries}}
    return {
        "model": model,
        "evaluations": dict.fromkeys(evaluations, evaluation_metadata) | {"lost": {"unavailable": "gone"}},
    }


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
