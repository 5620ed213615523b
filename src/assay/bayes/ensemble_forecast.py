"""What an ensemble of any size will lose, from the few members that are trained already."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from assay.bayes.ensemble_curve import (
    Curve,
    exact_curve,
    inverse_law,
    inverse_size_curve,
    jackknife_variance,
    majority_law,
)
from assay.bayes.ensemble_losses import LOSSES, Loss
from assay.bayes.ensemble_members import MemberReader
from assay.bayes.ensemble_stream import MemberStream
from assay.core.checks import FloatArray
from assay.core.errors import DataError, MethodError
from assay.core.seeds import derive_seed, seed_of

if TYPE_CHECKING:
    import pandas as pd

_METHODS = ("exact", "inverse_m", "collapse")
#: sizes that are tried for a law that has no inverse
_SEARCH = 1000


class EnsembleForecast(BaseEstimator):  # type: ignore[misc]
    """Expected loss of an ensemble of M members (their mean probability), from two or more of them.

    For members that differ by their seed alone and rows that none of them was trained on, the loss of M
    members is, in expectation,

        L(M) = B + V / M

    for every squared loss: V is the variance of a member's probabilities over seeds (divisor m - 1, summed
    over classes, mean over rows), B the loss of infinitely many members. Both are estimated without bias
    from any m >= 2 members, whatever the model: no retraining, no assumption about the members beyond
    their independence.

    Parameters
    ----------
    loss : {"brier", "brier_target", "nll", "error", "squared"}, default "brier"
        "brier" sums (p_k - [k is true])^2 over the classes; "brier_target" is (1 - p_y)^2 of the true class
        alone; "nll" is -log p_y (natural; p_y below 1e-12 is raised to it, with a warning that counts);
        "error" the error rate; "squared" the squared error of a regression's mean prediction, in units of
        the target squared.
    method : {"exact", "inverse_m", "collapse"}, default "exact"
        "exact" for the squared losses. "inverse_m" for any: the mean losses of subsets of j members are
        regressed on 1 / j with weights j; approximate for "nll" and "error" (an error rate need not fall
        at every step). "collapse" takes each member's most probable class as its whole prediction: for
        models whose probabilities are all near 0 or 1; exact then for the Brier losses, and for "error"
        with two classes the majority under a Beta distribution (ours).
    n_bootstrap : int, default 200
        Draws of the rows for the interval.
    confidence : float, default 0.95
        Of the interval that :meth:`predict` gives.
    n_groups : int, default 10
        Memory: members are kept as the means of this many groups. Up to so many members the jackknife
        leaves out single ones, beyond that groups.
    force : bool, default False
        Go on with members whose accuracies (or squared errors) differ by more than five standard errors,
        which are no copies of one recipe. With very many rows seeds alone can do that.
    random_state : int or None, default None
        Draws rows, and subsets for "inverse_m".

    Attributes
    ----------
    n_members_ : int
    classes_ : (K,) labels in the order of the columns
    asymptote_, variance_ : float
        B, and V or the slope that stands for it.
    member_loss_ : float
        Mean loss of one member.
    interval_covers_ : str
        "rows" for two members, whose own luck cannot be told; "rows and members" for three and more.
    n_clipped_ : int
        Probabilities of the true class that were raised to 1e-12.
    member_scores_ : (m,) accuracy, or mean squared error, of each member

    Notes
    -----
    The interval is that of the expected loss over new rows and new members: the variance of a jackknife
    over members plus that of a bootstrap over rows, with the quantile of Student's t. Two members allow
    the second alone; their interval is too short, which a warning says.

    Nothing here applies to averages of logits or to majority votes of members that give probabilities.

    References
    ----------
    Wang, Wang. Agree to Disagree: Demystifying Homogeneous Deep Ensembles through Distributional
    Equivalence. ICLR 2025. The estimators here follow from the independence of members.
    """

    _stream: MemberStream | None
    _curve: Curve | None

    def __init__(
        self,
        loss: str = "brier",
        method: str = "exact",
        *,
        n_bootstrap: int = 200,
        confidence: float = 0.95,
        n_groups: int = 10,
        force: bool = False,
        random_state: Any = None,
    ) -> None:
        self.loss = loss
        self.method = method
        self.n_bootstrap = n_bootstrap
        self.confidence = confidence
        self.n_groups = n_groups
        self.force = force
        self.random_state = random_state

    def fit(self, member_proba: Iterable[Any], y: Any, *, classes: Any = None) -> EnsembleForecast:
        """Take the predictions of all members on held-out rows.

        Parameters
        ----------
        member_proba : (m, n, K) array, or iterable of (n, K)
            Class probabilities; an iterable is read once and no member is kept. For "squared":
            predictions (m, n), (m, n, q), or an iterable of (n,) or (n, q).
        y : (n,) labels, or (n,) or (n, q) numbers
            Of rows that no member was trained on.
        classes : (K,) labels, or a list of m of those, optional
            Which column is whose; members in another order are aligned. By default integers 0 .. K - 1,
            or the sorted labels of y.

        Raises
        ------
        DataError
            Fewer than two members, shapes that differ, rows that are no probabilities, members of
            different classes, or members that differ by more than five standard errors.
        MethodError
            A loss, method or number that does not exist or does not go with the others.
        """
        stream = self._open(y)
        nested = _is_nested(classes)
        for number, member in enumerate(member_proba):
            if nested and number >= len(classes):
                raise DataError(f"classes lists the columns of {len(classes)} members, there are more")
            stream.add(member, classes[number] if nested else classes)
        curve = self._estimate(stream)
        self._stream, self._curve = stream, curve
        return self

    def partial_fit(self, member_proba: Any, y: Any = None, *, classes: Any = None) -> EnsembleForecast:
        """Take one more member, of the same rows: (n, K) probabilities, or predictions for "squared".

        ``y`` is needed with the first one. ``classes`` are the labels of this member's columns. A
        forecast can be asked for after the second.
        """
        stream = getattr(self, "_stream", None)
        if stream is None:
            if y is None:
                raise DataError("the first member needs y, the labels of its rows")
            stream = self._open(y)
        elif y is not None and not stream.reader.same_rows(y):
            raise DataError("y differs from that of the members before; a forecast is of one set of rows")
        stream.check(member_proba, classes)
        stream.add(member_proba, classes)
        self._stream, self._curve = stream, None
        return self

    def predict(self, M: Any) -> tuple[Any, Any, Any]:
        """Expected loss of an ensemble of M members, and its interval.

        Parameters
        ----------
        M : int >= 1 or infinity, or an array of them

        Returns
        -------
        mean, low, high : floats, or arrays of the shape of M
        """
        sizes = _sizes(M)
        return self._interval(self._law, sizes)

    def gain(self, M: Any) -> tuple[Any, Any, Any]:
        """What averaging M members gains over one of them, and its interval, like :meth:`predict`.

        How hard the rows are cancels in the difference: this interval is much shorter than that of the loss.
        """
        ones = np.ones(1)
        return self._interval(lambda theta, flat: self._law(theta, ones) - self._law(theta, flat), _sizes(M))

    def _interval(
        self, law: Callable[[FloatArray, FloatArray], FloatArray], sizes: FloatArray
    ) -> tuple[Any, Any, Any]:
        curve, flat = self._fitted(), sizes.reshape(-1)
        mean = law(curve.theta[None], flat)[0]
        rows = law(curve.resampled, flat).var(axis=0, ddof=1)
        freedom: Any = float(self._seen().reader.n_rows - 1)
        spread = rows
        if len(curve.left_out):
            members = jackknife_variance(mean, law(curve.left_out, flat), curve.shares)
            spread = rows + members
            parts = rows**2 / freedom + members**2 / (len(curve.left_out) - 1)
            freedom = np.where(parts > 0, spread**2 / np.where(parts > 0, parts, 1), freedom)
        from scipy.stats import t

        half = t.ppf((1 + self.confidence) / 2, freedom) * np.sqrt(spread)
        found = (mean, mean - half, mean + half)
        if sizes.ndim == 0:
            return float(found[0][0]), float(found[1][0]), float(found[2][0])
        return found[0].reshape(sizes.shape), found[1].reshape(sizes.shape), found[2].reshape(sizes.shape)

    def jensen_gap(self, M: Any) -> Any:
        """L(1) - L(M) without its interval: V (1 - 1 / M) for squared losses."""
        return self.gain(M)[0]

    def marginal_gain(self, M: Any) -> Any:
        """What member M + 1 will gain: L(M) - L(M + 1), V / (M (M + 1)) for squared losses."""
        return self.jensen_gap(_sizes(M) + 1) - self.jensen_gap(M)

    def members_needed(self, target: float) -> int | None:
        """Fewest members whose expected loss is at most ``target``; None if no number of them is enough.

        The majority law is tried up to 1,000 members.
        """
        theta = self._fitted().theta
        asymptote, variance = (float(value) for value in theta)
        if self.loss == "error" and self.method == "collapse":
            for size in range(1, _SEARCH + 1):
                if majority_law(theta[None], np.array([float(size)]))[0, 0] <= target:
                    return size
            return None
        if asymptote + variance <= target:
            return 1
        if variance <= 0 or target <= asymptote:
            return None
        # 0.16 / (0.58 - 0.54) is 4 members, not 5
        return max(1, math.ceil(variance / (target - asymptote) * (1 - 1e-12) - 1e-9))

    def table(self, sizes: Iterable[int] = (1, 2, 3, 5, 10, 20, 50, 100)) -> pd.DataFrame:
        """Columns members, loss, low, high, and gain over one member, gain_low, gain_high.

        The last row is the limit.
        """
        import pandas as pd

        members = np.array([*sizes, np.inf])
        columns = zip(("loss", "low", "high"), self.predict(members), strict=True)
        gains = zip(("gain", "gain_low", "gain_high"), self.gain(members), strict=True)
        return pd.DataFrame({"members": members, **dict(columns), **dict(gains)})

    @property
    def asymptote_(self) -> float:
        """Loss of infinitely many members."""
        return float(self._law(self._fitted().theta[None], np.array([np.inf]))[0, 0])

    @property
    def variance_(self) -> float:
        """V of L(M) = B + V / M."""
        return float(self._fitted().theta[1])

    @property
    def member_loss_(self) -> float:
        """Mean loss of one member."""
        return float(self._law(self._fitted().theta[None], np.ones(1))[0, 0])

    @property
    def n_members_(self) -> int:
        """Members seen."""
        return self._seen().n_members

    @property
    def n_clipped_(self) -> int:
        """Probabilities of the true class that were raised to 1e-12."""
        return self._seen().n_clipped

    @property
    def classes_(self) -> NDArray[Any]:
        """Labels in the order of the columns."""
        return self._seen().reader.classes

    @property
    def member_scores_(self) -> FloatArray:
        """(m,) accuracy of each member; for "squared" its mean squared error."""
        return np.array(self._seen().scores)

    @property
    def interval_covers_(self) -> str:
        """Whose chance the interval allows for."""
        return "rows and members" if len(self._fitted().left_out) else "rows"

    @property
    def _law(self) -> Callable[[FloatArray, FloatArray], FloatArray]:
        return majority_law if self.loss == "error" and self.method == "collapse" else inverse_law

    def _seen(self) -> MemberStream:
        stream = getattr(self, "_stream", None)
        if stream is None:
            from sklearn.exceptions import NotFittedError

            raise NotFittedError("this forecast has seen no members; call fit or partial_fit first")
        return cast(MemberStream, stream)

    def _fitted(self) -> Curve:
        stream = self._seen()
        if self._curve is None:
            self._curve = self._estimate(stream)
        return self._curve

    def _open(self, y: Any) -> MemberStream:
        loss = self._check()
        return MemberStream(MemberReader(y, numbers=loss.name == "squared"), loss, self.method, self.n_groups)

    def _check(self) -> Loss:
        if self.loss not in LOSSES:
            raise MethodError(f"loss must be one of {', '.join(LOSSES)}, got {self.loss!r}")
        if self.method not in _METHODS:
            raise MethodError(f"method must be one of {', '.join(_METHODS)}, got {self.method!r}")
        loss = LOSSES[self.loss]
        if self.method == "exact" and not loss.squared:
            raise MethodError(f"no exact law is known for {self.loss!r}; method='inverse_m' approximates it")
        if self.method == "collapse" and self.loss in ("nll", "squared"):
            why = (
                "is infinite for members that are sure and wrong" if self.loss == "nll" else "has no classes"
            )
            raise MethodError(f"{self.loss!r} {why}: method='collapse' does not go with it")
        for name, least in (("n_bootstrap", 2), ("n_groups", 2)):
            value = getattr(self, name)
            if not isinstance(value, int | np.integer) or value < least:
                raise MethodError(f"{name} must be an integer of at least {least}, got {value!r}")
        if not 0 < self.confidence < 1:
            raise MethodError(f"confidence must lie between 0 and 1, got {self.confidence!r}")
        return LOSSES["brier_target"] if (self.loss, self.method) == ("error", "collapse") else loss

    def _estimate(self, stream: MemberStream) -> Curve:
        stream.refuse(self.loss, self.method, self.force)
        seed = derive_seed("ensemble forecast", seed_of(self.random_state))
        rng = np.random.default_rng(seed)
        if self.method == "inverse_m":
            truth, singles = stream.reader.truth, stream.single_rows
            groups = stream.single_groups[: stream.moments.used]
            curve = inverse_size_curve(
                stream.moments, stream.loss, truth, singles, groups, self.n_bootstrap, rng
            )
        else:
            curve = exact_curve(stream.moments, self.n_bootstrap, rng)
        stream.warn(float(curve.theta[1]))
        return curve


def _is_nested(classes: Any) -> bool:
    """Whether these are the labels of each member's own columns."""
    return classes is not None and len(classes) > 0 and np.ndim(classes[0]) > 0


def _sizes(M: Any) -> FloatArray:
    sizes = np.asarray(M, dtype=np.float64)
    wrong = ~((sizes >= 1) & ((sizes == np.floor(sizes)) | np.isinf(sizes)))
    if wrong.any():
        raise MethodError(f"M is a number of members: integers of at least 1, or infinity; got {M!r}")
    return sizes
