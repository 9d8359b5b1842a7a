"""Forgeries of timings, of the choice of runs, and of the files of the whole experiment."""

from tests.kits.forgery import edit_text
from tests.kits.tamper import Tamper
from tests.kits.tamper_actions import (
    LSTM,
    OTHER,
    RUN,
    copy_files,
    duplicate_seed,
    fail,
    invent,
    move_runs,
    registry,
    renumber_seed,
    take_out,
)
from tests.kits.tamper_measurements import (
    halve_times,
    inflate_tokens,
    keep_fastest,
    keep_fastest_of_fewer,
    timings,
)

TAMPERS_OF_EXPERIMENTS = (
    # The timings.
    Tamper(
        "slow repeats of training left out",
        timings(keep_fastest, RUN, OTHER),
        "luong-seed1: speed.json: repeats of train: recorded 1, found 2",
        figures=True,
    ),
    Tamper(
        "beam search of one seed twice as fast",
        timings(halve_times, RUN),
        "luong-seed2: speed.json: times: recorded those of its label, found others",
        figures=True,
    ),
    Tamper(
        "tokens of timed training doubled",
        timings(inflate_tokens, RUN, OTHER),
        "lstm-seed1: speed.json: tokens of train, as in other runs: recorded 1540, found 3080",
        figures=True,
    ),
    Tamper(
        "the fastest repeat of one model kept, and fewer repeats asked for in one config",
        keep_fastest_of_fewer,
        "lstm-seed1: speed.json: repeats of train, as in other runs: recorded 2, found 1",
        figures=True,
    ),
    Tamper(
        "one model timed in another precision",
        timings(lambda content: content["session"].update(decode_precision="bf16"), RUN, OTHER),
        "lstm-seed1: speed.json: decode_precision, as in other runs: recorded fp32, found bf16",
        figures=True,
    ),
    # The runs, and the files of the experiment.
    Tamper(
        "a bad seed counted as diverged",
        fail,
        "luong-seed2: status: recorded failed, found done",
    ),
    Tamper(
        "a seed that is a copy of another",
        duplicate_seed,
        "luong-seed2: times in metrics.jsonl: recorded its own, found those of luong-seed1",
        figures=True,
    ),
    Tamper(
        "a seed called by another number",
        renumber_seed,
        "luong-seed7: metrics.jsonl: src_tokens of update … (and … more): recorded 1363, found 1392",
        figures=True,
    ),
    Tamper(
        "timings copied from another run",
        copy_files(LSTM, RUN, "speed.json"),
        "lstm-seed1: times in speed.json: recorded its own, found those of luong-seed1",
        figures=True,
    ),
    Tamper(
        "a bad seed deleted, with its name in `runs`",
        take_out,
        "experiment.json: runs, luong-seed2: recorded not listed, found asked for",
    ),
    Tamper(
        "a run taken out of `runs`, its folder still there",
        lambda folder: move_runs(folder, OTHER, ""),
        "experiment.json: runs, luong-seed2: recorded not listed, found asked for",
    ),
    Tamper(
        "a model that was never trained",
        invent,
        "miracle-seed1: config.toml: recorded a file, found no such file",
    ),
    Tamper(
        "the seeds asked for taken out",
        registry(lambda content: content.pop("asked_seeds")),
        "experiment.json: asked_seeds, luong-seed1: recorded not asked for, found asked for",
    ),
    Tamper(
        "`data_hash` of the experiment",
        registry(lambda c: c.update(data_hash="0" * 64)),
        "experiment.json: data_hash of luong-seed1: recorded …, found …",
    ),
    Tamper(
        "`test.src`",
        lambda f: edit_text(f / "test.src", "dog", "cat"),
        "test.src: content: recorded as in the corpus, found something else",
    ),
)
