"""``models --verify``: what holds passes, and each broken rule is found by its check."""

import json
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
import torch
from torch import Tensor

from compare import Family, Operations, Preset, load_plugins, register_family, register_preset, verify_preset
from compare.cli import main
from seq2seq.config import AttentionConfig, Seq2SeqConfig
from seq2seq.scores import DotScore, register_score
from tests.kits.cli import Refusal
from tests.kits.plugins import EXAMPLE, importable


@pytest.fixture(autouse=True)
def example() -> Iterator[None]:
    with importable(EXAMPLE):
        load_plugins(["attnbench_example"])
        yield


def failed(preset: str) -> dict[str, str]:
    return {verdict.check: verdict.problem for verdict in verify_preset(preset) if not verdict.holds}


def with_model(change: Callable[[type], type], operations: Callable[..., Operations] | None = None) -> str:
    """Register the template's model with a change; returns the name of the preset."""
    from attnbench_example.convolution import ConvGru, ConvGruConfig, count_operations

    class Config(ConvGruConfig):
        pass

    family = Family(
        name="changed",
        config=Config,
        build=change(ConvGru),
        operations=operations or count_operations,
        width_fields=("hidden_size", "embedding_size"),
    )
    register_family(family)
    register_preset("changed", Preset(about="a", source="b", architecture=Config(encoder_layers=1)))
    return "changed"


def sees_the_future(base: type) -> type:
    class Model(base):
        def features(self, src: Tensor, mask: Tensor, tgt_in: Tensor) -> Any:
            found = super().features(src, mask, tgt_in)
            return found._replace(hidden=found.hidden + 0.01 * found.hidden.flip(1))

    return Model


def reads_padding(base: type) -> type:
    class Model(base):
        def encode(self, src: Tensor, mask: Tensor | None) -> Any:
            return super().encode(src, None)._replace(mask=super().encode(src, mask).mask)

    return Model


def mixes_the_batch(base: type) -> type:
    class Model(base):
        def encode(self, src: Tensor, mask: Tensor | None) -> Any:
            memory = super().encode(src, mask)
            return memory._replace(start=memory.start + 0.01 * memory.start.mean(0))

    return Model


def mixes_the_beam(base: type) -> type:
    class Model(base):
        def step(self, tokens: Tensor, state: Any, memory: Any) -> Any:
            return super().step(tokens, (state[0] + 0.01 * (state[0] - state[0].mean(1, True)),), memory)

    return Model


def puts_the_beam_first(base: type) -> type:
    class Model(base):
        def init_state(self, memory: Any, beam: int, capacity: int) -> Any:
            return (super().init_state(memory, beam, capacity)[0].transpose(0, 1),)

        def step(self, tokens: Tensor, state: Any, memory: Any) -> Any:
            logits, (after,) = super().step(tokens, (state[0].transpose(0, 1),), memory)
            return logits, (after.transpose(0, 1),)

    return Model


def steps_otherwise(base: type) -> type:
    class Model(base):
        def step(self, tokens: Tensor, state: Any, memory: Any) -> Any:
            logits, state = super().step(tokens, state, memory)
            return 1.001 * logits, state

    return Model


def attends_to_padding(base: type) -> type:
    class Model(base):
        def attention(self, src: Tensor, mask: Tensor, tgt_in: Tensor) -> Any:
            return {"cross": torch.full((len(src), 1, tgt_in.size(1), src.size(1)), 1 / src.size(1))}

    return Model


def swaps_attention(base: type) -> type:
    class Model(base):
        def attention(self, src: Tensor, mask: Tensor, tgt_in: Tensor) -> Any:
            return {"cross": super().attention(src, mask, tgt_in)["cross"].transpose(2, 3)}

    return Model


def has_an_unused_layer(base: type) -> type:
    class Model(base):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.unused = torch.nn.Linear(2, 2)

    return Model


def keeps_dropout(base: type) -> type:
    class Model(base):
        def train(self, mode: bool = True) -> Any:
            return super().train()

    return Model


