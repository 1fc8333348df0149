"""Hedgerow on a fleet that runs Flower (``pip install 'hedgerow[flower]'``).

:class:`HedgerowStrategy` is the server side, for a ``ServerApp``. :func:`client_app` makes the
``ClientApp`` of a node from a function that yields its samples. Messages are Flower's records. A
node's state is kept in Flower's context between rounds. So every method runs under ``flwr run``,
simulated or deployed. See ``docs/flower.md``.
"""

from hedgerow._extras import need

need("flwr", "flower")

from hedgerow.flower.client import batches_learned, client_app, engine_of  # noqa: E402
from hedgerow.flower.strategy import HedgerowStrategy  # noqa: E402

__all__ = ["HedgerowStrategy", "batches_learned", "client_app", "engine_of"]
