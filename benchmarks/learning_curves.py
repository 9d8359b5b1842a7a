"""Write all validations in the logs of runs, finished or not, as one CSV file.

    python -m benchmarks.learning_curves FOLDER FILE

FOLDER holds experiments, whose runs have a metrics.jsonl each. A row is one validation: experiment, run,
update, epoch, seconds of training, loss (nats per target token) and BLEU (greedy, 0 to 100).
"""

import sys
from pathlib import Path

import pandas as pd

from compare.training.checkpoints import METRICS, lines_by_update, read_metrics
from data.files import write_atomically


def learning_curves(folder: Path) -> pd.DataFrame:
    """Read the validations of all runs in the experiments of a folder.

    Where a resumed run logged an update twice, the later line counts.

    Raises:
        ValueError: there is no run, or a log is damaged.
    """
    logs = sorted(folder.glob(f"*/*/{METRICS}"))
    if not logs:
        raise ValueError(
            f"{folder} holds no experiment with a run: no {METRICS} in the folders of its folders"
        )
    columns = ["update", "epoch", "seconds", "loss", "bleu"]
    curves = []
    for log in logs:
        lines = lines_by_update(read_metrics(log), "valid")
        curve = pd.DataFrame(list(lines.values()), columns=columns).astype(dict.fromkeys(columns[2:], float))
        curve.insert(0, "experiment", log.parent.parent.name)
        curve.insert(1, "run", log.parent.name)
        curves.append(curve)
    return pd.concat(curves).round({"seconds": 0, "loss": 4, "bleu": 2}).astype({"seconds": int})


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python -m benchmarks.learning_curves FOLDER FILE")
    try:
        curves = learning_curves(Path(sys.argv[1]))
        write_atomically(Path(sys.argv[2]), curves.to_csv(index=False, lineterminator="\n"))
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
