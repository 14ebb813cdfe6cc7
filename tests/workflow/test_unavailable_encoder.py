"""A run with an incomplete and a missing encoder, and the next run with both available."""

import pytest
from support import tiny
from support.workspace import Workspace, output_tail

EVALUATION = "openbookqa.gl.generation.0shot"


@pytest.mark.slow
def test_metrics_of_an_unavailable_encoder_are_missing_with_a_reason_until_it_is_available(tmp_path):
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
    run = workspace.run()
    assert run.returncode == 1
    assert "the summary is written, but results are missing" in run.stdout + run.stderr
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
    planned = workspace.planned_jobs()
    assert planned["encoder"] == 2
    assert "infer" not in planned
    run = workspace.run()
    assert run.returncode == 0, output_tail(run)
    assert workspace.notes().query("kind == 'unavailable'").empty
    values = workspace.results().set_index("metric")
    assert {"cosine_correct", "bertscore_correct"} <= set(values.index)
    assert workspace.planned_jobs() == {}
