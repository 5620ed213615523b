"""Probabilities from a file or from arrays: what is read, and a clear answer to what cannot be."""

import numpy as np
import pytest

from assay.core.errors import DataError
from assay.data.probabilities import as_probability_table

P = np.array([[0.5, 0.3, 0.2], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6], [1.0, 0.0, 0.0]])


def test_arrays_of_a_file(tmp_path):
    path = tmp_path / "probs.npz"
    np.savez(
        path, proba=P.astype(np.float32), y=["b", "a", "c", "b"], groups=[1, 2, 1, 1], classes=["b", "c", "a"]
    )
    table = as_probability_table(path)
    assert (table.name, table.source) == ("probs", str(path))
    assert table.features == ("P(b)", "P(c)", "P(a)")
    assert table.y.cat.categories.tolist() == ["b", "c", "a"]
    assert table.y.tolist() == ["b", "a", "c", "b"]
    assert table.frame["group"].tolist() == [1, 2, 1, 1]
    assert (table.group, table.group_is_feature) == ("group", False)
    X = table.X.to_numpy()
    assert X.dtype == np.float32
    np.testing.assert_array_equal(X, P.astype(np.float32))
    same = as_probability_table((P.astype(np.float32), ["b", "a", "c", "b"], [1, 2, 1, 1], ["b", "c", "a"]))
    assert same.fingerprint == table.fingerprint
    other = as_probability_table((P.astype(np.float32), ["b", "a", "c", "b"], [1, 2, 1, 2], ["b", "c", "a"]))
    assert other.fingerprint != table.fingerprint


def test_labels_stand_for_columns():
    assert as_probability_table((P, [0, 2, 1, 1])).features == ("P(0)", "P(1)", "P(2)")
    assert as_probability_table((P, [0, 0, 0, 1])).features == ("P(0)", "P(1)", "P(2)")
    assert as_probability_table((P, ["z", "x", "y", "z"])).features == ("P(x)", "P(y)", "P(z)")
    assert as_probability_table((P, [0, 1, 1, 7])).features == ("P(0)", "P(1)", "P(7)")
    two = np.column_stack([P[:, 0], 1 - P[:, 0]])
    labels = as_probability_table((two, [True, False, True, True])).y
    assert labels.tolist() == ["True", "False", "True", "True"]
    assert labels.cat.categories.tolist() == ["False", "True"]
    assert as_probability_table((P, [0, 2, 1, 1], None)).group is None


def off(row, values):
    out = P.copy()
    out[row] = values
    return out


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((off(2, [0.2, 0.2, 0.5]), [0, 1, 2, 0]), r"sums to 0\.9 .*within 0\.0001 for float64\), first"),
        ((off(1, [1.1, -0.2, 0.1]), [0, 1, 2, 0]), r"negative \(-0\.2\) in column 1, first at row 1; 1 of 4"),
        ((off(0, np.nan), [0, 1, 2, 0]), "proba is NaN in column 0, first at row 0; 1 of 4 rows"),
        ((P[:, 0], [0, 1, 2, 0]), r"proba has shape \(4,\); give one row a sample and one column a class"),
        ((P[:, :1] * 0 + 1, [0, 0, 0, 0]), "proba has 1 column"),
        ((P[:0], []), "proba has no rows"),
        ((P, [0, 1, 2]), "y has 3 rows, 4 are expected"),
        ((P, [0, 1, 2, 3]), "y holds 4 distinct labels and proba has 3 columns: a label without a column"),
        ((P, [0, 1, 1, 7], None, [0, 1, 2]), "y holds 7 at row 3, which is none of the 3 classes"),
        ((P, ["a", "b", "a", "b"]), "3 columns of probabilities and 2 distinct labels"),
        ((P, ["a", "b", "d", "b"], None, ["a", "b", "c"]), "y holds 'd' at row 2, which is none"),
        ((P, [0, 1, 2, 0], [1, 2]), r"groups has shape \(2,\); give one group a row, shape \(4,\)"),
        ((P, [0, 1, None, 0]), "y is missing"),
        ((P,), "a tuple of 1 was given"),
        (P, "a ndarray was given; give an NPZ file, or a tuple"),
        ("nowhere.npz", "nowhere.npz: no such file"),
    ],
)  # fmt: skip
def test_what_cannot_be_used(data, message):
    with pytest.raises(DataError, match=message):
        as_probability_table(data)


def test_files_that_are_none(tmp_path):
    wrong = tmp_path / "wrong.npz"
    np.savez(wrong, p=P, y=[0, 1, 2, 0])
    with pytest.raises(DataError, match=r"has no array proba; there are: p, y\. It needs arrays proba"):
        as_probability_table(wrong)
    text = tmp_path / "text.npz"
    text.write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match="cannot be read as NPZ"):
        as_probability_table(text)
    single = tmp_path / "single.npy"
    np.save(single, P)
    with pytest.raises(DataError, match="holds a single array"):
        as_probability_table(single)
    objects = tmp_path / "objects.npz"
    np.savez(objects, proba=P, y=np.array([0, 1, None, "a"], dtype=object))
    with pytest.raises(DataError, match="no Python objects"):
        as_probability_table(objects)
