"""Label sets from bare float32 probabilities, against TorchCP, MAPIE and puncc.

    .bench-env/bin/python benchmarks/label_sets.py

Each contender calibrates on 10,000 rows and gives the sets of the test rows, from arrays that are
already in memory. The peers get them in the form that is quickest for them: TorchCP a tensor that
shares the memory and the score type "identity" (no softmax), MAPIE and puncc a model that returns
its input. TorchCP and MAPIE trust the probabilities; assay's time includes the check of every row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from runner import Case, Unavailable, main

ALPHA = 0.1
CALIBRATION = 10_000


@dataclass(frozen=True)
class Inputs:
    """Probabilities of calibration and test rows, and the calibration labels."""

    calibration: NDArray[np.float32]
    labels: NDArray[np.int64]
    test: NDArray[np.float32]


def inputs(n: int, k: int) -> Inputs:
    """Softmax of normal logits, and labels drawn from it: the model knows the truth."""
    rng = np.random.default_rng(0)
    proba = np.empty((CALIBRATION + n, k), np.float32)
    step = max(1, 5_000_000 // k)
    for start in range(0, len(proba), step):
        block = rng.standard_normal((min(step, len(proba) - start), k), dtype=np.float32) * 2.5
        block -= block.max(axis=1, keepdims=True)
        np.exp(block, out=block)
        block /= block.sum(axis=1, keepdims=True)
        proba[start : start + step] = block
    calibration = proba[:CALIBRATION]
    cumulative = np.cumsum(calibration, axis=1, dtype=np.float64)
    drawn = rng.random((CALIBRATION, 1)) * cumulative[:, -1:]
    return Inputs(calibration, (cumulative < drawn).sum(axis=1), proba[CALIBRATION:])


def assay_sets(data: Inputs, name: str, randomised: bool = False) -> NDArray[np.bool_]:
    """This package."""
    from assay.conformal import APSClassifier, LACClassifier, RAPSClassifier

    method = {
        "lac": lambda: LACClassifier(alpha=ALPHA),
        "aps": lambda: APSClassifier(alpha=ALPHA, randomised=randomised, random_state=0),
        "raps": lambda: RAPSClassifier(alpha=ALPHA, lam=0.01, k_reg=5, randomised=randomised, random_state=0),
    }[name]()
    return method.calibrate_proba(data.calibration, data.labels).predict_set_proba(data.test)


def torchcp_sets(data: Inputs, name: str, randomised: bool = False) -> NDArray[Any]:
    """TorchCP's split predictor."""
    try:
        import torch
        from torchcp.classification.predictor import SplitPredictor
        from torchcp.classification.score import APS, LAC, RAPS
    except ImportError as error:
        raise Unavailable(str(error)) from error
    score = {
        "lac": lambda: LAC(score_type="identity"),
        "aps": lambda: APS(score_type="identity", randomized=randomised),
        "raps": lambda: RAPS(score_type="identity", randomized=randomised, penalty=0.01, kreg=5),
    }[name]()
    predictor = SplitPredictor(score, alpha=ALPHA)
    with torch.no_grad():
        predictor.calculate_threshold(torch.from_numpy(data.calibration), torch.from_numpy(data.labels))
        return np.asarray(predictor.predict_with_logits(torch.from_numpy(data.test)).numpy())


class Bare:
    """A fitted classifier whose features are its probabilities."""

    def __init__(self, k: int) -> None:
        self.classes_ = np.arange(k)
        self.n_features_in_ = k

    def fit(self, X: Any, y: Any) -> Bare:
        """Nothing to learn."""
        return self

    def predict_proba(self, X: Any) -> Any:
        """The features."""
        return X

    def predict(self, X: Any) -> Any:
        """The most probable class; puncc's name for what gives probabilities is ``predict`` too."""
        return np.argmax(X, axis=1)

    def __sklearn_tags__(self) -> Any:
        from sklearn.linear_model import LogisticRegression

        return LogisticRegression().__sklearn_tags__()


