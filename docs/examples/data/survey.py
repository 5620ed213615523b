"""6,366 women in a survey of 1974, from statsmodels (`pip install
'assay[audit]'`): years of education (6 classes); groups by how religious they
are, 1 to 4."""

from sklearn.model_selection import train_test_split

from assay.data.builtin import load

table = load("fair")
X, y = table.X, table.y.to_numpy()
religious = table.frame["religious"].to_numpy()
X_train, X_test, y_train, y_test, groups_train, groups_test = train_test_split(
    X, y, religious, test_size=0.25, stratify=y, random_state=0
)
