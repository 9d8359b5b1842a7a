"""The value of ``--slurm``."""

import pytest

from compare.experiment.launch.slurm_options import SlurmOptions, parse_slurm


def test_every_key_reaches_submitit():
    options = parse_slurm("partition=gpu, gpus=2,time=90,cpus=8,mem=32,qos=q,account=a,constraint=h100")
    assert options.for_submitit() == {
        "slurm_partition": "gpu",
        "gpus_per_node": 2,
        "timeout_min": 90,
        "cpus_per_task": 8,
        "mem_gb": 32.0,
        "slurm_qos": "q",
        "slurm_account": "a",
        "slurm_constraint": "h100",
    }
    assert parse_slurm("cluster=local") == SlurmOptions(cluster="local")
    assert parse_slurm("partition=p").for_submitit() == {"slurm_partition": "p", "timeout_min": 60}


@pytest.mark.parametrize(
    ("time", "minutes"),
    [("5", 5), ("2:00:00", 120), ("0:00:01", 1), ("1-0", 1440), ("1-02:30", 1590), ("1-02:30:30", 1591)],
)
def test_times_are_slurms(time: str, minutes: int):
    assert parse_slurm(f"time={time}").minutes == minutes


@pytest.mark.parametrize(
    ("mem", "gigabytes"), [("4", 4), ("4GB", 4), ("1.5g", 1.5), ("512MB", 0.5), ("256m", 0.25)]
)
def test_memory_is_in_gb_or_mb(mem: str, gigabytes: float):
    assert parse_slurm(f"mem={mem}").parameters == {"mem_gb": gigabytes}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("partion=gpu", "unknown key 'partion'; did you mean 'partition'?"),
        ("gpu=1", "unknown key 'gpu'; did you mean 'gpus'?"),
        ("nodes=2", "unknown key 'nodes'; "),
        ("", "unknown key ''; known are partition, qos,"),
        ("partition=a,", "unknown key ''"),
        ("partition", "partition has no value: write partition=VALUE"),
        ("gpus=1,gpus=2", "gpus is given twice"),
        ("gpus=0", "gpus must be a whole number from 1 on, found '0'"),
        ("cpus=two", "cpus must be a whole number from 1 on, found 'two'"),
        ("time=2:00", "time must be minutes, hours:minutes:seconds or days-hours, found '2:00'"),
        ("time=0", "time must be minutes, "),
        ("mem=32TB", "mem must be a size such as 32, 32GB or 500MB, found '32TB'"),
        ("mem=0", "mem must be a size"),
        ("cluster=pbs", "cluster must be slurm or local, found 'pbs'"),
    ],
)
def test_mistakes_are_named(text: str, message: str):
    with pytest.raises(ValueError, match=r"^--slurm ") as error:
        parse_slurm(text)
    assert str(error.value).startswith(f"--slurm {text}: {message}")
