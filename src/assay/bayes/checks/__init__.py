"""Measurements behind claims that a comparison of methods on one table cannot express.

A check is a function of a seed, and of a split where the claim names a dataset; it returns
``{metric: {method: value}}``. Its claims and their verdicts are written as for any comparison.
"""
