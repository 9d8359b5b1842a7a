"""Several budgets of one model and seed: a run starts from the trunk that the smaller ones have trained."""

import logging
from dataclasses import replace

from compare.config.resolve import Run
from compare.results.run_folder import RunFolder
from compare.training.checkpoints import CHECKPOINTS, STATE, TRUNK, has_begun
from data.files import write_atomically

logger = logging.getLogger(__name__)


def smaller_budgets(run: RunFolder) -> list[RunFolder]:
    """Open the begun folders of the same model and seed with a smaller budget, largest first."""
    budget = run.run.train.budget or 0
    folders = [(other, other.run.train.budget or 0) for other in _other_budgets(run)]
    return [other for other, its_budget in folders if its_budget < budget]


def _other_budgets(run: RunFolder) -> list[RunFolder]:
    budget = run.run.train.budget
    if budget is None:
        return []
    stem = run.name.removesuffix(str(budget))
    folder, data_root = run.folder.parent, run.run.data.root
    names = (path.parent.name.removeprefix(stem) for path in folder.glob(f"{stem}*/config.toml"))
    numbers = sorted((int(name) for name in names if name.isdigit() and int(name) != budget), reverse=True)
    return [RunFolder.read(folder / f"{stem}{number}", data_root=data_root) for number in numbers]


def start_from_trunk(run: RunFolder) -> None:
    """Give a run without state the last state of the trunk, and the log that belongs to it.

    The state is written last: a process killed in between leaves nothing that looks begun. The log may have
    lines beyond the state; the trainer drops them.
    """
    checkpoints = run.folder / CHECKPOINTS
    if has_begun(checkpoints):
        return
    others = [other for other in _other_budgets(run) if _is_same_but_for_budget(other.run, run.run)]
    missing = []
    for other in others:
        trunk = other.folder / CHECKPOINTS / TRUNK
        if other.run.train.max_updates > run.run.train.max_updates:
            continue
        if not (trunk / STATE).is_file():
            missing.append(str(trunk))
            continue
        checkpoints.mkdir(parents=True, exist_ok=True)
        snapshots = sorted(path.name for path in trunk.glob("update-*.safetensors"))
        write_atomically(run.metrics, other.metrics.read_bytes())
        for name in (*snapshots, STATE):
            write_atomically(checkpoints / name, (trunk / name).read_bytes())
        origin = f"starts from update {other.run.train.branch_update:,} of {other.name}"
        break
    else:
        origin = "starts from update 0, since no smaller budget has saved a state"
    if missing:
        logger.warning(f"{run.name}: {', '.join(missing)} is not there: {origin}")
    elif others:
        logger.info(f"{run.name}: {origin}")


def _is_same_but_for_budget(other: Run, run: Run) -> bool:
    """Return whether two runs differ only in budget and measurement of speed."""
    budget = run.train.budget or run.train.max_updates
    train = replace(other.train.for_budget(budget), init_from=run.train.init_from)
    return replace(other, train=train, bench=run.bench, data=run.data) == run
