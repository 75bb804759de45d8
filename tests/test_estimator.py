"""`ShotFitClassifier` among scikit-learn's own checks and tools, as far as images allow."""

import pickle

import numpy as np
import pytest
from conftest import shapes_dataset
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import estimator_checks

from shotfit.estimator import ShotFitClassifier
from shotfit.recipe import named_recipe

# Those that make no data of their own, which would be rows of numbers.
CHECKS = (
    "check_estimator_cloneable",
    "check_estimator_repr",
    "check_estimator_tags_renamed",
    "check_valid_tag_types",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_get_params_invariance",
    "check_set_params",
    "check_do_not_raise_errors_in_init_or_set_params",
    "check_mixin_order",
)
DATA = shapes_dataset(3, train=4)
X = np.stack([np.asarray(example.image) for example in DATA.train])
NAMES = np.array([DATA.classnames[example.label] for example in DATA.train])
NUMBERS = np.array([10 * example.label for example in DATA.train])


@pytest.fixture
def estimator(checkpoint) -> ShotFitClassifier:
    return ShotFitClassifier(str(checkpoint), named_recipe("2sfs", iters_per_shot=1))


def fresh(estimator: ShotFitClassifier) -> ShotFitClassifier:
    copy = clone(estimator)
    assert isinstance(copy, ShotFitClassifier)
    return copy


@pytest.mark.parametrize("check", CHECKS)
def test_scikit_learns_own_checks(check):
    getattr(estimator_checks, check)("ShotFitClassifier", ShotFitClassifier())


def test_it_answers_with_the_labels_that_it_was_given(estimator: ShotFitClassifier):
    with pytest.raises(NotFittedError):
        estimator.predict(X)
    named = fresh(estimator).fit(X, NAMES)
    assert named.classes_.tolist() == sorted(DATA.classnames)
    probabilities = named.predict_proba(X)
    assert probabilities.shape == (12, 3)
    assert np.allclose(probabilities.sum(axis=1), 1, atol=1e-5)
    assert named.predict(X).tolist() == named.classes_[probabilities.argmax(axis=1)].tolist()
    assert named.score(X, NAMES) == (named.predict(X) == NAMES).mean()
    assert named.predict(X[:1]).shape == (1,)
    numbered = fresh(estimator).set_params(
        classnames={10 * n: name for n, name in enumerate(DATA.classnames)}
    )
    numbered.fit(list(X), NUMBERS)
    assert numbered.classes_.tolist() == [0, 10, 20]
    assert numbered.classifier_.classes == DATA.classnames
    assert set(numbered.predict(X)) <= {0, 10, 20}


def test_a_second_fit_is_a_first_one(estimator: ShotFitClassifier):
    once = fresh(estimator).fit(X, NAMES).predict_proba(X)
    again = fresh(estimator).fit(X[:8], NAMES[:8]).fit(X, NAMES).predict_proba(X)
    assert np.array_equal(once, again)


def test_pipelines_searches_and_copies(estimator: ShotFitClassifier):
    pipeline = make_pipeline(FunctionTransformer(), estimator)
    assert len(cross_val_score(pipeline, X, NAMES, cv=2)) == 2
    search = GridSearchCV(estimator, {"seed": [1, 2]}, cv=2).fit(X, NAMES)
    assert search.best_params_["seed"] in (1, 2)
    assert fresh(search.best_estimator_).get_params() == search.best_estimator_.get_params()


def test_targets_that_are_no_classes(estimator: ShotFitClassifier):
    for y in (np.linspace(0, 1, 12), None):
        with pytest.raises(ValueError):
            estimator.fit(X, y)
    assert (
        pickle.loads(pickle.dumps(estimator)).get_params().keys() == estimator.get_params().keys()
    )
