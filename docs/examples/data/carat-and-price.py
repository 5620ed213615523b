"""4,000 cut diamonds from plotnine (`pip install 'assay[data]'`): weight in
carats and price in US dollars, both from the grades alone."""

import pandas as pd
from sklearn.model_selection import train_test_split

from assay.data.builtin import load

frame = load("diamonds").frame
grades = frame[["cut", "color", "clarity", "depth", "table"]]
X = pd.get_dummies(grades, dtype=float)
Y = frame[["carat", "price"]].to_numpy(dtype=float)
X_train, X_test, Y_train, Y_test = train_test_split(
    X, Y, test_size=0.25, random_state=0
)
