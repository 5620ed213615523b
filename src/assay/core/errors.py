"""Every error and warning that assay raises on purpose.

A message says what, where, how many, and what would work. Each class is also
the builtin that a user would catch without knowing assay.
"""

from __future__ import annotations


class AssayError(Exception):
    """Base of all errors raised on purpose by assay."""


class DataError(AssayError, ValueError):
    """The user's data cannot be used as given."""


class TaskError(AssayError, ValueError):
    """The question does not fit the data or the method."""


class MethodError(AssayError, ValueError):
    """A method was given arguments or a model that it cannot work with."""


class MissingDependency(AssayError, ImportError):
    """An optional package is not installed; the message names the command that installs it."""


class StoreError(AssayError, RuntimeError):
    """The store of results cannot be read or written."""


class AssayWarning(UserWarning):
    """Base of all warnings of assay."""


class InfiniteSetWarning(AssayWarning):
    """Too few calibration rows for the level asked for: the set is everything."""
