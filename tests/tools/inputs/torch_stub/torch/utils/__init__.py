from . import _pytree  # noqa: F401
