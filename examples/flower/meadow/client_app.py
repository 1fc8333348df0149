"""The node app, which ``flwr run`` sends to every SuperNode."""

from hedgerow.flower import client_app

from meadow.task import evaluation, samples

app = client_app(samples, evaluation=evaluation, from_start=False)
