import numpy as np
import pytest
from statsmodels.stats.multitest import multipletests
from vernacular.statistics.significance import competition_ranks, holm


@pytest.mark.parametrize("p_values", [[0.3], [0.01, 0.01, 0.04], [0.9, 0.001, 0.5, 0.02], [0.0, 1.0, 0.0125] * 9])
def test_holm_agrees_with_statsmodels(p_values):
    assert holm(p_values) == pytest.approx(multipletests(p_values, method="holm")[1])


def test_holm_ignores_nan():
    adjusted = holm([0.02, float("nan"), 0.03])
    assert adjusted[[0, 2]].tolist() == [0.04, 0.04]
    assert np.isnan(adjusted[1])
    assert holm([]).tolist() == []


def test_models_without_significant_difference_share_a_rank():
    better = np.zeros((4, 4), dtype=bool)
    # 1 and 2 do not differ significantly, although only 0 is better than 2
    better[0, 2] = better[0, 3] = better[1, 3] = True
    assert competition_ranks(better).tolist() == [1, 1, 2, 3]
