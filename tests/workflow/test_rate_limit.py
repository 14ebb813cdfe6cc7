"""Snakemake's scheduler plans when a job finishes, not every second; a limit that a user sets is kept."""

import pytest
from support.workspace import ROOT, Workspace, output_tail

pytestmark = pytest.mark.slow

ITEMS = "resources/items/cola.gl.limit4.parquet"


@pytest.mark.parametrize(
    ("arguments", "limit"),
    [((), "None"), (("--max-jobs-per-timespan", "50/1s"), "50"), (("--max-jobs-per-timespan", "100/2s"), "100")],
)
def test_only_snakemakes_default_limit_of_jobs_per_second_is_removed(tmp_path, arguments, limit):
    workspace = Workspace(tmp_path, [{"task": "cola", "languages": ["gl"], "limit": 4}])
    (tmp_path / "Snakefile").write_text(
        f'include: "{ROOT}/Snakefile"\n'
        "onsuccess:\n"
        "    limiter = workflow.scheduler.job_rate_limiter\n"
        "    print('limit:', limiter and limiter.max_jobs)\n"
    )
    run = workspace.run(ITEMS, "--snakefile", str(tmp_path / "Snakefile"), *arguments)
    assert run.returncode == 0, output_tail(run)
    assert (tmp_path / ITEMS).exists()
    assert f"limit: {limit}\n" in run.stdout
