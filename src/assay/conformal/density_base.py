"""Base of methods that calibrate the sets of a conditional density model."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import _safe_indexing, get_tags
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from assay.conformal.density_models import check_outputs, draw
from assay.conformal.interval_base import split_rows, training_target
from assay.conformal.leakage import refuse_training_rows
from assay.conformal.mixture_density import MixtureDensityNetwork
from assay.conformal.regions import Region
from assay.core.checks import FloatArray, calibration_given, row_count, to_numpy
from assay.core.errors import AssayWarning, MethodError
from assay.core.levels import parse_levels
from assay.core.models import predict_values, untrained
from assay.core.seeds import derive_seed, seed_of
from assay.core.state import all_or_nothing

_PROBE_ROWS = 4
_PROBE_DRAWS = 4
_MEAN_DRAWS = 200


class DensitySetRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Base of regressors whose prediction set comes from a model that samples y given x.

    A subclass implements ``_calibration`` (its fitted state from calibration rows), ``_threshold``
    (of its scores), ``_sets`` (regions at several levels), ``_law`` (what must not change between
    calibration and prediction) and ``_row_bytes`` (working memory of a row).
    """

    model: Any
    alpha: Any
    calibration_size: Any
    max_memory: int
    random_state: Any

    @abstractmethod
    def _calibration(self, model: Any, X: Any, y: FloatArray, seed: int) -> dict[str, Any]:
        """Fitted attributes from the calibration rows; y is (n, q)."""

    @abstractmethod
    def _threshold(self, level: Fraction) -> float:
        """Conformal quantile of the calibration scores."""

    @abstractmethod
    def _sets(self, X: Any, levels: tuple[Fraction, ...], thresholds: list[float]) -> list[Region]:
        """One region a level."""

    @abstractmethod
    def _row_bytes(self, outputs: int) -> int:
        """Working memory of one row's draws."""

    @abstractmethod
    def _law(self) -> dict[str, Any]:
        """The parameters that fix the law of the scores, checked."""

    def fit(self, X: Any, y: Any, X_calib: Any = None, y_calib: Any = None) -> Self:
        """Train a clone of the density model and calibrate it on rows it has not seen.

        Parameters
        ----------
        X : (n, d) table
        y : (n,) or (n, q) numbers
        X_calib, y_calib : table and numbers, optional
            Calibration rows. Without them ``calibration_size`` of the given rows, drawn with
            ``random_state``, are set aside.

        Raises
        ------
        DataError
            NaN or infinite targets, lengths that differ, fewer than two rows, or calibration rows
            that are all training rows.
        MethodError
            The model cannot be trained or cannot sample; impossible parameters.
        """
        y = self._target(X, y)
        parse_levels(self.alpha)
        self._law()
        seed = seed_of(self.random_state)
        if not calibration_given(X_calib, y_calib):
            X, X_calib, y, y_calib = split_rows(X, y, self.calibration_size, seed % 2**32)
        else:
            check_consistent_length(X_calib, y_calib)
            y_calib = self._target(X_calib, y_calib, "y_calib")
            refuse_training_rows(X, y, X_calib, y_calib)
        model = MixtureDensityNetwork() if self.model is None else self.model
        model = untrained(model, "model", seed)
        with all_or_nothing(self):
            self._take_over(self._train(model, X, y), X_calib, y_calib, seed, None)
        return self

    def _train(self, model: Any, X: Any, y: FloatArray) -> Any:
        """The model trained on these rows; a subclass may learn more from them."""
        return model.fit(X, y)

    def calibrate(self, X: Any, y: Any, alpha: Any = None) -> Self:
        """Calibrate the model given to the constructor, which is already trained.

        After ``fit`` the trained model of ``fit`` is calibrated anew. The rows must not have been
        used in training: the guarantee rests on that.

        Parameters
        ----------
        X : (n, d) table
        y : (n,) or (n, q) numbers
        alpha : level, optional
            Default level of the predictions, in place of the constructor's.
        """
        check_consistent_length(X, y)
        parse_levels(self.alpha if alpha is None else alpha)
        self._law()
        model = getattr(self, "model_", self.model)
        if model is None:
            raise MethodError("calibrate needs a trained model; give one to the constructor or call fit")
        self._take_over(model, X, self._target(X, y), seed_of(self.random_state), alpha)
        return self

    def _target(self, X: Any, y: Any, name: str = "y") -> FloatArray:
        """(n,) or (n, q) finite float64 targets, as they were given."""
        if y is None or to_numpy(y).ndim < 2:
            return training_target(X, y)
        check_consistent_length(X, y)
        return check_outputs(y, name)

    def _take_over(self, model: Any, X: Any, y: FloatArray, seed: int, alpha: Any) -> None:
        """Set the whole fitted state at once, so that a failure leaves none of it half done."""
        Y = check_outputs(y)
        probe = self._probe_model(model, X, seed, Y.shape[1])
        state = self._calibration(model, X, Y, seed)
        self.__dict__.update(state)
        self.model_ = model
        self.n_outputs_ = Y.shape[1]
        self.seed_ = seed
        self.level_ = alpha
        self.law_ = self._law()
        self._probe = probe

    def _probe_model(self, model: Any, X: Any, seed: int, outputs: int) -> Any:
        """A few rows and their draws, by which predict notices that the sampler is not the same."""
        rows = _safe_indexing(X, np.arange(min(_PROBE_ROWS, row_count(X))))
        probe_seed = derive_seed(seed, "probe")
        first = draw(model, rows, _PROBE_DRAWS, probe_seed, outputs)
        if not np.allclose(first, draw(model, rows, _PROBE_DRAWS, probe_seed, outputs), rtol=1e-5):
            warnings.warn(
                f"{type(model).__name__}.sample gives other draws for the same random_state: predictions "
                "will not repeat, and a change of the model after calibration cannot be noticed",
                AssayWarning,
                stacklevel=5,
            )
            return None
        return rows, first

    def _stream(self, model: Any, seed: int, stage: str, purpose: str) -> int:
        """Seed of the draws for one purpose.

        Where a row's draws depend on the row alone they are a fixed function of it, in calibration
        and prediction alike: a row gets the same score wherever it stands. Otherwise calibration and
        test rows need draws of their own, lest rows of the same place share them.
        """
        parts = (purpose,) if getattr(model, "samples_by_row", False) else (stage, purpose)
        return derive_seed(seed, *parts)

    def _check_law(self) -> None:
        law = self._law()
        changed = [
            f"{name} {self.law_[name]!r} -> {law[name]!r}" for name in law if law[name] != self.law_[name]
        ]
        if changed:
            raise MethodError(
                f"changed since calibration: {', '.join(changed)}; calibrate again: the scores of "
                "calibration and test rows must follow one law"
            )
        if getattr(self, "_probe", None) is None:
            return
        rows, expected = self._probe
        now = draw(self.model_, rows, _PROBE_DRAWS, derive_seed(self.seed_, "probe"), self.n_outputs_)
        if not np.allclose(now, expected, rtol=1e-5):
            raise MethodError(
                "the model's samples have changed since calibration (trained further, or another "
                "temperature?); calibrate again: calibration and test rows must be drawn from one sampler"
            )

    def predict(self, X: Any) -> FloatArray:
        """(n,) or (n, q) point predictions: the model's ``predict``, or the mean of its draws."""
        check_is_fitted(self)
        if hasattr(self.model_, "predict"):
            return predict_values(self.model_, X, columns=self.n_outputs_)
        draws = draw(self.model_, X, _MEAN_DRAWS, derive_seed(self.seed_, "mean"), self.n_outputs_)
        mean: FloatArray = draws.mean(axis=1)
        return mean[:, 0] if self.n_outputs_ == 1 else mean

    def predict_set(self, X: Any, alpha: Any = None) -> Any:
        """The prediction set of each row.

        Sets at two levels are calibrated each by itself and need not be nested: the level enters
        the size that each row's own draws give, not only the rank.

        Parameters
        ----------
        X : (n, d) table
        alpha : level or sequence of levels, optional
            Miscoverage; the default is that of ``calibrate`` or of the constructor. Another level
            than before needs no new calibration.

        Returns
        -------
        Region with ``contains(y)``, ``volume()``, ``intervals()`` and ``hull()`` (one output), or a
        list of them for a sequence of levels.

        Raises
        ------
        MethodError
            The number of samples, the adjustment or the model's sampler changed since calibration.
        """
        check_is_fitted(self)
        levels, is_scalar = parse_levels(self._default_alpha() if alpha is None else alpha)
        self._check_law()
        sets = self._sets(X, levels, [self._threshold(level) for level in levels])
        return sets[0] if is_scalar else sets

    def predict_region(self, X: Any, alpha: Any = None) -> Any:
        """The same as :meth:`predict_set`, by the name of the region contract."""
        return self.predict_set(X, alpha)

    def _default_alpha(self) -> Any:
        return self.alpha if self.level_ is None else self.level_

    def predict_interval(self, X: Any, alpha: Any = None) -> FloatArray:
        """(n, 2) smallest interval around each row's set, (L, n, 2) for a sequence of levels.

        The set itself (``predict_set``) may be several intervals: it covers as promised and is
        no longer than this hull, which covers at least as often (of a density level set: but for
        pieces too thin to be found, see ``LevelSet.intervals``). One output only.
        """
        check_is_fitted(self)
        levels, is_scalar = parse_levels(self._default_alpha() if alpha is None else alpha)
        self._check_law()
        thresholds = [self._threshold(level) for level in levels]
        out = np.empty((len(levels), row_count(X), 2))
        for rows, piece in self._pieces(self.model_, X, self.n_outputs_):
            for i, region in enumerate(self._sets(piece, levels, thresholds)):
                out[i, rows] = region.hull()
        return out[0] if is_scalar else out

    def _pieces(self, model: Any, X: Any, outputs: int) -> Iterator[tuple[slice, Any]]:
        """Row slices that keep within ``max_memory``, where the sampler allows pieces at all."""
        n = row_count(X)
        step = max(1, int(self.max_memory) // self._row_bytes(outputs))
        if n <= step or not getattr(model, "samples_by_row", False):
            yield slice(0, n), X
            return
        for start in range(0, n, step):
            rows = slice(start, min(start + step, n))
            yield rows, _safe_indexing(X, np.arange(start, rows.stop))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        if self.model is not None and hasattr(self.model, "__sklearn_tags__"):
            inner = get_tags(self.model).input_tags
            tags.input_tags.sparse = inner.sparse
            tags.input_tags.allow_nan = inner.allow_nan
        return tags

    @property
    def n_features_in_(self) -> int:
        """Number of features seen in fit, where the model knows it."""
        check_is_fitted(self)
        return int(self.model_.n_features_in_)
