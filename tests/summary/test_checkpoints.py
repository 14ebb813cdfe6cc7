"""Checkpoints of series in the summary: columns of their position, order, notes on equal weights, and sheets."""

from dataclasses import asdict

import openpyxl
import pandas as pd
from openpyxl import Workbook
from vernacular.comparison.curves.schema import CURVE_STATISTICS, TASK_TRUST
from vernacular.core.metadata import MetricsMetadata
from vernacular.core.model_record import AdapterRecord, Listing
from vernacular.summary.grid import build_grid, combine_tables
from vernacular.summary.lists import add_positions, curve_sheets, equal_weight_notes

POSITION = {"series": "mine", "curve": "mine", "tokens": None, "words": None}


def test_positions_are_added_and_null_for_other_models():
    checkpoints = {"mine.step5": POSITION | {"step": 5}}
    table = add_positions(pd.DataFrame({"model": ["mine.step5", "base"]}), checkpoints)
    assert table["step"].tolist() == [5, pd.NA]
    assert table["curve"].fillna("none").tolist() == ["mine", "none"]
    assert str(table["step"].dtype) == "Int64"
    assert table["tokens"].isna().all()


def test_checkpoints_are_in_numeric_order(metrics_table):
    names = ["mine.step10000", "mine.step500", "mine.step9000"]
    long = combine_tables([metrics_table({"model": name}) for name in names])
    assert build_grid(long).models["model"].tolist() == ["mine.step500", "mine.step9000", "mine.step10000"]


def test_equal_weights_of_checkpoints_are_noted():
    def metadata(model, digest, **record):
        files = {"model.safetensors": {"sha256": digest}, "trainer_state.json": {"sha256": model}}
        return MetricsMetadata(model=model, record={"name": model, "contents": {"root": "/", "files": files}} | record)

    models = [metadata("a.step1", "x"), metadata("a.step2", "x"), metadata("a.step3", "y"), metadata("other", "x")]
    (note,) = equal_weight_notes(models, {name: {} for name in ("a.step1", "a.step2", "a.step3")})
    assert note["kind"] == "same weights"
    assert note["note"].endswith(": a.step1, a.step2")
    adapters = [
        metadata(f"a.step{i}", "x", adapter=asdict(AdapterRecord("a", "a", None, "LORA", 4, False, False, listing)))
        for i in (1, 2)
        for listing in [Listing("a", {"adapter_model.safetensors": {"sha256": str(i)}})]
    ]
    assert equal_weight_notes(adapters, {"a.step1": {}, "a.step2": {}}) == []


def test_sheets_of_curves_and_trust(tmp_path):
    setting = {"evaluation": "e", "task": "t", "language": "gl", "protocol": "options", "shots": 0, "seed": 0,
               "style": "default", "prompt": "default", "category": "", "metric": "accuracy", "unit": "share", "higher_is_better": True}  # fmt: skip
    curve = dict.fromkeys(CURVE_STATISTICS.schema.names) | setting
    curve |= {"curve": "=mine", "n_checkpoints": 3, "n_missing": 1, "last": 0.875, "last_x": 16000, "best": 0.9}
    trust = dict.fromkeys(TASK_TRUST.schema.names) | setting
    trust |= {"n_curves": 1, "verdict": "noise", "reason": "no curve ends above chance", "monotonicity": 0.1}
    book = Workbook()
    for name, fill in curve_sheets([curve], [trust], "Ignore e.").items():
        fill(book.create_sheet(name))
    book.save(tmp_path / "book.xlsx")
    book = openpyxl.load_workbook(tmp_path / "book.xlsx")
    rows = {name: list(book[name].values) for name in ("curves", "task trust")}
    curves = dict(zip(rows["curves"][0], rows["curves"][1], strict=True))
    assert (curves["curve"], curves["last"], curves["at"], curves["missing"]) == ("=mine", 0.875, 16000, 1)
    assert book["curves"]["A2"].data_type == "s"
    best = next(cell for cell in book["curves"][1] if cell.value == "best")
    assert "optimistic" in best.comment.text  # the bias of choosing the best is stated where it is shown
    assert dict(zip(rows["task trust"][0], rows["task trust"][1], strict=True))["verdict"] == "noise"
    assert rows["task trust"][3][0] == "Ignore e."
    empty = Workbook()
    for name, fill in curve_sheets([], [], "").items():
        fill(empty.create_sheet(name))
    assert empty["curves"]["A1"].value == "No curves."
