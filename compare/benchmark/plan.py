"""What a benchmark is told to time."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args

from compare.system.hints import did_you_mean

Phase = Literal["train", "greedy", "beam", "latency", "encode"]
PHASES: tuple[Phase, ...] = get_args(Phase)
Name = TypeVar("Name", bound=str)


@dataclass(frozen=True, kw_only=True)
class BenchPlan:
    """The phases, how much work a repeat of each is, and on what."""

    phases: tuple[Phase, ...] = ("train", "greedy", "beam")
    updates: int = 10
    """Batches of training that a repeat of train or encode goes through."""
    repeats: int = 3
    """Timed repeats, after one to warm up."""
    batch: int = 64
    """Sentences decoded together."""
    steps: int = 20
    """Target tokens of every hypothesis decoded, end of sentence included."""
    synthetic: float | None = None
    """Mean length in tokens of sentences drawn at random; None: the experiment's corpus."""

    @property
    def amounts(self) -> dict[str, Any]:
        """How much work a repeat is."""
        return {name: getattr(self, name) for name in ("updates", "batch", "steps", "synthetic")}


def chosen(option: str, text: str, known: Sequence[Name]) -> tuple[Name, ...]:
    """Those of the ``known`` names that "train,beam" lists, in the order in which they are known.

    Raises:
        ValueError: ``text``, which was given for ``option``, holds another name.
    """
    names = text.split(",")
    for name in names:
        if name not in known:
            raise ValueError(f"{option} {text}: no {name!r}; {did_you_mean(name, known)}")
    return tuple(name for name in known if name in names)
