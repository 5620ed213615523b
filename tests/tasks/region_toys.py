"""Small region methods: a box and an ellipse of constant size; and a region in two pieces."""

import numpy as np
from sklearn.base import BaseEstimator


class Boxes:
    """Boxes ``centre +- half``; ``half`` (n, q)."""

    def __init__(self, centre, half):
        self.centre, self.half = centre, half

    def contains(self, Y):
        return (np.abs(np.asarray(Y) - self.centre) <= self.half).all(axis=1)

    def volume(self):
        return np.prod(2 * np.maximum(self.half, 0.0), axis=1)

    def take(self, rows):
        return type(self)(self.centre[rows], self.half[rows])

    def bounding_box(self):
        return np.stack([self.centre - self.half, self.centre + self.half], axis=-1)


class Ellipses(Boxes):
    """Ellipses with those half axes; they know their boundary."""

    def contains(self, Y):
        return (((np.asarray(Y) - self.centre) / self.half) ** 2).sum(axis=1) <= 1

    def volume(self):
        return np.pi * self.half.prod(axis=1)

    def boundary(self, n_points):
        angle = np.linspace(0, 2 * np.pi, n_points, endpoint=False)
        circle = np.column_stack([np.cos(angle), np.sin(angle)])
        return self.centre[:, None] + self.half[:, None] * circle


class TwoDiscs(Boxes):
    """Two discs beside each other: a region in two pieces."""

    def contains(self, Y):
        first = (((np.asarray(Y) - self.centre) / self.half + [1.5, 0]) ** 2).sum(axis=1) <= 1
        second = (((np.asarray(Y) - self.centre) / self.half - [1.5, 0]) ** 2).sum(axis=1) <= 1
        return first | second

    def volume(self):
        return 2 * np.pi * self.half.prod(axis=1)

    def bounding_box(self):
        wide = self.half * [2.5, 1.0]
        return np.stack([self.centre - wide, self.centre + wide], axis=-1)


class BoxMethod(BaseEstimator):
    """The same box around the model's prediction for every row, from the largest scaled residual."""

    region = Boxes

    def __init__(self, estimator=None, alpha=0.1):
        self.estimator = estimator
        self.alpha = alpha

    def fit(self, X, y, X_calib=None, y_calib=None):
        self.estimator.fit(X, y)
        self.sd_ = (y - self.estimator.predict(X)).std(axis=0)
        score = self.score(X_calib, y_calib)
        k = int(np.ceil((len(score) + 1) * (1 - self.alpha)))
        self.q_ = np.sort(score)[k - 1] if k <= len(score) else np.inf
        return self

    def score(self, X, Y):
        return np.abs((Y - self.estimator.predict(X)) / self.sd_).max(axis=1)

    def predict_region(self, X):
        return self.region(self.estimator.predict(X), np.tile(self.q_ * self.sd_, (len(X), 1)))


class EllipseMethod(BoxMethod):
    region = Ellipses

    def score(self, X, Y):
        return np.linalg.norm((Y - self.estimator.predict(X)) / self.sd_, axis=1)
