"""CONTRA: regions that are the image of a latent ball under a conditional normalising flow."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from assay.conformal.density_models import check_outputs
from assay.conformal.flow_density import FlowDensityRegressor
from assay.conformal.flow_models import SCORES, FlowSampler, check_flow, latent_scores
from assay.conformal.flow_region import FlowRegion
from assay.conformal.interval_base import split_rows
from assay.conformal.leakage import content_keys, leaked
from assay.conformal.regions import LevelSet, Region
from assay.core.checks import FloatArray, calibration_given, to_numpy
from assay.core.errors import AssayWarning, DataError, MethodError
from assay.core.levels import parse_levels
from assay.core.models import untrained
from assay.core.quantiles import conformal_quantile
from assay.core.seeds import derive_seed, seed_of
from assay.core.state import all_or_nothing


class FlowConformalRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Connected regions with curved borders for several outputs, from a conditional flow.

    A flow T(z; x) takes a standard normal z to outputs y. The score of a calibration row is
    ``E = |T^-1(y; x)|``; with E the ``ceil((1 - alpha)(n + 1))``-th smallest of n scores, a row's
    region is ``{y : |T^-1(y; x)| <= E}``, the image of a ball. It covers with probability at least
    1 - alpha for exchangeable rows whatever the flow is; where the flow is the true law it does so
    given x, and E tends to the root of a chi-square quantile. The score does not depend on alpha:
    all levels come from one calibration and are nested.

    A region is one piece without holes: a ring is filled and modes are joined by filaments.
    ``score="log_density"`` gives level sets of the same flow's density instead, often smaller.

    Parameters
    ----------
    flow : conditional flow, optional
        ``inverse(y, x) -> (z, log|det dz/dy|)`` and ``forward(z, x) -> y``; see
        :class:`assay.conformal.flow_models.ConditionalFlow`. ``fit`` trains a clone, so it must be a
        scikit-learn style estimator; ``calibrate`` takes a trained flow as it is. Default:
        :class:`~assay.conformal.flow_density.FlowDensityRegressor` with the next four arguments.
    score : "latent_l2", "latent_linf" or "log_density", default "latent_l2"
        A latent ball, a latent cube, or level sets of the density.
    n_layers : int, default 6
        Couplings of the default flow.
    hidden : sequence of int, default (64, 64)
        Widths of each coupling's network.
    max_epochs : int, default 200
        Of training, which stops early.
    lr : float, default 2e-3
        Learning rate.
    alpha : level, default 0.1
    calibration_size : float or int, default 0.5
        Part of the rows that ``fit`` sets aside for calibration.
    random_state : int, RandomState, Generator or None, default None

    Attributes
    ----------
    flow_ : the trained flow
    scores_ : (n_calib,) calibration scores
    n_nan_ : int, calibration scores that were NaN and count as +inf
    n_outputs_ : int, q

    References
    ----------
    Fang, Tan, Huang (2025), CONTRA: Conformal prediction region via normalizing flow transformation.
    ICLR.
    """

    scores_: FloatArray

    def __init__(
        self,
        flow: Any = None,
        score: str = "latent_l2",
        *,
        n_layers: int = 6,
        hidden: Sequence[int] = (64, 64),
        max_epochs: int = 200,
        lr: float = 2e-3,
        alpha: Any = 0.1,
        calibration_size: float | int = 0.5,
        random_state: Any = None,
    ) -> None:
        self.flow = flow
        self.score = score
        self.n_layers = n_layers
        self.hidden = hidden
        self.max_epochs = max_epochs
        self.lr = lr
        self.alpha = alpha
        self.calibration_size = calibration_size
        self.random_state = random_state

    def fit(self, X: Any, y: Any, X_calib: Any = None, y_calib: Any = None) -> Self:
        """Train a flow and calibrate its regions on rows that it has not seen.

        Parameters
        ----------
        X : (n, d) table
        y : (n, q) numbers, or (n,) for one output
        X_calib, y_calib : table and numbers, optional
            Calibration rows. Without them ``calibration_size`` of the given rows, drawn with
            ``random_state``, are set aside.

        Raises
        ------
        DataError
            NaN or infinite outputs, lengths that differ, or calibration rows that are all training rows.
        MethodError
            A flow that cannot be trained, or impossible parameters.
        """
        Y = self._outputs(X, y)
        seed = seed_of(self.random_state)
        if not calibration_given(X_calib, y_calib):
            X, X_calib, Y, Y_calib = split_rows(X, Y, self.calibration_size, seed % 2**32)
        else:
            Y_calib = self._outputs(X_calib, y_calib, "y_calib", Y.shape[1])
        with all_or_nothing(self):
            self.flow_ = untrained(self._untrained(seed), "flow", seed).fit(X, Y)
            self.n_outputs_ = Y.shape[1]
            self._single = to_numpy(y).ndim == 1
            self._seed = seed
            self._trained_on = content_keys(X, Y)
            self._calibrate(X_calib, Y_calib)
        return self

    def _untrained(self, seed: int) -> Any:
        """The flow that ``fit`` trains a clone of."""
        return self._own_flow(seed) if self.flow is None else self.flow

    def _own_flow(self, seed: int) -> FlowDensityRegressor:
        return FlowDensityRegressor(
            self.n_layers,
            self.hidden,
            max_epochs=self.max_epochs,
            lr=self.lr,
            random_state=derive_seed(seed, "flow"),
        )

    def calibrate(self, X: Any, y: Any) -> Self:
        """Calibrate the flow given to the constructor, which is already trained.

        After ``fit`` the flow of ``fit`` is calibrated anew. The rows must not have been used in
        training: the guarantee rests on that.

        Parameters
        ----------
        X : (n, d) table
        y : (n, q) numbers, or (n,) for one output

        Raises
        ------
        DataError
            NaN or infinite outputs, lengths that differ, or rows that are all training rows of ``fit``.
        """
        with all_or_nothing(self):
            if not hasattr(self, "flow_"):
                flow = getattr(self, "flow", None)
                if flow is None:
                    raise MethodError(f"this {type(self).__name__} has no trained flow: call fit first")
                self.flow_ = flow
                self._seed = seed_of(self.random_state)
                self._trained_on = np.empty(0, dtype=np.uint64)
                self._single = to_numpy(y).ndim == 1
            Y = self._outputs(X, y, outputs=getattr(self, "n_outputs_", None))
            self.n_outputs_ = Y.shape[1]
            self._calibrate(X, Y)
        return self

    def _outputs(self, X: Any, y: Any, name: str = "y", outputs: int | None = None) -> FloatArray:
        if y is None:
            raise DataError("requires y to be passed, but the target y is None")
        check_consistent_length(X, y)
        parse_levels(self.alpha)
        if self.score not in SCORES:
            raise MethodError(f"score must be one of {', '.join(SCORES)}, got {self.score!r}")
        Y = check_outputs(y, name)
        if outputs is not None and Y.shape[1] != outputs:
            raise DataError(f"{name} has {Y.shape[1]} outputs, {outputs} are expected")
        return Y

    def _calibrate(self, X: Any, Y: FloatArray) -> None:
        check_flow(self.flow_)
        keys = content_keys(X, Y)
        if leaked(keys, self._trained_on):
            raise DataError(
                f"all {len(Y)} calibration rows are rows that the flow was trained on: its scores there are "
                "too small; calibrate on rows it has not seen"
            )
        scores, bad = latent_scores(self.flow_, X, Y, self.score)
        if bad:
            warnings.warn(
                f"the flow gives NaN for {bad} of {len(Y)} calibration rows: they count as infinitely far",
                AssayWarning,
                stacklevel=4,
            )
        self.scores_, self.n_nan_ = scores, bad
        self._score = self.score

    def predict(self, X: Any) -> FloatArray:
        """(n, q), or (n,) for y of one dimension: the flow's ``predict``, or the image of z = 0."""
        check_is_fitted(self)
        return FlowSampler(self.flow_, self.n_outputs_).predict(X, self._single)

    def predict_region(self, X: Any, alpha: Any = None) -> Any:
        """The region of each row.

        Parameters
        ----------
        X : (n, d) table
        alpha : level or sequence of levels, optional
            Miscoverage; the constructor's ``alpha`` if not given.

        Returns
        -------
        FlowRegion with ``contains``, ``boundary``, ``volume``, ``log_volume``, ``sample`` and
        ``bounding_box`` (a LevelSet for "log_density"), or a list of them for a sequence of levels.
            The whole space where calibration rows are too few, with a warning.
        """
        check_is_fitted(self)
        levels, is_scalar = parse_levels(self.alpha if alpha is None else alpha)
        regions: list[Region] = []
        for level in levels:
            threshold = float(conformal_quantile(self.scores_, level, what="region", stacklevel=4))
            regions.append(self._region(X, threshold))
        return regions[0] if is_scalar else regions

    def _region(self, X: Any, threshold: float) -> Region:
        if self._score == "log_density":
            model = FlowSampler(self.flow_, self.n_outputs_)
            return LevelSet(model, X, np.full(len(X), -threshold), self.n_outputs_, self._seed % 2**32)
        return FlowRegion(self.flow_, X, threshold, self.n_outputs_, self._score.removeprefix("latent_"))

    def log_prob(self, X: Any, y: Any) -> FloatArray:
        """(n,) log densities of outputs y under the flow."""
        check_is_fitted(self)
        return FlowSampler(self.flow_, self.n_outputs_).log_prob(X, y)

    def sample(self, X: Any, n_samples: int = 1, random_state: Any = None) -> FloatArray:
        """(n, n_samples, q) draws of the flow."""
        check_is_fitted(self)
        return FlowSampler(self.flow_, self.n_outputs_).sample(X, n_samples, random_state)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    @property
    def n_features_in_(self) -> int:
        """Number of features seen in fit, where the flow knows it."""
        check_is_fitted(self)
        return int(self.flow_.n_features_in_)
