"""1,797 handwritten digits of 8 x 8 pixels between 0 and 1, from
scikit-learn."""

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(
    X / 16, y, test_size=300, random_state=0
)
