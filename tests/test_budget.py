import math

import pytest

from daceml.errors import ConfigurationError
from daceml.time_budget import budget_s
from tests.support.golden import raises


@pytest.mark.parametrize(
    ("budget", "seconds"),
    [("90", 90), ("90s", 90), ("2m", 120), ("2min", 120), (" 1.5 h", 5400), (3, 3), (0.5, 0.5)],
)
def test_budgets_have_units(budget: str | float, seconds: float):
    assert budget_s(budget) == seconds


@pytest.mark.parametrize("budget", ["2 days", "soon", "-1", "0", "0s", "", 0, -1.0, math.nan, math.inf])
def test_what_is_no_time_is_refused(budget: str | float):
    with raises(ConfigurationError, f"--budget {budget!r} "):
        budget_s(budget)


def test_no_time_at_all_is_a_budget_where_that_is_said():
    assert budget_s("0s", may_be_zero=True) == 0
    with pytest.raises(ConfigurationError):
        budget_s("-1", may_be_zero=True)
