"""Values by labels of speakers, and borrowed ones, in the view of a task."""

from support.report_run import OPTIONS


def test_both_intervals_are_shown_with_the_agreement(labels_page):
    page = labels_page.open(f"#/task/{OPTIONS}")
    headings = page.texts("main h2")
    assert headings.index("Judged by speakers") < headings.index("Borrowed from other models")
    text = page.text("main")
    assert "100 items with labels." in text
    assert "Agreement of annotators: α = 0.71 (0.60–0.80)." in text
    rows = [row for row in page.texts("main tbody tr") if "×" in row or "labels alone" in row]
    assert len(rows) == 4
    [scored] = [row for row in rows if "−0.41" in row]
    assert "Accuracy" in scored
    assert all(number in scored for number in ("60.0", "55.0", "48.0", "62.0", "× 0.82"))
    assert any(row.startswith("<i>tuned</i> minus base") and "+10.0" in row for row in rows)  # text, no element
    assert any("100 of 260" in row and "× 0.73" in row for row in rows)
    assert len(page.find_all("main .ranges .range")) == 6
