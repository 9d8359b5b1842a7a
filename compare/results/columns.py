"""Columns of result tables: one list for Markdown, LaTeX, CSV and JSON tables and the HTML report.

A new figure is a field of ``Result`` and one ``Column`` here; the columns of scores come from ``METRICS``.
"""

from collections.abc import Mapping

from compare.results.column import Column, Group, Row, Shown, SpreadColumn
from compare.results.numbers import UNKNOWN
from compare.results.score_columns import length_columns, likelihood_columns
from compare.system.cpu_share import describe_share


def _seed(row: Row) -> str:
    return str(row.get("seed", UNKNOWN))


def _matched(row: Row) -> str:
    """Format the matched budget and the deviation from it: "params +0.4%"."""
    budget, deviation = row.get("budget"), row.get("budget_off")
    return UNKNOWN if budget is None or deviation is None else f"{budget} {deviation:+.1%}"


def _longer_gain(row: Row) -> str:
    """Format the gain of longer training, and how much longer it was: "+0.7 (1.5x updates)"."""
    gain, factor = row.get("longer_gain"), row.get("longer_factor")
    return UNKNOWN if gain is None or factor is None else f"{gain:+.1f} ({factor:g}x updates)"


def _start(row: Row) -> str:
    """Format the hash of the weights that training started from: "weights 0123456789ab"."""
    found = row.get("init_hash")
    return UNKNOWN if found is None else f"weights {found[:12]}"


def _status(row: Row) -> str:
    """Format the status with its reason: "failed: loss became NaN at update 37"."""
    return f"{row['status']}: {row['reason']}" if row.get("reason") else str(row.get("status"))


def _cpu_share(row: Row) -> str:
    """Format the share of the processor: "97%", or "62%, disturbed"."""
    share = row.get("cpu_share")
    return UNKNOWN if share is None else describe_share(share)


