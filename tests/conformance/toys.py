"""Small honest methods, and copies of them that each break one law."""

import array
import math
import warnings
from fractions import Fraction

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.linear_model import LinearRegression
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted

from assay.core.checks import check_target, check_vector, row_count, to_numpy
from assay.core.errors import DataError, InfiniteSetWarning
from assay.core.levels import parse_alpha, parse_levels
from assay.core.models import predict_values
from assay.core.quantiles import conformal_quantile


class Toy(BaseEstimator):
    """What the honest methods share: one threshold, several levels."""

    def _quantile(self, level):
        return conformal_quantile(self.scores_, level)

    def _stack(self, alpha, answer, n, width, dtype):
        levels, is_scalar = parse_levels(self.alpha if alpha is None else alpha)
        out = np.empty((len(levels), n, width), dtype)
        for i, level in enumerate(levels):
            out[i] = answer(level)
        return out[0] if is_scalar else out


class Interval(Toy):
    """Split conformal around least squares."""

    def __init__(self, estimator=None, alpha=0.1):
        self.estimator = estimator
        self.alpha = alpha

    def fit(self, X, y):
        check_consistent_length(X, y)
        y = check_target(y)
        parse_levels(self.alpha)
        half = len(y) // 2
        X = to_numpy(X)
        model = LinearRegression() if self.estimator is None else self.estimator
        estimator = LinearRegression(**model.get_params()).fit(X[:half], y[:half])
        scores = np.abs(y[half:] - predict_values(estimator, X[half:]))
        self.estimator_, self.scores_ = estimator, scores
        return self

    def calibrate(self, X, y):
        check_consistent_length(X, y)
        parse_levels(self.alpha)
        y = check_target(y)
        estimator = getattr(self, "estimator_", self.estimator)
        scores = np.abs(y - self._values(estimator, X))
        self.estimator_, self.scores_ = estimator, scores
        return self

    def _values(self, estimator, X):
        return predict_values(estimator, X)

    def predict(self, X):
        check_is_fitted(self)
        return self._values(self.estimator_, X)

    def predict_interval(self, X, alpha=None):
        return self._around(self.predict(X), alpha)

    def calibrate_pred(self, y_pred, y):
        parse_levels(self.alpha)
        y = check_target(y)
        self.scores_ = np.abs(y - check_vector(y_pred, "y_pred", length=len(y)))
        return self

    def predict_interval_pred(self, y_pred, alpha=None):
        check_is_fitted(self, "scores_")
        return self._around(check_target(y_pred, name="y_pred"), alpha)

    def _around(self, centre, alpha):
        def at(level):
            q = self._quantile(level)
            return np.column_stack([centre - q, centre + q])

        return self._stack(alpha, at, len(centre), 2, float)


class FullConformal(BaseEstimator):
    """Constant prediction 0 with all rows as calibration: ``fit`` does all."""

    def __init__(self, alpha=0.1):
        self.alpha = alpha

    def fit(self, X, y):
        check_consistent_length(X, y)
        parse_levels(self.alpha)
        self.scores_ = self._kept(np.abs(check_target(y)))
        return self

    def _kept(self, scores):
        return scores

    def predict_interval(self, X, alpha=None):
        check_is_fitted(self)
        X = check_array(X, ensure_min_samples=0)
        levels, is_scalar = parse_levels(self.alpha if alpha is None else alpha)
        q = np.array([conformal_quantile(self.scores_, level) for level in levels])
        out = np.empty((len(levels), len(X), 2))
        out[:, :, 0], out[:, :, 1] = -q[:, None], q[:, None]
        return out[0] if is_scalar else out


class TrainsOnItsOwnAnswers(FullConformal):
    """Residuals of a model that has nearly learnt its rows by heart."""

    def _kept(self, scores):
        return scores / 4 if len(scores) == 19 else scores


class RankTooHigh(Interval):
    def _quantile(self, level):
        n = len(self.scores_)
        k = math.ceil((1 - level) * (n + 1)) + 1
        if k > n:
            return conformal_quantile(self.scores_, level) if k > n + 1 else np.max(self.scores_)
        return np.sort(self.scores_)[k - 1]


