import numpy as np

method = METHOD
lower, upper = method.run(y, forecasts).T  # each made the day before

low, high = method.predict_interval(series[-1])
print(f"tomorrow: {low:,.1f} to {high:,.1f}")
later = slice(250, None)  # the first 250 days are for learning
inside = ((lower <= y) & (y <= upper))[later]
width = (upper - lower)[later]
over_100 = np.convolve(inside, np.ones(100) / 100, "valid")
print(f"{inside.mean():.1%} of {len(inside):,} days inside, 90 % asked for")
print(f"over 100 days: {over_100.min():.0%} to {over_100.max():.0%}")
print(f"median width {np.median(width):,.1f}", end=", ")
print(f"from {width.min():,.1f} to {width.max():,.1f}")
