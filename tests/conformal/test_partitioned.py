"""The classifier of many: parts by content, members that only their rows reach, missing classes."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from assay.conformal.partitioned import PartitionedClassifier, content_keys, partition_of
from assay.core.errors import AssayWarning, DataError, MethodError

X, Y = load_digits(return_X_y=True)
TRAIN, TEST = slice(0, 300), slice(1000, 1200)


def fitted(X=X[TRAIN], y=Y[TRAIN], estimator=None, parts=10, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AssayWarning)
        return PartitionedClassifier(estimator or GaussianNB(), parts, **options).fit(X, y)


def test_the_order_of_the_rows_does_not_matter():
    order = np.random.default_rng(0).permutation(300)
    for estimator in (
        SGDClassifier(max_iter=50),
        make_pipeline(StandardScaler(), SGDClassifier(max_iter=50)),
    ):
        expected = fitted(estimator=estimator).predict_votes(X[TEST])
        got = fitted(X[TRAIN][order], Y[TRAIN][order], estimator).predict_votes(X[TEST])
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("deed", ["flip", "delete", "add"])
def test_one_row_touches_one_member(deed):
    clean = fitted()
    rng = np.random.default_rng(1)
    for row in rng.integers(300, size=5):
        x, y = X[TRAIN], Y[TRAIN].copy()
        if deed == "flip":
            y[row] = (y[row] + 1) % 10
        elif deed == "delete":
            x, y = np.delete(x, row, axis=0), np.delete(y, row)
        else:
            x, y = np.insert(x, 0, X[row] + 0.5, axis=0), np.insert(y, 0, 3)
        poisoned = fitted(x, y)
        differ = [
            i
            for i, (a, b) in enumerate(zip(clean.members_, poisoned.members_, strict=True))
            if (a.predict(X[TEST]) != b.predict(X[TEST])).any()
        ]
        at = X[row] + 0.5 if deed == "add" else X[row]
        assert set(differ) <= {int(partition_of(content_keys(at[None], clean.seed_), 10)[0])}


def test_parts_come_from_content_alone():
    keys = content_keys(X[TRAIN], 0)
    np.testing.assert_array_equal(keys[5:9], content_keys(X[5:9], 0))
    np.testing.assert_array_equal(keys, content_keys(X[TRAIN].astype(np.float32), 0))
    np.testing.assert_array_equal(keys, content_keys(X[TRAIN].astype(int).tolist(), 0))
    np.testing.assert_array_equal(keys, content_keys(pd.DataFrame(X[TRAIN]), 0))
    np.testing.assert_array_equal(keys, content_keys(sparse.csr_matrix(X[TRAIN]), 0))
    assert (keys != content_keys(X[TRAIN], 1)).any()
    minus = np.where(X[TRAIN] == 0, -0.0, X[TRAIN])
    np.testing.assert_array_equal(keys, content_keys(minus, 0))
    assert len(content_keys(sparse.csr_matrix((0, 3)), 0)) == 0


def test_tables_of_anything():
    frame = pd.DataFrame(
        {"a": [1, 2.5, np.nan, 1], "b": ["x", "y", None, "x"], "c": pd.to_datetime(["2020"] * 4)}
    )
    keys = content_keys(frame, 0)
    assert keys[0] == keys[3]
    assert len(set(keys)) == 3
    np.testing.assert_array_equal(keys[::-1], content_keys(frame[::-1], 0))
    # text that runs together is not the same text
    apart = content_keys(np.array([["ab", "c"], ["a", "bc"]], dtype=object), 0)
    assert apart[0] != apart[1]
    odd = np.array([[np.nan, 1.0], [-np.nan, 1.0]])
    assert len(set(content_keys(odd, 0))) == 1


def test_parts_are_about_equal():
    sizes = np.bincount(partition_of(content_keys(X, 0), 20), minlength=20)
    assert sizes.sum() == len(X)
    assert abs(sizes - len(X) / 20).max() < 5 * np.sqrt(len(X) / 20)


def test_a_part_without_a_class_and_one_with_a_single_class_and_one_without_rows():
    x = np.arange(12.0)[:, None]
    y = np.array(["a", "b", "c"])[np.arange(12) % 3]
    with pytest.warns(AssayWarning, match=r"of 8 parts of 12 training rows \d hold no row .* single class"):
        model = PartitionedClassifier(KNeighborsClassifier(1), 8).fit(x, y)
    votes = model.predict_votes(x)
    silent = int((model.partition_sizes_ == 0).sum())
    assert silent > 0
    assert (votes.sum(axis=1) == 8 - silent).all()
    np.testing.assert_allclose(model.predict_proba(x).sum(axis=1), 1)
    assert set(model.predict(x)) <= {"a", "b", "c"}


def test_one_part_is_the_estimator():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = PartitionedClassifier(GaussianNB(), 1).fit(X[TRAIN], Y[TRAIN])
    alone = GaussianNB().fit(X[TRAIN], Y[TRAIN])
    np.testing.assert_array_equal(model.predict(X[TEST]), alone.predict(X[TEST]))


def test_ties_go_to_the_lower_class():
    model = fitted(np.array([[0.0], [1.0]]), np.array([5, 2]), parts=2)
    if (model.partition_sizes_ == 1).all():
        assert model.predict([[0.5]]) == [2]
    assert (model.predict_votes(np.empty((0, 1))) == np.empty((0, 2))).all()


def test_members_have_seeds_of_their_own_and_the_estimator_is_left_alone():
    estimator = SGDClassifier()
    model = fitted(estimator=estimator)
    seeds = {member.model.random_state for member in model.members_}
    assert len(seeds) == 10
    assert estimator.random_state is None
    assert not hasattr(estimator, "coef_")
    assert {m.model.random_state for m in fitted(estimator=SGDClassifier(random_state=4)).members_} == {4}
    np.testing.assert_array_equal(
        clone(model).fit(X[TRAIN], Y[TRAIN]).predict_votes(X[TEST]), model.predict_votes(X[TEST])
    )
    assert model.n_features_in_ == 64


def test_frames_and_sparse_rows_reach_the_members():
    frame = pd.DataFrame(X[TRAIN], columns=[f"p{i}" for i in range(64)])
    expected = fitted().predict_votes(X[TEST])
    np.testing.assert_array_equal(
        fitted(frame).predict_votes(frame.__class__(X[TEST], columns=frame.columns)), expected
    )
    model = fitted(sparse.csr_matrix(X[TRAIN]), estimator=LogisticRegression(max_iter=20), parts=3)
    assert model.predict(sparse.csr_matrix(X[TEST])).shape == (200,)


@pytest.mark.parametrize("parts", [0, -1, 2.5, True, "ten"])
def test_numbers_of_parts(parts):
    with pytest.raises(MethodError, match="n_partitions must be a whole number from 1"):
        PartitionedClassifier(GaussianNB(), parts).fit(X[TRAIN], Y[TRAIN])


def test_bad_rows():
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        fitted(X[:5], Y[:4])
    with pytest.raises(DataError, match="continuous"):
        fitted(X[:4], [0.5, 1, 2, 3])
    with pytest.raises(DataError, match="0 training rows"):
        fitted(X[:0], Y[:0])
