"""272 eruptions of Old Faithful in a row, from plotnine (`pip install
'assay[data]'`): how many minutes does the next one last, given the last? After
a short one a long one follows; after a long one, either."""

from sklearn.model_selection import train_test_split

from assay.data.builtin import load

minutes = load("geyser").y.to_numpy()
X, y = minutes[:-1, None], minutes[1:]
X_train, X_test, y_train, y_test = train_test_split(
    X, y, test_size=0.25, random_state=0
)
