"""Columns of result tables: one list for Markdown, LaTeX, CSV and JSON tables and the HTML report.

A new figure is a field of ``Result`` and one ``Column`` here; the columns of scores come from ``METRICS``.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields, replace
from difflib import get_close_matches
from enum import Enum, auto
from typing import Any

from compare.config.parse import field_docstrings
from compare.results.result import Result
from compare.results.store import DTYPES
from compare.results.text import UNKNOWN, format_number
from compare.scoring.metrics import METRICS, metric_of
from compare.scoring.score import HEADLINE
from compare.system.processor import describe_share

# Definition of a column of result tables.


Row = Mapping[str, Any]
"""Values of one run or model by column name, with the standard deviation over seeds in ``<name>_sd``."""


class Group(Enum):
    """Subjects of columns, in the order of tables."""

    IDENTITY = auto()
    SIZE = auto()
    QUALITY = auto()
    SPEED = auto()
    TRAINING = auto()
    CONDITIONS = auto()


class Shown(Enum):
    """Default visibility of a column; every column can be chosen by name."""

    ALWAYS = auto()
    IF_KNOWN = auto()
    """Where any row has a value."""
    IF_DIFFERENT = auto()
    """Where the rows have different values."""
    IN_REPORT = auto()
    """In the HTML report only, where any row has a value."""
    NEVER = auto()


@dataclass(frozen=True)
class Column:
    """A column of result tables."""

    name: str
    """Field of ``Result``, or a column of aggregated tables."""
    title: str
    group: Group
    _: KW_ONLY
    unit: str = ""
    """Unit of the printed value, where the title does not name it."""
    help: str = ""
    factor: float = 1
    """Factor from the stored value to the printed one."""
    decimals: int | None = None
    """Decimal places of the printed value; None: as ``format_number``."""
    shown: Shown = Shown.NEVER
    left: bool = False
    """Whether tables align it left."""
    render: Callable[[Row], str] | None = None
    """Function that makes the text of a cell; by default the formatted value."""

    @property
    def heading(self) -> str:
        """Title and unit."""
        return f"{self.title} ({self.unit})" if self.unit else self.title

    def stored(self) -> list[list[str]]:
        """Return the stored fields that the cell is made of; of several lists, the first that a row has."""
        return [[self.name]]

    def text(self, row: Row) -> str:
        """Return the cell of ``row``, with the standard deviation over seeds where there is one."""
        if self.render is not None:
            return self.render(row)
        value, deviation = row.get(self.name), row.get(f"{self.name}_sd")
        text = self._format(value)
        return f"{text} ± {self._format(deviation)}" if deviation and value is not None else text

    def order(self, row: Row) -> float | None:
        """Return the number to sort by; None where the value is text or unknown."""
        value = row.get(self.name)
        return value * self.factor if isinstance(value, int | float) else None

    def _format(self, value: Any) -> str:
        if not isinstance(value, int | float):
            return format_number(value)
        value *= self.factor
        return format_number(value) if self.decimals is None else f"{value:,.{self.decimals}f}"


@dataclass(frozen=True)
class SpreadColumn(Column):
    """A column of medians with the lowest and highest repeat, "4,012 (3,950–4,100)", sorted by the median."""

    def text(self, row: Row) -> str:
        """Return the median and, where it is known, the spread."""
        low, high = (row.get(f"{self.name}_{end}") for end in ("low", "high"))
        spread = "" if low is None or high is None else f" ({self._format(low)}–{self._format(high)})"
        return super().text(row) + spread


@dataclass(frozen=True)
class IntervalColumn(Column):
    """A column with both ends of a confidence interval, "[36.6, 39.7]", sorted by the lower end."""

    _: KW_ONLY
    intervals: Sequence[str]
    """Kinds of interval of the metric ``name``; the first that the row has is printed."""
    test: str = ""
    """A further test set; empty: the first."""

    def stored(self) -> list[list[str]]:
        """Return the fields of both ends of each kind of interval."""
        return [list(self._names(kind)) for kind in self.intervals]

    def text(self, row: Row) -> str:
        """Return both ends, or a dash where they are unknown."""
        ends = self._ends(row)
        return f"[{', '.join(map(self._format, ends))}]" if ends else UNKNOWN

    def order(self, row: Row) -> float | None:
        """Return the lower end; None where the interval is unknown."""
        ends = self._ends(row)
        return ends[0] if ends else None

    def _ends(self, row: Row) -> tuple[float, float] | None:
        for kind in self.intervals:
            low, high = map(row.get, self._names(kind))
            if low is not None and high is not None:
                return low, high
        return None

    def _names(self, kind: str) -> tuple[str, str]:
        """Return the fields of both ends of an interval."""
        suffix = f"_{self.test}" if self.test else ""
        return f"{self.name}_{kind}_low{suffix}", f"{self.name}_{kind}_high{suffix}"


# Columns of scores in result tables, from the registry of metrics.


PRIMARY = "bleu"
"""The metric with confidence intervals over seeds and columns of further test sets."""
INTERVALS = {
    "test_set": ("test set [95%]", "for other sentences and these very models (bootstrap)"),
    "seeds": ("seeds [95%]", "for other seeds and these very sentences (Student's t)"),
    "combined": (
        "combined [95%]",
        "for other seeds and other sentences (Student's t on the variance of both; never narrower than that "
        "over seeds)",
    ),
}
"""Headings and explanations of the confidence intervals of BLEU over seeds."""


def score_column(metric: str, test: str = "") -> Column:
    """Return the column of a metric.

    Args:
        metric: name in ``METRICS``.
        test: a further test set; empty: the first.
    """
    definition = METRICS[metric]
    return Column(
        f"{metric}_{test}" if test else metric,
        f"{definition.heading} {test}".strip(),
        Group.QUALITY,
        help=definition.help + ("" if definition.higher_is_better else "; lower is better"),
        decimals=definition.decimals,
        shown=Shown.ALWAYS if metric in HEADLINE.metrics else Shown.IF_KNOWN,
    )


def score_and_interval_column(metric: str, test: str = "") -> Column:
    """Return the column of a metric with the interval of a single run: "38.1 [36.6, 39.7]"."""
    score = score_column(metric, test)
    interval = IntervalColumn(
        metric, "", Group.QUALITY, intervals=("ci",), test=test, decimals=score.decimals
    )

    def text(row: Row) -> str:
        return score.text(row) if interval.order(row) is None else f"{score.text(row)} {interval.text(row)}"

    return replace(score, title=f"{score.title} [95%]", render=text)


def length_columns(test: str = "") -> list[Column]:
    """Return the columns that tell whether BLEU suffers from the length of the translations.

    Args:
        test: a further test set; empty: the first.
    """
    titles = {
        "length_ratio": ("length ratio", "tokens of the translations over tokens of the references"),
        "brevity_penalty": ("brevity penalty", "factor of BLEU for translations that are too short"),
    }
    return [
        Column(
            f"{name}_{test}" if test else name,
            f"{title} {test}".strip(),
            Group.QUALITY,
            help=explanation,
            decimals=3,
            shown=Shown.ALWAYS,
        )
        for name, (title, explanation) in titles.items()
    ]


def likelihood_columns(test: str = "") -> list[Column]:
    """Return the columns of the perplexity of the references.

    Args:
        test: a further test set; empty: the first.
    """
    return [
        Column(
            f"perplexity_{test}" if test else "perplexity",
            f"perplexity {test}".strip(),
            Group.QUALITY,
            help="of the references per target token, end of sentence included, without label smoothing; "
            "compares models of one vocabulary; lower is better",
            decimals=2,
            shown=Shown.IF_KNOWN,
        ),
        Column(
            f"char_perplexity_{test}" if test else "char_perplexity",
            f"perplexity per character {test}".strip(),
            Group.QUALITY,
            help="of the references, line ends included; compares different vocabularies, but unknown words "
            "(<unk>) make it too low; lower is better",
            decimals=3,
            shown=Shown.IF_KNOWN,
        ),
    ]


def bleu_interval_column(kind: str, test: str = "") -> Column:
    """Return the column of an interval of mean BLEU.

    Args:
        kind: name in ``INTERVALS``; "test_set" also shows the bootstrap interval of a single run.
        test: a further test set; empty: the first.
    """
    title, explanation = INTERVALS[kind]
    return IntervalColumn(
        "bleu",
        f"{test} {title}".strip(),
        Group.QUALITY,
        help=f"BLEU {explanation}",
        shown=Shown.ALWAYS,
        decimals=METRICS["bleu"].decimals,
        intervals=(kind, "ci") if kind == "test_set" else (kind,),
        test=test,
    )


def external_metrics(columns: Iterable[str], test: str = "") -> list[str]:
    """List the metrics of a row that are not registered: those of programs outside, or of missing plug-ins.

    Args:
        columns: columns of the row.
        test: a further test set; empty: the first.
    """
    names, suffix = list(columns), f"_{test}" if test else ""
    end = f"_signature{suffix}"
    found = [name.removesuffix(end) for name in names if name.endswith(end) and metric_of(name) is None]
    return [metric for metric in found if f"{metric}{suffix}" in names]


def external_columns(columns: Iterable[str]) -> list[Column]:
    """Return the columns of ``external_metrics``, of all test sets.

    Args:
        columns: columns of one row, or of all.
    """
    names = list(dict.fromkeys(columns))
    return [
        Column(
            f"{metric}_{test}" if test else metric,
            f"{metric} {test}".strip(),
            Group.QUALITY,
            help="from outside (attnbench score FOLDER --external); check recomputes only the mean",
            shown=Shown.IF_KNOWN,
        )
        for test in ("", *further_tests(names))
        for metric in external_metrics(names, test)
    ]


def further_tests(columns: Iterable[str]) -> list[str]:
    """List the test sets after the first, which have columns such as ``perplexity_test_long``."""
    prefixes = "bleu_signature_", "perplexity_"  # language models lack the first, earlier versions the second
    known = dict.fromkeys(columns)
    deviations = {name for name in known if name.endswith("_sd") and name.removesuffix("_sd") in known}
    names = [name for name in known if name not in deviations]
    found = (name.removeprefix(prefix) for name in names for prefix in prefixes if name.startswith(prefix))
    return list(dict.fromkeys(found))


def are_language_models(rows: Iterable[Row]) -> bool:
    """Return whether all finished rows, at least one, are of language models: perplexity, no search."""
    done = [row for row in rows if row.get("status", "done") == "done"]
    return bool(done) and all(row.get("perplexity") is not None and row.get("beam") is None for row in done)


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
            "late_gain",
            "gain of the last quarter",
            Group.TRAINING,
            help="validation BLEU that the last quarter of the updates has added",
            shown=Shown.IN_REPORT,
            decimals=2,
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


# Columns by the name that people see: headings, fields, and an explanation of each.


FURTHER_FIELDS = (
    ("METRIC_signature", "sacreBLEU's signature of a metric"),
    (
        "NAME, NAME_signature",
        "score and signature of a metric from outside, such as comet (score FOLDER --external); where known",
    ),
    ("METRIC_ci_low, METRIC_ci_high", "95% bootstrap interval of one run, for other sentences"),
    ("FIELD_sd", "standard deviation of a field over seeds, in aggregated tables"),
    ("FIELD_TEST", "a score, interval, length or perplexity on a further test set, such as bleu_test_long"),
)
"""Patterns of the fields that are no columns of their own, with explanations."""
SHOWN = {
    Shown.ALWAYS: "always",
    Shown.IF_KNOWN: "where known",
    Shown.IF_DIFFERENT: "where rows differ",
    Shown.IN_REPORT: "in the report",
    Shown.NEVER: "if chosen",
}


def list_columns(tests: Iterable[str] = ()) -> list[Column]:
    """List every column in the order of tables: identity, size, scores, speed, training, conditions.

    Args:
        tests: further test sets.
    """
    before = [column for column in COLUMNS.values() if column.group.value < Group.QUALITY.value]
    scores = []
    for test in ("", *tests):
        scores += [score_column(metric, test) for metric in METRICS]
        scores += [bleu_interval_column(kind, test) for kind in INTERVALS]
        scores += [*likelihood_columns(test), *length_columns(test)]
    names = {column.name for column in scores}
    after = [
        column
        for column in COLUMNS.values()
        if column.group.value >= Group.QUALITY.value and column.name not in names
    ]
    return [*before, *scores, *after]


def find_column(heading: str, tests: Iterable[str] = ()) -> Column:
    """Return the column with a heading, with or without its unit or "[95%]"; case does not matter.

    Args:
        heading: such as "model", "params (M)" or "BLEU".
        tests: further test sets of the rows.

    Raises:
        ValueError: no such column; the message suggests the nearest.
    """
    by_title: dict[str, Column] = {}
    for column in list_columns(tests):
        for text in (column.heading, column.title, f"{column.title} [95%]"):
            by_title.setdefault(text.casefold(), column)
    if heading.casefold() in by_title:
        return by_title[heading.casefold()]
    known = [text for column in list_columns(tests) for text in (column.name, column.title)]
    close = get_close_matches(heading, known, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ": attnbench table --list-columns explains all"
    raise ValueError(f"no column {heading!r}{hint}")


def stored_fields(name: str, fields: Sequence[str]) -> list[str]:
    """Return the fields of a chosen column: ``name`` itself, or those behind the heading ``name``.

    Args:
        name: a field or a heading.
        fields: fields of the rows.

    Raises:
        ValueError: the rows have no such column.
    """
    if name in fields:
        return [name]
    column = find_column(name, further_tests(fields))
    for names in column.stored():
        if all(each in fields for each in names):
            return names
    raise ValueError(f"no column {name!r} in these rows, which have no value for it")


def explain_columns() -> list[Row]:
    """Return heading, field, default visibility and explanation of every column, one row each."""
    rows = [
        {
            "column": column.heading,
            "field": ", ".join(column.stored()[0]),
            "shown": SHOWN[column.shown],
            "explanation": column.help,
        }
        for column in list_columns()
    ]
    further = [
        {"column": "", "field": field, "shown": SHOWN[Shown.NEVER], "explanation": text}
        for field, text in FURTHER_FIELDS
    ]
    return [*rows, *further]


# Documentation of the columns of the data frame of results.


FURTHER = ("tests", "scores", "files")
"""Fields that are several columns of the frame, or none."""


def describe_columns() -> list[dict[str, str]]:
    """Describe each column of ``load_results``, in its order.

    Returns:
        Per column its name, its type in the frame, its heading in tables (empty: tables do not have it) and
        a description.
    """
    rows = [
        {
            "column": "experiment",
            "type": "object",
            "heading": COLUMNS["experiment"].heading,
            "description": "Name of the experiment's folder, with its parent's where two are alike.",
        }
    ]
    described = field_docstrings(Result)
    for field in fields(Result):
        if field.name not in FURTHER:
            rows.append(
                {
                    "column": field.name,
                    "type": DTYPES.get(field.type, "object"),
                    "heading": _heading(field.name),
                    "description": described[field.name],
                }
            )
    return rows


def _heading(name: str) -> str:
    """Return the heading of a column in tables; empty where they do not have it."""
    if name in METRICS:
        return score_column(name).heading
    return COLUMNS[name].heading if name in COLUMNS else ""
