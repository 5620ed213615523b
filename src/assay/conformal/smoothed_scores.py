"""Scores of all labels under random noise on the input: what certificates of robustness are made from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from assay.conformal.binary_certificate import NORMS, flip_probabilities, positive_scale
from assay.conformal.label_scores import LabelScore, get_score
from assay.core.checks import refuse_infinite, refuse_nan, to_float, to_numpy
from assay.core.errors import DataError, MethodError
from assay.core.models import predict_probabilities
from assay.core.probabilities import Probabilities
from assay.core.seeds import derive_seed, row_keys, seed_of

#: bytes of noisy inputs and of scores that are in memory at a time, when no batch size is given
_WORK = 2**23
#: noise for calibration rows and for test rows: never the same numbers
CALIBRATION, TEST = "calibration", "test"


class Tally(Protocol):
    """Running sums over samples, so that the samples themselves need not be kept."""

    def add(self, samples: NDArray[Any]) -> None:
        """Take in a further (n, K, m) samples of the same n rows and K labels."""


class SmoothedScores:
    """Conformity scores of all labels at noisy copies of each row; high = fits.

    The noise of a row comes from its values, the seed and the stream ("calibration" or "test"), so that
    batches do not change answers, and test rows get noise that calibration rows never had.

    Parameters
    ----------
    model : fitted classifier, torch module, or function of X
        Gives class probabilities (a module's logits are turned into such), which ``score`` makes scores.
        With ``score`` None a function that gives (n, K) conformity scores itself.
    score : str, LabelScore or None, default "lac"
        A label score S of the package; the conformity score is 1 - S, for "lac" the probability itself.
    noise : {"gaussian", "laplace", "uniform", "sparse"}
        See :class:`~assay.conformal.binary_certificate.BinaryCertificate`.
    scale : float, default 0.25, or (p_plus, p_minus) for sparse noise
        In the units of the features.
    n_samples : int, default 150
        Noisy copies of a row; the paper's 100 to 200.
    batch_size : int, optional
        Noisy rows in one call of the model; by default what 8 MiB hold. The answer does not depend on it.
    random_state : int or None, default None

    Attributes
    ----------
    calls : int
        Rows that the model has been asked about so far.
    """

    def __init__(
        self,
        model: Any,
        *,
        score: str | LabelScore | None = "lac",
        noise: str = "gaussian",
        scale: Any = 0.25,
        n_samples: int = 150,
        batch_size: int | None = None,
        random_state: Any = None,
    ) -> None:
        check_noise(noise, scale)
        for name, value in (("n_samples", n_samples), ("batch_size", batch_size)):
            if value is not None and (value != int(value) or value < 1):
                raise MethodError(f"{name} must be a whole number of at least 1, got {value!r}")
        if score is None and not callable(model):
            raise MethodError(
                f"score is None, so that the model must be a function of X that gives scores; got "
                f"{type(model).__name__}"
            )
        self.model = model
        self.score = None if score is None else get_score(score)
        self.noise = noise
        self.scale = scale
        self.n_samples = int(n_samples)
        self.batch_size = None if batch_size is None else int(batch_size)
        self.seed = seed_of(random_state)
        self.outputs: str | None = None
        self.calls = 0

    # ---- all samples, or what is counted of them

    def samples(self, X: Any, stream: str = TEST) -> NDArray[np.float32]:
        """(n, K, n_samples) conformity scores of all labels; float32.

        Parameters
        ----------
        X : (n, ...) numbers
        stream : "calibration" or "test"
            Which noise; see the class.
        """
        parts: list[NDArray[np.float32]] = []
        rows = self.rows(X)
        for _, chunks in self.blocks(rows, stream):
            parts.append(np.concatenate(list(chunks), axis=2))
        if not parts:
            raise DataError("there are 0 rows; the number of labels is known only from a row's scores")
        return np.concatenate(parts)

    def label_samples(self, X: Any, labels: NDArray[np.intp]) -> tuple[NDArray[np.float32], int]:
        """((n, n_samples) scores of one label a row under the noise of calibration, number of labels K).

        ``labels`` are columns of the scores. No more than a block of rows is kept for the other labels.
        """
        rows = self.rows(X)
        out = np.empty((len(rows), self.n_samples), dtype=np.float32)
        n_labels = 0
        for block, chunks in self.blocks(rows, CALIBRATION):
            start = 0
            for chunk in chunks:
                n_labels = chunk.shape[1]
                own = chunk[np.arange(len(chunk)), labels[block]]
                out[block, start : start + own.shape[1]] = own
                start += own.shape[1]
        return out, n_labels

    def counts(self, X: Any, threshold: float, stream: str = TEST) -> NDArray[np.int32]:
        """(n, K) number of samples that reach the threshold; the samples are never stored."""
        counts = []
        for _, chunks in self.blocks(self.rows(X), stream):
            tally: NDArray[np.int32] | None = None
            for chunk in chunks:
                hits = count_reaching(chunk, threshold)
                tally = hits if tally is None else tally + hits
            assert tally is not None
            counts.append(tally)
        if not counts:
            raise DataError("there are 0 rows; the number of labels is known only from a row's scores")
        return np.concatenate(counts)

    def blocks(
        self, rows: NDArray[np.float64], stream: str
    ) -> Iterator[tuple[slice, Iterator[NDArray[np.float32]]]]:
        """Consecutive rows with their samples: (where they stand, chunks (rows, K, m) that make n_samples).

        The chunks of a block must be used up before the next block is asked for.
        """
        size = int(np.prod(rows.shape[1:]))
        # noise, its sum with the row, and what the model makes of it
        batch = self.batch_size or max(1, _WORK // (32 * max(size, 1)))
        step = max(1, batch // self.n_samples)
        for start in range(0, len(rows), step):
            block = slice(start, min(start + step, len(rows)))
            yield block, self._chunks(rows[block], stream, batch)

    def _chunks(self, rows: NDArray[np.float64], stream: str, batch: int) -> Iterator[NDArray[np.float32]]:
        source = Noise(rows, self.noise, self.scale, self.seed, stream)
        step = max(1, batch // len(rows))
        for start in range(0, self.n_samples, step):
            m = min(step, self.n_samples - start)
            noisy = source.add(m)
            scores = self._scores(noisy.reshape(-1, *rows.shape[1:]))
            yield np.ascontiguousarray(scores.reshape(len(rows), m, -1).transpose(0, 2, 1))

    def _scores(self, X: NDArray[np.float64]) -> NDArray[np.float32]:
        """(n, K) conformity scores in float32: two values that a float64 sum would keep apart are one."""
        self.calls += len(X)
        if self.score is None:
            raw = to_float(to_numpy(self.model(X)), "the scores")
            if raw.ndim != 2 or len(raw) != len(X):
                raise DataError(f"the score function gave shape {raw.shape}; ({len(X)}, K) is expected")
            refuse_nan(raw, "the scores")
            return raw.astype(np.float32)
        proba, self.outputs = predict_probabilities(self.model, X, self.outputs)
        checked = Probabilities(proba, "the model's probabilities")
        out = np.empty(proba.shape, dtype=np.float32)
        for rows, block in checked.blocks():
            np.subtract(1, self.score.all(block), out=out[rows], casting="same_kind")
        return out

    def rows(self, X: Any) -> NDArray[np.float64]:
        """X as float64 rows to which noise can be added."""
        rows = to_float(to_numpy(X), "X")
        if rows.ndim < 2:
            raise DataError(
                f"Expected 2D array, got shape {rows.shape}: one row a sample. Reshape your data with "
                "array.reshape(-1, 1) if it has one feature, or array.reshape(1, -1) if it is one sample"
            )
        refuse_nan(rows, "Input X contains NaN, to which noise cannot be added: X")
        refuse_infinite(rows, "Input X contains infinity: X")
        if self.noise == "sparse":
            other = ~((rows == 0) | (rows == 1)).reshape(len(rows), -1).all(axis=1)
            if other.any():
                raise DataError(
                    f"sparse noise flips bits, and X is neither 0 nor 1 in {int(other.sum())} of {len(rows)} "
                    f"rows, first at row {int(np.argmax(other))}"
                )
        return rows


class Noise:
    """Noisy copies of rows, each row from a random sequence of its own."""

    def __init__(self, rows: NDArray[np.float64], kind: str, scale: Any, seed: int, stream: str) -> None:
        self._rows, self._kind = rows, kind
        self._scale: Any = check_noise(kind, scale)
        keys = row_keys(rows, seed, stream)
        second = derive_seed(seed, stream, "noise")
        self._sources = [np.random.Generator(np.random.Philox(key=int(key) | second << 64)) for key in keys]

    def add(self, m: int) -> NDArray[np.float64]:
        """(n, m, ...) the rows with the next m draws of their noise."""
        rows = self._rows
        out = np.empty((len(rows), m, *rows.shape[1:]))
        for i, source in enumerate(self._sources):
            out[i] = self._noisy(rows[i], source, (m, *rows.shape[1:]))
        return out

    def _noisy(
        self, row: NDArray[np.float64], source: np.random.Generator, shape: tuple[int, ...]
    ) -> NDArray[np.float64]:
        if self._kind == "gaussian":
            return np.asarray(row + self._scale * source.standard_normal(shape))
        if self._kind == "laplace":
            return row + source.laplace(scale=self._scale, size=shape)
        if self._kind == "uniform":
            reach = self._scale * np.sqrt(3)
            return row + source.uniform(-reach, reach, shape)
        plus, minus = self._scale
        flip = source.random(shape) < np.where(row == 0, plus, minus)
        return np.where(flip, 1 - row, row)


def check_noise(noise: str, scale: Any) -> Any:
    """The scale of that noise, checked."""
    if noise not in NORMS:
        raise MethodError(f"no noise {noise!r}; give one of {', '.join(NORMS)}")
    return flip_probabilities(scale) if noise == "sparse" else positive_scale(scale)


def count_reaching(samples: NDArray[Any], threshold: float) -> NDArray[np.int32]:
    """(n, K) how many of (n, K, m) samples are at least the threshold, in the dtype of the samples."""
    reached = samples >= samples.dtype.type(threshold)
    return np.asarray(np.count_nonzero(reached, axis=-1), dtype=np.int32)
