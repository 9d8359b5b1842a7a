"""The environment variables by which torchrun tells a process its rank and its device."""

import os
import socket

from compare.system.messages import abbreviate

VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""Variables that torchrun sets and that are needed here."""


def is_main_process() -> bool:
    """Tell, before the processes have joined, whether this one is alone or process 0."""
    return os.environ.get("RANK", "0") == "0"


def is_torchrun() -> bool:
    """Tell whether torchrun has started several processes, of which this is one."""
    return "TORCHELASTIC_RUN_ID" in os.environ and os.environ.get("WORLD_SIZE") != "1"


def rank_and_size() -> tuple[int, int]:
    """Return the rank of this process and the number of processes; without torchrun rank 0 of 1.

    Raises:
        ValueError: the variables contradict each other.
    """
    given = {name: os.environ[name] for name in VARIABLES if name in os.environ}
    if not given.keys() & {"RANK", "WORLD_SIZE"}:
        return 0, 1
    if missing := [name for name in VARIABLES if name not in given]:
        raise ValueError(
            f"the environment has {next(iter(given))} but not {missing[0]}: torchrun sets both; "
            "start with torchrun, or unset RANK and WORLD_SIZE"
        )
    try:
        rank, size, local_rank, local_size = (int(given[name]) for name in VARIABLES[:4])
    except ValueError:
        rank = size = local_rank = local_size = -1
    if not (0 <= rank < size and 0 <= local_rank < local_size <= size):
        values = ", ".join(f"{name}={abbreviate(given[name])}" for name in VARIABLES[:4])
        raise ValueError(f"the environment has {values}, which torchrun never sets: start with torchrun")
    return rank, size


def pick_own_device(name: str) -> str:
    """Let this one of several processes of a host use its own device.

    Args:
        name: cpu, or cuda for the GPU that has the number LOCAL_RANK.

    Returns:
        The name of the device among those of this host.

    Raises:
        ValueError: there are more processes than GPUs, or torch lacks NCCL.
    """
    if name == "cpu":
        return name
    if name != "cuda":
        raise ValueError(
            f"train.device is {name}, but several processes compute on cpu or cuda, one GPU each"
        )
    import torch
    import torch.distributed as dist

    count, wanted = torch.cuda.device_count(), int(os.environ["LOCAL_WORLD_SIZE"])
    if wanted > count:
        raise ValueError(
            f"{wanted} processes on {socket.gethostname()}, which has {count} GPUs: "
            "start at most one per GPU (torchrun --nproc-per-node), or set train.device=cpu"
        )
    if not dist.is_nccl_available():
        raise ValueError("this torch was built without NCCL: start one process, or set train.device=cpu")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    return f"cuda:{torch.cuda.current_device()}"
