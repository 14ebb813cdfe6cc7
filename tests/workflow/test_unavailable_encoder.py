"""All stages with an incomplete and a missing encoder, and then with both available."""

import pytest
from support import tiny
from support.workspace import Workspace
from vernacular.config.directories import clear_unavailable

EVALUATION = "openbookqa.gl.generation.0shot"


@pytest.mark.slow
def test_metrics_of_an_unavailable_encoder_are_missing_with_a_reason_until_it_is_available(tmp_path):
    """That the next run of Snakemake tries again what a run deletes at its end: test_contained_failures."""
    workspace = Workspace(
        tmp_path, [{"task": "openbookqa", "languages": ["gl"], "protocols": ["generation"], "limit": 3}]
    )
    tiny.save("bert", tmp_path / "cut")
    weights = (tmp_path / "cut" / "model.safetensors").read_bytes()
    (tmp_path / "cut" / "model.safetensors").write_bytes(weights[:900])
    workspace.config["similarity"] |= {
        "cosine_encoders": {"gl": "./nowhere"},
        "encoders": {"gl": "./cut", "default": "./encoder"},
        "metrics": ["cosine", "bertscore"],
    }
    assert workspace.run_stages() == 1, "the summary is written, but results are missing"
    notes = workspace.notes().query("kind == 'unavailable'")
    assert set(notes["evaluation"]) == {EVALUATION}
    reasons = dict(reason.split(" not computed: ", 1) for reason in notes["note"])
    assert set(reasons) == {"cosine", "bertscore"}
    assert "nowhere" in reasons["cosine"]
    assert "cut" in reasons["bertscore"]
    assert "download may be incomplete" in reasons["bertscore"]
    values = workspace.results().set_index("metric")
    assert values.loc["exact_match", "n"] == 3, "metrics without encoder are computed"
    assert not set(values.index[values["n"] > 0]) & {"cosine_correct", "bertscore_correct"}

    (tmp_path / "cut" / "model.safetensors").write_bytes(weights)
    tiny.save("bert", tmp_path / "nowhere")
    deleted = tried_again(tmp_path)
    assert len([path for path in deleted if path.startswith("resources/encoders/")]) == 2
    assert not [path for path in deleted if path.startswith(("results/inference_status/", "results/tiny/generations/"))]
    assert workspace.run_stages() == 0
    assert workspace.notes().query("kind == 'unavailable'").empty
    values = workspace.results().set_index("metric")
    assert {"cosine_correct", "bertscore_correct"} <= set(values.index)
    assert tried_again(tmp_path) == []


def tried_again(directory) -> list[str]:
    """Return the files that a run deletes at its end, so that the next tries again."""
    deleted = clear_unavailable(directory / "resources", directory / "results")
    return [path.relative_to(directory).as_posix() for path in deleted]
