import numpy as np
import pytest
from statsmodels.stats.multitest import multipletests
from vernacular.statistics.paired import holm, places


@pytest.mark.parametrize("p_values", [[0.3], [0.01, 0.01, 0.04], [0.9, 0.001, 0.5, 0.02], [0.0, 1.0, 0.0125] * 9])
def test_holm_agrees_with_statsmodels(p_values):
    assert holm(p_values) == pytest.approx(multipletests(p_values, method="holm")[1])


def test_no_test_is_no_member_of_the_family():
    found = holm([0.02, float("nan"), 0.03])
    assert found[[0, 2]].tolist() == [0.04, 0.04]
    assert np.isnan(found[1])
    assert holm([]).tolist() == []


def test_places_are_shared_where_nothing_tells_models_apart():
    better = np.zeros((4, 4), dtype=bool)
    better[0, 2] = better[0, 3] = better[1, 3] = True  # 1 and 2 are not told apart, though 0 beats 2 only
    assert places(better).tolist() == [1, 1, 2, 3]
