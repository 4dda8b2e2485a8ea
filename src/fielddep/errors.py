"""Errors of the library.

Everything a user can fix is a `UserError`, which the command line prints without a traceback, exiting with 2. A message
says what was expected, what was given and what to do.
"""


class FieldDepError(Exception):
    """Base class of all errors of the library."""


class UserError(FieldDepError, ValueError):
    """Something the caller can fix: input, settings or files. Also a `ValueError`, as scikit-learn expects."""


class ConfigError(UserError):
    """A setting is unknown, of the wrong type or out of range."""


class TableError(UserError):
    """A table cannot be read: missing, empty, ragged, badly encoded or of an unknown format."""


class SourceChangedError(TableError):
    """A file vanished or changed while it was being used."""


class SchemaError(UserError):
    """A table does not match its schema: columns missing, target unusable, too few fields."""


class UnknownValueError(UserError):
    """A value was never seen in training, and `data.handle_unknown` is "error"."""


class SplitError(UserError):
    """A split is impossible, for instance because a part would be empty."""


class BundleError(UserError):
    """A saved model is missing, cut off, altered or of a newer format."""


class StoreError(UserError):
    """A store of encoded rows is missing, unfinished, cut off, altered or of a newer format."""


class CheckpointError(UserError):
    """A checkpoint cannot be used to resume this run."""


class TrainingError(UserError):
    """Training cannot continue, for instance because the loss is not a number."""


class MissingExtraError(UserError):
    """An optional dependency is missing; the message names the extra to install."""
