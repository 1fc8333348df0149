"""Hedgerow on a fleet that runs Flower (``pip install 'hedgerow[flower]'``).

:class:`HedgerowStrategy` is the server's side, for a ``ServerApp``; :func:`client_app` makes the
``ClientApp`` of a node from a function that says where its samples are. Messages are Flower's records, and
what a node has to remember between rounds is in Flower's own context, so that every method runs under ``flwr
run``, simulated or deployed. See ``docs/flower.md``.
"""

from hedgerow._extras import need

need("flwr", "flower")

from hedgerow.flower.client import batches_learned, client_app, engine_of  # noqa: E402
from hedgerow.flower.strategy import HedgerowStrategy  # noqa: E402

__all__ = ["HedgerowStrategy", "batches_learned", "client_app", "engine_of"]
