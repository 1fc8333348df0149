"""Train one prediction model across many devices without collecting their data.

A :class:`Plan` says what is learned and how. A :class:`Learner` learns on one machine, a
:class:`Federation` runs many nodes in one process, :func:`simulate` runs trials of several methods,
and a :class:`Node` joins a running ``hedgerow serve``. :class:`Engine` and :class:`Server` are a
node and a server without a network, for programs that transport the messages themselves.

>>> from hedgerow import Learner, Plan
>>> learner = Learner(Plan(inputs=2))
>>> learner.learn_one([0.1, 0.2], 0.3)
0.0
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

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
from hedgerow.federation import Federation
from hedgerow.results import Result
from hedgerow.simulation import simulate

if TYPE_CHECKING:
    from hedgerow import flower as flower
    from hedgerow import river as river
    from hedgerow import sklearn as sklearn
else:

    def __getattr__(name: str) -> Any:
        """Imports modules that need an extra on first use."""
        if name in ("flower", "river", "sklearn"):
            return import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "Broadcast",
    "Engine",
    "FeatureMap",
    "Federation",
    "Learner",
    "Node",
    "Plan",
    "Result",
    "Server",
    "Speech",
    "Upload",
    "__version__",
    "simulate",
]
