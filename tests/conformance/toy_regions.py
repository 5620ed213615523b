"""Small honest region methods, and copies of them that each break one law."""

import math
import warnings

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.linear_model import LinearRegression
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from assay.core.checks import refuse_infinite, refuse_nan, row_count, to_float, to_numpy
from assay.core.errors import DataError, InfiniteSetWarning
from assay.core.levels import parse_levels
from assay.core.models import predict_values
from assay.core.quantiles import conformal_quantile


def outputs(y, name="y", length=None):
    array = to_numpy(y)
    array = to_float(array[:, None] if array.ndim == 1 else array, name)
    refuse_nan(array, name)
    refuse_infinite(array, name)
    if length is not None and len(array) != length:
        raise DataError(f"{name} has {len(array)} rows, {length} are expected")
    return array


class Rectangle:
    """{y : |y - center| <= half}."""

    def __init__(self, center, half):
        self.center, self.half = center, np.broadcast_to(half, center.shape)

    def __len__(self):
        return len(self.center)

    def contains(self, y):
        y = outputs(y, length=len(self))
        if y.shape[1] != self.center.shape[1]:
            raise DataError(f"y has {y.shape[1]} outputs, the region {self.center.shape[1]}")
        return (np.abs(y - self.center) <= self.half).all(axis=1)

    def volume(self):
        return (2 * self.half).prod(axis=1)

    def take(self, rows):
        return type(self)(self.center[rows], self.half[rows])

    def bounding_box(self):
        return np.stack([self.center - self.half, self.center + self.half], axis=2)

    def boundary(self, n_points):
        angle = np.arange(n_points) * 2 * np.pi / n_points
        square = np.column_stack([np.cos(angle), np.sin(angle)])
        square /= np.abs(square).max(axis=1, keepdims=True)
        return self.center[:, None] + self.half[:, None] * square

    def sample(self, n):
        share = np.random.default_rng(0).uniform(-1, 1, size=(n, self.center.shape[1]))
        return self.center[:, None] + self.half[:, None] * share


class Boxes(BaseEstimator):
    """Split conformal boxes around least squares, sides in proportion to the training residuals."""

    shape = Rectangle

    def __init__(self, estimator=None, alpha=0.1):
        self.estimator = estimator
        self.alpha = alpha

    def fit(self, X, y):
        check_consistent_length(X, y)
        target = self._targets(y)
        parse_levels(self.alpha)
        half = len(target) // 2
        X = to_numpy(X)
        model = LinearRegression().fit(X[:half], target[:half])
        scale = self._spread(target[:half] - self._centers(model, X[:half], target.shape[1]))
        rest = self._centers(model, X[half:], target.shape[1])
        self.estimator_, self.scale_ = model, scale
        self.scores_ = self._score(target[half:] - rest)
        return self

    def _targets(self, y):
        return outputs(y)

    def _centers(self, model, X, q):
        return predict_values(model, X, columns=q).reshape(row_count(X), q)

    def _spread(self, residuals):
        scale = np.sqrt((residuals**2).mean(axis=0))
        return np.where(scale > 0, scale, 1.0)

    def _score(self, residuals):
        return np.abs(residuals / self.scale_).max(axis=1)

    def calibrate(self, X, y):
        check_consistent_length(X, y)
        target = self._targets(y)
        model = getattr(self, "estimator_", self.estimator)
        scale = getattr(self, "scale_", np.ones(target.shape[1]))
        if target.shape[1] != len(scale):
            raise DataError(f"y has {target.shape[1]} outputs, {len(scale)} are expected")
        center = self._centers(model, X, target.shape[1])
        self.estimator_, self.scale_ = model, scale
        self.scores_ = self._score(target - center)
        return self

    def predict(self, X):
        check_is_fitted(self)
        return predict_values(self.estimator_, X, columns=len(self.scale_))

    def predict_region(self, X, alpha=None):
        check_is_fitted(self)
        levels, is_scalar = parse_levels(self.alpha if alpha is None else alpha)
        center = self._centers(self.estimator_, X, len(self.scale_))
        regions = [self.shape(center, self._quantile(level) * self.scale_) for level in levels]
        return regions[0] if is_scalar else regions

    def _quantile(self, level):
        return conformal_quantile(self.scores_, level)


class RegionRankTooLow(Boxes):
    def _quantile(self, level):
        n = len(self.scores_)
        k = math.ceil((1 - level) * (n + 1)) - 1
        return super()._quantile(level) if k >= n else np.sort(self.scores_)[max(k, 1) - 1]


class TooSmallOnManyRows(Boxes):
    """What no rank of a few rows shows: two thirds of the threshold with 99 calibration rows."""

    def _quantile(self, level):
        q = super()._quantile(level)
        return q / 1.5 if len(self.scores_) == 99 else q


class RegionHasOneOutputLess(Boxes):
    """The second output is not looked at when scores are taken."""

    def _score(self, residuals):
        return np.abs(residuals[:, :1] / self.scale_[:1]).max(axis=1)


class ReversedLevels(Boxes):
    """Several levels come in rising order, whatever order was asked for."""

    def predict_region(self, X, alpha=None):
        answer = super().predict_region(X, alpha)
        return answer[::-1] if isinstance(answer, list) and len(answer) > 2 else answer


class OneUnitForAll(Boxes):
    """Sides of one length, whatever the units."""

    def _spread(self, residuals):
        return np.full(residuals.shape[1], super()._spread(residuals).mean())


class SwallowsNaNOfTheSecondOutput(Boxes):
    def _targets(self, y):
        array = to_numpy(y).astype(float)
        if array.ndim == 2 and array.shape[1] == 2:
            array = np.column_stack([array[:, 0], np.nan_to_num(array[:, 1])])
        return outputs(array)


class _TooLarge(Rectangle):
    def volume(self):
        return 1.3 * super().volume()


class VolumeOfAnother(Boxes):
    shape = _TooLarge


class _SmallBox(Rectangle):
    def bounding_box(self):
        return np.stack([self.center - 0.9 * self.half, self.center + 0.9 * self.half], axis=2)

    sample = boundary = None


class BoundingBoxTooSmall(Boxes):
    shape = _SmallBox


class _Wanders(Rectangle):
    def sample(self, n):
        return self.center[:, None] + 1.01 * (super().sample(n) - self.center[:, None])


class SamplesOutside(Boxes):
    shape = _Wanders


class _Inner(Rectangle):
    def boundary(self, n_points):
        return self.center[:, None] + 0.9 * (super().boundary(n_points) - self.center[:, None])


class BoundaryInside(Boxes):
    shape = _Inner


class _Broadcasts(Rectangle):
    def contains(self, y):
        y = outputs(y)
        return (np.abs(y - self.center) <= self.half).all(axis=1)


class RegionBroadcasts(Boxes):
    shape = _Broadcasts


class _Sorts(Rectangle):
    def take(self, rows):
        return super().take(np.sort(np.arange(len(self))[rows]))


class TakesInOrder(Boxes):
    shape = _Sorts


class _Forgets(Rectangle):
    def __getstate__(self):
        return {"center": self.center, "half": 2 * self.half}


class RegionGrowsInPickles(Boxes):
    shape = _Forgets


class RegionQuietlyInfinite(Boxes):
    def _quantile(self, level):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", InfiniteSetWarning)
            return super()._quantile(level)
