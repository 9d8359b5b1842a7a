"""Settings that the nodes of a cluster need, decided on the machine that submits the jobs."""

from dataclasses import replace

from compare.config.run import Run, resolve_models
from compare.config.sections import Experiment
from compare.experiment.launch.slurm_options import SlurmOptions
from compare.experiment.launch.slurm_queue import ensure_cluster


def resolve_for_nodes(experiment: Experiment, context: str, options: SlurmOptions) -> list[Run]:
    """Decide the settings of each model, for the nodes of the cluster.

    Args:
        experiment: the experiment as written.
        context: the file that error messages name.
        options: what each job asks for.

    Raises:
        ValueError: bad settings, something that only a node could decide, or no cluster.
    """
    ensure_cluster(options)
    if experiment.budget.match == "time":
        raise ValueError(
            f"{context}: budget.match = 'time' is measured on the device of the runs, which this machine "
            "may lack: with --slurm, match updates, params or flops"
        )
    train = experiment.train
    if train.device == "auto":
        train = replace(train, device="cuda" if options.gpus else "cpu")
    if train.device != "cpu" and train.precision == "auto":
        raise ValueError(
            f"{context}: train.precision = 'auto' is decided by the GPU, which this machine may lack: "
            "with --slurm, add --set train.precision=bf16 or fp32"
        )
    return resolve_models(replace(experiment, train=train), context, other_machine=True)
