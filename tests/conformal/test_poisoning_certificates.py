"""Worst cases of votes: the specification's numbers, and every poisoning of tiny votes."""

import itertools

import numpy as np
import pytest

from assay.conformal.poisoning_certificates import (
    VotePairs,
    VoteScore,
    check_votes,
    worst_case_vote_scores,
)
from assay.core.errors import DataError, MethodError

VOTES = np.array([[6, 3, 1]])
LOWER = {
    0: [0.426013, 0.388326, 0.351372, 0.315598, 0.281408],
    2: [0.258390, 0.229168, 0.224874, 0.219069, 0.211942],
}
UPPER = {0: [0.426013, 0.463963, 0.501713, 0.538823, 0.576117]}


@pytest.mark.parametrize("radius", range(5))
def test_numbers_of_the_specification(radius):
    lower = worst_case_vote_scores(VOTES, radius, "lower")[0]
    upper = worst_case_vote_scores(VOTES, radius, "upper")[0]
    for label, values in LOWER.items():
        assert lower[label] == pytest.approx(values[radius], abs=5e-7)
    assert upper[0] == pytest.approx(UPPER[0][radius], abs=5e-7)


def test_radius_zero_is_the_score():
    expected = np.exp(VOTES / 10) / np.exp(VOTES / 10).sum()
    for side in ("lower", "upper"):
        np.testing.assert_allclose(worst_case_vote_scores(VOTES, 0, side), expected, rtol=1e-12)
        np.testing.assert_allclose(worst_case_vote_scores(VOTES, 0, side, smoothing=None), VOTES / 10)


@pytest.mark.parametrize("radius", range(1, 7))
def test_a_class_without_votes_against_a_class_with_all(radius):
    # the total of the votes must not drop: 1 / (2 + e^.75) = .2429 would be above what can be reached
    low = worst_case_vote_scores(np.array([[0, 0, 4]]), radius, "lower")[0, 0]
    assert low == pytest.approx(1 / (np.e + 2), abs=1e-12)


def _reachable(votes, members, radius):
    """Every vote vector after at most ``radius`` members say something else or nothing, or begin to speak."""
    seen = {tuple(votes)}
    for _ in range(radius):
        for state in list(seen):
            for source, sink in itertools.permutations(range(-1, len(votes)), 2):
                new = list(state)
                if source >= 0:
                    new[source] -= 1
                if sink >= 0:
                    new[sink] += 1
                if min(new) >= 0 and sum(new) <= members:
                    seen.add(tuple(new))
    return np.array(sorted(seen))


@pytest.mark.parametrize(
    ("members", "classes", "silent"), [(4, 3, True), (5, 4, False), (7, 2, True), (3, 5, True)]
)
@pytest.mark.parametrize("smoothing", ["softmax", None])
def test_bounds_are_reached_and_never_passed(members, classes, silent, smoothing):
    score = VoteScore(members, classes, smoothing)
    for votes in itertools.product(range(members + 1), repeat=classes):
        if sum(votes) > members or (not silent and sum(votes) < members):
            continue
        array = np.array([votes])
        pairs = VotePairs.every(array)
        for radius, (best, worst) in zip(range(members + 2), pairs.bounds(score), strict=False):
            every = score.all(_reachable(votes, members, radius))
            assert (pairs.spread(array, best)[0] == every.min(axis=0)).all(), (votes, radius)
            assert (pairs.spread(array, worst)[0] == every.max(axis=0)).all(), (votes, radius)


def _official_lower(votes, label, radius):
    """The published code's lower bound: a label without votes takes them from the smallest positive class."""
    votes = np.array(votes)
    for _ in range(radius):
        others = [j for j in range(len(votes)) if j != label]
        top = max(others, key=lambda j: votes[j])
        if votes[label] > 0:
            votes[label] -= 1
            votes[top] += 1
        else:
            positive = [j for j in others if votes[j] > 0]
            if not positive:
                break
            smallest = min(positive, key=lambda j: votes[j])
            votes[smallest] -= 1
            if smallest != top:
                votes[top] += 1
    return votes


def test_the_official_lower_bound_is_unsound():
    score = VoteScore(4, 3)
    above = 0
    for votes in itertools.product(range(5), repeat=3):
        if sum(votes) != 4:
            continue
        for label, radius in itertools.product(range(3), range(1, 5)):
            official = score.conformity(score.all(_official_lower(votes, label, radius)[None]))[0, label]
            ours = worst_case_vote_scores(np.array([votes]), radius, "lower", 4)[0, label]
            above += official > ours + 1e-9
            assert ours <= official + 1e-12
    assert above > 50
    official = score.conformity(score.all(_official_lower((0, 0, 4), 0, 1)[None]))[0, 0]
    assert official == pytest.approx(0.2429, abs=5e-5)


def test_monotone_in_the_radius_and_the_same_for_any_order_of_classes():
    rng = np.random.default_rng(0)
    votes = rng.multinomial(20, rng.dirichlet(np.full(6, 0.5), size=50))[np.arange(50), :]
    order = rng.permutation(6)
    for side, sign in (("lower", -1), ("upper", 1)):
        before = worst_case_vote_scores(votes, 0, side, 20)
        for radius in range(1, 22):
            now = worst_case_vote_scores(votes, radius, side, 20)
            assert (sign * (now - before) >= 0).all()
            permuted = worst_case_vote_scores(votes[:, order], radius, side, 20)
            np.testing.assert_array_equal(permuted, now[:, order])
            before = now


def test_equal_votes_have_equal_scores_whatever_the_batch():
    rng = np.random.default_rng(1)
    votes = rng.multinomial(100, rng.dirichlet(np.full(30, 0.3), size=40))
    score = VoteScore(100, 30)
    whole = score.all(votes)
    np.testing.assert_array_equal(whole, np.concatenate([score.all(row[None]) for row in votes]))
    shuffled = np.array([rng.permutation(row) for row in votes])
    np.testing.assert_array_equal(np.sort(score.all(shuffled)), np.sort(whole))


@pytest.mark.parametrize(
    ("votes", "error", "message"),
    [
        ([1, 2], DataError, r"shape \(2,\)"),
        ([[3]], DataError, "two classes"),
        ([[1, -1]], DataError, "whole numbers"),
        ([[0.5, 1]], DataError, "whole numbers"),
        ([[np.nan, 1]], DataError, "whole numbers"),
        ([[1, 1], [4, 2]], DataError, "row 1 has 6 votes of 5 members; 1 of 2"),
    ],
)
def test_bad_votes(votes, error, message):
    with pytest.raises(error, match=message):
        check_votes(np.array(votes), 5)


def test_bad_questions():
    with pytest.raises(MethodError, match="side must be"):
        worst_case_vote_scores(VOTES, 1, "middle")
    with pytest.raises(MethodError, match="radius at least 0"):
        worst_case_vote_scores(VOTES, -1, "lower")
    with pytest.raises(MethodError, match="smoothing must be"):
        VoteScore(3, 3, "linear")
    with pytest.raises(MethodError, match="smoothed scores are exact"):
        VoteScore(10**8, 3)
