"""Errors of the library.

Everything a user can fix is a `UserError`: the command line prints it without a traceback and exits with 2.
A message says what was expected, what was given and what to do.
"""


class FieldDepError(Exception):
    """Base of every error this library raises on purpose."""


class UserError(FieldDepError, ValueError):
    """Something the caller can fix: input, settings or files.

    It is a `ValueError` too, so that scikit-learn tools and users' `except ValueError` treat it as one.
    """


class ConfigError(UserError):
    """A setting is unknown, of the wrong type or out of range."""


class TableError(UserError):
    """A table cannot be read: missing, empty, ragged, badly encoded or of an unknown format."""


class SourceChangedError(TableError):
    """A file vanished or changed while it was being used."""


class SchemaError(UserError):
    """A table does not fit its schema: columns absent, target unusable, too few fields."""


class UnknownValueError(UserError):
    """A value never seen in training arrived while `handle_unknown="error"`."""


class SplitError(UserError):
    """A split cannot be made as asked, for instance because one part would be empty."""


class BundleError(UserError):
    """A saved model is missing, cut off, altered or of a newer format."""


class StoreError(UserError):
    """A store of encoded rows is missing, unfinished, cut off, altered or of a newer format."""


class CheckpointError(UserError):
    """A training checkpoint cannot be used to resume this run."""


class TrainingError(UserError):
    """Training cannot continue, for instance because the loss is not a number."""


class MissingExtraError(UserError):
    """An optional dependency is needed; the message names the extra to install."""
