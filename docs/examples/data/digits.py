"""Handwritten digits of 8 x 8 pixels, from scikit-learn: 600 to learn from and
1,197 to look at."""

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(
    X / 16, y, train_size=600, random_state=0
)
