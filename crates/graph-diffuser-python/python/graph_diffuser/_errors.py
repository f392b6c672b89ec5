"""Exceptions of the package; the native module raises them too."""

from __future__ import annotations


class Error(Exception):
    """Base class of all exceptions of this package.

    >>> import graph_diffuser as gd
    >>> try:
    ...     gd.load("runs/missing")
    ... except gd.Error as error:
    ...     print(error.hint)
    pass a directory written by `graph-diffuser train`
    """

    #: Suggestion that fixes the error, if there is one.
    hint: str | None
    #: Index of the invalid row of an input, if the error concerns one row.
    row: int | None

    def __init__(self, message: str, hint: str | None = None, row: int | None = None) -> None:
        super().__init__(message, hint, row)
        self.hint = hint
        self.row = row

    def __str__(self) -> str:
        message = str(self.args[0])
        return message if self.hint is None else f"{message}\nhint: {self.hint}"


class InvalidInputError(Error, ValueError):
    """An argument or a row of an input is invalid."""
