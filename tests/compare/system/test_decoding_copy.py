"""Copies for decoding: what the model itself finds, whatever the model holds."""

import threading
from itertools import chain

import pytest
import torch
from torch import Tensor, nn

from compare.decoding.ensemble import Ensemble
from compare.decoding.search import search
from compare.system import cpu as packed_linear
from compare.system.cpu import PackedLinear
from compare.system.device import decoding_copy, for_decoding
from tests.kits import seq2seq
from tests.kits.contract import SPECIAL, make, sharpen, sources


@pytest.fixture(autouse=True)
def small_products(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(packed_linear, "MIN_MULTIPLY_ADDS", 0)
    monkeypatch.setattr(packed_linear, "sends_fp32_to_onednn", lambda: True)


def sharp(name: str, tie: str = "none") -> nn.Module:
    model = make(name, tie)
    sharpen(model)
    return model.eval().float()


def is_packed(model: nn.Module) -> bool:
    return any(isinstance(module, PackedLinear) and module.packed is not None for module in model.modules())


def assert_finds_the_same(copy: nn.Module, model: nn.Module, beam_size: int) -> None:
    src, mask = sources()
    results = [
        search(each, src, mask, limits=torch.full((4,), 6), special=SPECIAL, beam_size=beam_size)
        for each in (model, copy)
    ]
    assert [each.tokens for each in results[0]] == [each.tokens for each in results[1]]
    scores = [[each.score for each in result] for result in results]
    assert scores[0] == pytest.approx(scores[1], abs=1e-4)


@pytest.mark.parametrize(
    ("name", "tie"), [("luong-general", "none"), ("transformer", "all"), ("both", "none")]
)
@pytest.mark.parametrize("beam_size", [1, 3])
def test_search_finds_what_it_finds_with_the_model_itself(name: str, tie: str, beam_size: int):
    both = ("luong-general", "transformer")
    model = Ensemble([sharp(each) for each in both]) if name == "both" else sharp(name, tie)
    before = {key: id(module) for key, module in model.named_modules()}
    copy = decoding_copy(model)
    assert_finds_the_same(copy, model, beam_size)
    assert is_packed(copy)
    assert {key: id(module) for key, module in model.named_modules()} == before
    own = {id(tensor) for tensor in chain(model.parameters(), model.buffers())}
    assert all(id(tensor) in own for key, tensor in copy.named_parameters() if "joined_gates" not in key)


def test_members_of_an_ensemble_keep_their_own_gates():
    """What a member has prepared is freed while the next one prepares, which may get the same addresses."""
    members = [seq2seq.make("gnmt").float() for _ in range(3)]
    with torch.no_grad():
        for member, factor in zip(members, (1.0, -1.0, 0.5), strict=True):
            for parameter in member.parameters():
                parameter.mul_(factor)
    model = Ensemble(members)
    copy = decoding_copy(model)
    assert_finds_the_same(copy, model, 3)
    gates = {id(layer) for member in copy.members for layer in member.decoder.joined_gates}
    assert len(gates) == 3 * 4


class Awkward(nn.Module):
    """Holds what copy.deepcopy refuses, one layer twice, and a module with nothing to replace."""

    def __init__(self) -> None:
        super().__init__()
        self.lock, self.generator = threading.Lock(), (i for i in range(3))
        self.first = nn.Linear(3, 3)
        self.again, self.second = self.first, nn.Sequential(self.first, nn.Tanh())
        self.computed = 2 * self.first.weight
        self.rnn, self.nothing = nn.LSTM(3, 3), None
        self.register_module("empty", None)

    def forward(self, x: Tensor) -> Tensor:
        return self.rnn(self.second(self.first(x)) @ self.computed)[0]


def test_nothing_of_a_model_has_to_be_copyable():
    model = Awkward()
    copy = decoding_copy(model)
    assert copy.first is copy.again is copy.second[0]
    assert (copy.rnn, copy.second[1], copy.lock) == (model.rnn, model.second[1], model.lock)
    x = torch.rand(4, 3)
    with torch.no_grad():
        torch.testing.assert_close(copy(x), model(x))
    assert is_packed(copy)
    assert type(model.first) is type(model.second[0]) is nn.Linear


class Registers(nn.Module):
    """Registers one thing of each kind before a search."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2, 2))

    def prepare_decoding(self) -> None:
        self.register_buffer("saved", 2 * self.weight)
        self.register_buffer("computed", 3 * self.weight, persistent=False)
        self.weight = nn.Parameter(4 * self.weight.detach())
        self.added = nn.Linear(2, 2)


def test_what_a_copy_registers_is_not_registered_with_the_model():
    model = nn.Sequential(Registers())
    copy = decoding_copy(model)
    assert sorted(copy.state_dict()) == ["0.added.bias", "0.added.weight", "0.saved", "0.weight"]
    assert torch.equal(copy[0].computed, torch.full((2, 2), 3.0))
    assert list(model.state_dict()) == ["0.weight"]
    assert not model[0]._non_persistent_buffers_set
    assert not hasattr(model[0], "computed")
    assert torch.equal(model[0].weight, torch.ones(2, 2))


def test_nothing_is_prepared_where_nothing_is_packed(monkeypatch: pytest.MonkeyPatch):
    """Joined gates are copies of all weights, which gain nothing there."""
    model = sharp("luong-general")
    monkeypatch.setattr(packed_linear, "sends_fp32_to_onednn", lambda: False)
    assert decoding_copy(model) is model
    assert decoding_copy(model.double()) is model


def test_modules_where_nothing_changes_and_other_devices_keep_the_model():
    unchanged = nn.Sequential(nn.Embedding(3, 4), nn.GRU(4, 5), nn.Linear(5, 3).double())
    assert decoding_copy(unchanged) is unchanged
    assert decoding_copy(empty := nn.Sequential()) is empty
    model = sharp("luong-general").to("meta")
    assert decoding_copy(model) is model


def test_a_copy_in_bfloat16_leaves_the_model_in_float32():
    model = sharp("luong-general")
    copy = for_decoding(model, "bf16")
    assert {parameter.dtype for parameter in copy.parameters()} == {torch.bfloat16}
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
