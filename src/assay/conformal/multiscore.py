"""Multi-score conformal prediction: cells of a space of scores, kept from the purest on."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from assay.conformal.head_base import HeadSetClassifier, as_heads, rules_of, score_vectors, true_vectors
from assay.conformal.heads import HeadScores, split_heads
from assay.conformal.label_calibrators import LabelCalibrator
from assay.conformal.label_scores import LabelScore
from assay.conformal.score_cells import Cells, Maker, Partition, RankTransform, Voronoi, get_maker
from assay.conformal.set_base import MAX_MEMORY, BoolArray, CalibrationRows, Codes, FloatArray
from assay.core.checks import to_numpy
from assay.core.errors import AssayWarning, DataError, InfiniteSetWarning, MethodError
from assay.core.levels import conformal_rank, parse_levels, smallest_n
from assay.core.probabilities import check_labels, classes_of_columns

#: fewer rows than this make the purity of cells too noisy to be of use
ENOUGH_FOR_CELLS = 200
#: how far the line that asked for sets, or for calibration, is above the place of a warning
_ASKED, _CALIBRATED = 5, 5


class MultiScoreConformal(HeadSetClassifier):
    """Label sets from a vector of d scores a label instead of one.

    Part of the calibration rows (``cell_fraction``, the cell rows) shows where the vectors of true
    labels lie and where those of false ones. Each true vector is the centre of a Voronoi cell; a cell
    with T true and F false vectors has ``D = (F + T) / T``, and cells are ranked by rising D, ties by
    the distance of the centre from zero. The rank of the cell in which a label's vector falls is its
    score, and the remaining rows calibrate that score as in split conformal prediction: with q the
    ``ceil((1 - alpha)(n2 + 1))``-th smallest rank of their true labels, the set is every label whose
    cell has rank at most q. Coverage is at least 1 - alpha whatever the heads and the cells are,
    because the cells know nothing of the rows that calibrate.

    The vector of a label holds, for every head, every score of ``scores``. Heads are several
    classifiers, or one that has ``predict_proba_heads``.

    Parameters
    ----------
    estimator : classifier or list of classifiers, default LogisticRegression(max_iter=1000)
        A list: each is a head. One with ``predict_proba_heads`` (n, K, d): d heads. Any other: ``fit``
        trains three copies, each on a random half of the columns (for other numbers give
        ``SubspaceHeads(...)``); ``calibrate`` takes it as one head. What is given to ``calibrate`` is
        already trained and may be torch modules or functions of X.
    scores : str, LabelScore or list of them, default "raps"
        "lac", "margin", "aps", "raps", "saps", "topk", or objects of
        :mod:`assay.conformal.label_scores`. RAPS is the method's usual base; LAC gave the
        smaller sets here.
    alpha : level, default 0.1
        Miscoverage.
    cell_fraction : float, default 0.5
        Share of the calibration rows that form cells, drawn with ``random_state``. The half is the
        method's own. Below 200 such rows a warning says that cells are noisy.
    partition : {"voronoi", "knn_ratio"} or object, default "voronoi"
        "knn_ratio" replaces the rank by the distance to the ``k``-th nearest true vector against
        that to the ``k``-th nearest false one. That variant is ours: it is smoother, for few rows.
        It keeps all false vectors of the cell rows. ``Voronoi(distance_cap=...)`` of
        :mod:`assay.conformal.score_cells` bounds the outer cells.
    k : int, default 10
        Neighbours of "knn_ratio".
    rank_transform : bool or "auto", default "auto"
        Replace each coordinate by its rank among the values of all labels of the cell rows (which are
        kept), so that distances weigh scores of different kinds alike. "auto": where kinds are mixed,
        and for bare scores of several heads, whose scale nobody knows.
    randomised : bool, default False
        Whether scores that take u get one: one number a row, shared by labels, heads and scores.
    calibration_size : float or int, default 0.5
        Part of the rows that ``fit`` sets aside for cells and calibration.
    max_memory : int, default 64 MiB
        Bytes of working memory, beside input and output; the answer does not depend on it.
    random_state : int or None, default None
        Draws the calibration rows and the heads' columns in ``fit``, the cell rows, and u.

    Attributes
    ----------
    centers_ : (m, d) centres of the cells, in the order of their norm
    purity_ : (m,) D of each cell
    order_ : (m,) numbers of the cells, purest first
    n_selected_ : number of cells kept at the constructor's alpha (an array for several levels)
    n_cell_rows_, n_recalibration_rows_ : how the calibration rows were divided

    References
    ----------
    Yam Tawachi, Laufer-Goldshtein (2025), Multi-dimensional conformal prediction. Read here without
    the authors' code: the cells follow public descriptions of the method, the rest is marked as ours.
    """

    #: sets may be empty
    allow_empty = True

    def __init__(
        self,
        estimator: Any = None,
        *,
        scores: Any = "raps",
        alpha: Any = 0.1,
        cell_fraction: float = 0.5,
        partition: Any = "voronoi",
        k: int = 10,
        rank_transform: bool | str = "auto",
        randomised: bool = False,
        calibration_size: float | int = 0.5,
        max_memory: int = MAX_MEMORY,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.scores = scores
        self.alpha = alpha
        self.cell_fraction = cell_fraction
        self.partition = partition
        self.k = k
        self.rank_transform = rank_transform
        self.randomised = randomised
        self.calibration_size = calibration_size
        self.max_memory = max_memory
        self.random_state = random_state

    # ---- bare scores

    def calibrate_scores(
        self, scores: Any, y: Any, classes: Sequence[Any] | None = None, cell_rows: Any = None
    ) -> Self:
        """Calibrate from nonconformity scores of any kind; neither model nor probabilities are needed.

        Parameters
        ----------
        scores : (n, K, d) array, list of d (n, K) matrices, or one (n, K) matrix
            Low = fits.
        y : (n,) labels
        classes : K labels in the order of the columns, optional; see ``calibrate_proba``
        cell_rows : (n,) bool, optional
            Which rows form the cells; the others calibrate. Drawn with ``random_state`` if not given.

        Raises
        ------
        DataError
            NaN, heads that do not match, labels that are none of the classes, lengths that differ,
            or no row for the cells.
        """
        n_heads = len(split_heads(scores, "scores"))
        read = _BareScores(scores, finite=not self._transforms(n_heads, bare=True))
        y = check_labels(y, length=len(read))
        parse_levels(self.alpha)
        labels = classes_of_columns(y, read.n_classes, classes)
        if cell_rows is not None:
            read.cell_rows = to_numpy(cell_rows)
            if read.cell_rows.shape != (len(read),) or read.cell_rows.dtype != np.bool_:
                raise DataError(
                    f"cell_rows has shape {read.cell_rows.shape} and dtype {read.cell_rows.dtype}; give one "
                    f"boolean a row, shape ({len(read)},)"
                )
        self._calibrate(read, y, labels, None)
        for name in ("estimator_", "outputs_", "columns_"):
            if hasattr(self, name):
                delattr(self, name)
        return self

    def predict_set_scores(self, scores: Any, alpha: Any = None) -> BoolArray:
        """(n, K) label sets from scores as given to ``calibrate_scores``; (L, n, K) for several levels."""
        check_is_fitted(self, "calibrator_")
        score: CellScore = self.score_
        if score.rules:
            raise MethodError("calibrated on probabilities: ask with predict_set or predict_set_proba")
        finite = score.transform is None
        return self._sets(
            HeadScores(scores, "scores", len(self.classes_), self.n_heads_, finite), alpha, None
        )

    def predict_set_proba(self, proba: Any, alpha: Any = None, groups: Any = None) -> BoolArray:
        """(n, K) label sets from bare probabilities of all heads; (L, n, K) for several levels."""
        check_is_fitted(self, "calibrator_")
        score: CellScore = self.score_
        if not score.rules:
            raise MethodError("calibrated on bare scores: ask with predict_set_scores")
        return super().predict_set_proba(proba, alpha, groups)

    # ---- the way through

    def _choose_score(self, proba: Any, codes: Codes, seed: int) -> tuple[LabelScore, BoolArray | None]:
        bare = isinstance(proba, _BareScores)
        rules = () if bare else rules_of(self.scores)
        cell_rows = proba.cell_rows if isinstance(proba, _BareScores) else None
        if cell_rows is None:
            cell_rows = self._draw_cell_rows(proba, codes, seed)
        n_cells = int(cell_rows.sum())
        if n_cells == 0:
            raise DataError(f"cell_rows marks none of {len(codes)} rows; at least one must form a cell")
        maker = get_maker(self.partition, self.k)
        if n_cells < ENOUGH_FOR_CELLS and isinstance(maker, Voronoi):
            warnings.warn(
                f"{n_cells} rows form the cells, and the purity of cells is noisy below {ENOUGH_FOR_CELLS}: "
                "sets may be larger than those of a single score. More calibration rows or "
                "partition='knn_ratio' help; coverage holds in any case",
                AssayWarning,
                stacklevel=_CALIBRATED,
            )
        part, labels = proba.take(cell_rows), codes[cell_rows]
        transforms = self._transforms(proba.n_heads, bare)
        return self._learn(rules, maker, part, labels, seed, transforms), ~cell_rows

    def _draw_cell_rows(self, proba: Any, codes: Codes, seed: int) -> BoolArray:
        if not 0 < self.cell_fraction < 1:
            raise MethodError(f"cell_fraction must lie in (0, 1), got {self.cell_fraction!r}")
        n = len(codes)
        # a single row forms a cell, and none is left to calibrate: all labels, with a warning
        n_cells = min(max(1, round(self.cell_fraction * n)), max(1, n - 1))
        cell_rows = np.zeros(n, dtype=np.bool_)
        order = np.argsort(self._part_uniforms(proba, codes, seed, "cells"), kind="stable")
        cell_rows[order[:n_cells]] = True
        return cell_rows

    def _learn(
        self,
        rules: tuple[LabelScore, ...],
        maker: Maker,
        part: Any,
        codes: Codes,
        seed: int,
        transforms: bool,
    ) -> CellScore:
        """The score whose cells are learnt from these rows."""
        raw = CellScore(rules, None, None)
        transform = None
        if transforms:
            values = [
                raw.vectors(block, self._uniforms(raw, block, seed)).reshape(
                    block.shape[1] * block.shape[2], -1
                )
                for _, block in part.blocks(self._block_bytes())
            ]
            transform = RankTransform.fit(np.concatenate(values))
        learnt = CellScore(rules, transform, None)
        true = np.concatenate(
            [
                learnt.true_vectors(block, codes[rows], self._uniforms(learnt, block, seed))
                for rows, block in part.blocks(self._block_bytes())
            ]
        )

        def blocks() -> Iterable[tuple[FloatArray, Codes]]:
            for rows, block in part.blocks(self._block_bytes()):
                yield learnt.vectors(block, self._uniforms(learnt, block, seed)), codes[rows]

        return CellScore(rules, transform, maker.learn(true, blocks), len(true))

    def _transforms(self, n_heads: int, bare: bool) -> bool:
        """Whether coordinates are replaced by their ranks."""
        if isinstance(self.rank_transform, (bool, np.bool_)):
            return bool(self.rank_transform)
        if self.rank_transform != "auto":
            raise MethodError(f"rank_transform must be True, False or 'auto', got {self.rank_transform!r}")
        return n_heads > 1 if bare else len(rules_of(self.scores)) > 1

    def _calibrator(
        self, score: LabelScore, scores: FloatArray, rows: CalibrationRows, seed: int
    ) -> LabelCalibrator:
        made: Any = super()._calibrator(score, scores, rows, seed)
        learnt: Any = score
        calibrator: LabelCalibrator = replace(made, n_cell_rows=learnt.n_rows)
        return calibrator

    def _make_calibrator(self, scores: FloatArray, proba: Any, codes: Codes, seed: int) -> RankCalibrator:
        return RankCalibrator(scores)

    # ---- what was learnt

    def _cells(self) -> Cells:
        check_is_fitted(self, "calibrator_")
        partition = self.score_.partition
        if not isinstance(partition, Cells):
            raise AttributeError(f"there are no cells with partition={self.partition!r}")
        return partition

    @property
    def centers_(self) -> FloatArray:
        """(m, d) centres of the cells, in the order of their norm."""
        return self._cells().centers

    @property
    def purity_(self) -> FloatArray:
        """(m,) D of each cell: (true + false vectors) / true vectors."""
        return self._cells().purity

    @property
    def order_(self) -> Codes:
        """(m,) numbers of the cells, purest first."""
        return self._cells().order

    @property
    def n_selected_(self) -> Any:
        """Number of cells kept at the constructor's alpha; an array for several levels."""
        m = len(self._cells().order)
        levels, is_scalar = parse_levels(self.alpha)
        calibrator: RankCalibrator = self.calibrator_
        kept = np.array([int(min(q + 1, m)) for q in calibrator.quantiles(levels)])
        return int(kept[0]) if is_scalar else kept

    @property
    def n_cell_rows_(self) -> int:
        """Number of calibration rows that form cells."""
        check_is_fitted(self, "calibrator_")
        calibrator: RankCalibrator = self.calibrator_
        return calibrator.n_cell_rows

    @property
    def n_recalibration_rows_(self) -> int:
        """Number of calibration rows that calibrate the ranks of cells."""
        check_is_fitted(self, "calibrator_")
        calibrator: RankCalibrator = self.calibrator_
        return len(calibrator.scores)


