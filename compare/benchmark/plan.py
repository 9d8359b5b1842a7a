"""Settings of a benchmark."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args

from compare.system.hints import did_you_mean

Phase = Literal["train", "greedy", "beam", "latency", "encode"]
PHASES: tuple[Phase, ...] = get_args(Phase)
Name = TypeVar("Name", bound=str)


@dataclass(frozen=True, kw_only=True)
class BenchPlan:
    """Phases of a benchmark, and the amount of work per repeat."""

    phases: tuple[Phase, ...] = ("train", "greedy", "beam")
    """Some of train, greedy, beam, latency and encode."""
    updates: int = 10
    """Training batches per repeat of train or encode."""
    repeats: int = 3
    """Timed repeats, after one to warm up."""
    batch: int = 64
    """Sentences decoded as one batch."""
    steps: int = 20
    """Target tokens of every hypothesis, EOS included."""
    synthetic: float | None = None
    """Mean length in tokens of random sentences; None for the experiment's corpus."""

    @property
    def amounts(self) -> dict[str, Any]:
        """Amount of work per repeat."""
        return {name: getattr(self, name) for name in ("updates", "batch", "steps", "synthetic")}


def parse_choices(option: str, text: str, known: Sequence[Name]) -> tuple[Name, ...]:
    """Parse a list of names such as "train,beam".

    Args:
        option: the command line option, for the error message.
        text: its value.
        known: the names allowed.

    Returns:
        The names listed, in the order of ``known``.

    Raises:
        ValueError: ``text`` holds an unknown name.
    """
    names = text.split(",")
    for name in names:
        if name not in known:
            raise ValueError(f"{option} {text}: no {name!r}; {did_you_mean(name, known)}")
    return tuple(name for name in known if name in names)
