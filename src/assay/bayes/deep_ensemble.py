"""Copies of one recipe that differ by their seed, averaged."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone, is_classifier, is_regressor
from sklearn.utils.validation import check_is_fitted

from assay.bayes.ensemble_forecast import EnsembleForecast
from assay.bayes.map_network import MapNetwork
from assay.bayes.predictive_base import PredictiveEstimator
from assay.core.checks import FloatArray
from assay.core.distributions import (
    CategoricalDistribution,
    MixtureDistribution,
    NumericDistribution,
    PredictiveDistribution,
)
from assay.core.errors import DataError, MethodError
from assay.core.models import is_torch_module, predict_values
from assay.core.probabilities import Probabilities, distinct_labels, known_labels
from assay.core.seeds import derive_seed, seed_of
from assay.networks.training import Training

#: share of the rows on which the residuals of a scikit-learn regressor are measured, as networks do
_HELD = 0.15


class Uncertainty(NamedTuple):
    """(n,) entropies in nats, or variances in squared units of the target: total = aleatoric + epistemic."""

    total: FloatArray
    aleatoric: FloatArray
    epistemic: FloatArray


class DeepEnsemble(PredictiveEstimator):
    """The mean of members that are trained alike with different seeds.

    Classes: the mean of the members' probabilities (not of their logits). Numbers: the mixture of the
    members' Gaussians, with mean mu = mean_j mu_j and variance mean_j (s_j^2 + mu_j^2) - mu^2. How much
    more members would gain is what :meth:`forecast` tells from the members that there are.

    Parameters
    ----------
    estimator : scikit-learn estimator, torch module or factory, optional
        A classifier with ``predict_proba``, or a regressor, that takes a ``random_state``: copies of it are
        members. A torch module, or a function (n_features, n_outputs) that makes one, is the same as
        ``module``. By default :class:`~assay.bayes.map_network.MapNetwork`, whose network of the same
        ``random_state`` is the first member.
    n_members : int, default 5
        As in Lakshminarayanan et al. (2017).
    module : torch.nn.Module or callable, optional
        Of the networks, see MapNetwork. Each member starts a module afresh (``reset_parameters`` of its
        layers); a factory is called once a member and starts as it likes.
    likelihood : "classification" or "regression", default "classification"
    training : Training, optional
        Of the networks.
    random_state : int, RandomState, Generator or None, default None
        The members' seeds derive from it.

    Attributes
    ----------
    members_ : list of fitted members
    classes_ : (K,) labels, for classification

    Notes
    -----
    A scikit-learn regressor without ``predict_dist`` predicts a Gaussian with the variance of its residuals
    on 15 % of the rows, drawn by its seed, that it is not trained on.

    References
    ----------
    Lakshminarayanan, Pritzel, Blundell. Simple and Scalable Predictive Uncertainty Estimation using Deep
    Ensembles. NeurIPS 2017.
    """

    members_: list[Any]

    def __init__(
        self,
        estimator: Any = None,
        *,
        n_members: int = 5,
        module: Any = None,
        likelihood: str = "classification",
        training: Training | None = None,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.n_members = n_members
        self.module = module
        self.likelihood = likelihood
        self.training = training
        self.random_state = random_state

    def iter_member_proba(self, X: Any) -> Iterator[FloatArray]:
        """(n, K) probabilities of one member after the other, columns in the order of ``classes_``."""
        check_is_fitted(self)
        if self.likelihood != "classification":
            raise MethodError("members give probabilities for likelihood='classification' only")
        rows = self._rows(X)
        return (self._proba(member, rows) for member in self.members_)

    def iter_member_dist(self, X: Any) -> Iterator[NumericDistribution]:
        """The distributions of one member after the other, for regression."""
        check_is_fitted(self)
        if self.likelihood != "regression":
            raise MethodError("members give distributions of numbers for likelihood='regression' only")
        rows = self._rows(X)
        return (member.predict_dist(rows) for member in self.members_)

    def uncertainty(self, X: Any) -> Uncertainty:
        """What is noise (aleatoric) and what the members do not agree on (epistemic), each (n,).

        Classes: the entropy of the mean probability, the mean entropy of the members, and the difference.
        Numbers: the variance of the mixture, the mean variance, and the variance of the means.
        """
        if self.likelihood == "regression":
            means, variances = self._components(X)
            aleatoric, epistemic = variances.mean(axis=0), means.var(axis=0)
            return Uncertainty(aleatoric + epistemic, aleatoric, epistemic)
        mean: Any = 0.0
        aleatoric = 0.0
        for proba in self.iter_member_proba(X):
            mean = mean + proba / len(self.members_)
            aleatoric = aleatoric + _entropy(proba) / len(self.members_)
        # the difference is at least 0 but for rounding
        total = np.maximum(_entropy(mean), aleatoric)
        return Uncertainty(total, np.asarray(aleatoric), total - aleatoric)

    def forecast(
        self, X: Any, y: Any, *, loss: str | None = None, method: str | None = None, **options: Any
    ) -> EnsembleForecast:
        """What ensembles of other sizes will lose, from the predictions of the members on held-out rows.

        Parameters
        ----------
        X, y : rows and targets that were not trained on
        loss, method : str, optional
            Of :class:`~assay.bayes.ensemble_forecast.EnsembleForecast`; by default the Brier score, or the
            squared error, and the exact law where there is one.
        options : its other arguments
        """
        classifies = self.likelihood == "classification"
        chosen = loss or ("brier" if classifies else "squared")
        law = method or ("inverse_m" if chosen in ("nll", "error") else "exact")
        found = EnsembleForecast(chosen, law, **{"random_state": self.random_state, **options})
        if classifies:
            return found.fit(self.iter_member_proba(X), y, classes=self.classes_)
        return found.fit((dist.mean for dist in self.iter_member_dist(X)), y)

    def _fit(self, X: FloatArray, y: NDArray[Any]) -> None:
        if not isinstance(self.n_members, int | np.integer) or self.n_members < 2:
            raise MethodError(f"an ensemble has at least 2 members, got n_members={self.n_members!r}")
        if self.likelihood == "classification":
            self.classes_ = distinct_labels(y)
            if len(self.classes_) < 2:
                raise DataError(
                    f"y has one class only, {self.classes_[0]!r}, in all {len(y)} rows; two are needed"
                )
        seed = seed_of(self.random_state)
        seeds = [seed, *(derive_seed(seed, "ensemble member", i) for i in range(1, self.n_members))]
        recipe = self._recipe()
        self.members_ = [self._member(recipe, member_seed).fit(X, y) for member_seed in seeds]

    def _recipe(self) -> Any:
        """The unfitted member of which all are copies."""
        estimator, module = self.estimator, self.module
        if estimator is not None and not isinstance(estimator, type) and hasattr(estimator, "get_params"):
            if module is not None:
                raise MethodError("give an estimator or a module, not both")
            kind = is_classifier if self.likelihood == "classification" else is_regressor
            if not kind(estimator):
                raise MethodError(
                    f"{type(estimator).__name__} does not do {self.likelihood}; give "
                    "likelihood='classification' with a classifier and 'regression' with a regressor"
                )
            if self.likelihood == "classification" and not hasattr(estimator, "predict_proba"):
                raise MethodError(
                    f"{type(estimator).__name__} has no predict_proba, which an ensemble averages"
                )
            if not _seed_names(estimator):
                raise MethodError(
                    f"{type(estimator).__name__} takes no random_state: its copies would be equal"
                )
            return estimator
        if estimator is not None:
            if module is not None:
                raise MethodError("give an estimator or a module, not both")
            if not (is_torch_module(estimator) or callable(estimator)):
                raise MethodError(
                    f"estimator must be a scikit-learn estimator, a torch module or a factory, "
                    f"got {type(estimator).__name__}"
                )
            module = estimator
        if is_torch_module(module):
            module = FreshCopies(module)
        return MapNetwork(module, likelihood=self.likelihood, training=self.training)

    def _member(self, recipe: Any, seed: int) -> Any:
        if isinstance(recipe, MapNetwork):
            # a clone would copy the module, which the factory does anyway
            member: Any = MapNetwork(**{**recipe.get_params(deep=False), "random_state": seed})
            return member
        member = clone(recipe)
        member.set_params(**{name: derive_seed(seed, name) % 2**31 for name in _seed_names(member)})
        if self.likelihood == "classification" or hasattr(member, "predict_dist"):
            return member
        return ResidualGaussian(member, random_state=seed)

    def _proba(self, member: Any, X: FloatArray) -> FloatArray:
        """(n, K) probabilities of a member, in the order of the ensemble's classes."""
        if len(X) == 0:
            return np.empty((0, len(self.classes_)))
        given = Probabilities(member.predict_proba(X), f"the probabilities of {type(member).__name__}")
        given.check()
        classes = np.asarray(member.classes_)
        if len(classes) == len(self.classes_) and (classes == self.classes_).all():
            return np.asarray(given.values, dtype=np.float64)
        # classes that a member never saw have probability zero
        out = np.zeros((len(X), len(self.classes_)))
        out[:, known_labels(classes, self.classes_, "the classes of a member")] = given.values
        return out

    def _components(self, X: Any) -> tuple[FloatArray, FloatArray]:
        """(m, n) means and variances of the members."""
        parts = [(dist.mean, dist.variance) for dist in self.iter_member_dist(X)]
        return np.stack([mean for mean, _ in parts]), np.stack([variance for _, variance in parts])

    def _dist(self, X: FloatArray) -> PredictiveDistribution:
        if self.likelihood == "regression":
            return MixtureDistribution(*self._components(X))
        mean = np.zeros((len(X), len(self.classes_)))
        for proba in self.iter_member_proba(X):
            mean += proba
        return CategoricalDistribution(mean / len(self.members_), self.classes_)


