"""The server app, which runs beside the SuperLink."""

import json
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from hedgerow import Server
from hedgerow.flower import HedgerowStrategy

from meadow.task import make_plan

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    plan = make_plan(config)
    earlier = str(config["go-on-from"])
    strategy = HedgerowStrategy(
        plan,
        server=Server.restore(plan, Path(earlier).read_bytes()) if earlier else None,
        fraction_evaluate=float(config["fraction-evaluate"]),
    )
    result = strategy.start(grid, num_rounds=int(config["num-server-rounds"]))
    if folder := str(config["save-to"]):
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        (path / "server.bin").write_bytes(strategy.server.save())
        metrics = {"train": result.train_metrics_clientapp, "evaluate": result.evaluate_metrics_clientapp}
        rounds = {kind: {at: dict(record) for at, record in all.items()} for kind, all in metrics.items()}
        (path / "metrics.json").write_text(json.dumps(rounds))