class _BareScores(HeadScores):
    """Scores with the rows that the caller wants to form cells, if any."""

    cell_rows: Any = None


@dataclass(frozen=True, eq=False)
class CellScore(LabelScore):
    """The number that a partition gives to a label's vector of scores.

    ``rules`` make the vectors from (d, n, K) probabilities; without any, the block holds scores.
    """

    rules: tuple[LabelScore, ...]
    transform: RankTransform | None
    partition: Partition | None
    #: rows from which the partition was learnt
    n_rows: int = 0
    takes_u = True

    def vectors(self, block: NDArray[Any], u: FloatArray | None) -> FloatArray:
        """(n, K, d) vectors of all labels."""
        raw = score_vectors(self.rules, block, u) if self.rules else np.moveaxis(as_heads(block), 0, 2)
        if self.transform is None:
            return np.ascontiguousarray(raw)
        return self.transform(raw.reshape(-1, raw.shape[2])).reshape(raw.shape)

    def true_vectors(self, block: NDArray[Any], labels: Codes, u: FloatArray | None) -> FloatArray:
        """(n, d) vectors of one label a row."""
        if self.rules:
            raw = true_vectors(self.rules, block, labels, u)
        else:
            raw = as_heads(block)[:, np.arange(len(labels)), labels].T
        return np.ascontiguousarray(raw) if self.transform is None else self.transform(raw)

    def all(self, proba: NDArray[Any], u: FloatArray | None = None) -> FloatArray:
        vectors = self.vectors(proba, u)
        return self._number(vectors.reshape(-1, vectors.shape[2])).reshape(vectors.shape[:2])

    def of(self, proba: NDArray[Any], labels: Codes, u: FloatArray | None = None) -> FloatArray:
        return self._number(self.true_vectors(proba, labels, u))

    def _number(self, vectors: FloatArray) -> FloatArray:
        if self.partition is None:
            raise TypeError("the cells are not learnt yet")
        return self.partition.score(vectors)


