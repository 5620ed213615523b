"""Checks that hold for every contract with rows: ranks, batches, order, levels, numbers in messages."""

from __future__ import annotations

import re
from fractions import Fraction
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.testing.laws import LawBroken, NotApplicable, law, require
from assay.testing.subject import N_CALIB, N_TEST, Contract, Subject, caught_warnings

# (n, alpha) where rounding, an interpolated quantile or a rank of n instead of n + 1 shows
_RANKS = (
    *((9, 0.1), (10, 0.1), (19, 0.1), (4, 0.2), (9, 0.2), (14, 0.2), (15, 0.2)),
    *((9, 0.7), (19, 0.7), (19, 0.95), (1, 0.5)),
)

_SO_MANY_OF = re.compile(r"\d+ of \d+")


def _rank(n: int, alpha: Any) -> int:
    return ceil((1 - Fraction(str(alpha))) * (n + 1))


def score_relation(
    contract: Contract, subject: Subject, X: NDArray[Any], y: NDArray[Any], alpha: Any
) -> NDArray[np.bool_]:
    """R[a, b]: is row b in its set when calibration saw copies of row a only, that is, score(b) <= score(a)?

    With equal calibration scores every rank gives the same threshold, so that R shows the
    scores alone, whatever the rank. More copies than any rank at alpha needs.
    """
    copies = 2 * ceil(1 / Fraction(str(alpha))) + 1
    relation = np.empty((len(y), len(y)), dtype=bool)
    for a in range(len(y)):
        method = contract.calibrated(
            subject,
            np.repeat(X[a : a + 1], copies, axis=0),
            np.repeat(y[a : a + 1], copies, axis=0),
            alpha,
        )
        relation[a] = contract.covers(method, X, y)
    return relation


def _is_order(relation: NDArray[np.bool_]) -> bool:
    """Whether the relation is "score(b) <= score(a)" for some score: reflexive, total, transitive."""
    below = relation.sum(axis=1)
    return bool((relation == (below[None, :] <= below[:, None])).all() and relation.diagonal().all())


@law("exact-rank")
def own_calibration_rows(contract: Contract, subject: Subject) -> None:
    """Asked for its own calibration rows, a method contains those with the k smallest scores."""
    if not contract.calibrates(subject):
        raise NotApplicable(
            "calibration is no step of its own, so that its scores cannot be ranked from outside"
        )
    X, y = contract.rank_rows(19)
    for alpha in sorted({alpha for _, alpha in _RANKS}):
        relation = score_relation(contract, subject, X, y, alpha)
        if not _is_order(relation):
            raise NotApplicable("sets and scores are not one rule, so that ranks mean nothing (see one-rule)")
        for n in [n for n, level in _RANKS if level == alpha]:
            below = relation[:n, :n].sum(axis=1)
            k = _rank(n, alpha)
            expected = below <= np.sort(below)[k - 1]
            method = contract.calibrated(subject, X[:n], y[:n], alpha)
            got = contract.covers(method, X, y)[:n]
            require(
                (got == expected).all(),
                f"n = {n}, alpha = {alpha}: {int(got.sum())} of its own calibration rows are inside; "
                f"the {k}-th smallest score contains {int(expected.sum())}",
            )


@law("exact-rank")
def rows_left_out_are_covered(contract: Contract, subject: Subject) -> None:
    """Where fit does all: of 20 rows, each left out once, at least a share of 1 - 2 alpha lies in its set.

    For full conformal prediction and the jackknife+ that is no chance: it is what their proofs count.
    """
    if contract.calibrates(subject):
        raise NotApplicable("the ranks of its calibration scores are tested exactly")
    X, y = contract.rank_rows(20)
    alpha = 0.2
    inside = 0
    for i in range(len(y)):
        others = np.arange(len(y)) != i
        method = contract.calibrated(subject, X[others], y[others], alpha)
        inside += int(contract.covers(method, X[i : i + 1], y[i : i + 1])[0])
    # cross-validation in folds may fall short of 1 - 2 alpha by one row of twenty
    least = round(len(y) * (1 - 2 * alpha)) - 1
    require(
        inside >= least, f"{inside} of {len(y)} rows lie in their set at alpha {alpha}; at least {least} must"
    )


