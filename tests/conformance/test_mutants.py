"""Every check can fail: a method that breaks one law is caught by that law, and by no other."""

import label_toys
import predictive_toys
import pytest
import stream_toys
import toy_regions
import toys

from assay.testing import LAWS, check_method

HONEST = [
    toys.Interval,
    label_toys.Labels,
    label_toys.LabelsByClass,
    label_toys.LabelsByGroup,
    toys.ThirdParty,
    toys.FullConformal,
    toy_regions.Boxes,
    predictive_toys.Distribution,
]

MUTANTS = {
    toys.RankTooHigh: "exact-rank",
    toys.RankTooLow: "exact-rank",
    toys.InterpolatedQuantile: "exact-rank",
    toys.RankOfN: "exact-rank",
    toys.FloatRank: "exact-rank",
    label_toys.LabelRankTooHigh: "exact-rank",
    toys.TrainsOnItsOwnAnswers: "exact-rank",
    toys.SingleRowsAreNarrow: "batching",
    toys.AskingUsesUp: "batching",
    toys.LastRowCounts: "order",
    label_toys.ColumnsKeepTheirPlace: "order",
    toys.Broadcasts: "types",
    toys.SinglePrecision: "types",
    label_toys.LabelsFromZeroOnly: "labels",
    label_toys.UnknownLabelIsFirst: "labels",
    label_toys.AcceptsAnySum: "labels",
    toys.SwallowsNaN: "nan-inf",
    toys.NaNFallsOut: "nan-inf",
    label_toys.SwallowsNaNProbabilities: "nan-inf",
    toys.AlphaIsClipped: "alpha",
    toys.LevelsDoNotNest: "alpha",
    label_toys.UnseenClassIsNothing: "unseen-groups",
    label_toys.UnseenClassWithoutWarning: "unseen-groups",
    label_toys.UnseenGroupIsNothing: "unseen-groups",
    label_toys.GroupsAreForgotten: "unseen-groups",
    stream_toys.DyingStream: "streams",
    stream_toys.HoardingStream: "streams",
    stream_toys.StreamLosesItsPlace: "streams",
    toys.OtherRule: "one-rule",
    label_toys.CumulativeSets: "one-rule",
    label_toys.OneLabelMore: "one-rule",
    label_toys.StrictlyLess: "one-rule",
    toys.SeedsTheWorld: "nothing-global",
    toys.SilencesWarnings: "nothing-global",
    toys.Prints: "nothing-global",
    toys.WritesToInput: "nothing-global",
    toys.RefitsTheUsersModel: "nothing-global",
    toys.LeavesEvalMode: "nothing-global",
    toys.SharedState: "object-life",
    toys.HalfFitted: "object-life",
    toys.NeverRefitted: "object-life",
    toys.CannotBeSaved: "saving",
    toys.EveryPair: "memory",
    toy_regions.RegionRankTooLow: "exact-rank",
    toy_regions.TooSmallOnManyRows: "exact-rank",
    toy_regions.RegionHasOneOutputLess: "one-rule",
    toy_regions.ReversedLevels: "alpha",
    toy_regions.OneUnitForAll: "types",
    toy_regions.RegionBroadcasts: "types",
    toy_regions.SwallowsNaNOfTheSecondOutput: "nan-inf",
    toy_regions.VolumeOfAnother: "one-rule",
    toy_regions.BoundingBoxTooSmall: "one-rule",
    toy_regions.SamplesOutside: "one-rule",
    toy_regions.BoundaryInside: "one-rule",
    toy_regions.TakesInOrder: "order",
    toy_regions.RegionGrowsInPickles: "object-life",
    toy_regions.RegionQuietlyInfinite: "error-numbers",
    predictive_toys.DrawsTooNarrow: "one-distribution",
    predictive_toys.DensityWithoutItsConstant: "one-distribution",
    predictive_toys.PredictsTheSecondLabel: "one-distribution",
    predictive_toys.UnseenClassIsJustUnlikely: "labels",
    predictive_toys.SwallowsNaNFeatures: "nan-inf",
    toys.QuietlyInfinite: "error-numbers",
    toys.WordsWithoutNumbers: "error-numbers",
}


@pytest.mark.parametrize("toy", HONEST, ids=lambda toy: toy.__name__)
def test_honest_methods_pass(toy):
    results = check_method(toy)
    assert {result.status for result in results} <= {"passed", "skipped"}
    assert sum(result.status == "passed" for result in results) > 20


def test_honest_stream_passes():
    assert {result.status for result in check_method(stream_toys.Stream)} == {"passed"}


@pytest.mark.parametrize(("toy", "law"), MUTANTS.items(), ids=[toy.__name__ for toy in MUTANTS])
def test_mutant_is_caught_by_the_law_it_breaks(toy, law):
    failed = {result.law for result in check_method(toy, on_fail="report") if result.status == "failed"}
    assert failed == {law}


def test_every_law_has_a_mutant():
    assert {*MUTANTS.values()} == {*LAWS}
