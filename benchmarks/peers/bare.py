"""Further contenders on bare predictions: normalised intervals, thresholds a class or a group, TorchCP."""

from __future__ import annotations

from typing import Any

import intervals
import label_sets
import numpy as np
from intervals import ALPHA, Column
from runner import Unavailable


def returns_input() -> Any:
    """A torch module that returns its input; TorchCP asks for the device of a parameter."""
    import torch

    module = torch.nn.Identity()
    module.register_parameter("unused", torch.nn.Parameter(torch.zeros(())))
    return module


def torchcp_intervals(score: Any, calibration: Any, y: Any, test: Any) -> Any:
    """TorchCP's split predictor around a model that returns its input."""
    import torch
    from torchcp.regression.predictor import SplitPredictor

    predictor = SplitPredictor(score, returns_input(), alpha=ALPHA)
    predictor.calibrate([(torch.from_numpy(calibration), torch.from_numpy(y))])
    return predictor.predict(torch.from_numpy(test)).numpy()[:, 0]


def split_torchcp(data: Any) -> Any:
    """TorchCP, absolute score."""
    from torchcp.regression.score import ABS

    prediction, y, test = data
    return torchcp_intervals(ABS(), prediction[:, None], y, test[:, None])


def cqr_torchcp(data: Any) -> Any:
    """TorchCP, CQR score."""
    from torchcp.regression.score import CQR

    return torchcp_intervals(CQR(), *data)


def normalised_inputs(n: int = intervals.MILLION) -> Any:
    """(prediction and spread, targets, prediction and spread of test rows)."""
    rng = np.random.default_rng(2)
    prediction, y = intervals.rows(n, 0)
    spread = rng.uniform(0.5, 2.0, size=(2, n))
    pairs = np.column_stack([prediction, spread[0]])
    test = np.column_stack([intervals.rows(n, 1)[0], spread[1]])
    return pairs, prediction + (y - prediction) * spread[0], test


def normalised_assay(data: Any) -> Any:
    """This package."""
    from assay.conformal import NormalizedConformalRegressor

    pairs, y, test = data
    method = NormalizedConformalRegressor(alpha=ALPHA).calibrate_pred(pairs[:, 0], y, pairs[:, 1])
    return method.predict_interval_pred(test[:, 0], test[:, 1])


def normalised_crepes(data: Any) -> Any:
    """crepes with sigmas."""
    from crepes import ConformalRegressor

    pairs, y, test = data
    peer = ConformalRegressor().fit(y - pairs[:, 0], sigmas=pairs[:, 1])
    return peer.predict_int(test[:, 0], sigmas=test[:, 1], confidence=1 - ALPHA)


def normalised_mapie(data: Any) -> Any:
    """MAPIE with trained models of centre and spread."""
    from mapie.conformity_scores import ResidualNormalisedScore
    from mapie.regression import SplitConformalRegressor

    pairs, y, test = data
    score = ResidualNormalisedScore(Column(1), prefit=True, sym=True)
    peer = SplitConformalRegressor(Column(0), confidence_level=1 - ALPHA, conformity_score=score, prefit=True)
    return peer.conformalize(pairs, y).predict_interval(test)[1][:, :, 0]


def normalised_puncc(data: Any) -> Any:
    """puncc's scaled deviation."""
    from deel.puncc.api import nonconformity_scores, prediction_sets
    from deel.puncc.api.calibration import BaseCalibrator

    pairs, y, test = data
    peer = BaseCalibrator(
        nonconf_score_func=nonconformity_scores.scaled_ad, pred_set_func=prediction_sets.scaled_interval
    )
    peer.fit(y_true=y, y_pred=pairs)
    return tuple(peer.calibrate(alpha=ALPHA, y_pred=test))


def normalised_torchcp(data: Any) -> Any:
    """TorchCP, normalised score with a spread that is given."""
    from torchcp.regression.score import NorABS

    def intervals_of(calibration: Any, y: Any, test: Any) -> Any:
        import torch

        rows = [(torch.from_numpy(calibration), torch.from_numpy(y))]
        score = NorABS(rows, "function", scalar=False, beta=0.0, custom_function=lambda x, _: x[:, 1])
        score.calibrate(returns_input())
        return torchcp_intervals(score, calibration, y, test)

    pairs, y, test = data
    # it may broadcast n rows to n times n: seen on two rows before it is given a million
    try:
        intervals_of(pairs[:50], y[:50], test[:2])
    except RuntimeError as error:
        raise Unavailable("fails for more than one row: it makes n x n intervals of n rows") from error
    return intervals_of(pairs, y, test)


def cv_plus_puncc(data: Any) -> Any:
    """puncc's CV+ with the same folds."""
    from deel.puncc.api.prediction import BasePredictor
    from deel.puncc.regression import CVPlus
    from sklearn.linear_model import LinearRegression

    X, y, test = data
    peer = CVPlus(BasePredictor(LinearRegression()), K=10, random_state=0)
    peer.fit(X, y)
    return tuple(peer.predict(test, alpha=ALPHA)[1:])


def by_class_assay(data: label_sets.Inputs) -> Any:
    """This package: a threshold a class."""
    from assay.conformal import ClassConditionalClassifier

    method = ClassConditionalClassifier(alpha=ALPHA)
    return method.calibrate_proba(data.calibration, data.labels).predict_set_proba(data.test)


def by_class_torchcp(data: label_sets.Inputs) -> Any:
    """TorchCP's class-conditional predictor."""
    import torch
    from torchcp.classification.predictor import ClassConditionalPredictor
    from torchcp.classification.score import LAC

    predictor = ClassConditionalPredictor(LAC(score_type="identity"), alpha=ALPHA)
    with torch.no_grad():
        predictor.calculate_threshold(torch.from_numpy(data.calibration), torch.from_numpy(data.labels))
        return predictor.predict_with_logits(torch.from_numpy(data.test)).numpy()


def crepes_sets(data: label_sets.Inputs, bins: Any = None, test_bins: Any = None) -> Any:
    """crepes: p-values of 1 - p, without smoothing."""
    from crepes import ConformalClassifier

    scores = 1 - data.calibration[np.arange(len(data.labels)), data.labels]
    peer = ConformalClassifier().fit(scores, bins=bins)
    return peer.predict_set(1 - data.test, bins=test_bins, confidence=1 - ALPHA, smoothing=False)


def by_class_crepes(data: label_sets.Inputs) -> Any:
    """crepes: the label is the category, so each column is asked for by itself."""
    from crepes import ConformalClassifier

    scores = 1 - data.calibration[np.arange(len(data.labels)), data.labels]
    peer = ConformalClassifier().fit(scores, bins=data.labels)
    columns = [
        peer.predict_set(
            1 - data.test[:, k], bins=np.full(len(data.test), k), confidence=1 - ALPHA, smoothing=False
        )
        for k in range(data.test.shape[1])
    ]
    return np.column_stack(columns)


def groups(data: label_sets.Inputs) -> tuple[Any, Any]:
    """One of five groups for each calibration and each test row."""
    return np.arange(len(data.labels)) % 5, np.arange(len(data.test)) % 5


def by_group_assay(data: label_sets.Inputs) -> Any:
    """This package: a threshold a group."""
    from assay.conformal import MondrianConformal

    known, new = groups(data)
    method = MondrianConformal(alpha=ALPHA).calibrate_proba(data.calibration, data.labels, groups=known)
    return method.predict_set_proba(data.test, groups=new)


def by_group_crepes(data: label_sets.Inputs) -> Any:
    """crepes with bins."""
    return crepes_sets(data, *groups(data))
