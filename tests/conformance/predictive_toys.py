"""A predictive method that keeps every law, and ones that break one each."""

import numpy as np
from sklearn.linear_model import LinearRegression, LogisticRegression

from assay.bayes.sklearn_model import SklearnPredictive
from assay.core.distributions import CategoricalDistribution, GaussianDistribution
from assay.core.probabilities import check_labels


class Distribution(SklearnPredictive):
    """Least squares with a Gaussian, or logistic regression."""

    def __init__(self, likelihood="classification"):
        self.likelihood = likelihood

    folds, random_state = 5, 0

    @property
    def estimator(self):
        return LogisticRegression() if self.likelihood == "classification" else LinearRegression()


class _Changed(Distribution):
    def _dist(self, X):
        dist = super()._dist(X)
        if isinstance(dist, GaussianDistribution):
            return self.gaussian(dist.mean, dist.variance)
        return self.categorical(dist.proba, dist.classes)

    gaussian, categorical = GaussianDistribution, CategoricalDistribution


class _NarrowDraws(GaussianDistribution):
    def _draw(self, u):
        return self.mean[:, None] + 0.8 * (super()._draw(u) - self.mean[:, None])


class DrawsTooNarrow(_Changed):
    gaussian = _NarrowDraws


class _OtherDensity(GaussianDistribution):
    def log_prob(self, y):
        return super().log_prob(y) + 0.1


class DensityWithoutItsConstant(_Changed):
    gaussian = _OtherDensity


class PredictsTheSecondLabel(Distribution):
    def predict(self, X):
        dist = self.predict_dist(X)
        return dist.mean if self.likelihood == "regression" else dist.classes[np.argsort(dist.proba)[:, -2]]


class _ForgivingLabels(CategoricalDistribution):
    def log_prob(self, y):
        known = np.isin(check_labels(y, length=len(self)), self.classes)
        return np.where(known, super().log_prob(np.where(known, y, self.classes[0])), -np.inf)


class UnseenClassIsJustUnlikely(_Changed):
    categorical = _ForgivingLabels


class SwallowsNaNFeatures(Distribution):
    def _rows(self, X, reset=False):
        rows = np.asarray(X, dtype=float)
        return super()._rows(np.nan_to_num(rows, posinf=0.0) if rows.ndim == 2 else rows, reset)
