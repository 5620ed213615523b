"""The engine: a question becomes a plan, the plan trials, the trials a comparison.

Knows cards and tasks, never a family of methods.
"""
