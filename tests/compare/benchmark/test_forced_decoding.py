"""Search of a forced length: the given number of steps, whatever the weights, for every preset."""

from typing import Any

import pytest
import torch
from torch import Tensor

from compare.benchmark import candidate as forced_decoding
from compare.benchmark.candidate import force_length, search_forced
from compare.decoding.search import search
from compare.system.cpu import for_decoding
from tests.kits.contract import EOS, LENGTHS, PAD, VARIANTS, V, make, sharpen

SRC = torch.randint(4, V - 2, (4, 5), generator=torch.Generator().manual_seed(1))
MASK = torch.arange(5) < torch.tensor(LENGTHS).unsqueeze(1)


def likely_to_end(name: str, tie: str) -> Any:
    """Make a model that prefers EOS, with weights far from their initialisation."""
    model = make(name, tie)
    sharpen(model)
    output = model.output
    if output.bias is None:
        output.bias = torch.nn.Parameter(torch.zeros(V))
    with torch.no_grad():
        output.bias[EOS] = 50.0
    return model.train()


@pytest.mark.parametrize(("name", "tie"), VARIANTS)
@pytest.mark.parametrize("beam_size", [1, 3])
def test_every_hypothesis_takes_exactly_the_given_steps(name: str, tie: str, beam_size: int):
    model, fed = likely_to_end(name, tie), list[tuple[int, ...]]()
    step = model.step

    def counted(tokens: Tensor, *rest: Any) -> Any:
        fed.append(tuple(tokens.shape))
        return step(tokens, *rest)

    model.step = counted
    force_length(model)
    assert not model.training
    src = SRC.where(MASK, PAD)
    for steps in (1, 6):
        fed.clear()
        hypotheses = search_forced(model, src, MASK, steps=steps, beam_size=beam_size)
        assert fed == [(4, beam_size)] * steps
        assert [len(hypothesis.tokens) for hypothesis in hypotheses] == [steps - 1] * 4
        assert all(EOS not in hypothesis.tokens for hypothesis in hypotheses)


@pytest.mark.parametrize("name", ["luong-general", "transformer", "decoder-only"])
def test_only_the_logit_of_eos_changes(name: str):
    """All other logits stay the same, so tokens before the last step are those of the ordinary search."""
    model = make(name)
    sharpen(model)
    model.eval()
    logits = model(SRC, MASK, SRC)
    force_length(model)
    changed = model(SRC, MASK, SRC)
    others = [token for token in range(V) if token != EOS]
    torch.testing.assert_close(changed[..., others], logits[..., others])
    assert (changed[..., EOS] < logits.min() - 1000).all()


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_ordinary_search_runs_in_the_given_precision(precision: str, monkeypatch: pytest.MonkeyPatch):
    model, seen = make("transformer"), list[tuple[Any, ...]]()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}

    def spy(searched: Any, *arguments: Any, **named: Any) -> Any:
        seen.append((searched.output.weight.dtype, named["limits"].tolist()))
        return search(searched, *arguments, **named)

    monkeypatch.setattr(forced_decoding, "search", spy)
    force_length(model)
    search_forced(for_decoding(model, precision), SRC, MASK, steps=3, beam_size=2)
    assert seen == [(torch.bfloat16 if precision == "bf16" else before["output.weight"].dtype, [2] * 4)]
    assert all(torch.equal(model.state_dict()[name], weight) for name, weight in before.items())
