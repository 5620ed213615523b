"""CV+: intervals from the models of a cross-validation."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import clone
from sklearn.linear_model import LinearRegression

from assay.conformal.cross_fit import MAX_MEMORY, CrossIntervalRegressor, fit_without, fold_numbers
from assay.conformal.interval_base import training_target
from assay.core.checks import FloatArray, to_numpy
from assay.core.errors import DataError
from assay.core.state import all_or_nothing


class CrossValidationPlusRegressor(CrossIntervalRegressor):
    """Prediction intervals that use every row for training and for calibration, with K + 1 fits.

    ``mu_-i`` is the model trained without the fold of row i and ``R_i = |y_i - mu_-i(x_i)|``. The
    interval is from the ``floor(alpha (n + 1))``-th smallest ``mu_-i(x) - R_i`` to the
    ``ceil((1 - alpha)(n + 1))``-th smallest ``mu_-i(x) + R_i`` (both their middle where they cross).
    Only K numbers a row are kept for that, never n.

    Parameters
    ----------
    estimator : regressor, default LinearRegression()
    alpha : level, default 0.1
        Miscoverage.
    cv : int or splitter, default 10
        Number of folds (Barber et al. use 10; one a row where rows are fewer), or a scikit-learn
        splitter that leaves every row out once.
    method : {"plus", "base", "minmax"}, default "plus"
        "base" puts the quantile of R around the model of all rows (cross-conformal in the naive
        form, no guarantee); "minmax" around the outermost of the K models (wider; covers 1 - alpha,
        less (1 - alpha)(m - 1) / (n + m) with folds of m rows).
    max_memory : int, default 256 MiB
        Bound in bytes of the working set of a prediction; it does not change the answer.
    random_state : int or None, default None
        Draws the folds.

    Attributes
    ----------
    estimator_ : the model of all rows; ``models_`` : the K models
    fold_ : (n,) fold of each row; ``scores_`` : (n,) left-out residuals R

    References
    ----------
    Barber, Candes, Ramdas, Tibshirani (2021), Predictive inference with the jackknife+.
    """

    def __init__(
        self,
        estimator: Any = None,
        *,
        alpha: Any = 0.1,
        cv: Any = 10,
        method: str = "plus",
        max_memory: int = MAX_MEMORY,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.alpha = alpha
        self.cv = cv
        self.method = method
        self.max_memory = max_memory
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Train one model a fold and one on all rows.

        Parameters
        ----------
        X : (n, d) table
        y : (n,) numbers

        Raises
        ------
        DataError
            NaN or infinite targets, lengths that differ, fewer than two rows.
        """
        y = training_target(X, y)
        self._check_parameters()
        fold = fold_numbers(self.cv, X, y, self.random_state)
        base = LinearRegression() if self.estimator is None else self.estimator
        with all_or_nothing(self):
            self._forget()
            self.estimator_ = clone(base).fit(X, y)
            self.models_, predictions = fit_without(base, X, y, fold)
            self._set_residuals(y - predictions, fold)
        return self

    def calibrate_pred(self, y_pred: Any, y: Any, fold: Any) -> Self:
        """Take over a cross-validation done elsewhere.

        Parameters
        ----------
        y_pred : (n,) prediction of each row by the model that left its fold out
        y : (n,) targets
        fold : (n,) fold of each row, integers from 0 to K - 1
        """
        numbers = to_numpy(fold)
        if numbers.ndim != 1 or numbers.dtype.kind not in "iu" or len(numbers) == 0 or numbers.min() < 0:
            raise DataError("fold must be a vector of integers from 0 to K - 1, one a row")
        empty = np.flatnonzero(np.bincount(numbers) == 0)
        if len(empty):
            raise DataError(f"fold {int(empty[0])} has no rows; number the folds from 0 to K - 1")
        if len(numbers) != len(to_numpy(y)):
            raise DataError(f"fold has {len(numbers)} rows, y has {len(to_numpy(y))}")
        self._calibrate_left_out(y_pred, y, numbers.astype(np.intp))
        return self

    def predict_interval_pred(self, y_pred: Any, alpha: Any = None) -> FloatArray:
        """(n, 2) intervals from the K models' predictions; (L, n, 2) for a sequence of levels.

        Parameters
        ----------
        y_pred : (n, K) predictions, column k by the model that left fold k out; for
            ``method="base"`` (n,) predictions of the model of all rows
        alpha : level or sequence of levels, optional
        """
        return self._predict_left_out(y_pred, alpha)