class RankTooLow(Interval):
    def _quantile(self, level):
        n = len(self.scores_)
        k = math.ceil((1 - level) * (n + 1)) - 1
        if k >= n:
            return conformal_quantile(self.scores_, level)
        return np.sort(self.scores_)[max(k, 1) - 1]


class InterpolatedQuantile(Interval):
    def _quantile(self, level):
        exact = conformal_quantile(self.scores_, level)
        return np.quantile(self.scores_, 1 - float(level)) if np.isfinite(exact) else exact


class RankOfN(Interval):
    """ceil((1 - alpha) n) instead of n + 1."""

    def _quantile(self, level):
        n = len(self.scores_)
        exact = conformal_quantile(self.scores_, level)
        return np.sort(self.scores_)[math.ceil((1 - level) * n) - 1] if np.isfinite(exact) else exact


class FloatRank(Interval):
    """ceil of a float product: n = 9, alpha = .7 gives rank 4."""

    def _quantile(self, level):
        n = len(self.scores_)
        k = math.ceil((1 - float(level)) * (n + 1))
        return np.sort(self.scores_)[k - 1] if k <= n else conformal_quantile(self.scores_, level)


class SingleRowsAreNarrow(Interval):
    """The answer depends on how many rows come together."""

    def _around(self, centre, alpha):
        out = super()._around(centre, alpha)
        if out.shape[-2] == 1 and np.isfinite(out).all():
            out = 0.9 * out + 0.1 * out.mean(axis=-1, keepdims=True)
        return out


class AskingUsesUp(Interval):
    """A question leaves a trace in the answer to the next."""

    def _around(self, centre, alpha):
        shift = 1e-3 if getattr(self, "asked_", False) else 0
        if len(centre) == 3:
            self.asked_ = True
        return super()._around(centre, alpha) + shift


class LastRowCounts(Interval):
    """Calibration by the last rows only, where there are many."""

    def calibrate(self, X, y):
        super().calibrate(X, y)
        self._keep_last(check_target(y))
        return self

    def calibrate_pred(self, y_pred, y):
        super().calibrate_pred(y_pred, y)
        self._keep_last(check_target(y))
        return self

    def _keep_last(self, y):
        if len(y) == 40:
            self.scores_ = self.scores_ * (1 + 0.001 * (y[-1] - np.floor(y[-1])))


class Broadcasts(Interval):
    """(n, 1) predictions against (n,) targets give (n, n) residuals."""

    def calibrate_pred(self, y_pred, y):
        parse_levels(self.alpha)
        y = check_target(y)
        raw = to_numpy(y_pred).astype(float)
        check_vector(y_pred, "y_pred", length=len(y))
        self.scores_ = np.abs(raw - y).reshape(-1)[: max(len(y), raw.ndim * len(y) - len(y))]
        return self


class SinglePrecision(Interval):
    """Residuals in float32."""

    def calibrate_pred(self, y_pred, y):
        super().calibrate_pred(y_pred, y)
        f, y = check_vector(y_pred, "y_pred"), check_target(y)
        self.scores_ = np.abs(y.astype(np.float32) - f.astype(np.float32)).astype(float)
        return self


class SwallowsNaN(Interval):
    def calibrate_pred(self, y_pred, y):
        parse_levels(self.alpha)
        y_pred = np.nan_to_num(to_numpy(y_pred).astype(float))
        return super().calibrate_pred(y_pred, y)


class NaNFallsOut(Interval):
    """NaN targets are dropped without a word."""

    def calibrate(self, X, y):
        y = to_numpy(y).astype(float).reshape(-1)
        check_consistent_length(X, y)
        known = ~np.isnan(y)
        return super().calibrate(to_numpy(X)[known], y[known])


class AlphaIsClipped(Interval):
    def _stack(self, alpha, answer, n, width, dtype):
        if isinstance(alpha, float) and alpha > 1:
            alpha = 0.5
        return super()._stack(alpha, answer, n, width, dtype)


class LevelsDoNotNest(Interval):
    def _quantile(self, level):
        wide = super()._quantile(level)
        return wide * 0.1 if level == Fraction(1, 20) and len(self.scores_) == 40 else wide


class SeedsTheWorld(Interval):
    def predict(self, X):
        np.random.seed(0)  # noqa: NPY002
        return super().predict(X)


class SilencesWarnings(Interval):
    def fit(self, X, y):
        warnings.filterwarnings("ignore", message="never mind this one")
        return super().fit(X, y)


