"""Trees and perceptrons as arrays say what the libraries say that fitted them."""

from __future__ import annotations

from time import monotonic

import numpy as np

from daceml.errors import EstimationError
from daceml.operations.models.boosted_trees import BoostedTrees
from daceml.operations.models.fitting.perceptrons import PerceptronSettings, fit_perceptron
from daceml.operations.models.fitting.trees import TreeSettings, fit_trees
from daceml.operations.models.perceptron import Perceptron
from tests.support.golden import raises


def rows(count: int = 700) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    features = rng.normal(size=(count, 4))
    return features, np.sin(features[:, 0]) + features[:, 1] * features[:, 2]


def test_trees_are_those_of_scikit_learn_also_where_something_is_missing():
    from sklearn.ensemble import HistGradientBoostingRegressor

    features, target = rows()
    features[::7, 1] = np.nan
    settings = TreeSettings(trees=40, leaves=9, fewest=5, rate=0.1)
    theirs = HistGradientBoostingRegressor(
        loss="absolute_error", max_iter=40, learning_rate=0.1, max_leaf_nodes=9, min_samples_leaf=5,
        early_stopping=False, random_state=0,
    ).fit(features, target)  # fmt: skip
    ours = fit_trees(features, target, settings)
    fresh = np.random.default_rng(4).normal(size=(1300, 4))
    fresh[::5, 1] = np.nan
    assert np.abs(ours.predict(fresh) - theirs.predict(fresh)).max() < 1e-12
    assert ours.predict(fresh[:0]).shape == (0,)


def test_trees_end_when_time_is_up_and_are_else_those_that_were_asked_for():
    features, target = rows()
    settings = TreeSettings(trees=50, leaves=9)
    whole = fit_trees(features, target, settings)
    assert len(whole.roots) == 50
    in_time = fit_trees(features, target, settings, until=monotonic() + 1e6)
    assert np.array_equal(in_time.predict(features), whole.predict(features))
    ended = fit_trees(features, target, settings, until=0.0)
    assert 0 < len(ended.roots) < 50


def test_a_perceptron_learns_and_leaves_the_generator_of_torch_alone():
    import torch

    features, target = rows(400)
    features[::11, 3] = np.nan
    state = torch.get_rng_state()
    fitted = fit_perceptron(features, target, PerceptronSettings(width=32, layers=2, passes=80))
    assert torch.equal(torch.get_rng_state(), state)
    assert fitted is not None
    assert np.abs(fitted.predict(features) - target).mean() < 0.3 * np.abs(target - target.mean()).mean()
    again = fit_perceptron(features, target, PerceptronSettings(width=32, layers=2, passes=80))
    assert again is not None
    assert np.array_equal(again.predict(features), fitted.predict(features))


def test_a_perceptron_is_given_up_when_time_is_up():
    features, target = rows(100)
    assert fit_perceptron(features, target, PerceptronSettings(), until=0.0) is None


def test_a_node_that_leads_back_is_refused():
    with raises(EstimationError, "trees", "node"):
        BoostedTrees(
            start=0.0,
            roots=np.array([0], np.int32),
            feature=np.array([0, -1], np.int32),
            threshold=np.zeros(2),
            left=np.array([0, 0], np.int32),
            right=np.array([1, 0], np.int32),
            missing_left=np.zeros(2, bool),
            value=np.zeros(2),
        )


def test_layers_that_do_not_follow_are_refused():
    with raises(EstimationError, "layers", "perceptron"):
        Perceptron(centre=np.zeros(2), scale=np.ones(2), weights=(np.zeros((1, 3)),), biases=(np.zeros(1),))


def test_too_few_features_are_refused():
    features, target = rows(100)
    fitted = fit_trees(features, target, TreeSettings(trees=20, leaves=15, fewest=2))
    with raises(EstimationError, "1 features", features.shape[1]):
        fitted.predict(features[:, :1])
