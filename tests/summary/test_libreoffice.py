"""Workbooks in headless LibreOffice: it reads the same values and evaluates no formula."""

import shutil
import subprocess
from pathlib import Path

import openpyxl
import pandas as pd
import pytest
from vernacular.summary.grid import combine_tables
from vernacular.summary.workbook import write_leaderboard

SOFFICE = shutil.which("soffice") or shutil.which("libreoffice")
HAS_CALC = SOFFICE is not None and Path(SOFFICE).resolve().with_name("libsclo.so").exists()


@pytest.mark.skipif(not HAS_CALC, reason="LibreOffice Calc is not installed")
def test_libreoffice_reads_same_values_without_formulas(
    metrics_table, ranking_row, comparison_row, overall_row, tmp_path
):
    names = ["=1+1", "نموذج", "#N/A", "a\x00b"]
    rows = [
        {"model": name, "task": task, "language": language, "value": (i + 1) / 7, "metric": metric, "unit": unit}
        for i, name in enumerate(names)
        for task, metric, unit in (("belebele", "accuracy", "share"), ("galcola", "mcc", "score"))
        for language in ("gl", "a'b/c")
    ]
    path = write_leaderboard(
        tmp_path / "leaderboard.xlsx",
        combine_tables(
            [metrics_table(*rows, {"model": "none", "value": None}, {"model": "all", "value": float("inf")})]
        ),
        {"notes": [{"note": "=cmd()"}]},
        rankings=[ranking_row(model=name, best=names[-1]) for name in names],
        comparisons=[comparison_row(baseline="=1+1"), comparison_row(metric="mcc", better=None, significant=False)],
        overall=[overall_row(model=name) for name in names],
    )
    profile = f"-env:UserInstallation=file://{tmp_path / 'profile'}"
    command = [
        SOFFICE,
        "--headless",
        profile,
        "--convert-to",
        "xlsx:Calc MS Excel 2007 XML",
        "--outdir",
        tmp_path / "out",
    ]
    process = subprocess.run([*command, path], capture_output=True, text=True, timeout=300)
    converted = tmp_path / "out" / "leaderboard.xlsx"
    assert converted.exists(), process.stderr
    assert "error" not in process.stderr.casefold()
    before, after = openpyxl.load_workbook(path), openpyxl.load_workbook(converted)
    assert after.sheetnames == before.sheetnames
    assert not [
        cell.coordinate for sheet in after for row in sheet.iter_rows() for cell in row if cell.data_type == "f"
    ]
    for name in before.sheetnames:
        pd.testing.assert_frame_equal(
            pd.read_excel(converted, sheet_name=name, header=None),
            pd.read_excel(path, sheet_name=name, header=None),
            check_dtype=False,
            rtol=1e-14,
        )
