"""442 patients, nine measurements each: progression of diabetes and blood sugar
(mg/dl), from scikit-learn."""

import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

X, progression = load_diabetes(return_X_y=True)
sugar = load_diabetes(scaled=False).data[:, -1]
X, Y = X[:, :-1], np.column_stack([progression, sugar])
X_train, X_test, Y_train, Y_test = train_test_split(
    X, Y, test_size=0.25, random_state=0
)
