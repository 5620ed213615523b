"""The HTML report of a comparison: one self-contained file that opens offline."""