SPREADS = {
    "train_tokens_per_s": "train tokens/s",
    "greedy_sentences_per_s": "greedy sent/s",
    "beam_sentences_per_s": "beam sent/s",
    "latency_ms_p50": "latency p50",
}
"""Titles of the speeds that have a spread, by field."""
SPREAD_ENDS = tuple(f"{name}_{end}" for name in SPREADS for end in ("low", "high"))
"""Fields with the lowest and the highest repeat of these speeds."""
COLUMNS: Mapping[str, Column] = {
    column.name: column
    for column in (
        Column(
            "label",
            "model",
            Group.IDENTITY,
            help="name of the model in the experiment",
            shown=Shown.ALWAYS,
            left=True,
        ),
        Column(
            "experiment",
            "experiment",
            Group.IDENTITY,
            help="name of the folder, with its parent's where two are alike",
            shown=Shown.IF_DIFFERENT,
            left=True,
        ),
        Column(
            "seed",
            "seed",
            Group.IDENTITY,
            help="seed of weights, dropout and batch order",
            shown=Shown.IF_DIFFERENT,
            render=_seed,
        ),
        Column("seeds", "seeds", Group.IDENTITY, help="number of runs behind a mean", shown=Shown.IF_KNOWN),
        Column(
            "preset", "preset", Group.IDENTITY, help="model that the row was made from (attnbench models)"
        ),
        Column(
            "status", "status", Group.IDENTITY, help="done, failed or unfinished", left=True, render=_status
        ),
        Column("reason", "reason", Group.IDENTITY, help="cause of a failure"),
        Column(
            "params",
            "params",
            Group.SIZE,
            unit="M",
            help="trained weights",
            factor=1e-6,
            decimals=2,
            shown=Shown.ALWAYS,
        ),
        Column(
            "params_no_embedding",
            "params without embeddings",
            Group.SIZE,
            help="trained weights but those of embedding tables",
            unit="M",
            factor=1e-6,
            decimals=2,
        ),
        Column(
            "train_flops_per_token",
            "training FLOPs per token",
            Group.SIZE,
            help="floating-point operations of forward and backward pass",
            unit="M",
            factor=1e-6,
            decimals=2,
        ),
        Column(
            "budget_off",
            "matched",
            Group.SIZE,
            help="budget that is equal over the models, and the deviation from it",
            shown=Shown.IF_KNOWN,
            left=True,
            render=_matched,
        ),
        Column("budget", "budget", Group.SIZE, help="quantity that is equal over the models"),
        Column(
            "width_multiple",
            "widths divisible by",
            Group.SIZE,
            help="largest power of two; matrix products are fastest at multiples of 8",
            shown=Shown.IN_REPORT,
        ),
        *likelihood_columns(),
        *length_columns(),
        Column(
            "length_penalty",
            "length penalty",
            Group.QUALITY,
            help="alpha of the translations' length penalty, chosen on validation",
            decimals=2,
            shown=Shown.IF_KNOWN,
        ),
        Column(
            "length_normalization",
            "form of length penalty",
            Group.QUALITY,
            help="wu: ((5 + length) / 6) ** alpha; length: length ** alpha",
            shown=Shown.IF_DIFFERENT,
            left=True,
        ),
        SpreadColumn(
            "train_tokens_per_s",
            "train tokens/s",
            Group.SPEED,
            help="source and target, without padding",
            decimals=0,
            shown=Shown.ALWAYS,
        ),
        Column(
            "together_tokens_per_s",
            "tokens/s of all processes",
            Group.SPEED,
            help="of the training itself; the other speeds are of one process on one device",
            decimals=0,
            shown=Shown.IF_KNOWN,
        ),
        Column(
            "together_tokens_per_s_per_device",
            "the same per device",
            Group.SPEED,
            help="of the processes that trained together",
            decimals=0,
            shown=Shown.IF_KNOWN,
        ),
        Column("processes", "processes", Group.SPEED, help="that trained together", shown=Shown.IF_KNOWN),
        Column("devices", "devices", Group.SPEED, help="of these processes", shown=Shown.IF_KNOWN),
        Column("nodes", "nodes", Group.SPEED, help="hosts of these processes", shown=Shown.IF_KNOWN),
        Column(
            "train_tgt_tokens_per_s",
            "train target tokens/s",
            Group.SPEED,
            help="target tokens alone, without padding",
            decimals=0,
        ),
        Column(
            "train_mfu",
            "train MFU",
            Group.SPEED,
            unit="%",
            help="model FLOPs utilisation, relative to the data sheet's peak",
            factor=100,
            decimals=1,
        ),
        SpreadColumn(
            "greedy_sentences_per_s",
            "greedy sent/s",
            Group.SPEED,
            help="sentences per second of greedy search",
            decimals=1,
            shown=Shown.ALWAYS,
        ),
        SpreadColumn(
            "beam_sentences_per_s",
            "beam sent/s",
            Group.SPEED,
            help="sentences per second of beam search",
            decimals=1,
            shown=Shown.ALWAYS,
        ),
        Column(
            "decode_tokens_per_s",
            "beam tokens/s",
            Group.SPEED,
            help="target tokens of the best hypotheses",
            decimals=0,
        ),
        SpreadColumn(
            "latency_ms_p50",
            "latency p50",
            Group.SPEED,
            unit="ms",
            help="median, one sentence at a time",
            decimals=1,
            shown=Shown.ALWAYS,
        ),
        Column(
            "latency_ms_p95",
            "latency p95",
            Group.SPEED,
            unit="ms",
            help="95th percentile, one sentence at a time",
            decimals=1,
        ),
        Column(
            "cpu_share",
            "CPU share",
            Group.SPEED,
            help="share of the processor that the most disturbed timing had",
            shown=Shown.IN_REPORT,
            render=_cpu_share,
        ),
        *(
            Column(
                f"{name}_{end}",
                f"{title}, {end}est repeat",
                Group.SPEED,
                help=f"{end}est of the timed repeats",
            )
            for name, title in SPREADS.items()
            for end in ("low", "high")
        ),
        Column(
            "peak_memory_bytes",
            "peak memory",
            Group.SPEED,
            help="of training and decoding",
            unit="GB",
            factor=1e-9,
            decimals=2,
        ),
        Column(
            "train_s",
            "train",
            Group.SPEED,
            unit="min",
            help="without validation and checkpoints",
            factor=1 / 60,
            decimals=1,
            shown=Shown.ALWAYS,
        ),
        Column(
            "energy_j_per_1k_tokens",
            "J/1k tokens",
            Group.SPEED,
            help="energy of CPU and GPU in training",
            decimals=1,
            shown=Shown.IN_REPORT,
        ),
        Column("data_s", "data", Group.SPEED, unit="s", help="waiting for batches in training"),
        Column("validation_s", "validation", Group.SPEED, unit="s", help="time of all validations"),
        Column("checkpoint_s", "checkpoints", Group.SPEED, unit="s", help="time of saving"),
        Column("decode_s", "decoding", Group.SPEED, unit="s", help="translation of the test sets"),
        Column(
            "updates",
            "updates",
            Group.TRAINING,
            help="optimizer updates done",
            decimals=0,
            shown=Shown.ALWAYS,
        ),
        Column(
            "stopped_by",
            "stopped by",
            Group.TRAINING,
            help="updates: all of its budget were used; patience: validation no longer improved",
            shown=Shown.IN_REPORT,
            left=True,
        ),
        Column(
            "longer_gain",
            "gain of longer training",
            Group.TRAINING,
            help="validation BLEU that further updates add, on one seed",
            shown=Shown.IF_KNOWN,
            left=True,
            render=_longer_gain,
        ),
        Column("longer_factor", "factor of longer training", Group.TRAINING, help="times the updates"),
        Column("epochs", "epochs", Group.TRAINING, help="passes over the training pairs", decimals=2),
        Column(
            "tokens_seen",
            "training tokens",
            Group.TRAINING,
            help="source and target tokens, without padding",
            unit="M",
            factor=1e-6,
            decimals=2,
        ),
        Column(
            "best_update", "best update", Group.TRAINING, help="update of the best validation", decimals=0
        ),
        Column(
            "valid_loss",
            "validation loss",
            Group.TRAINING,
            help="of the chosen weights, in nats per target token",
        ),
        Column(
            "valid_perplexity",
            "validation perplexity",
            Group.TRAINING,
            help="of the chosen weights, per target token",
        ),
        Column(
            "extended_from",
            "extended from",
            Group.TRAINING,
            help="updates after which training had ended before attnbench extend continued it",
            decimals=0,
            shown=Shown.IF_KNOWN,
        ),
        Column(
            "init_hash",
            "start",
            Group.TRAINING,
            help="sha256 of the weights of another run that training started from; a dash: random weights",
            shown=Shown.IF_KNOWN,
            left=True,
            render=_start,
        ),
        Column("beam", "beam size", Group.CONDITIONS, help="hypotheses per sentence; 1 is greedy search"),
        Column(
            "batch_tokens",
            "tokens per batch",
            Group.CONDITIONS,
            help="maximum of target tokens, padding included",
        ),
        Column("accumulate", "parts per batch", Group.CONDITIONS, help="of gradient accumulation"),
        Column("max_ratio", "maximum length", Group.CONDITIONS, help="per source token, plus 10"),
        Column(
            "valid_every",
            "updates per validation",
            Group.CONDITIONS,
            help="updates between validations",
            decimals=0,
        ),
        Column(
            "average",
            "averaged weights",
            Group.CONDITIONS,
            help="weights of so many validations, or of updates at even distances, may be averaged",
        ),
        Column(
            "average_every",
            "updates per averaged weights",
            Group.CONDITIONS,
            help="distance of the averaged weights; a dash: those of validations",
            decimals=0,
        ),
        Column(
            "ema",
            "moving average",
            Group.CONDITIONS,
            help="decay per update of the average of all weights, which may be used",
        ),
        Column(
            "label_smoothing",
            "label smoothing",
            Group.CONDITIONS,
            help="probability spread over the vocabulary in training",
        ),
        Column(
            "consistency",
            "consistency",
            Group.CONDITIONS,
            help="loss on the divergence of two passes",
        ),
        Column(
            "subword_sampling",
            "subword sampling",
            Group.CONDITIONS,
            help="training text is segmented anew in each epoch",
        ),
        Column("clip_norm", "gradient clipping", Group.CONDITIONS, help="maximum total norm"),
        Column("precision", "precision of training", Group.CONDITIONS, help="fp32, or bf16 (autocast)"),
        Column("recurrent_precision", "precision of recurrent layers", Group.CONDITIONS, help="on a GPU"),
        Column(
            "reproducible",
            "weights reproducible",
            Group.CONDITIONS,
            help="whether a GPU computes the same bits again",
        ),
        Column(
            "decode_precision", "precision of decoding", Group.CONDITIONS, help="fp32, or bf16 (autocast)"
        ),
        Column("device", "device", Group.CONDITIONS, help="processor or GPU of the timings"),
        Column("torch", "torch", Group.CONDITIONS, help="version of torch"),
        Column("threads", "threads", Group.CONDITIONS, help="of torch"),
        Column("cores", "cores", Group.CONDITIONS, help="that the process may use"),
        Column("clock_mhz", "clock", Group.CONDITIONS, help="of the processor", unit="MHz", decimals=0),
        Column("timed_together", "timing", Group.CONDITIONS, help="id of the timing in turn"),
        Column("data_hash", "data", Group.CONDITIONS, help="sha256 of the corpus"),
        Column("batch_hash", "batches", Group.CONDITIONS, help="sha256 of the order of batches"),
        Column("settings_hash", "settings", Group.CONDITIONS, help="sha256 of the settings that rows share"),
        Column("config_hash", "config", Group.CONDITIONS, help="sha256 of all settings"),
        Column(
            "code_version",
            "code",
            Group.CONDITIONS,
            help="version and hash of the sources, of attnbench and of plug-ins",
        ),
    )
}
"""Every column except scores, by name, in the order of tables."""
LEFT_ALIGNED = {text for column in COLUMNS.values() if column.left for text in (column.name, column.heading)}
"""Names and headings of the columns that tables align left."""
