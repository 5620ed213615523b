"""The evidential head and its losses: cases worked out by hand, quadrature, and bad input."""

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from assay.core.errors import DataError, MethodError  # noqa: E402
from assay.networks.evidential import (  # noqa: E402
    EvidentialHead,
    dirichlet_kl,
    evidential_loss,
    expected_level,
    kl_weight,
    vacuity,
)

ALPHA = torch.tensor([[1.0, 1, 2, 4, 7]], dtype=torch.float64)


def one(value):
    return pytest.approx(value, abs=1e-7)


def test_level_and_vacuity_of_one_row():
    assert float(vacuity(ALPHA)) == one(1 / 3)
    assert float(expected_level(ALPHA)) == one(4.0)


@pytest.mark.parametrize(("label", "expected"), [(4, 0.8015623), (0, 3.2515623)])
def test_expected_cross_entropy(label, expected):
    found = evidential_loss(ALPHA, torch.tensor([label]), weight=0)
    assert float(found) == one(expected)


def test_expected_squared_error():
    assert float(evidential_loss(ALPHA, torch.tensor([4]), weight=0, form="squared")) == one(0.425)


@pytest.mark.parametrize(("first", "expected"), [(2.0, 0.3261046), (6.0, 2.1081073), (1.0, 0.0)])
def test_divergence_from_uniform(first, expected):
    alpha = torch.tensor([[first, 1, 1, 1, 1]], dtype=torch.float64)
    assert float(dirichlet_kl(alpha)) == one(expected)


def test_losses_are_expectations_over_the_dirichlet():
    draws = np.random.default_rng(0).dirichlet(ALPHA[0].numpy(), size=400_000)
    cross = float(evidential_loss(ALPHA, torch.tensor([3]), weight=0))
    squared = float(evidential_loss(ALPHA, torch.tensor([3]), weight=0, form="squared"))
    assert cross == pytest.approx(-np.log(draws[:, 3]).mean(), abs=5e-3)
    assert squared == pytest.approx(((draws - np.eye(5)[3]) ** 2).sum(axis=1).mean(), abs=2e-3)


def test_evidence_for_the_true_class_is_not_punished():
    surely = torch.tensor([[50.0, 1, 1]], dtype=torch.float64)
    right, plain = (float(evidential_loss(surely, torch.tensor([0]), weight=w)) for w in (1.0, 0.0))
    assert right == plain
    assert float(evidential_loss(surely, torch.tensor([1]), weight=1.0)) > 50 / 10


def test_no_evidence_is_the_neutral_level_and_full_vacuity():
    head = EvidentialHead(3)
    with torch.no_grad():
        head.linear.weight.zero_()
        head.linear.bias.fill_(-60)
    rows = torch.randn(4, 3)
    assert head.vacuity(rows).tolist() == pytest.approx([1] * 4)
    assert head.expected_level(rows).tolist() == pytest.approx([3] * 4)


def test_head_never_leaves_its_ranges_and_keeps_a_gradient():
    head = EvidentialHead(3, n_levels=4)
    rows = torch.randn(200, 3) * 100
    alpha = head(rows)
    assert alpha.shape == (200, 4)
    assert bool((alpha >= 1).all())
    assert bool(((head.vacuity(rows) > 0) & (head.vacuity(rows) <= 1)).all())
    evidential_loss(alpha, torch.zeros(200, dtype=torch.long)).mean().backward()
    assert float(head.linear.weight.grad.abs().sum()) > 0
    assert bool(torch.isfinite(head.linear.weight.grad).all())


def test_weight_is_annealed():
    assert [kl_weight(epoch) for epoch in (0, 5, 10, 40)] == [0, 0.5, 1, 1]


def test_evidence_grows_with_rows_of_one_label():
    generator = torch.Generator().manual_seed(0)
    raw = torch.zeros(1, 3, dtype=torch.float64, requires_grad=True)
    labels = torch.randint(0, 3, (30,), generator=generator) * 0
    for _ in range(300):
        loss = evidential_loss(torch.nn.functional.softplus(raw).expand(30, 3) + 1, labels).mean()
        (gradient,) = torch.autograd.grad(loss, raw)
        with torch.no_grad():
            raw -= gradient
    alpha = torch.nn.functional.softplus(raw.detach()) + 1
    assert float(alpha[0, 0]) > 3
    assert float(alpha[0, 1]) < 1.2


@pytest.mark.parametrize("label", [-1, 5])
def test_labels_outside_the_levels_are_named(label):
    with pytest.raises(DataError, match=rf"label {label} at row 1 .* 5 levels"):
        evidential_loss(ALPHA.expand(2, 5), torch.tensor([0, label]))


def test_unknown_form_and_sizes():
    with pytest.raises(MethodError, match="form"):
        evidential_loss(ALPHA, torch.tensor([0]), form="brier")
    with pytest.raises(MethodError, match="n_levels"):
        EvidentialHead(3, n_levels=1)


def test_float32_is_close():
    found = evidential_loss(ALPHA.float(), torch.tensor([0]))
    assert math.isclose(float(found), float(evidential_loss(ALPHA, torch.tensor([0]))), rel_tol=1e-5)
