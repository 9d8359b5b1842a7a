"""Growth along an axis: exponents of known laws, and passes of the stated sizes."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from compare.benchmark import benchmark as scaling
from compare.benchmark.benchmark import SIZES, measure_growth, widened
from compare.benchmark.measurement import FIXED_SIZES, Growth, Scaling
from compare.config.parse import load_experiment
from compare.config.run import resolve_models
from compare.models.presets import PRESETS
from compare.system import measure as timing
from compare.training.loss import TranslationLoss
from tests.kits.clock import Clock
from transformer.model import Transformer


def growth(power: float, sizes: list[int], model: str = "a") -> Growth:
    """Make a growth with a median of 3 size^power seconds over three repeats."""
    seconds = [[3 * size**power, 0.0, 1e9] for size in sizes]
    return Growth(axis="length", model=model, sizes=sizes, seconds=seconds)


@pytest.mark.parametrize("power", [0.0, 1.0, 1.5, 2.0])
def test_the_exponent_is_that_of_a_power_law(power: float):
    assert growth(power, [8, 16, 32, 64]).exponent == pytest.approx(power, abs=1e-12)


def test_the_exponent_is_fitted_by_least_squares():
    """Logarithms (to base 2) 0, 1, 5 over 0, 1, 2: the slope is (5 - 0) / 2."""
    steps = Growth(axis="batch", model="a", sizes=[1, 2, 4], seconds=[[1.0], [2.0], [32.0]])
    assert steps.exponent == pytest.approx(2.5)


def test_there_is_one_table_per_axis():
    scaling_result = Scaling(
        growths=[
            growth(1, [2, 4]),
            growth(2, [2, 4], "b"),
            replace(growth(1, [8]), axis="batch", sizes=[8, 16], seconds=[[1.0], [2.0]]),
        ],
        precision="fp32",
        machine={"device": "abacus"},
        versions={"torch": "9"},
    )
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in scaling_result.render().splitlines()
        if "|" in line
    ]
    assert rows[0] == ["model", "length 2", "length 4", "exponent"]
    assert rows[2:4] == [["a", "6,000", "12,000", "1.00"], ["b", "12,000", "48,000", "2.00"]]
    assert rows[4] == ["model", "batch 8", "batch 16", "exponent"]
    assert "batch 16, vocabulary 2,000; time grows as length^exponent" in scaling_result.render()
    assert [each["exponent"] for each in json.loads(scaling_result.to_json())["growths"]] == pytest.approx(
        [1, 2, 1]
    )


@pytest.mark.parametrize("axis", SIZES)
def test_one_size_grows_and_the_others_are_fixed(axis: Any, tiny_toml: Path, monkeypatch: pytest.MonkeyPatch):
    """The clock advances by the size itself, and by twice the size for one of the models."""
    runs, clock, seen = resolve_models(load_experiment(tiny_toml)), Clock(), list[dict[str, int]]()

    class Spy(TranslationLoss):
        def forward(self, src: Any, src_mask: Any, *rest: Any, **known: Any) -> Any:
            assert self.training
            assert src_mask.all()
            assert rest[-1].all()  # the mask of the targets
            width = self.model.output.in_features
            sizes = (*src.shape, self.model.output.out_features, width)
            seen.append(dict(zip(("batch", "length", "vocabulary", "width"), sizes, strict=True)))
            clock.now += seen[-1][axis] * (2 if isinstance(self.model, Transformer) else 1)
            return super().forward(src, src_mask, *rest, **known)

    monkeypatch.setattr(scaling, "TranslationLoss", Spy)
    monkeypatch.setattr(timing, "time", clock)
    monkeypatch.setitem(FIXED_SIZES, "vocabulary", 40)
    sizes = {"width": [8, 16]}.get(axis, [10, 20])
    growths = measure_growth(runs, {axis: sizes}, repeats=2).growths
    assert [each.model for each in growths] == ["luong", "transformer"]
    for factor, each in enumerate(growths, start=1):
        assert each.seconds == [[factor * float(size)] * 2 for size in sizes]
        assert each.exponent == pytest.approx(1)
    assert [pass_[axis] for pass_ in seen] == [*sizes, *sizes] * 3  # once to warm up
    fixed = {**FIXED_SIZES, "width": 16}
    assert all(pass_[other] == size for pass_ in seen for other, size in fixed.items() if other != axis)


def test_a_pass_computes_gradients(tiny_toml: Path):
    run, *_ = resolve_models(load_experiment(tiny_toml))
    work = scaling._pass(run.model, FIXED_SIZES, torch.device("cpu"), "bf16")
    model = work.__closure__ and next(
        cell.cell_contents for cell in work.__closure__ if isinstance(cell.cell_contents, TranslationLoss)
    )
    for _ in range(2):
        work()
    gradients = [parameter.grad for parameter in model.parameters()]
    assert all(gradient is not None and gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_can_be_set_to_a_width(preset: str):
    for width in SIZES["width"]:
        settings = widened(PRESETS[preset].model, width).settings()
        widths = {settings[name] for name in ("embedding_size", "hidden_size", "d_model") if name in settings}
        assert widths == {width}
        assert settings.get("ffn_size", 4 * width) == 4 * width