@law("exact-rank")
def infinite_only_below_the_smallest_n(contract: Contract, subject: Subject) -> None:
    """The smallest n that suffices is finite; one row fewer is infinite, never an error."""
    X, y = contract.rank_rows(19)
    asked, truth = contract.rank_rows(100)
    for alpha, enough in ((0.1, 9), (0.2, 4)):
        # the largest of a few scores may be larger than any of 100 others, but hardly three times
        parts = [slice(start, start + enough) for start in (0, 5, 10)]
        full = [contract.calibrated(subject, X[part], y[part], alpha) for part in parts]
        require(
            not all(contract.covers(method, asked, truth).all() for method in full),
            f"{enough} calibration rows at alpha {alpha} suffice, and nothing of 100 rows is outside",
        )
        n = enough - 1
        answer = contract.ask(contract.calibrated(subject, X[:n], y[:n], alpha), asked)
        bounded = int((~contract.unbounded(answer)).sum())
        require(
            bounded == 0,
            f"{n} calibration rows at alpha {alpha}: {bounded} of {len(asked)} answers are not everything, "
            f"though less needs {enough} rows",
        )


@law("one-rule")
def sets_order_rows_as_scores_do(contract: Contract, subject: Subject) -> None:
    """Which rows are inside when calibration saw copies of one row must be an order: the score's.

    A set that follows another rule than the calibration score (or adds a label, or takes
    "<" for "<=") breaks that: rows leave their own set, or enter each other's.
    """
    if not contract.calibrates(subject):
        raise NotApplicable(
            "calibration is no step of its own, so that its scores cannot be seen from outside"
        )
    X, y = contract.rank_rows(19)
    relation = score_relation(contract, subject, X, y, 0.5)
    outside = int((~relation.diagonal()).sum())
    require(outside == 0, f"calibrated on copies of one row, {outside} of {len(y)} rows leave their own set")
    below = relation.sum(axis=1)
    wrong = int((relation != (below[None, :] <= below[:, None])).sum())
    require(
        wrong == 0,
        f"{wrong} of {relation.size} pairs of rows are inside or outside against the order of their scores: "
        "the set is not {score <= threshold} for the score of calibration",
    )


@law("batching")
def any_chunks(contract: Contract, subject: Subject) -> None:
    """All rows at once, single rows and uneven chunks give one answer."""
    method, X = contract.ready(subject), contract.questions()
    whole = contract.ask(method, X)
    for size in (1, 7, N_TEST - 1):
        parts = [contract.ask(method, X[i : i + size]) for i in range(0, len(X), size)]
        contract.require_same(np.concatenate(parts), whole, f"chunks of {size} rows against {len(X)} at once")


@law("batching")
def asked_twice(contract: Contract, subject: Subject) -> None:
    """The same question again gets the same answer: asking uses nothing up."""
    method, X = contract.ready(subject), contract.questions()
    first = contract.ask(method, X)
    contract.ask(method, X[:3])
    contract.require_same(contract.ask(method, X), first, "the same rows asked again")


@law("order")
def calibration_rows_permuted(contract: Contract, subject: Subject) -> None:
    """The order of calibration rows (of all rows, where fit does all) does not matter."""
    X, y = contract.rows(N_CALIB, seed=1)
    order = np.random.default_rng(3).permutation(N_CALIB)
    asked = contract.questions()
    expected = contract.ask(contract.calibrated(subject, X, y), asked)
    got = contract.ask(contract.calibrated(subject, X[order], y[order]), asked)
    contract.require_same(got, expected, "calibration rows in another order")


@law("order")
def test_rows_permuted(contract: Contract, subject: Subject) -> None:
    """Permuting the rows asked for permutes the answer."""
    method, X = contract.ready(subject), contract.questions()
    order = np.random.default_rng(4).permutation(len(X))
    contract.require_same(
        contract.ask(method, X[order]), contract.ask(method, X)[order], "rows in another order"
    )


