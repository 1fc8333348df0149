"""A node: ``flwr run`` sends it wherever a SuperNode is."""

from hedgerow.flower import client_app

from meadow.task import evaluation, samples

app = client_app(samples, evaluation=evaluation, from_start=False)