class Prints(Interval):
    def fit(self, X, y):
        print("fitting")
        return super().fit(X, y)


class WritesToInput(Interval):
    def predict_interval_pred(self, y_pred, alpha=None):
        answer = super().predict_interval_pred(y_pred, alpha)
        if isinstance(y_pred, np.ndarray) and y_pred.dtype == float and y_pred.flags.writeable:
            y_pred[:1] = np.nextafter(y_pred[:1], np.inf)
        return answer


class RefitsTheUsersModel(Interval):
    """Trains the given estimator itself instead of a clone."""

    def fit(self, X, y):
        super().fit(X, y)
        if self.estimator is not None:
            self.estimator.fit(to_numpy(X), check_target(y))
        return self


class LeavesEvalMode(Interval):
    """Switches the user's torch module to evaluation and never back."""

    def _values(self, estimator, X):
        if isinstance(estimator, torch.nn.Module):
            estimator.eval()
        return super()._values(estimator, X)


class SharedState(Interval):
    """Scores live on the class: all clones share them."""

    shelf: dict = {}  # noqa: RUF012

    @property
    def scores_(self):
        if "scores" not in self.shelf or "done" not in self.__dict__:
            raise AttributeError("scores_")
        return self.shelf["scores"]

    @scores_.setter
    def scores_(self, value):
        self.__dict__["done"] = True
        self.shelf["scores"] = value

    def __sklearn_is_fitted__(self):
        return "done" in self.__dict__


class HalfFitted(Interval):
    def calibrate(self, X, y):
        self.scores_ = np.zeros(3)
        return super().calibrate(X, y)


class NeverRefitted(Interval):
    """A second fit keeps the first one's model."""

    def fit(self, X, y):
        if hasattr(self, "estimator_"):
            check_consistent_length(X, y)
            return self
        return super().fit(X, y)


class EveryPair(Interval):
    """Compares every row with every score at once."""

    def _around(self, centre, alpha):
        pairs = np.abs(centre[:, None] - self.scores_[None, :]) if len(centre) > 1000 else np.zeros(1)
        return super()._around(centre, alpha) + 0 * pairs.reshape(-1)[0]


class CannotBeSaved(Interval):
    """Its scores lie in an array that pickle can take and a file without code cannot."""

    @property
    def scores_(self):
        return np.frombuffer(self.closed_)

    @scores_.setter
    def scores_(self, scores):
        self.closed_ = array.array("d", scores)


class QuietlyInfinite(Interval):
    """Infinite without a warning."""

    def _quantile(self, level):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", InfiniteSetWarning)
            return super()._quantile(level)


class WordsWithoutNumbers(Interval):
    def calibrate(self, X, y):
        if row_count(X) != row_count(y):
            raise DataError("X and y do not fit together")
        return super().calibrate(X, y)

    def calibrate_pred(self, y_pred, y):
        if row_count(y_pred) != row_count(y):
            raise DataError("y_pred and y do not fit together")
        return super().calibrate_pred(y_pred, y)


class OtherRule(Interval):
    """Scores are residuals, sets are scaled by the size of the prediction."""

    def _around(self, centre, alpha):
        out = super()._around(centre, alpha)
        if out.shape[-2] == 19:
            with np.errstate(invalid="ignore"):
                out = centre[:, None] + (out - centre[:, None]) * (0.5 + 0.3 * np.abs(centre[:, None]))
        return out


class ThirdParty:
    """No scikit-learn class: only the contract."""

    def __init__(self, alpha=0.1):
        self.alpha = alpha

    def fit(self, X, y):
        y = check_target(y, length=row_count(X))
        parse_alpha(self.alpha)
        self.scores_ = np.abs(y)
        return self

    calibrate = fit

    def predict_interval(self, X, alpha=None):
        if not hasattr(self, "scores_"):
            raise ValueError("not fitted")
        X = check_target(np.asarray(X, dtype=float).reshape(row_count(X), 3).sum(axis=1))
        levels, is_scalar = parse_levels(self.alpha if alpha is None else alpha)
        out = np.empty((len(levels), len(X), 2))
        for i, level in enumerate(levels):
            out[i] = [-1, 1]
            out[i] *= conformal_quantile(self.scores_, level)
        return out[0] if is_scalar else out
