"""Train one prediction model across many devices without collecting their data.

A :class:`Plan` says what is learned and how. A :class:`Learner` learns on one machine, a
:class:`Federation` runs many nodes in one process, :func:`simulate` runs trials of several methods,
:func:`compare` ranks them, :func:`load` reads a saved model, and a :class:`Node` joins a running
``hedgerow serve``. :class:`Engine`
and :class:`Server` are a node and a server without a network, for programs that transport the
messages themselves.

>>> from hedgerow import Learner, Plan
>>> learner = Learner(Plan(inputs=2))
>>> learner.learn_one([0.1, 0.2], 0.3)
0.0
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hedgerow import callbacks
from hedgerow._hedgerow import (
    Broadcast,
    Engine,
    FeatureMap,
    Learner,
    Node,
    Plan,
    Server,
    Speech,
    Upload,
    __version__,
)
from hedgerow.comparison import Comparison, compare
from hedgerow.federation import Federation
from hedgerow.frames import Frame
from hedgerow.models import Model, load
from hedgerow.results import Result
from hedgerow.simulation import simulate

if TYPE_CHECKING:
    from hedgerow import flower as flower
    from hedgerow import river as river
    from hedgerow import sklearn as sklearn
else:

    def __getattr__(name: str) -> Any:
        """Imports modules that need an extra on first use."""
        if name in _EXTRAS:
            return import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "Broadcast",
    "Comparison",
    "Engine",
    "FeatureMap",
    "Federation",
    "Frame",
    "Learner",
    "Model",
    "Node",
    "Plan",
    "Result",
    "Server",
    "Speech",
    "Upload",
    "__version__",
    "callbacks",
    "compare",
    "load",
    "simulate",
]

# Modules that need other packages.
_EXTRAS = ("flower", "river", "sklearn")


def __dir__() -> list[str]:
    return sorted((*__all__, *_EXTRAS))
