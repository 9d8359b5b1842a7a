"""The contract of compare/protocol.py, and scores of search, for every preset at tiny size."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

from compare.decoding.search import LengthPenalty, search
from compare.experiment.verify import CHECKS, check_gradients, check_saving, check_seed
from seq2seq.config import RecurrentLanguageModelConfig
from tests.kits.contract import (
    BOS,
    EOS,
    SPECIAL,
    TASKS,
    VARIANTS,
    V,
    make,
    seeded_float64,
    sharpen,
    sources,
    targets,
    tiny,
)

if TYPE_CHECKING:
    from compare.models.registry import Model

TRANSLATING = [(name, tie) for name, tie in VARIANTS if TASKS[name] == "translation"]
"""The variants that read a source."""
_float64 = pytest.fixture(autouse=True)(seeded_float64)


@pytest.fixture(params=VARIANTS, ids="-".join)
def model(request: pytest.FixtureRequest) -> "Model":
    """One of VARIANTS, with sharpened weights."""
    model = make(*request.param).eval()
    sharpen(model)
    return model


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_it_holds_to_the_contract(check: "Callable[..., None]", model: "Model"):
    check(model, *sources(width=7), targets())


def test_ties_share_storage():
    for name, tie in TRANSLATING:
        model = make(name, tie)
        if "tie" in tiny(name).settings():
            embeddings = [
                module.weight
                for module in model.modules()
                if isinstance(module, nn.Embedding) and module.num_embeddings <= V  # not those of positions
            ]
            assert any(weight is model.output.weight for weight in embeddings), name
            assert (len({id(weight) for weight in embeddings}) == 1) == (tie == "all"), name


@pytest.mark.parametrize(("name", "tie"), VARIANTS)
def test_seed_weights_and_gradients(name: str, tie: str):
    """The seed decides the weights, saved ones are those of the model, and each has a gradient."""
    check_seed(lambda seed: make(name, tie, seed))
    one, other = make(name, tie).eval(), make(name, tie).eval()
    sharpen(one, seed=5)
    sharpen(other, seed=6)
    check_saving(one, other)
    check_gradients(make(name, tie))


def test_dropout_acts_in_training_and_attention_is_reported(model: "Model"):
    (src, mask), tgt_in = sources(), targets()
    has_none = isinstance(model.config, RecurrentLanguageModelConfig)
    expected = not has_none and getattr(model.config, "attention", "") is not None
    assert bool(model.attention(src, mask, tgt_in)) == expected
    model.train()
    assert not torch.equal(model(src, mask, tgt_in), model(src, mask, tgt_in))


@torch.no_grad()
def test_a_score_is_the_log_probability_of_its_tokens(model: "Model"):
    """Rescored by the full pass, which knows nothing of beams, caches or compaction."""
    src, mask = sources()
    model.output.weight.mul_(2.0)
    settings = {"special": SPECIAL, "beam_size": 3, "penalty": LengthPenalty(0.6)}
    for row, best in enumerate(search(model, src, mask, limits=torch.full((4,), 7), **settings)):
        tgt_in = torch.tensor([[BOS, *best.tokens]])
        logp = model(src[row : row + 1], mask[row : row + 1], tgt_in)[0].log_softmax(dim=-1)
        total = logp[torch.arange(tgt_in.size(1)), torch.tensor([*best.tokens, EOS])].sum()
        score = total / ((5 + tgt_in.size(1)) / 6) ** 0.6
        assert best.score == pytest.approx(float(score), abs=1e-10)
