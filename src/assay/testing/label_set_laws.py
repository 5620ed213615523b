"""The label-set contract, from a model and from bare probabilities, and the checks of its own."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from assay.testing.common_laws import numbers, refused_with
from assay.testing.interval_laws import as_tensor, read_only, variants
from assay.testing.laws import LawBroken, NotApplicable, law, require
from assay.testing.subject import N_CALIB, N_TEST, N_TRAIN, Contract, Subject, caught_warnings

_K = 4


class LabelSets(Contract):
    """``fit``, perhaps ``calibrate``, ``predict_set``; labels 0 to 3."""

    task = "label-set"
    predict = "predict_set"

    def applies(self, subject: Subject) -> bool:
        return subject.has("fit", self.predict) and not subject.has("predict_interval")

    def rows(self, n: int, seed: int) -> tuple[NDArray[Any], NDArray[Any]]:
        rng = np.random.default_rng(seed)
        y = np.resize(np.arange(_K), n)
        rng.shuffle(y)
        centres = np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [-1, -1, -1]]) * 1.5
        return np.round((centres[y] + rng.normal(size=(n, 3))) * 64) / 64, y

    def rank_rows(self, n: int) -> tuple[NDArray[Any], NDArray[Any]]:
        # one class: a method with thresholds by class or group must then agree with one threshold for all
        X, y = self.rows(_K * n, seed=5)
        return X[y == 0], y[y == 0]

    def covers(self, method: Any, X: Any, y: Any) -> NDArray[np.bool_]:
        sets = self.ask(method, X)
        column = {label: i for i, label in enumerate(np.asarray(method.classes_).tolist())}
        return np.asarray(sets[np.arange(len(sets)), [column[label] for label in np.asarray(y).tolist()]])

    def unbounded(self, answer: NDArray[Any]) -> NDArray[np.bool_]:
        return np.asarray(answer.all(axis=-1))

    def require_same(self, got: Any, expected: Any, what: str) -> None:
        got, expected = np.asarray(got), np.asarray(expected)
        require(got.shape == expected.shape, f"{what}: shape {got.shape}, expected {expected.shape}")
        different = int((got != expected).sum())
        require(different == 0, f"{what}: {different} of {got.size} memberships differ")


class BareLabelSets(LabelSets):
    """``calibrate_proba(proba, y)`` and ``predict_set_proba(proba)``."""

    form = "bare"
    calibrate = "calibrate_proba"
    predict = "predict_set_proba"

    def applies(self, subject: Subject) -> bool:
        return subject.has(self.calibrate, self.predict)

    def rows(self, n: int, seed: int) -> tuple[NDArray[Any], NDArray[Any]]:
        rng = np.random.default_rng(seed)
        P = np.exp(1.5 * rng.normal(size=(n, _K)))
        # thousandths that sum to one exactly and that float16 holds, no two of a row equal
        parts = 8 * np.floor(P / P.sum(axis=1, keepdims=True) * 126) + np.array([1, 2, 3, 4])
        parts[np.arange(n), parts.argmax(axis=1)] += 1024 - parts.sum(axis=1)
        return parts / 1024, ((parts.cumsum(axis=1) / 1024) <= rng.random((n, 1))).sum(axis=1)

    def rank_rows(self, n: int) -> tuple[NDArray[Any], NDArray[Any]]:
        # the true label is never the least likely one, where cumulative scores are all 1
        P, _ = self.rows(8 * n, seed=5)
        kept = P[P[:, 0] > P.min(axis=1)][:n]
        return kept, np.zeros(len(kept), dtype=int)

    def covers(self, method: Any, X: Any, y: Any) -> NDArray[np.bool_]:
        return np.asarray(self.ask(method, X)[np.arange(len(y)), np.asarray(y)])


class LabelSetsUnderAttack(LabelSets):
    """The same for cards of the task under attack: their sets for rows that nobody moved."""

    task = "attack"

    def applies(self, subject: Subject) -> bool:
        return subject.card is not None and subject.card.task == self.task and super().applies(subject)


class PoisonedSets(LabelSets):
    """The label-set contract for cards of the poisoning task, whose methods also have certificates."""

    task = "poisoning"

    def applies(self, subject: Subject) -> bool:
        return subject.card is not None and subject.card.task == self.task and super().applies(subject)


class BarePoisonedSets(BareLabelSets):
    """The same from bare probabilities."""

    task = "poisoning"

    def applies(self, subject: Subject) -> bool:
        return subject.card is not None and subject.card.task == self.task and super().applies(subject)


#: levels whose answers must lie in each other
_NESTED = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5)

CONTRACTS = (LabelSets(), BareLabelSets(), LabelSetsUnderAttack(), PoisonedSets(), BarePoisonedSets())


@law("types")
def boolean_memberships(contract: LabelSets, subject: Subject) -> None:
    """The answer is a boolean array with one column a class."""
    answer = getattr(contract.ready(subject), contract.predict)(contract.questions())
    require(isinstance(answer, np.ndarray), f"predicted a {type(answer).__name__}, expected a numpy array")
    require(answer.dtype == np.bool_, f"predicted {answer.dtype}, expected bool")
    require(answer.shape == (N_TEST, _K), f"predicted shape {answer.shape}, expected {(N_TEST, _K)}")


@law("types")
def tables_lists_and_layouts(contract: LabelSets, subject: Subject) -> None:
    """What is asked may be a list, float32, a table, a tensor, in Fortran order, strided or read-only."""
    X = contract.questions()
    method = contract.ready(subject)
    expected = contract.ask(method, X)
    clothes = variants(X)
    if contract.form == "bare" and (tensor := as_tensor(X)) is not None:
        clothes["a tensor"] = tensor
        clothes["a float32 tensor"] = tensor.float()
    for name, variant in clothes.items():
        contract.require_same(contract.ask(method, variant), expected, f"asked with {name}")


@law("types", forms="bare")
def half_precision(contract: LabelSets, subject: Subject) -> None:
    """float16 and float32 probabilities mean what they hold; rows may miss one by 2e-5."""
    (P, y), asked = contract.rows(N_CALIB, seed=1), contract.questions()
    expected = contract.ask(contract.calibrated(subject, P, y), asked)
    for kind in (np.float16, np.float32):
        got = contract.ask(contract.calibrated(subject, P.astype(kind), y), asked.astype(kind))
        contract.require_same(got, expected, f"{np.dtype(kind)} probabilities")
    off = asked.astype(np.float32)
    off[:, 0] += np.float32(2e-5)
    contract.ask(contract.ready(subject), off)


@law("types")
def targets_of_every_kind(contract: LabelSets, subject: Subject) -> None:
    """Labels may be a list, a Series, an (n, 1) column, a tensor, small integers, read-only."""
    (X, y), asked = contract.rows(N_CALIB, seed=1), contract.questions()
    expected = contract.ask(contract.calibrated(subject, X, y), asked)
    targets: dict[str, Any] = {
        "a list": y.tolist(),
        "a Series": pd.Series(y, index=np.arange(len(y))[::-1] + 7),
        "int8": y.astype(np.int8),
        "whole floats": y.astype(float),
        "an (n, 1) column": y[:, None],
        "a read-only array": read_only(y),
    }
    if (tensor := as_tensor(y)) is not None:
        targets["a tensor"] = tensor
    for name, target in targets.items():
        got = contract.ask(contract.calibrated(subject, X, target), asked)
        contract.require_same(got, expected, f"labels given as {name}")


@law("order", forms="bare")
def classes_permuted(contract: LabelSets, subject: Subject) -> None:
    """Renaming classes so that their order changes permutes the columns, and nothing else."""
    (P, y), asked = contract.rows(N_CALIB, seed=1), contract.questions()
    order = np.array([2, 0, 3, 1])
    renamed = np.argsort(order)[y]
    expected = contract.ask(contract.calibrated(subject, P, y), asked)[:, order]
    got = contract.ask(contract.calibrated(subject, P[:, order], renamed), asked[:, order])
    contract.require_same(got, expected, "columns in another order")


@law("labels")
def names_do_not_matter(contract: LabelSets, subject: Subject) -> None:
    """Integers from 1, text, and text of unequal lengths are classes like 0 to 3."""
    (X, y), asked = contract.rows(N_CALIB, seed=1), contract.questions()
    Xt, yt = contract.rows(N_TRAIN, seed=0)
    expected = _with_labels(contract, subject, (Xt, yt), (X, y), np.arange(_K), asked)
    for names in (np.arange(1, _K + 1), np.array(["a", "bb", "ccc", "d d"]), np.array([-7, -1, 3, 900])):
        got = _with_labels(contract, subject, (Xt, yt), (X, y), names, asked)
        contract.require_same(got, expected, f"classes called {names.tolist()}")


def _with_labels(
    contract: LabelSets, subject: Subject, train: Any, calib: Any, names: NDArray[Any], asked: Any
) -> NDArray[Any]:
    """Answer of a life in which class k is called names[k]; names are sorted."""
    (Xt, yt), (X, y) = train, calib
    method = subject.make(alpha=0.1)
    if contract.trains():
        method.fit(Xt, names[yt])
    if contract.calibrates(subject):
        contract.learn(method, X, names[y])
    classes = np.asarray(method.classes_).tolist()
    require(classes == names.tolist(), f"classes_ is {classes}, expected {names.tolist()}")
    return contract.ask(method, asked)


@law("labels")
def two_classes(contract: LabelSets, subject: Subject) -> None:
    """Binary and boolean targets work, with two columns."""
    X, y = contract.rows(N_CALIB, seed=1)
    Xt, yt = contract.rows(N_TRAIN, seed=0)
    asked = contract.questions()
    if contract.form == "bare":
        X, asked = (
            (lambda P: np.column_stack([P[:, :2].sum(axis=1), P[:, 2:].sum(axis=1)]))(P) for P in (X, asked)
        )
    two, two_train = y >= 2, yt >= 2
    answers = []
    for kind in (bool, int):
        method = subject.make(alpha=0.1)
        if contract.trains():
            method.fit(Xt, two_train.astype(kind))
        if contract.calibrates(subject):
            contract.learn(method, X, two.astype(kind))
        answers.append(contract.ask(method, asked))
        require(answers[-1].shape == (N_TEST, 2), f"two classes give shape {answers[-1].shape}")
    contract.require_same(answers[1], answers[0], "0 and 1 against False and True")


@law("labels")
def class_absent_from_calibration(contract: LabelSets, subject: Subject) -> None:
    """A class without calibration rows keeps its column."""
    if not contract.calibrates(subject):
        raise NotApplicable("calibration is no step of its own")
    X, y = contract.rows(2 * N_CALIB, seed=1)
    answer = contract.ask(contract.calibrated(subject, X[y != 2], y[y != 2]), contract.questions())
    require(answer.shape == (N_TEST, _K), f"with class 2 absent the answer has shape {answer.shape}")


@law("labels")
def class_never_trained_on(contract: LabelSets, subject: Subject) -> None:
    """A calibration label that the model does not know is refused by name, or counts as a miss."""
    X, y = contract.rows(N_CALIB, seed=1)
    odd = y.copy()
    odd[[4, 9, 30]] = 77
    if not contract.calibrates(subject):
        raise NotApplicable("calibration is no step of its own")
    try:
        method = contract.calibrated(subject, X, odd)
    except ValueError as error:
        named = numbers(str(error))
        # bare probabilities have no names for classes: five labels for four columns says it as well
        require(
            "77" in named or {"4", "5"} <= named,
            f"the unknown label 77 must be named; the error says: {error}",
        )
        return
    # as infinite scores, three of forty unknown labels at alpha 0.05 leave nothing finite
    method = contract.calibrated(subject, X, odd, 0.05)
    require(
        contract.unbounded(contract.ask(method, contract.questions())).all(),
        "three of 40 calibration labels are unknown to the model, and the sets take no notice",
    )


@law("labels", forms="bare")
def rows_that_do_not_sum_to_one(contract: LabelSets, subject: Subject) -> None:
    """A row of probabilities that does not sum to one, or a negative one, is refused by its number."""
    (P, y), asked = contract.rows(N_CALIB, seed=1), contract.questions()
    broken, broken_asked = P.copy(), asked.copy()
    broken[13] *= 0.8
    broken_asked[13] *= 0.8
    refused_with(lambda: contract.calibrated(subject, broken, y), {"13"}, "row 13 sums to 0.8 in calibration")
    refused_with(lambda: contract.ask(contract.ready(subject), broken_asked), {"13"}, "row 13 sums to 0.8")
    broken[13] = [1.25, -0.25, 0, 0]
    refused_with(lambda: contract.calibrated(subject, broken, y), {"13"}, "row 13 has a negative probability")


@law("labels", forms="bare")
def sure_rows_get_their_label(contract: LabelSets, subject: Subject) -> None:
    """Calibrated at 0.05 on rows such as [0, 1, 0, 0] that were right, that row gets class 1 alone."""
    y = np.resize(np.arange(_K), 100)
    sure = np.eye(_K)
    answer = contract.ask(contract.calibrated(subject, sure[y], y, 0.05), sure)
    require((answer == np.eye(_K, dtype=bool)).all(), f"[0, 1, 0, 0] gives {answer[1].tolist()}")


@law("nan-inf")
def nan_labels_and_probabilities(contract: LabelSets, subject: Subject) -> None:
    """Missing labels and NaN probabilities are refused with count and first row."""
    X, y = contract.rows(N_CALIB, seed=1)
    bad_rows = [6, 11, 19, 23, 38]
    missing: Any = y.astype(float)
    missing[bad_rows] = np.nan
    nothing: Any = y.astype(object)
    nothing[bad_rows] = None
    for labels, name in ((missing, "NaN labels"), (nothing, "labels None")):
        refused_with(lambda labels=labels: contract.calibrated(subject, X, labels), {"5", "40", "6"}, name)
        if contract.trains():
            refused_with(
                lambda labels=labels: subject.make().fit(X, labels), {"5", "40", "6"}, f"{name} in fit"
            )
    if contract.form == "bare":
        broken = X.copy()
        broken[bad_rows, 2] = np.nan
        refused_with(lambda: contract.calibrated(subject, broken, y), {"5", "40", "6"}, "NaN probabilities")


@law("unseen-groups", forms="bare")
def class_without_rows(contract: LabelSets, subject: Subject) -> None:
    """A row that the model holds for a class without calibration rows keeps that label.

    A method with thresholds by class has none for it: the label belongs to every set, with a warning.
    """
    P, y = contract.rows(400, seed=1)
    method = contract.calibrated(subject, P[y != 2], y[y != 2], 0.05)
    sure = np.full((N_TEST, _K), 0.01)
    sure[:, 2] = np.linspace(0.9, 0.97, N_TEST)
    sure[:, [0, 1, 3]] = ((1 - sure[:, 2]) / 3)[:, None]
    share = float(contract.ask(method, sure)[:, 2].mean())
    require(
        share > 0.5,
        f"of rows that are class 2 with probability 0.9 and more only {share:.0%} have it in their set",
    )
    asked = contract.questions(200)
    answer, texts = caught_warnings(lambda: contract.ask(method, asked))
    if answer[:, 2].all():
        named = any("class" in text for text in texts)
        require(
            named, f"class 2, never calibrated, is in every set without a warning; the warnings were {texts}"
        )


@law("alpha")
def levels_nest(contract: LabelSets, subject: Subject) -> None:
    """The set at a smaller alpha contains that at a larger one."""
    X, rows = contract.questions(200), contract.rows(N_CALIB, seed=1)
    answers = [contract.ask(contract.calibrated(subject, *rows, alpha), X) for alpha in _NESTED]
    for wide, narrow in pairwise(answers):
        lost = int((narrow & ~wide).sum())
        require(lost == 0, f"{lost} labels are in the set at a larger alpha and not at a smaller one")


@law("types", forms="bare")
def many_classes_and_few_rows(contract: LabelSets, subject: Subject) -> None:
    """200 classes with 600 rows (most of them rare), and 3 classes with 9 rows, are valid requests."""
    rng = np.random.default_rng(8)
    for classes, n in ((200, 600), (3, 9)):
        P = rng.dirichlet(np.full(classes, 0.5), size=n)
        y = (P.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1).clip(0, classes - 1)
        answer = contract.ask(contract.calibrated(subject, P, y), P[:7])
        require(answer.shape == (7, classes), f"{classes} classes, {n} rows: shape {answer.shape}")


__all__ = ["CONTRACTS", "BareLabelSets", "LabelSets", "LawBroken"]
