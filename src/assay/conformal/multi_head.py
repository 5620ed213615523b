"""Several linear heads on one backbone, trained together with torch: self-ensembling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_array, check_is_fitted

from assay.conformal.label_rows import training_labels
from assay.core.checks import refuse_infinite, refuse_nan, to_numpy
from assay.core.errors import DataError, MethodError
from assay.core.models import import_torch, is_torch_module, run_torch
from assay.core.probabilities import distinct_labels, encode_labels
from assay.core.seeds import derive_seed, seed_of

torch = import_torch("MultiHead")

FloatArray = NDArray[np.float64]
#: called with (epochs done, epochs in all, mean loss of an epoch)
Progress = Callable[[int, int, float], None]


class MultiHead(torch.nn.Module):  # type: ignore[misc, name-defined]
    """d linear classification heads on the features of one backbone.

    Parameters
    ----------
    backbone_dim : int
        Number of features D.
    n_classes : int
        Number of classes K.
    n_heads : int, default 3
        Number of heads d; two to five suit a few hundred calibration rows.
    diversity : {"mask", "structured_dropout", None}, default "mask"
        What a head does not see, in training and afterwards. "mask": a fixed random half of the
        features, another for each head (our choice for heads on frozen features).
        "structured_dropout": one of d contiguous blocks of features, shifted from head to head. None:
        heads see everything and differ by their initial weights alone, which a convex loss soon forgets.
    random_state : int, default 0
        Draws masks and initial weights; torch's own random state is not used.

    Attributes
    ----------
    mask : (d, D) buffer of zeros and ones
    weight, bias : (d, K, D) and (d, K) parameters
    """

    def __init__(
        self,
        backbone_dim: int,
        n_classes: int,
        n_heads: int = 3,
        diversity: str | None = "mask",
        random_state: int = 0,
    ) -> None:
        if min(backbone_dim, n_classes, n_heads) < 1:
            raise MethodError(
                "backbone_dim, n_classes and n_heads must be at least 1, got "
                f"{backbone_dim!r}, {n_classes!r} and {n_heads!r}"
            )
        super().__init__()
        generator = torch.Generator().manual_seed(derive_seed(random_state, "heads"))
        bound = 1 / np.sqrt(backbone_dim)
        weight = torch.empty(n_heads, n_classes, backbone_dim).uniform_(-bound, bound, generator=generator)
        self.weight = torch.nn.Parameter(weight)
        self.bias = torch.nn.Parameter(torch.zeros(n_heads, n_classes))
        self.register_buffer("mask", _masks(diversity, n_heads, backbone_dim, generator))

    def forward(self, features: Any) -> Any:
        """(n, d, K) logits of (n, D) features."""
        return torch.einsum("nf,dkf->ndk", features, self.weight * self.mask[:, None, :]) + self.bias


def _masks(diversity: str | None, n_heads: int, width: int, generator: Any) -> Any:
    mask = torch.ones(n_heads, width)
    if diversity is None:
        return mask
    if diversity == "mask":
        kept = max(1, round(width / 2))
        for head in mask:
            head[torch.randperm(width, generator=generator)[kept:]] = 0
        return mask
    if diversity == "structured_dropout":
        ends = np.linspace(0, width, n_heads + 1).round().astype(int)
        for j, head in enumerate(mask):
            # a single head, or fewer features than heads, keeps what it has
            if n_heads > 1 and width > 1:
                head[ends[j] : ends[j + 1]] = 0
        return mask
    raise MethodError(f"diversity must be 'mask', 'structured_dropout' or None, got {diversity!r}")


def train_heads(
    heads: MultiHead,
    features: Any,
    codes: Any,
    *,
    epochs: int = 20,
    learning_rate: float = 1e-3,
    weight_decay: float = 1e-4,
    batch_size: int = 32,
    random_state: int = 0,
    progress: Progress | None = None,
) -> MultiHead:
    """Train all heads together on frozen features, by the sum of their cross-entropies, with Adam.

    Parameters
    ----------
    heads : MultiHead
        Trained in place.
    features : (n, D) tensor, of the type and on the device of the heads
    codes : (n,) tensor of class numbers 0 .. K - 1
    epochs, learning_rate, weight_decay : defaults for some thousand rows
    random_state : int
        Shuffles the rows.
    progress : function of (epochs done, epochs in all, mean loss), optional

    Raises
    ------
    MethodError
        Training diverged.
    """
    if min(epochs, batch_size) < 1 or not learning_rate > 0 or weight_decay < 0:
        raise MethodError(
            "epochs and batch_size must be at least 1, learning_rate positive and weight_decay not negative, "
            f"got {epochs!r}, {batch_size!r}, {learning_rate!r} and {weight_decay!r}"
        )
    generator = torch.Generator().manual_seed(derive_seed(random_state, "shuffling"))
    optimiser = torch.optim.Adam(heads.parameters(), lr=learning_rate, weight_decay=weight_decay)
    d, k = heads.bias.shape
    for epoch in range(1, epochs + 1):
        total = 0.0
        for rows in torch.split(torch.randperm(len(features), generator=generator), batch_size):
            rows = rows.to(features.device)
            optimiser.zero_grad(set_to_none=True)
            logits = heads(features[rows]).reshape(-1, k)
            # the sum over heads of each head's mean over the batch
            loss = d * torch.nn.functional.cross_entropy(logits, codes[rows].repeat_interleave(d))
            loss.backward()
            optimiser.step()
            total += float(loss.detach()) * len(rows)
        if not np.isfinite(total):
            raise MethodError(
                f"training diverged in epoch {epoch}; try a learning_rate below {learning_rate:g}"
            )
        if progress is not None:
            progress(epoch, epochs, total / len(features))
    return heads


class MultiHeadClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """:class:`MultiHead` as a scikit-learn classifier: averaged probabilities, and those of each head.

    Methods of several heads use ``predict_proba_heads`` where a model has it, all others
    ``predict_proba``; so in one comparison both see the same heads.

    Parameters
    ----------
    backbone : torch module or function of X, optional
        Gives (n, D) features and is left as it is; without it the columns of X are the features. They
        are standardised by the training rows.
    n_heads : int, default 3
    diversity : {"mask", "structured_dropout", None}, default "mask"; see :class:`MultiHead`
    epochs : int, default 100
    learning_rate : float, default 0.01
        For tables of some hundred rows; with some thousand, 20 epochs at 0.001 do.
    weight_decay : float, default 1e-4
    batch_size : int, default 32
    random_state : int or None, default None
        Masks, initial weights, order of rows.

    Attributes
    ----------
    classes_ : (K,) labels
    heads_ : the trained :class:`MultiHead`, on standardised features
    mean_, scale_ : (D,) of the features
    """

    def __init__(
        self,
        backbone: Any = None,
        *,
        n_heads: int = 3,
        diversity: str | None = "mask",
        epochs: int = 100,
        learning_rate: float = 0.01,
        weight_decay: float = 1e-4,
        batch_size: int = 32,
        random_state: Any = None,
    ) -> None:
        self.backbone = backbone
        self.n_heads = n_heads
        self.diversity = diversity
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Train the heads on (n, d) rows and (n,) labels.

        Raises
        ------
        DataError
            NaN or infinite features, missing labels, lengths that differ.
        MethodError
            An argument out of range, or training that diverges.
        """
        y = training_labels(X, y)
        features = self._features(X)
        classes = distinct_labels(y)
        if len(features) == 0 or len(classes) < 2:
            raise DataError(
                f"the {len(features)} training rows hold {len(classes)} class(es), a classifier needs two"
            )
        mean, scale = features.mean(axis=0), features.std(axis=0)
        scale[~(scale > 0)] = 1.0
        seed = seed_of(self.random_state)
        heads = MultiHead(features.shape[1], len(classes), self.n_heads, self.diversity, seed)
        train_heads(
            heads,
            torch.as_tensor((features - mean) / scale, dtype=torch.float32),
            torch.as_tensor(encode_labels(y, classes)),
            epochs=self.epochs,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            batch_size=self.batch_size,
            random_state=seed,
        )
        self.heads_ = heads.eval()
        self.mean_, self.scale_ = mean, scale
        self.classes_ = classes
        self.n_features_in_ = features.shape[1] if self.backbone is None else int(X.shape[1])
        return self

    def predict_proba_heads(self, X: Any) -> FloatArray:
        """(n, K, d) probabilities of every head."""
        check_is_fitted(self, "heads_")
        features = self._features(X)
        if features.shape[1] != len(self.mean_):
            raise DataError(
                f"X has {features.shape[1]} features, but {type(self).__name__} is expecting "
                f"{len(self.mean_)} features as input"
            )
        features = (features - self.mean_) / self.scale_
        # float64 throughout: a row alone then gets what it gets in a batch, but for the last bits
        weight = (self.heads_.weight * self.heads_.mask[:, None, :]).detach().cpu().numpy()
        bias = self.heads_.bias.detach().cpu().numpy().astype(np.float64)
        logits = np.tensordot(features, weight.astype(np.float64), axes=(1, 2)) + bias
        return np.asarray(np.moveaxis(softmax(logits, axis=2), 1, 2))

    def predict_proba(self, X: Any) -> FloatArray:
        """(n, K) mean probabilities of the heads."""
        return np.asarray(self.predict_proba_heads(X).mean(axis=2))

    def predict(self, X: Any) -> NDArray[Any]:
        """(n,) the label with the largest mean probability."""
        best = np.argmax(self.predict_proba(X), axis=1)
        return np.asarray(self.classes_[best])

    def _features(self, X: Any) -> FloatArray:
        if self.backbone is None:
            raw = X
        elif is_torch_module(self.backbone):
            raw = run_torch(self.backbone, X)
        else:
            raw = self.backbone(X)
        if hasattr(raw, "detach"):
            raw = to_numpy(raw)
        features: FloatArray = check_array(
            raw, dtype=np.float64, ensure_all_finite=False, ensure_min_samples=0
        )
        refuse_nan(features, "the features")
        refuse_infinite(features, "the features")
        return features
