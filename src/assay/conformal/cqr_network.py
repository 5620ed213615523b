"""Conformalised quantile network: conformalised quantile regression with one network for both ends."""

from __future__ import annotations

from typing import Any

from assay.conformal.cqr import ConformalizedQuantileRegressor
from assay.conformal.quantile_models import fit_quantiles
from assay.conformal.quantile_network import QuantileNetwork, seeded_network
from assay.core.checks import FloatArray


class ConformalizedQuantileNetwork(ConformalizedQuantileRegressor):
    """Conformalised quantile regression whose quantiles come from one network.

    Score and interval are those of :class:`assay.conformal.ConformalizedQuantileRegressor`; the same
    hidden layers serve the lower quantile, the upper one, and the median of variant "m".

    Parameters
    ----------
    estimator : QuantileNetwork, other regressor with an argument ``quantiles``, or None
        Its ``quantiles`` are set by ``fit``. None is ``QuantileNetwork()``: two layers of 64, Adam,
        dropout 0.1, early stopping. For ``calibrate``: a trained one, with a column a quantile.
    alpha : level, default 0.1
        Miscoverage. The network is trained for it, for the first of several; other levels asked of
        ``predict_interval`` are calibrated around the same network, still valid.
    symmetric : bool, default True
        False calibrates each side by itself at alpha / 2.
    variant : {"plain", "m", "r"}, default "plain"
        As in ConformalizedQuantileRegressor.
    calibration_size : float or int, default 0.5
        Part of the rows that ``fit`` sets aside for calibration.
    random_state : int or None, default None
        Also of the network, where it has none of its own.

    Attributes
    ----------
    estimator_ : the trained quantiles; ``estimator_.predict(X)`` is (n, 2), (n, 3) for "m"
    scores_ : (n_calib,) scores, or (n_calib, 2) with ``symmetric=False``

    References
    ----------
    Romano, Patterson, Candes (2019), Conformalized quantile regression.
    """

    def _train(self, X: Any, y: FloatArray) -> None:
        network = seeded_network(self.estimator, self.random_state)
        self.estimator_ = fit_quantiles(network, self._quantile_levels(), X, y, self.random_state)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if self.estimator is None:
            inner = QuantileNetwork().__sklearn_tags__().input_tags
            tags.input_tags.sparse, tags.input_tags.allow_nan = inner.sparse, inner.allow_nan
        return tags