@law("types")
def one_row_and_no_row(contract: Contract, subject: Subject) -> None:
    """One row gives (1, c), no row (0, c), several levels (L, 1, c) and (L, 0, c)."""
    method, X = contract.ready(subject), contract.questions()
    width = contract.ask(method, X).shape[-1]
    levels = [0.1, 0.1] if _one_level(contract, subject) else [0.1, 0.2]
    for n in (1, 0):
        shape = contract.ask(method, X[:n]).shape
        require(shape == (n, width), f"{n} rows give shape {shape}, expected {(n, width)}")
        shape = contract.ask(method, X[:n], alpha=levels).shape
        require(shape == (2, n, width), f"{n} rows at 2 levels give shape {shape}, expected {(2, n, width)}")


def _one_level(contract: Contract, subject: Subject) -> bool:
    """Whether the level belongs to calibration, so that no other can be asked for afterwards."""
    method, X = contract.ready(subject), contract.questions(2)
    try:
        contract.ask(method, X, alpha=0.2)
    except ValueError as error:
        if "0.2" in str(error) and "0.1" in str(error):
            return True
        raise
    return False


@law("unseen-groups")
def groups_are_apart(contract: Contract, subject: Subject) -> None:
    """With ``groups`` each group has its own threshold; an unseen one gets everything, with a warning."""
    both = subject.verb_takes(contract.calibrate, "groups") and subject.verb_takes(contract.predict, "groups")
    if not both:
        raise NotApplicable("it takes no groups")
    (X, y), asked = contract.rows(2 * N_CALIB, seed=1), contract.questions()
    groups = np.where(np.arange(len(y)) % 2, "odd", "even")
    method = contract.trained(subject)
    try:
        getattr(method, contract.calibrate)(X, y, groups=groups)
    except ValueError as error:
        raise NotApplicable(f"it takes no groups: {error}") from error
    ask = getattr(method, contract.predict)
    for name in ("odd", "even"):
        alone = contract.calibrated(subject, X[groups == name], y[groups == name])
        got = np.asarray(ask(asked, groups=np.full(len(asked), name)))
        contract.require_same(got, contract.ask(alone, asked), f"group {name} against its rows alone")
    mixed = np.where(np.arange(len(asked)) % 2, "odd", "new")
    answer, texts = caught_warnings(lambda: np.asarray(ask(asked, groups=mixed)))
    unseen = int((~contract.unbounded(answer)[mixed == "new"]).sum())
    require(unseen == 0, f"{unseen} rows of a group that was never calibrated do not get everything")
    require(any("group" in text for text in texts), f"an unseen group without a warning; they were {texts}")


@law("alpha")
def every_spelling(contract: Contract, subject: Subject) -> None:
    """Text, fractions, numpy scalars and 0-d arrays mean the decimal that they spell."""
    X = contract.questions()
    expected = contract.ask(contract.ready(subject), X)
    method = contract.ready(subject)
    for level in (0.1, "0.1", Fraction(1, 10), np.float32(0.1), np.array(0.1)):
        contract.require_same(contract.ask(method, X, alpha=level), expected, f"alpha = {level!r} when asked")
        if subject.takes("alpha"):
            made = contract.calibrated(subject, *contract.rows(N_CALIB, seed=1), alpha=level)
            contract.require_same(contract.ask(made, X), expected, f"alpha = {level!r} in the constructor")


@law("alpha")
def levels_outside_are_refused(contract: Contract, subject: Subject) -> None:
    """1, negative numbers, more than 1, NaN and text that is no number are a ValueError naming alpha."""
    method, X = contract.ready(subject), contract.questions(3)
    rows = contract.rows(N_CALIB, seed=1)
    for level in (1, -0.1, 1.5, float("nan"), "a tenth", [0.1, 2]):
        _refused(
            lambda level=level: contract.ask(method, X, alpha=level), "alpha", f"alpha = {level!r} when asked"
        )
        if subject.takes("alpha") and not isinstance(level, list):
            _refused(
                lambda level=level: contract.ask(contract.calibrated(subject, *rows, alpha=level), X),
                "alpha",
                f"alpha = {level!r} in the constructor",
            )


