"""Each fast.py may be deleted: models of every kind train and translate as before, slower."""

import ast
import importlib
import inspect
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.kits.common import ROOT

PACKAGES = ["seq2seq", "transformer", "compare"]
KINDS = [
    "lstm",
    "gru-context",
    "bahdanau",
    "luong-general",
    "multihead-rnn",
    "coverage",
    "gnmt",
    "rnmt-plus",
    "min-gru",
    "transformer",
    "transformer-linear",
    "gated-linear",
    "decoder-only",
    "transformer-rnn",
    "lstm-lm",
]
CASES = {"float64": 1e-9, "float32": 1e-4, "bfloat16": 0.05}
"""Largest relative difference of losses, by precision; bfloat16 is that of autocast."""


def train_and_translate(name: str, precision: str) -> tuple[list[float], list[list[int]]]:
    """Return the losses of some updates without dropout, and the ids that beam search finds after them."""
    from compare.config.sections import RegularizationConfig
    from compare.decoding.translator import decoding_copy, generate
    from compare.models.registry import build
    from compare.training.loss import TranslationLoss
    from tests.kits.contract import SPECIAL, V, sharpen, sources, targets, tiny

    model = build(tiny(name).override({"dropout": 0.0}).architecture, V - 2, V)
    sharpen(model)
    model.to(torch.float64 if precision == "float64" else torch.float32)
    (src, mask), tgt = sources(), targets()
    real = torch.arange(tgt.size(1) - 1) < torch.tensor([[9], [2], [1], [3]])
    simcut = RegularizationConfig(consistency="simcut", consistency_weight=0.5, cut=0.2)
    losses = []
    for settings in (None, simcut):
        criterion = TranslationLoss(model, 0.1, settings).train()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        for _ in range(2):
            with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
                loss = criterion(src, mask, tgt[:, :-1], tgt[:, 1:], real).minimised
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    copy = decoding_copy(model.eval(), always=True)
    with torch.no_grad():
        hypotheses = generate(copy, src, mask, limits=6, special=SPECIAL, beam_size=3)
    return losses, [best.tokens for (best, *_) in hypotheses]


def run_all() -> dict[str, Any]:
    results = {}
    for name in KINDS:
        for precision in CASES:
            torch.manual_seed(1)
            results[f"{name} {precision}"] = train_and_translate(name, precision)
    return results


@pytest.fixture(scope="module")
def expected() -> dict[str, Any]:
    return run_all()


@pytest.mark.slow
@pytest.mark.parametrize("package", PACKAGES)
def test_without_fast_models_train_and_translate_alike(
    package: str, expected: dict[str, Any], tmp_path: Path
):
    for folder in ("data", "tests", *PACKAGES):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    (tmp_path / package / "fast.py").unlink()
    command = [sys.executable, "-m", "tests.test_fast"]
    done = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
    results = json.loads(done.stdout)
    assert results.keys() == expected.keys()
    for case, (losses, ids) in results.items():
        precision = case.split()[1]
        assert losses == pytest.approx(expected[case][0], rel=CASES[precision]), case
        if precision == "float64":
            assert ids == expected[case][1], case


@pytest.mark.parametrize("package", PACKAGES)
def test_plain_functions_are_replaced_by_twins_with_the_same_arguments(package: str):
    fast = importlib.import_module(f"{package}.fast")
    definitions = (ast.FunctionDef, ast.ClassDef)
    twins = {
        name
        for name, value in vars(fast).items()
        if getattr(value, "__module__", "") == fast.__name__ and not name.startswith("_")
    }
    replaced = set()
    for path in (ROOT / package).rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        plain = {node.name: node for node in tree.body if isinstance(node, definitions)}
        if path.name in ("fast.py", "formulas.py") or not (names := plain.keys() & twins):
            continue
        module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
        for name in names:
            assert getattr(module, name) is getattr(fast, name)
            if isinstance(node := plain[name], ast.FunctionDef):
                arguments = [argument.arg for argument in (*node.args.args, *node.args.kwonlyargs)]
                assert arguments == [*inspect.signature(getattr(fast, name)).parameters], name
        replaced |= names
    assert replaced


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(run_all()))
