"""The user's model: asked as it is, left as it was."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LinearRegression

from assay.core.errors import DataError, MethodError
from assay.core.models import (
    asked_once,
    is_torch_module,
    predict_probabilities,
    predict_values,
    run_torch,
)

X = np.random.default_rng(0).normal(size=(30, 3))


def network(outputs=1):
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(3, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.5), torch.nn.Linear(8, outputs)
    )


def test_three_ways_to_predict():
    model = LinearRegression().fit(X, X[:, 0])
    expected = model.predict(X)
    np.testing.assert_array_equal(predict_values(model, X), expected)
    np.testing.assert_array_equal(predict_values(model.predict, X), expected)
    np.testing.assert_array_equal(predict_values(lambda rows: expected[:, None].tolist(), X), expected)
    with pytest.raises(MethodError, match="object has no predict and cannot be called"):
        predict_values(object(), X)


def test_network_is_asked_in_evaluation_and_left_as_it_was():
    model = network()
    model.train()
    model[2].eval()
    calls = []
    model[0].register_forward_hook(lambda *_: calls.append(1))
    weights = [p.clone() for p in model.state_dict().values()]
    first, second = predict_values(model, X), predict_values(model, X)
    np.testing.assert_array_equal(first, second)
    assert [module.training for module in model.modules()] == [True, True, True, False, True]
    assert all(torch.equal(a, b) for a, b in zip(weights, model.state_dict().values(), strict=True))
    assert all(p.requires_grad and p.grad is None for p in model.parameters())
    assert len(calls) == 2
    assert torch.is_grad_enabled()


def test_network_modes_return_after_an_error():
    model = network()
    model.train()
    with pytest.raises(RuntimeError):
        predict_values(model, X[:, :2])
    assert all(module.training for module in model.modules())
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_networks_of_every_precision(dtype):
    model = network().eval()
    expected = predict_values(model, X)
    np.testing.assert_allclose(predict_values(model.to(dtype), X), expected, atol=0.05)


def test_network_takes_tensors_lists_and_no_rows():
    model = network().eval()
    expected = predict_values(model, X)
    for rows in (torch.tensor(X), X.tolist(), torch.tensor(X, requires_grad=True)):
        np.testing.assert_allclose(predict_values(model, rows), expected, rtol=1e-6)
    assert predict_values(model, X[:0]).shape == (0,)
    assert predict_values(model, X[:0], columns=3).shape == (0, 3)
    assert run_torch(torch.nn.Identity(), X).shape == (30, 3)


def test_many_rows_go_through_in_batches(monkeypatch):
    model = network().eval()
    expected = predict_values(model, X)
    monkeypatch.setattr("assay.core.models._TORCH_BATCH", 7)
    np.testing.assert_allclose(predict_values(model, X), expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (np.zeros((30, 2)), r"shape \(30, 2\), expected \(30,\)"),
        (np.zeros(29), r"shape \(29,\), expected \(30,\)"),
        (np.where(np.arange(30) == 4, np.nan, 0), "NaN in 1 of 30 rows, first at row 4"),
        (np.full(30, "x"), "not numbers"),
        (np.full(30, "1"), "not numbers"),
    ],
)
def test_predictions_that_cannot_be_used(answer, words):
    with pytest.raises(DataError, match=words):
        predict_values(lambda rows: answer, X)


def test_a_module_is_known_without_importing_torch():
    assert is_torch_module(network())
    assert not is_torch_module(LinearRegression())


def test_logits_become_probabilities_that_sum_to_one():
    proba, outputs = predict_probabilities(network(4).eval(), X)
    assert outputs == "logits"
    np.testing.assert_allclose(proba.sum(axis=1), 1, rtol=1e-6)


def test_a_model_is_asked_once_for_the_same_rows():
    calls = []

    def model(rows):
        calls.append(len(rows))
        return rows.sum(axis=1)

    with asked_once():
        first = predict_values(model, X)
        np.testing.assert_array_equal(predict_values(model, X), first)
        predict_values(model, X[:4])
        predict_values(lambda rows: model(rows) + 1, X)
        assert calls == [30, 4, 30]
        with asked_once():  # one inside another begins anew
            predict_values(model, X)
    predict_values(model, X)
    assert calls == [30, 4, 30, 30, 30]
