"""Forgeries of result records and configs."""

from tests.kits.tamper import Tamper
from tests.kits.tamper_actions import LSTM, OTHER, RUN, RUNS, claim_old_version, config, drop_hash, row, swap

ONE, BOTH = (RUN,), (RUN, OTHER)
LEARNING_RATE = ("learning_rate = 0.03", "learning_rate = 0.01")
BATCH_TOKENS = ("batch_tokens = 90", "batch_tokens = 80")

TAMPERS_OF_SETTINGS = (
    # The record of a run.
    Tamper("`beam` of a row", row(beam=5), "luong-seed1: beam: recorded 5, found 2"),
    Tamper(
        "`batch_tokens` of a row",
        row(batch_tokens=4096),
        "luong-seed1: batch_tokens: recorded 4096, found 90",
    ),
    Tamper(
        "`precision` of a row", row(precision="bf16"), "luong-seed1: precision: recorded bf16, found fp32"
    ),
    Tamper(
        "`preset` of a row",
        row(preset="bahdanau"),
        "luong-seed1: preset: recorded bahdanau, found luong-general",
    ),
    Tamper(
        "`label_smoothing` of a row",
        row(label_smoothing=0.0),
        "luong-seed1: label_smoothing: recorded …, found …",
    ),
    Tamper(
        "`consistency` of a row",
        row(consistency="r-drop, weight 2.5"),
        "luong-seed1: consistency: recorded r-drop, weight …, found None",
    ),
    Tamper(
        "`ema` of a row",
        row(ema=0.999),
        "luong-seed1: ema: recorded …, found None",
    ),
    Tamper(
        "`average_every` of a row",
        row(average_every=250),
        "luong-seed1: average_every: recorded 250, found None",
    ),
    Tamper(
        "`subword_sampling` of a row",
        row(subword_sampling="bpe 0.1"),
        "luong-seed1: subword_sampling: recorded bpe …, found None",
    ),
    Tamper(
        "`accumulate` of a row",
        row(accumulate=4),
        "luong-seed1: accumulate: recorded 4, found None",
    ),
    Tamper(
        "`init_hash` of a row",
        row(init_hash="0" * 64),
        "luong-seed1: init_hash: recorded …, found None",
    ),
    Tamper(
        "`extended_from` of a row",
        row(extended_from=500),
        "luong-seed1: extended_from: recorded 500, found None",
    ),
    Tamper(
        "`settings_hash` of a row",
        row(settings_hash="0" * 64),
        "luong-seed1: settings_hash: recorded …, found …",
    ),
    Tamper(
        "`status` of a row",
        row(status="failed", reason="diverged"),
        "luong-seed1: status: recorded failed, found done",
    ),
    Tamper(
        "a reason of failure in a run that is done",
        row(reason="diverged"),
        "luong-seed1: reason of a failure: recorded a reason, found no reason",
    ),
    Tamper(
        "`files` emptied",
        row(files={}),
        "luong-seed1: checkpoints/final.safetensors: recorded no hash, found …",
    ),
    Tamper("one hash taken out of `files`", drop_hash, "luong-seed1: test.hyp: recorded no hash, found …"),
    Tamper("`ter` set to null", row(ter=None), "luong-seed1: ter: recorded None, found …"),
    Tamper(
        "scores of the second test set taken out",
        row(tests={}),
        "luong-seed1: bleu_test_short: recorded None, found …",
    ),
    Tamper(
        "scores of a test set that does not exist",
        row(tests={"test_easy": {"bleu": 90.0}}),
        "luong-seed1: bleu_test_easy: recorded …, found None",
    ),
    Tamper(
        "a budget that was never matched",
        row(budget="params", budget_off=0.0),
        "luong-seed1: budget: recorded params, found None",
    ),
    Tamper(
        "results of two models exchanged",
        swap("result.json", RUN, LSTM),
        "error: …/luong-seed1/result.json is of label 'lstm' and seed 1, "
        "but its folder is not 'lstm-seed1': put the run's own back",
    ),
    Tamper(
        "`result.json` of a finished run deleted",
        lambda f: (f / RUN / "result.json").unlink(),
        "luong-seed1: status: recorded unfinished, found done",
    ),
    Tamper(
        "a figure left out, as if by an earlier version",
        claim_old_version,
        "luong-seed1: ter: recorded None, found …",
    ),
    # The config of a run.
    Tamper(
        "learning rate in one config",
        config(*LEARNING_RATE, ONE),
        "luong-seed1: metrics.jsonl: learning_rate of update … (and … more): recorded …, found …",
    ),
    Tamper(
        "learning rate in the configs of all seeds",
        config(*LEARNING_RATE, BOTH),
        "luong-seed2: metrics.jsonl: learning_rate of update … (and … more): recorded …, found …",
    ),
    Tamper(
        "`dropout` in one config",
        config("dropout = 0.1", "dropout = 0.3", ONE),
        "luong-seed2: dropout in config.toml, as in other runs: recorded …, found …",
    ),
    Tamper(
        "`max_updates` in every config",
        config("max_updates = 120", "max_updates = 1200", RUNS),
        "luong-seed1: metrics.jsonl: learning_rate of update … (and … more): recorded …, found …",
    ),
    Tamper(
        "`beam_size` in one config",
        config("beam_size = 2", "beam_size = 5", ONE),
        "luong-seed1: decode.beam_size in config.toml, as in other runs: recorded 5, found 2",
        figures=True,
    ),
    Tamper(
        "`batch_tokens` in one config",
        config(*BATCH_TOKENS, ONE),
        "luong-seed1: metrics.jsonl: src_tokens of update … (and … more): recorded 1376, found 1241",
        figures=True,
    ),
    Tamper(
        "`batch_tokens` in every config",
        config(*BATCH_TOKENS, RUNS),
        "luong-seed1: metrics.jsonl: src_tokens of update … (and … more): recorded 1376, found 1241",
        figures=True,
    ),
    Tamper(
        "`max_test` in one config",
        config("max_test = 30", "max_test = 0", ONE),
        "test.src: content: recorded as in the corpus, found something else",
    ),
    Tamper(
        "`valid_every` in every config",
        config("valid_every = 50", "valid_every = 60", RUNS),
        "luong-seed1: metrics.jsonl: update of train line … (and … more): recorded 50, found 60",
        figures=True,
    ),
    Tamper(
        "`average` in every config",
        config("average = 2", "average = 1", RUNS),
        "luong-seed1: metrics.jsonl: validation of averaged weights: recorded 1, found 0",
        figures=True,
    ),
    Tamper(
        "`patience` in every config",
        config("patience = 0", "patience = 1", RUNS),
        "experiment.json: settings_hash of luong-seed1: recorded …, found …",
        figures=True,
    ),
    Tamper(
        "the label in a config",
        config('label = "luong"', 'label = "bahdanau"', ONE),
        "luong-seed1: label and seed in config.toml: recorded bahdanau-seed1, found luong-seed1",
    ),
)
