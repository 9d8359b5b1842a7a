"""The choice of a length penalty on validation, and the file selection.json that keeps it."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple, get_args

from compare.decoding.length_penalty import LengthPenalty, Normalization
from compare.system.hints import abbreviate
from compare.training.metrics_log import is_finite
from data.text.files import parse_json, read_bytes

NAME = "selection.json"
TOLERANCE = 0.2
"""BLEU below the best that still counts as equal to it."""
MAX_BYTES = 1_000_000
"""Size that no selection.json reaches."""


@dataclass(frozen=True, kw_only=True)
class GridPoint:
    """One length penalty, and the scores of beam search with it on the validation set."""

    normalization: Normalization
    """Form of the penalty, as in ``LengthPenalty``."""
    length_penalty: float
    """Alpha."""
    bleu: float
    """BLEU, 0 to 100."""
    length_ratio: float
    """Tokens of the translations over tokens of the references."""

    @property
    def penalty(self) -> LengthPenalty:
        """The length penalty."""
        return LengthPenalty(self.length_penalty, self.normalization)


class Selection(NamedTuple):
    """Content of selection.json."""

    grid: Sequence[GridPoint]
    chosen: int
    """Index in ``grid``."""
    weights: str
    """sha256 of the weights file that was searched with."""

    @property
    def penalty(self) -> LengthPenalty:
        """The chosen length penalty."""
        return self.grid[self.chosen].penalty

    def to_json(self) -> str:
        """Format as the content of selection.json."""
        content = {**self._asdict(), "grid": [asdict(point) for point in self.grid]}
        return json.dumps(content, indent=2) + "\n"


def choose(grid: Sequence[GridPoint]) -> int:
    """Choose the smallest penalty whose validation BLEU is within ``TOLERANCE`` of the best.

    This is a one-standard-error rule (Breiman et al. 1984, section 3.4.3; Hastie et al. 2009, section 7.10):
    a few tenths of BLEU are within the noise of a validation set, so the simplest of the equally good points
    is taken, here the one with the shortest translations. The very best on validation fits the length of its
    references, which need not be that of other text.

    In one form, a smaller alpha gives shorter translations. Values of alpha in two forms do not compare:
    there the smallest penalty is that with the smallest length ratio, then with the smallest alpha.

    Args:
        grid: at least one point.

    Returns:
        Its index.
    """
    best = max(point.bleu for point in grid)
    several_forms = len({point.normalization for point in grid}) > 1

    def size(index: int) -> tuple[float, float]:
        point = grid[index]
        return point.length_ratio if several_forms else 0.0, point.length_penalty

    return min((index for index, point in enumerate(grid) if point.bleu >= best - TOLERANCE), key=size)


def read_selection(path: Path, penalties: Sequence[LengthPenalty]) -> Selection:
    """Read a selection.json.

    Args:
        path: the file.
        penalties: the grid of the run's config.

    Raises:
        ValueError: no such file, or it is damaged, of another grid, or chose another point than the rule.
    """
    if not path.exists():
        raise ValueError(f"{path}: no such file: run the experiment again, which chooses a length penalty")
    try:
        content = parse_json(read_bytes(path, max_bytes=MAX_BYTES))
    except ValueError as error:
        raise _damaged(path, str(error).removeprefix(f"{path}: ")) from None
    if not isinstance(content, dict) or content.keys() != set(Selection._fields):
        raise _damaged(path, f"it must hold {', '.join(Selection._fields)}")
    if not isinstance(content["weights"], str):
        raise _damaged(path, f"weights must be a sha256, found {abbreviate(content['weights'])}")
    if not isinstance(content["grid"], list):
        raise _damaged(path, f"grid must be a list, found {abbreviate(content['grid'])}")
    grid = [_point(path, f"grid[{index}]", item) for index, item in enumerate(content["grid"])]
    if [point.penalty for point in grid] != list(penalties):
        raise _damaged(path, "grid is not that of config.toml")
    chosen = choose(grid)
    if type(content["chosen"]) is not int or content["chosen"] != chosen:
        raise _damaged(path, f"chosen is {abbreviate(content['chosen'])}, but the rule gives {chosen}")
    return Selection(grid, chosen, content["weights"])


def _point(path: Path, name: str, item: Any) -> GridPoint:
    """Check one point of the grid; ``name`` is its place in the file."""
    names = [field.name for field in fields(GridPoint)]
    if not isinstance(item, dict) or item.keys() != set(names):
        raise _damaged(path, f"{name} must hold {', '.join(names)}")
    if item["normalization"] not in get_args(Normalization):
        raise _damaged(path, f"{name}.normalization is not a form: {abbreviate(item['normalization'])}")
    for key in names[1:]:
        if not (is_finite(item[key]) and item[key] >= 0):
            raise _damaged(path, f"{name}.{key} must be a number from 0 on, found {abbreviate(item[key])}")
    return GridPoint(**item)


def _damaged(path: Path, reason: str) -> ValueError:
    return ValueError(
        f"{path}: not what was chosen on validation ({reason}): put the run's own back, or delete it and "
        "the run's result.json and run the experiment again"
    )