class FreshCopies:
    """A factory of copies of one torch module, each with new weights."""

    def __init__(self, module: Any) -> None:
        self.module = module

    def __call__(self, n_features: int, n_outputs: int) -> Any:
        """A copy whose layers have drawn their weights anew.

        Raises
        ------
        MethodError
            Weights that no layer can draw: their names, and that a factory helps.
        """
        made = copy.deepcopy(self.module)
        drawn: set[int] = set()
        for part in made.modules():
            if callable(reset := getattr(part, "reset_parameters", None)):
                reset()
                drawn |= {id(parameter) for parameter in part.parameters()}
        left = [name for name, p in made.named_parameters() if p.requires_grad and id(p) not in drawn]
        if left:
            raise MethodError(
                f"the weights {', '.join(left[:5])}{' ...' if len(left) > 5 else ''} have no "
                "reset_parameters, so that members would all start from them; give a function "
                "(n_features, n_outputs) that makes a module"
            )
        return made


class ResidualGaussian(BaseEstimator):  # type: ignore[misc]
    """A regressor as a Gaussian around its prediction, with the variance of residuals on held-out rows."""

    def __init__(self, estimator: Any, *, random_state: int = 0) -> None:
        self.estimator = estimator
        self.random_state = random_state

    def fit(self, X: FloatArray, y: NDArray[Any]) -> ResidualGaussian:
        """Train on 85 % of the rows, measure residuals on the others."""
        held = max(1, round(_HELD * len(y)))
        if len(y) - held < 2:
            raise DataError(
                f"{len(y)} rows are too few to train on 85 % of them and measure residuals on 15 %"
            )
        order = np.random.default_rng(derive_seed(self.random_state, "residual rows")).permutation(len(y))
        self.estimator_ = self.estimator.fit(X[order[held:]], y[order[held:]])
        rest = predict_values(self.estimator_, X[order[:held]]) - y[order[:held]]
        # exact fits have a density of some width all the same
        self.variance_ = max(float(np.mean(rest**2)), 1e-12 * float(np.var(y)), np.finfo(np.float64).tiny)
        return self

    def predict_dist(self, X: FloatArray) -> NumericDistribution:
        """Gaussians of one variance."""
        from assay.core.distributions import GaussianDistribution

        return GaussianDistribution(predict_values(self.estimator_, X), self.variance_)


def _seed_names(estimator: Any) -> list[str]:
    """Every parameter of an estimator, or of a part of it, that is a seed."""
    names = sorted(estimator.get_params(deep=True))
    return [name for name in names if name == "random_state" or name.endswith("__random_state")]


def _entropy(proba: FloatArray) -> FloatArray:
    logs = np.log(np.where(proba > 0, proba, 1.0))
    return np.asarray(-(proba * logs).sum(axis=1))
