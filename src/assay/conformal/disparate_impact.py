"""Disparate impact: whether handing out label sets helps the decisions on one group more than on another."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from assay.core.checks import FloatArray
from assay.core.errors import AssayWarning, DataError, MethodError, MissingDependency
from assay.core.seeds import derive_seed, seed_of

if TYPE_CHECKING:
    import pandas as pd

_COLUMNS = ("participant", "treatment", "item", "group", "correct")
#: standard normal quantile of a two-sided 95 % interval
_Z = 1.959963984540054
#: a coefficient beyond this is on its way to infinity: the covariates separate right from wrong
_DIVERGED = 15.0


class DisparateImpact:
    """An audit of decisions that were made with label sets and without.

    For treatment t and group a, ``delta_{t,a}`` is the accuracy of the decisions in group a under t minus
    that under control. The disparate impact of t is ``Delta_t = max_{a,b} (delta_{t,a} - delta_{t,b})``: 0
    where the sets help all groups alike. It is never below 0, and by chance alone above it, in draws of the
    bootstrap even more so: an interval away from 0 is no proof by itself. The odds ratio ``OR_{t|g}``
    compares the odds of a right decision in group g under t with those under control, and ``maxROR_t`` is
    the largest of them over the smallest: 1 where all groups gain alike.

    Parameters
    ----------
    decisions : DataFrame
        One row a decision, with columns ``participant``, ``treatment``, ``item``, ``group`` and
        ``correct`` (true or false, 1 or 0), and any covariates.
    control : str, default "control"
        The treatment without sets, to which the others are compared.

    Raises
    ------
    DataError
        A column that is not there or has missing values, ``correct`` that is neither true nor false, no
        rows of control, fewer than two groups or treatments, or a group without decisions under some
        treatment.

    References
    ----------
    Cresswell, Kumar, Sui, Belbahri (2025), Conformal prediction sets can cause disparate impact.
    Liang, Zeger (1986), Longitudinal data analysis using generalized linear models.
    """

    def __init__(self, decisions: pd.DataFrame, control: Any = "control") -> None:
        missing = [column for column in _COLUMNS if column not in decisions.columns]
        if missing:
            raise DataError(
                f"decisions has no column {', '.join(missing)}; it needs {', '.join(_COLUMNS)}, one row a "
                "decision"
            )
        if not len(decisions):
            raise DataError("decisions has no rows")
        for column in _COLUMNS:
            gone = decisions[column].isna().to_numpy()
            if gone.any():
                raise DataError(
                    f"{column} is missing in {int(gone.sum())} of {len(gone)} decisions, first at row "
                    f"{int(gone.argmax())}; leave those out"
                )
        correct = decisions["correct"].to_numpy(dtype=np.float64)
        if not np.isin(correct, (0.0, 1.0)).all():
            at = int(np.argmin(np.isin(correct, (0.0, 1.0))))
            raise DataError(f"correct is {correct[at]:g} in row {at}; give true or false, 1 or 0")
        self.decisions = decisions.reset_index(drop=True)
        self.control = control
        self._correct = correct
        self._t, treatments = _codes(decisions["treatment"], first=control)
        self._g, self._groups = _codes(decisions["group"])
        if treatments[0] != control:
            listed = ", ".join(map(str, treatments))
            raise DataError(f"no decision has the treatment {control!r} (control); there are: {listed}")
        if len(treatments) < 2 or len(self._groups) < 2:
            raise DataError(
                f"{len(treatments)} treatment(s) and {len(self._groups)} group(s): two of each are needed, "
                "one treatment being control"
            )
        self._treatments = treatments
        counts = self._cells(np.ones(len(correct)))
        if (counts == 0).any():
            t, g = (int(i) for i in np.argwhere(counts == 0)[0])
            raise DataError(
                f"no decision on group {self._groups[g]} under {treatments[t]}; "
                f"{int((counts == 0).sum())} of {counts.size} pairs of treatment and group are empty"
            )

    def delta(self, n_bootstrap: int = 2000, confidence: float = 0.95, random_state: Any = 0) -> pd.DataFrame:
        """Gain in accuracy of each group, and the disparate impact of each treatment.

        Parameters
        ----------
        n_bootstrap : int, default 2000
            Draws of participants with replacement, within those who saw the same treatments; 0 for no
            intervals. All decisions of a participant stay together.
        confidence : float, default 0.95
            Of the percentile intervals.
        random_state : int or None, default 0

        Returns
        -------
        DataFrame
            One row a treatment but control: ``disparate_impact``, ``low``, ``high``, ``helped_most`` and
            ``helped_least`` (groups), then ``delta_<group>``, ``low_<group>``, ``high_<group>`` for
            each group.
        """
        import pandas as pd

        if n_bootstrap < 0 or not 0 < confidence < 1:
            raise MethodError(
                f"n_bootstrap must not be negative and confidence lie in (0, 1), got {n_bootstrap!r} and "
                f"{confidence!r}"
            )
        deltas = _gains(self._cells(self._correct) / self._cells(np.ones(len(self._correct))))
        tails = (50 * (1 - confidence), 50 * (1 + confidence))
        drawn = self._bootstrap(n_bootstrap, seed_of(random_state)) if n_bootstrap else None
        rows = []
        for t, gains in enumerate(deltas):
            row: dict[str, Any] = {"disparate_impact": gains.max() - gains.min()}
            row["low"], row["high"] = _percentiles(
                None if drawn is None else np.ptp(drawn[:, t], axis=1), tails
            )
            row["helped_most"] = self._groups[int(gains.argmax())]
            row["helped_least"] = self._groups[int(gains.argmin())]
            for g, name in enumerate(self._groups):
                row[f"delta_{name}"] = gains[g]
                ends = _percentiles(None if drawn is None else drawn[:, t, g], tails)
                row[f"low_{name}"], row[f"high_{name}"] = ends
            rows.append(row)
        return pd.DataFrame(rows, index=pd.Index(self._treatments[1:], name="treatment"))

    def odds_ratios(self, covariates: str | Sequence[str] = (), cluster: str = "participant") -> pd.DataFrame:
        """Odds ratio of a right decision against control, for each treatment and group.

        Logistic regression by generalised estimating equations: clusters with exchangeable working
        correlation, robust (sandwich) covariance; ``correct ~ treatment * group + covariates`` with
        control as the reference, whatever the order of names.

        Parameters
        ----------
        covariates : column names, or "a + b"
            Further columns, such as the difficulty of the item: numbers as they are, anything else as
            categories.
        cluster : {"participant", "item"}, default "participant"
            Whose decisions belong together; "item" where a single participant decides on every item.

        Returns
        -------
        DataFrame
            One row a treatment but control and group (two levels of index): ``odds_ratio``, ``low``,
            ``high`` (95 %), ``log_odds_ratio``, ``robust_se``. Where all decisions of a group under a
            treatment are right, or all wrong, the odds ratio is infinite, 0 or undefined and has no
            interval, and a warning names it.

        Raises
        ------
        MissingDependency
            statsmodels is not installed.
        """
        import pandas as pd

        fitted = self._fit(covariates, cluster)
        rows = []
        for t in range(1, len(self._treatments)):
            for g in range(len(self._groups)):
                log, se = fitted.log_ratio(t, g)
                rows.append(
                    {
                        "odds_ratio": np.exp(log),
                        "low": np.exp(log - _Z * se),
                        "high": np.exp(log + _Z * se),
                        "log_odds_ratio": log,
                        "robust_se": se,
                    }
                )
        pairs = [(t, g) for t in self._treatments[1:] for g in self._groups]
        return pd.DataFrame(rows, index=pd.MultiIndex.from_tuples(pairs, names=["treatment", "group"]))

    def max_ror(self, covariates: str | Sequence[str] = (), cluster: str = "participant") -> pd.DataFrame:
        """The largest odds ratio over the smallest, for each treatment; arguments as in :meth:`odds_ratios`.

        Returns
        -------
        DataFrame
            One row a treatment but control: ``max_ror``, ``low``, ``high`` (95 %, of the ratio of these
            two groups as if they had been named beforehand: with more than two groups too narrow),
            ``helped_most``, ``helped_least``.
        """
        import pandas as pd

        fitted = self._fit(covariates, cluster)
        rows = []
        for t in range(1, len(self._treatments)):
            logs = np.array([fitted.log_ratio(t, g)[0] for g in range(len(self._groups))])
            if np.isnan(logs).any():
                gone = ", ".join(str(self._groups[g]) for g in np.flatnonzero(np.isnan(logs)))
                rows.append(
                    dict.fromkeys(("max_ror", "low", "high"), np.nan) | {"helped_most": f"({gone}: ?)"}
                )
                continue
            most, least = int(logs.argmax()), int(logs.argmin())
            with np.errstate(invalid="ignore"):
                ratio = logs[most] - logs[least]
            se = fitted.contrast_error(t, most, least)
            rows.append(
                {
                    "max_ror": np.exp(ratio),
                    "low": np.exp(ratio - _Z * se),
                    "high": np.exp(ratio + _Z * se),
                    "helped_most": self._groups[most],
                    "helped_least": self._groups[least],
                }
            )
        return pd.DataFrame(rows, index=pd.Index(self._treatments[1:], name="treatment"))

    # ---- counts

    def _cells(self, weights: FloatArray) -> FloatArray:
        """(T, G) sums over the decisions of each treatment and group."""
        shape = len(self._treatments), len(self._groups)
        cell = self._t * shape[1] + self._g
        return np.asarray(np.bincount(cell, weights, shape[0] * shape[1]).reshape(shape), dtype=np.float64)

    def _bootstrap(self, n_draws: int, seed: int) -> FloatArray:
        """(B, T - 1, G) gains in accuracy over draws of participants; draws with an empty cell left out."""
        participant, names = _codes(self.decisions["participant"])
        n, (T, G) = len(names), (len(self._treatments), len(self._groups))
        cell = participant * T * G + self._t * G + self._g
        shape = (n, T * G)
        counts = np.bincount(cell, minlength=n * T * G).reshape(shape).astype(np.float64)
        right = np.bincount(cell, weights=self._correct, minlength=n * T * G).reshape(shape)
        seen = counts.reshape(n, T, G).sum(axis=2) > 0
        strata = np.unique(seen, axis=0, return_inverse=True)[1].ravel()
        rng = np.random.default_rng(derive_seed(seed, "participants"))
        total, hits = np.zeros((n_draws, T * G)), np.zeros((n_draws, T * G))
        for stratum in np.unique(strata):
            mine = np.flatnonzero(strata == stratum)
            times = rng.multinomial(len(mine), np.full(len(mine), 1 / len(mine)), size=n_draws)
            total += times @ counts[mine]
            hits += times @ right[mine]
        whole = (total > 0).all(axis=1)
        if not whole.all():
            warnings.warn(
                f"{int((~whole).sum())} of {n_draws} draws of participants leave a group without decisions "
                "under some treatment; they are left out of the intervals",
                AssayWarning,
                stacklevel=3,
            )
        return _gains((hits[whole] / total[whole]).reshape(-1, T, G))

    # ---- model

    def _fit(self, covariates: str | Sequence[str], cluster: str) -> _Fitted:
        if cluster not in ("participant", "item"):
            raise MethodError(f"cluster must be 'participant' or 'item', got {cluster!r}")
        try:
            import statsmodels.api as sm
        except ModuleNotFoundError as error:
            raise MissingDependency(
                "odds ratios need statsmodels: pip install 'assay[audit]' (or pip install statsmodels)"
            ) from error
        share = self._cells(self._correct) / self._cells(np.ones(len(self._correct)))
        sure = (share == 0) | (share == 1)
        self._warn_sure(share, sure)
        keep = ~sure[self._t, self._g]
        if not keep.any():
            raise DataError("in every pair of treatment and group all decisions are right, or all wrong")
        columns = [(t, g) for t in range(len(self._treatments)) for g in range(len(self._groups))]
        # mean and treatment effect of each group are the coefficients, so that no sum of others is needed
        columns = [(t, g) for t, g in columns if not sure[t, g] and not (t and sure[0, g])]
        keep &= np.isin(
            self._t * len(self._groups) + self._g, [t * len(self._groups) + g for t, g in columns]
        )
        own = [((self._g == g) & ((self._t == t) | (t == 0))).astype(np.float64) for t, g in columns]
        design = np.column_stack([*own, *self._covariates(covariates)])[keep]
        if (rank := np.linalg.matrix_rank(design)) < design.shape[1]:
            raise DataError(
                f"the {design.shape[1]} columns of the model have rank {rank}: a covariate is constant, "
                "repeats another one, or follows from treatment and group; leave it out"
            )
        clusters = _codes(self.decisions[cluster])[0][keep]
        if len(np.unique(clusters)) < 2:
            other = "item" if cluster == "participant" else "participant"
            raise DataError(f"all decisions belong to one {cluster}; take cluster={other!r}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = sm.GEE(
                self._correct[keep],
                design,
                groups=clusters,
                family=sm.families.Binomial(),
                cov_struct=sm.cov_struct.Exchangeable(),
            ).fit(maxiter=200, cov_type="robust")
        coefficients = np.asarray(result.params)
        largest = float(np.abs(coefficients).max())
        if not result.converged or largest > _DIVERGED:
            end = "" if result.converged else " and the fit did not converge"
            warnings.warn(
                f"the odds ratios are not reliable: the largest coefficient is {largest:.3g}{end}; does a "
                "covariate separate right from wrong decisions?",
                AssayWarning,
                stacklevel=3,
            )
        return _Fitted(columns, coefficients, np.asarray(result.cov_params()), share)

    def _warn_sure(self, share: FloatArray, sure: NDArray[np.bool_]) -> None:
        if not sure.any():
            return
        listed = [
            f"{self._groups[g]} under {self._treatments[t]} (all {'right' if share[t, g] else 'wrong'})"
            for t, g in np.argwhere(sure)[:5]
        ]
        warnings.warn(
            f"no finite odds ratio for {int(sure.sum())} of {sure.size} pairs of group and treatment: "
            f"{', '.join(listed)}; their decisions are left out of the model",
            AssayWarning,
            stacklevel=4,
        )

    def _covariates(self, covariates: str | Sequence[str]) -> list[FloatArray]:
        import pandas as pd

        names = (
            [part.strip() for part in covariates.split("+")] if isinstance(covariates, str) else covariates
        )
        columns: list[FloatArray] = []
        for name in names:
            if name not in self.decisions.columns:
                raise DataError(f"decisions has no column {name!r} to use as a covariate")
            column = self.decisions[name]
            gone = column.isna().to_numpy()
            if gone.any():
                raise DataError(
                    f"the covariate {name!r} is missing in {int(gone.sum())} of {len(gone)} decisions, first "
                    f"at row {int(gone.argmax())}"
                )
            if pd.api.types.is_numeric_dtype(column.dtype):
                columns.append(column.to_numpy(dtype=np.float64))
            else:
                codes, values = _codes(column)
                columns += [(codes == i).astype(np.float64) for i in range(1, len(values))]
        return columns


@dataclass(frozen=True, eq=False)
class _Fitted:
    """Coefficients of the model: for each (treatment, group) the effect, under control the group's level."""

    columns: list[tuple[int, int]]
    coefficients: FloatArray
    covariance: FloatArray
    share: FloatArray

    def log_ratio(self, t: int, g: int) -> tuple[float, float]:
        """(logarithm of the odds ratio, its robust standard error); infinite or NaN without an error."""
        if (t, g) in self.columns:
            at = self.columns.index((t, g))
            return float(self.coefficients[at]), float(np.sqrt(self.covariance[at, at]))
        with np.errstate(divide="ignore", invalid="ignore"):
            logits = np.log(self.share[:, g]) - np.log1p(-self.share[:, g])
            return float(logits[t] - logits[0]), np.nan

    def contrast_error(self, t: int, a: int, b: int) -> float:
        """Robust standard error of the difference of two log odds ratios; NaN where one has none."""
        if (t, a) not in self.columns or (t, b) not in self.columns:
            return np.nan
        i, j = self.columns.index((t, a)), self.columns.index((t, b))
        V = self.covariance
        return float(np.sqrt(max(V[i, i] + V[j, j] - 2 * V[i, j], 0.0)))


def _codes(column: Any, first: Any = None) -> tuple[NDArray[np.intp], list[Any]]:
    """(position of each value among the distinct ones, those in order); ``first`` is put at the front."""
    import pandas as pd

    values = sorted(pd.unique(column.astype(object)).tolist(), key=lambda v: (v != first, str(v)))
    place = {value: i for i, value in enumerate(values)}
    return np.array([place[value] for value in column.astype(object)], dtype=np.intp), values


def _gains(accuracy: FloatArray) -> FloatArray:
    """(..., T - 1, G) accuracy minus that under control, from (..., T, G)."""
    return np.asarray(accuracy[..., 1:, :] - accuracy[..., :1, :])


def _percentiles(values: FloatArray | None, tails: tuple[float, float]) -> tuple[float, float]:
    if values is None or not len(values):
        return np.nan, np.nan
    low, high = np.percentile(values, tails)
    return float(low), float(high)