def mapie_sets(data: Inputs, name: str) -> NDArray[np.bool_]:
    """MAPIE's split classifier, without randomisation."""
    try:
        from mapie.classification import SplitConformalClassifier
        from mapie.conformity_scores import APSConformityScore, LACConformityScore
    except ImportError as error:
        raise Unavailable(str(error)) from error
    score = {"lac": LACConformityScore, "aps": APSConformityScore}[name]()
    method = SplitConformalClassifier(
        Bare(data.test.shape[1]), confidence_level=1 - ALPHA, conformity_score=score, prefit=True
    )
    method.conformalize(data.calibration, data.labels)
    return np.asarray(method.predict_set(data.test)[1][:, :, 0])


def puncc_sets(data: Inputs, name: str, randomised: bool = False) -> Any:
    """puncc's functions for score, rank and set; the answer is a list of lists."""
    try:
        from deel.puncc.api.nonconformity_scores import lac_score, raps_score_builder
        from deel.puncc.api.prediction_sets import lac_set, raps_set_builder
    except ImportError as error:
        raise Unavailable(str(error)) from error
    n = len(data.labels)
    options = {"lambd": 0.01 if name == "raps" else 0.0, "k_reg": 5, "rand": randomised}
    score = lac_score if name == "lac" else raps_score_builder(**options)
    make = lac_set if name == "lac" else raps_set_builder(**options)
    scores = np.asarray(score(data.calibration, data.labels))
    rank = int(np.ceil((1 - ALPHA) * (n + 1)))
    return make(data.test, np.partition(scores, rank - 1)[rank - 1])


def agree(ours: NDArray[np.bool_], other: Any) -> str:
    """Share of labels that are in both or in neither set; mean sizes where the rules differ."""
    if not isinstance(other, np.ndarray):
        sizes = [len(labels) for labels in other[0]]
        return f"mean size {np.mean(sizes):.2f}, ours {ours.sum(axis=1).mean():.2f}"
    different = 0
    for start in range(0, len(ours), 5000):
        rows = slice(start, start + 5000)
        different += int(np.count_nonzero(ours[rows] != other[rows].astype(bool)))
    if different == 0:
        return "the same sets"
    return (
        f"{different:,} of {ours.size:,} labels differ; mean size {other.sum() / len(other):.2f}, "
        f"ours {ours.sum() / len(ours):.2f}"
    )


def _case(name: str, n: int, k: int, contenders: dict[str, Callable[[Inputs], Any]], repeats: int) -> Case:
    title = f"{name}, {n:,} x {k:,}"
    return Case(title, partial(inputs, n, k), contenders, repeats, agree, tiny=partial(inputs, 20, 10))


def sets_cases(name: str, n: int, k: int, repeats: int = 5) -> list[Case]:
    """A score with all libraries that have it, then the randomised one."""
    plain: dict[str, Callable[[Inputs], Any]] = {
        "assay": partial(assay_sets, name=name),
        "TorchCP": partial(torchcp_sets, name=name),
    }
    if name != "raps":
        # MAPIE's RAPS splits off rows to tune its penalty, which is another question
        plain["MAPIE"] = partial(mapie_sets, name=name)
    plain["puncc"] = partial(puncc_sets, name=name)
    cases = [_case(name.upper(), n, k, plain, repeats)]
    if name != "lac":
        drawn: dict[str, Callable[[Inputs], Any]] = {
            "assay": partial(assay_sets, name=name, randomised=True),
            "TorchCP": partial(torchcp_sets, name=name, randomised=True),
        }
        cases.append(_case(f"{name.upper()} randomised", n, k, drawn, repeats))
    return cases


CASES = [
    case
    for n, k in ((50_000, 1_000), (1_000_000, 10))
    for name in ("lac", "aps", "raps")
    for case in sets_cases(name, n, k)
]

if __name__ == "__main__":
    raise SystemExit(main(CASES, "label_sets"))
