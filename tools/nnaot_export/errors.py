"""Exceptions and warnings of export()."""


class ExportError(RuntimeError):
    pass


class ExportWarning(UserWarning):
    pass