def ignores_the_seed(base: type) -> type:
    class Model(base):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            torch.seed()
            torch.nn.init.normal_(self.bridge.weight)

    return Model


def hides_a_weight(base: type) -> type:
    numbers = count()

    class Model(base):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.hidden = 0.1 * next(numbers)  # in no file, and another one in each model

        def features(self, *arguments: Any) -> Any:
            found = super().features(*arguments)
            return found._replace(hidden=found.hidden + self.hidden)

    return Model


def raises(base: type) -> type:
    class Model(base):
        def attention(self, src: Tensor, mask: Tensor, tgt_in: Tensor) -> Any:
            raise NotImplementedError("later\nmuch later")

    return Model


def prepares_other_weights(base: type) -> type:
    class Model(base):
        def prepare_decoding(self) -> None:
            self.output = torch.nn.Linear(self.output.in_features, self.output.out_features)

    return Model


def prepares_in_place(base: type) -> type:
    class Model(base):
        def prepare_decoding(self) -> None:
            self.output.weight.mul_(2)

    return Model


BROKEN = {
    sees_the_future: "causality",
    reads_padding: "padding",
    mixes_the_batch: "batch neighbours",
    mixes_the_beam: "hypotheses of a beam",
    puts_the_beam_first: "interface",
    steps_otherwise: "step equals forward",
    prepares_other_weights: "copy for a search",
    prepares_in_place: "copy for a search",
    attends_to_padding: "attention weights",
    swaps_attention: "attention weights",
    has_an_unused_layer: "gradients",
    keeps_dropout: "repetition",
    ignores_the_seed: "seed",
    hides_a_weight: "saved weights",
    raises: "attention weights",
}


@pytest.mark.parametrize("change", BROKEN, ids=lambda change: change.__name__)
def test_a_broken_rule_is_found_by_its_check(change: Callable[[type], type]):
    found = failed(with_model(change))
    assert BROKEN[change] in found
    assert all(problem and "\n" not in problem for problem in found.values())
    if change is raises:
        assert found == {"attention weights": "NotImplementedError: later"}


def test_a_wrong_count_of_operations_is_found():
    name = with_model(lambda base: base, lambda config, src_len, tgt_len: Operations(1e6, config.hidden_size))
    problem = failed(name)["FLOPs"]
    assert problem.startswith("the family's formula gives 4,0")
    assert "torch counts" in problem


def test_a_score_that_is_trained_as_another_one_is_found():
    """Its ``score`` differs from the product that the loop with gradients takes."""

    class Doubled(DotScore):
        def score(self, queries: Any, keys: Tensor) -> Tensor:
            return 2 * super().score(queries, keys)

    register_score("doubled", Doubled)
    attention = AttentionConfig(score="doubled", placement="after", input_feeding=True)
    config = Seq2SeqConfig(attention=attention, hidden_size=16, encoder_size=16, embedding_size=16)
    register_preset("doubled", Preset(about="a", source="b", architecture=config))
    assert failed("doubled")["gradients on or off"].startswith("the logits with and without gradients differ")


def test_the_commands_status_says_whether_all_checks_hold(
    capsys: pytest.CaptureFixture[str], refusal: Refusal
):
    random, dtype = torch.get_rng_state(), torch.get_default_dtype()
    assert main(["models", "conv-gru", "--verify"]) == 0
    assert capsys.readouterr().out.endswith("conv-gru: all 17 checks hold\n")
    assert main(["models", with_model(raises), "--verify"]) == 1
    assert "  attention weights     FAILED: NotImplementedError: later\n" in capsys.readouterr().out
    assert main(["models", "lstm", "--verify", "--json"]) == 0
    assert all(verdict["holds"] for verdict in json.loads(capsys.readouterr().out))
    assert refusal("models", "--verify").startswith("--verify checks one preset: name it")
    assert "unknown preset 'conv-gur'; did you mean 'conv-gru'?" in refusal("models", "conv-gur", "--verify")
    assert torch.equal(random, torch.get_rng_state())
    assert torch.get_default_dtype() == dtype
