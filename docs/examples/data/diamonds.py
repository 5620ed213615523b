"""4,000 cut diamonds and their prices in US dollars, from plotnine (`pip
install 'assay[data]'`)."""

import pandas as pd
from sklearn.model_selection import train_test_split

from assay.data.builtin import load

table = load("diamonds")
X = pd.get_dummies(table.X, dtype=float)
X_train, X_test, y_train, y_test = train_test_split(
    X, table.y, test_size=0.25, random_state=0
)