@law("alpha")
def zero_asks_for_everything(contract: Contract, subject: Subject) -> None:
    """alpha = 0 is honoured: everything."""
    X = contract.questions(5)
    method = contract.calibrated(subject, *contract.rows(N_CALIB, seed=1), alpha=0)
    answer = contract.ask(method, X)
    require(
        contract.unbounded(answer).all(), "alpha = 0 must give everything, the only set that never misses"
    )


@law("alpha")
def several_levels_stack(contract: Contract, subject: Subject) -> None:
    """[0.2, 0.1] gives the answers at 0.2 and at 0.1, on a leading axis."""
    X = contract.questions()
    method = contract.ready(subject)
    levels = [0.1] if _one_level(contract, subject) else [0.2, 0.1, 0.4]
    answer = contract.ask(method, X, alpha=levels)
    require(
        len(answer) == len(levels) and answer.ndim == 3, f"{len(levels)} levels give shape {answer.shape}"
    )
    for i, level in enumerate(levels):
        contract.require_same(answer[i], contract.ask(method, X, alpha=level), f"alpha = {level} of {levels}")


@law("error-numbers")
def too_few_rows_are_counted(contract: Contract, subject: Subject) -> None:
    """The warning names the rows there are, alpha, and the rows that suffice."""
    X, y = contract.rank_rows(18)
    for n, alpha, enough in ((7, 0.1, 9), (18, 0.04, 24)):
        method = contract.calibrated(subject, X[:n], y[:n], alpha)
        _, texts = caught_warnings(lambda method=method: contract.ask(method, X))
        named = any(
            {str(alpha), str(enough)} <= numbers(text)
            and (str(n) in numbers(text) or _SO_MANY_OF.search(text))
            for text in texts
        )
        require(
            named,
            f"{n} rows at alpha {alpha}: a warning must name {n} (or how many groups are short), {alpha} and "
            f"{enough}; the warnings were {texts}",
        )


@law("error-numbers")
def lengths_that_differ_are_named(contract: Contract, subject: Subject) -> None:
    """40 rows with 37 targets: a ValueError with both numbers."""
    X, y = contract.rows(N_CALIB, seed=1)
    refused_with(
        lambda: contract.calibrated(subject, X, y[:-3]), {str(N_CALIB), str(N_CALIB - 3)}, "lengths 40 and 37"
    )


@law("nan-inf")
def nan_in_what_is_asked(contract: Contract, subject: Subject) -> None:
    """NaN in the rows asked for is refused, or the model can use it: never a NaN in the answer."""
    method, X = contract.ready(subject), contract.questions().astype(np.float64)
    X[4] = np.nan
    try:
        answer = contract.ask(method, X)
    except ValueError:
        return
    require(
        contract.form == "" and not np.isnan(np.asarray(answer, dtype=np.float64)).any(),
        "NaN in row 4 of what was asked became a quiet answer",
    )


def numbers(text: str) -> set[str]:
    """The numbers written in a text."""
    return {number.rstrip(".") for number in re.findall(r"\d+(?:\.\d+)?", text.replace(",", ""))}


def refused_with(call: Any, needed: set[str], what: str) -> None:
    """Raise LawBroken unless call() raises a ValueError whose text has all the numbers."""
    try:
        call()
    except ValueError as error:
        require(
            needed <= numbers(str(error)), f"{what}: the error must name {sorted(needed)}, and says: {error}"
        )
    else:
        raise LawBroken(f"{what}: accepted; a ValueError that names {sorted(needed)} is expected")


def _refused(call: Any, word: str, what: str) -> None:
    try:
        call()
    except ValueError as error:
        require(word in str(error), f"{what}: the error must name {word}, and says: {error}")
    else:
        raise LawBroken(f"{what}: accepted; a ValueError that names {word} is expected")
