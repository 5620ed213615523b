"""RPS: certificates in closed form beside loops over classes that follow the published formulas.

100 members vote on 10,000 rows of 100 classes; 1,000 calibration rows in 40 parts; training radii 0 to 8
and every calibration radius. The loops move one vote at a time for each class (vectorised over the rows,
and with the largest class found by argmax where the published code sorts), take each part's threshold, and
count.

    .bench-env/bin/python benchmarks/rps.py
"""

from fractions import Fraction

import numpy as np
from runner import Case, main

from assay.conformal.majority import MajorityRule, binomial_threshold, conformity_rank
from assay.conformal.poisoning_certificates import VoteScore
from assay.conformal.reliability import CalibrationParts, certificate_of_votes, vote_thresholds

MEMBERS, PARTS, RADIUS, ALPHA = 100, 40, 8, Fraction(1, 10)


def inputs(n=10_000, n_calib=1_000, classes=100):
    """(votes, calibration votes, calibration labels, calibration parts)."""
    rng = np.random.default_rng(0)
    sharp = rng.dirichlet(np.full(classes, 0.03), size=n + n_calib)
    votes = rng.multinomial(MEMBERS, sharp)
    labels = (sharp.cumsum(axis=1) < rng.random((n + n_calib, 1))).sum(axis=1).clip(0, classes - 1)
    parts = rng.permutation(np.arange(n_calib) % PARTS)
    return votes[n_calib:], votes[:n_calib], labels[:n_calib], parts


def closed(data):
    """(coverage, size): the largest calibration radius of each row for each training radius, -1 for none."""
    votes, calib_votes, labels, codes = data
    score = VoteScore(MEMBERS, votes.shape[1])
    sizes = np.bincount(codes, minlength=PARTS)
    ranks = np.array([n + 1 - conformity_rank(int(n), ALPHA, "published") for n in sizes])
    parts = CalibrationParts(codes, sizes, ranks)
    rule = MajorityRule.make("binomial", sizes.tolist(), ALPHA, "published", poisoned=True)
    thresholds = vote_thresholds(score, calib_votes, labels, parts, RADIUS)
    found = certificate_of_votes(score, votes, thresholds, rule)
    short = RADIUS + 1 - len(found.coverage)
    longer = ((0, short), (0, 0))
    return tuple(np.pad(part, longer, constant_values=-1) for part in (found.coverage, found.size))


def step(votes, y, side):
    """One vote moved in each row, in place, to raise or lower class y."""
    rows = np.arange(len(votes))
    others = votes.copy()
    others[:, y] = -1
    top = others.argmax(axis=1)
    if side == "upper":
        gives = others[rows, top] > 0
        votes[rows[gives], top[gives]] -= 1
        votes[gives, y] += 1
        return
    own = votes[:, y] > 0
    votes[own, y] -= 1
    votes[rows[own], top[own]] += 1
    rest = np.flatnonzero(~own)
    if len(rest):
        small = np.where(others[rest] > 0, others[rest], MEMBERS + 1)
        small[np.arange(len(rest)), top[rest]] = MEMBERS + 1
        source = small.argmin(axis=1)
        has = small[np.arange(len(rest)), source] <= MEMBERS
        votes[rest[has], source[has]] -= 1
        votes[rest[has], top[rest][has]] += 1


def worst_scores(votes, side, score):
    """(RADIUS + 1, n, K) nonconformities after 0 .. RADIUS moved votes, class by class."""
    out = np.empty((RADIUS + 1, *votes.shape))
    for y in range(votes.shape[1]):
        moved = votes.copy()
        for r in range(RADIUS + 1):
            if r:
                step(moved, y, side)
            weights = score.weights[moved]
            out[r, :, y] = score.of(weights.sum(axis=1) - weights[:, y], moved[:, y])
    return out


def looped(data):
    """The same answer by loops over classes, radii and parts."""
    votes, calib_votes, labels, codes = data
    score = VoteScore(MEMBERS, votes.shape[1])
    tau = binomial_threshold(PARTS, ALPHA)
    rows = np.arange(len(labels))
    bad, good = (worst_scores(votes, side, score) for side in ("lower", "upper"))
    calib_bad, calib_good = (
        worst_scores(calib_votes, side, score)[:, rows, labels] for side in ("lower", "upper")
    )

    def thresholds(scores):
        out = []
        for j in range(PARTS):
            own = np.sort(scores[codes == j])
            out.append(own[len(own) - conformity_rank(len(own), ALPHA, "published")])
        return out

    inside = sum((bad[0] <= q).astype(int) for q in thresholds(calib_bad[0])) > tau
    coverage, size = [], []
    for r in range(RADIUS + 1):
        certain = sum((bad[r] <= q).astype(int) for q in thresholds(calib_good[r]))
        possible = sum((good[r] <= q).astype(int) for q in thresholds(calib_bad[r]))
        coverage.append(np.where(inside, np.maximum(certain - tau - 1, -1), PARTS).min(axis=1))
        size.append(np.where(inside, PARTS, np.maximum(tau - possible, -1)).min(axis=1))
    return np.array(coverage), np.array(size)


def agree(first, other):
    """Whether all integers are equal."""
    differ = sum(int((a != b).sum()) for a, b in zip(first, other, strict=True))
    return "equal integers" if differ == 0 else f"{differ} integers differ"


CASES = [
    Case(
        name="certificates, training radii 0-8, all calibration radii",
        inputs=inputs,
        contenders={"assay": closed, "loops over classes": looped},
        repeats=1,
        agree=agree,
        tiny=lambda: inputs(50, 500, 5),
    )
]

if __name__ == "__main__":
    raise SystemExit(main(CASES, "rps"))
