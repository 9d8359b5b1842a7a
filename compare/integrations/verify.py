"""Verification that a preset holds to the contract of models: for authors of plug-ins, before they train."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from compare.integrations import contract
from compare.models.presets import find_preset
from compare.models.registry import build
from compare.models.resolved_model import ResolvedModel
from compare.system.hints import first_line

if TYPE_CHECKING:
    from compare.models.registry import Model

WIDTHS = (16, 32, 64)
"""Sizes that are tried for the first of the family's ``width_fields``, the others in proportion."""
ATOL = 1e-9
"""Largest difference in float64 of logits that must be equal; errors of rounding grow with the width."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Outcome of one check."""

    check: str
    """Name of the check."""
    holds: bool
    """Whether the model passes."""
    problem: str = ""
    """The rule that is broken, and by how much."""


def verify_preset(name: str) -> list[Verdict]:
    """Check that a preset's model does what training, search and analysis rely on.

    The model is built with narrow layers where its settings allow that, and in float64, so that rounding
    hides no fault.

    Args:
        name: name of the preset.

    Returns:
        One verdict per check: interface, step against forward, causality, padding, batch neighbours, beams,
        selection of states, attention weights, seed, gradients, saved weights, FLOPs.

    Raises:
        ValueError: unknown preset; the message suggests the nearest name.
    """
    model = shrink(find_preset(name).model)
    with _float64():
        return list(_verify(model))


def shrink(model: ResolvedModel) -> ResolvedModel:
    """Return the model with narrow layers in the same proportions, or as it is if it cannot be so narrow."""
    widths = model.widths()
    base = next(iter(widths.values()), 0)
    for width in WIDTHS:
        if width >= base:
            break
        narrow = {key: max(width * round(value / base), min(value, width)) for key, value in widths.items()}
        try:
            return model.override(narrow)
        except ValueError:  # such as heads that do not divide it
            continue
    return model


def render_verdicts(name: str, verdicts: list[Verdict]) -> str:
    """Render the outcome of ``verify_preset`` as text, one line per check."""
    width = max(len(verdict.check) for verdict in verdicts)
    lines = [
        f"  {verdict.check:<{width}}  {'ok' if verdict.holds else f'FAILED: {verdict.problem}'}"
        for verdict in verdicts
    ]
    failed = sum(not verdict.holds for verdict in verdicts)
    outcome = f"{failed} of {len(verdicts)} checks failed" if failed else f"all {len(verdicts)} checks hold"
    return "\n".join([*lines, f"{name}: {outcome}"])


def _verify(model: ResolvedModel) -> Iterator[Verdict]:
    tied = model.settings().get("tie") == "all"

    def make(seed: int = 0) -> "Model":
        torch.manual_seed(seed)
        return build(model.architecture, contract.V if tied else contract.V - 2, contract.V)

    def sharpened(seed: int = 5) -> "Model":
        made = make().eval()
        contract.sharpen(made, seed)
        return made

    yield (built := _run("construction", make))
    if not built.holds:
        return
    subject = sharpened()
    with torch.no_grad():
        for name, check in contract.CHECKS.items():
            yield _run(name, check, subject, ATOL)
        yield _run("saved weights", contract.check_saving, subject, sharpened(6), ATOL)
    yield _run("seed", contract.check_seed, make)
    yield _run("gradients", contract.check_gradients, make().train())
    yield _run("FLOPs", contract.check_flops, model.architecture, subject)


def _run(name: str, check: Callable[..., Any], *arguments: Any) -> Verdict:
    """Run a check; any exception of the model is a verdict, too."""
    try:
        check(*arguments)
    except contract.ContractError as error:
        return Verdict(check=name, holds=False, problem=str(error))
    except Exception as error:
        return Verdict(check=name, holds=False, problem=f"{type(error).__name__}: {first_line(error)}")
    return Verdict(check=name, holds=True)


@contextmanager
def _float64() -> Iterator[None]:
    """Build in float64 for the time of a block, and restore torch's random state at its end."""
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        torch.set_default_dtype(dtype)
