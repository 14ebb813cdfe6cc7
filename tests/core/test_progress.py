"""Progress lines: content, estimate, and that they appear during a long unit."""

import threading
import time

import pytest
from vernacular.core.logs import Progress


def wait_for(condition) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_estimate_includes_the_completed_share_of_the_current_unit():
    with Progress("infer tiny", 4, "evaluation") as outer:
        assert outer.line(10.0) == "infer tiny: 0 of 4 evaluations"  # nothing completed: no estimate
        outer.advance()
        with Progress("score", 10, "token") as inner:
            inner.advance(5)
            assert outer.line(300.0) == "infer tiny: 1 of 4 evaluations, about 8 min left"  # 3/8 in 300 s
        assert outer.line(300.0) == "infer tiny: 1 of 4 evaluations, about 15 min left"
        outer.advance(3)
        assert outer.line(300.0) == "infer tiny: 4 of 4 evaluations"


def test_estimate_follows_the_sizes_of_the_units():
    with Progress("infer tiny", 4, "evaluation") as outer:
        outer.done, outer.span = 3, (0.1, 0.9)  # the last one is much longer
        assert outer.line(60.0) == "infer tiny: 3 of 4 evaluations, about 9 min left"
        with Progress("score", 10, "token") as inner:
            inner.advance(4)
            assert outer.line(60.0) == "infer tiny: 3 of 4 evaluations, about 70 s left"  # 0.46 in 60 s


def test_line_is_printed_repeatedly_during_one_unit_and_only_by_the_outermost_counter(low_limits, capsys):
    low_limits("core.logs", INTERVAL=0.01)
    printed = []
    with Progress("outer", 2, "unit"), Progress("inner", 2, "unit"):
        wait_for(
            lambda: printed.append(capsys.readouterr().err) or "".join(printed).count("outer: 0 of 2 units\n") >= 3
        )
    assert "inner" not in "".join(printed)


def test_thread_ends_with_the_counter_also_after_an_exception(low_limits, capsys):
    low_limits("core.logs", INTERVAL=0.01)
    before = threading.active_count()
    with pytest.raises(KeyError), Progress("outer", 2, "unit"):
        raise KeyError
    wait_for(lambda: threading.active_count() <= before)
    capsys.readouterr()
    with Progress("another", 1, "unit"):
        wait_for(lambda: "another: 0 of 1 unit" in capsys.readouterr().err)


def test_no_line_without_units():
    with Progress("infer tiny", 0, "evaluation") as progress:
        assert progress.line(5.0) == "infer tiny: 0 of 0 evaluations"
