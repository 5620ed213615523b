"""7,126 months of homes sold in Texas (number, median price, listings ...),
from plotnine (`pip install 'assay[data]'`): which of 46 cities are the figures
from?"""

from sklearn.model_selection import train_test_split

from assay.data.builtin import load

table = load("texas-housing")
X, y = table.X, table.y.to_numpy()
X_train, X_test, y_train, y_test = train_test_split(
    X, y, test_size=0.25, stratify=y, random_state=0
)