@dataclass(frozen=True, eq=False)
class RankCalibrator:
    """One threshold for the scores of the rows that calibrate; ``n_cell_rows`` others form cells."""

    scores: FloatArray
    n_cell_rows: int = 0

    def quantiles(self, levels: Sequence[Fraction]) -> FloatArray:
        """(L,) thresholds; +inf where the rows are too few."""
        n, ranked = len(self.scores), np.sort(self.scores)
        ranks = [conformal_rank(n, level) for level in levels]
        return np.array([ranked[rank - 1] if rank <= n else np.inf for rank in ranks])

    def thresholds(self, levels: Sequence[Fraction], groups: Codes | None = None) -> FloatArray:
        """(L, 1, 1) thresholds."""
        out = self.quantiles(levels)
        n = len(self.scores)
        for level in [level for level in levels if conformal_rank(n, level) > n]:
            need = smallest_n(level)
            enough = "no number of rows suffices" if need is None else f"at least {need} are needed"
            warnings.warn(
                f"{n} of {n + self.n_cell_rows} calibration rows calibrate, the others form cells; at alpha "
                f"{float(level):g} {enough} for a finite set: all labels are in it",
                InfiniteSetWarning,
                stacklevel=_ASKED,
            )
        return out.reshape(-1, 1, 1)
