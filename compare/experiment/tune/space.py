"""Search space of tuned settings, and random draws from it (Bergstra and Bengio 2012).

The space is the same for every model of an experiment, and so are the draws: trial k of each model has the
same values.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from compare.config.parse import check_type
from compare.config.run import Run
from compare.config.toml import parse_value
from compare.optim import OptimConfig
from compare.system.messages import abbreviate, did_you_mean

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

DIGITS = 3
"""Significant digits of a drawn number, so that a config shows exactly what was tried."""
MAX_VALUES = 1_000
"""Largest number of values in a list."""


@dataclass(frozen=True)
class LogRange:
    """Positive numbers between two bounds, drawn log-uniformly; whole numbers if both bounds are."""

    low: float
    high: float

    def __str__(self) -> str:
        """Return the text that ``parse_space`` reads."""
        return f"{self.low:g}:{self.high:g}"

    def distribution(self) -> "BaseDistribution":
        """Return optuna's distribution of these numbers."""
        from optuna.distributions import FloatDistribution, IntDistribution

        if isinstance(self.low, int) and isinstance(self.high, int):
            return IntDistribution(self.low, self.high, log=True)
        return FloatDistribution(self.low, self.high, log=True)

    def round(self, value: float) -> float:
        """Round to ``DIGITS`` significant digits, within the bounds."""
        if isinstance(value, int):
            return value
        return min(max(float(f"{value:.{DIGITS}g}"), self.low), self.high)


@dataclass(frozen=True)
class Values:
    """A list of values, each as likely as the others."""

    values: tuple[Any, ...]

    def __str__(self) -> str:
        """Return the text that ``parse_space`` reads."""
        return ",".join(value if isinstance(value, str) else f"{value!r}" for value in self.values)

    def distribution(self) -> "BaseDistribution":
        """Return optuna's distribution of these values."""
        from optuna.distributions import CategoricalDistribution

        return CategoricalDistribution(self.values)

    def round(self, value: Any) -> Any:
        """Return the value as it is."""
        return value


Space = Mapping[str, LogRange | Values]
"""Tuned settings by name."""

DEFAULT_SPACE: Space = {"learning_rate": LogRange(3e-4, 3e-2), "dropout": Values((0.0, 0.1, 0.2, 0.3))}
"""Both settings matter to every family, and their best values differ between families."""


def parse_space(texts: Iterable[str], default: Space = DEFAULT_SPACE) -> Space:
    """Read a search space from options.

    Args:
        texts: ``name=low:high`` (drawn log-uniformly) or ``name=a,b,c``, each replacing or adding one setting
            of ``default``; ``name=a`` gives every trial that value.
        default: the space without options.

    Raises:
        ValueError: a text is not of this form, or names a setting twice.
    """
    given: dict[str, LogRange | Values] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise ValueError(
                f"--space {text}: must look like learning_rate=3e-4:3e-2 (a range) or dropout=0,0.1 (a list)"
            )
        if name.strip() in given:
            raise ValueError(f"--space {text}: {name.strip()} is given twice")
        given[name.strip()] = _parse_dimension(text, value)
    return {**default, **given}


def _parse_dimension(text: str, value: str) -> LogRange | Values:
    """Read what follows the "=" of an option ``text``."""
    if ":" not in value:
        values = tuple(map(_parse_value, value.split(",")))
        if len(set(map(repr, values))) < len(values) or len(values) > MAX_VALUES:
            raise ValueError(f"--space {text}: must be at most {MAX_VALUES:,} different values")
        return Values(values)
    low, high, *more = map(_parse_value, value.split(":"))
    numbers = all(type(bound) in (int, float) for bound in (low, high))
    if more or not numbers or not 0 < low < high < 2**63:
        raise ValueError(
            f"--space {text}: a range must be low:high with 0 < low < high, as it is drawn log-uniformly; "
            "give other values as a list"
        )
    return LogRange(low, high)


def _parse_value(text: str) -> Any:
    """Read a TOML number or bool, or else a bare string."""
    value = parse_value(text)
    return value if isinstance(value, int | float | str) else text.strip()


def draw_settings(space: Space, trials: int, seed: int) -> list[dict[str, Any]]:
    """Draw the settings of each trial with optuna's random sampler.

    Args:
        space: the search space; the order of its names does not matter.
        trials: number of draws; a larger number begins with the same draws.
        seed: seed of the sampler.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)  # else it prints a line for every study
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed))
    distributions = {name: space[name].distribution() for name in sorted(space)}
    draws = (study.ask(distributions).params for _ in range(trials))
    return [{name: dimension.round(draw[name]) for name, dimension in space.items()} for draw in draws]


def ensure_tunable(space: Space, runs: Sequence[Run]) -> None:
    """Refuse settings that a model lacks, and sizes, which the experiment and its budget decide.

    Raises:
        ValueError: a setting is none of the optimizer and no dropout, or a model does not have it.
    """
    optimizer = [field.name for field in dataclasses.fields(OptimConfig)]
    for name, run in ((name, run) for name in space for run in runs):
        known = run.model.setting_types()
        tunable = [each for each in known if each in optimizer or each.endswith("dropout")]
        if name in known and name not in tunable:
            raise ValueError(
                f"--space {name}: only settings of the optimizer and dropout can be tuned, which leave the "
                f"model's size and structure as they are: {', '.join(tunable)}"
            )
        if name not in known:
            raise ValueError(
                f"--space {abbreviate(name)}: models.{run.label} has no such setting, but the space is the "
                f"same for every model; {did_you_mean(name, tunable)}"
            )


def apply_settings(run: Run, settings: Mapping[str, Any]) -> Run:
    """Return the run with other values of the tuned settings.

    Raises:
        ValueError: a value is of the wrong type or out of range.
    """
    kinds = run.model.setting_types()
    context = f"--space: models.{run.label}"
    values = {name: check_type(value, kinds[name], f"{context}: {name}") for name, value in settings.items()}
    try:
        return dataclasses.replace(run, model=run.model.override(values))
    except ValueError as error:
        raise ValueError(f"{context}: {error}") from None
