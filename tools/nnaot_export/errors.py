"""What export() raises, and what it warns of."""


class ExportError(RuntimeError):
    pass


class ExportWarning(UserWarning):
    pass
