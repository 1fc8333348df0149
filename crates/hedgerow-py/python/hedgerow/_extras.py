"""Optional packages."""

from importlib import import_module
from typing import Any


def need(module: str, extra: str) -> Any:
    """Imports a module, or raises an ImportError that names the extra to install.

    >>> need("no_such_module", "plots")
    Traceback (most recent call last):
        ...
    ImportError: no_such_module is needed for this: pip install 'hedgerow[plots]'
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != module.split(".")[0]:
            raise
        message = f"{error.name} is needed for this: pip install 'hedgerow[{extra}]'"
        raise ImportError(message, name=error.name) from None
