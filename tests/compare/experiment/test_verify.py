"""``models --verify``: what holds passes, and each broken rule is found by its check."""

import json
import re
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from compare import (
    Family,
    Preset,
    load_experiment,
    load_plugins,
    register_family,
    register_preset,
    register_score,
    resolve_models,
    verify_preset,
)
from compare.cli import main
from compare.experiment.verify import ensure_verified
from seq2seq.scores import GeneralScore
from tests.kits.common import Refusal
from tests.kits.plugins import EXAMPLE, importable


@pytest.fixture(autouse=True)
def example() -> Iterator[None]:
    with importable(EXAMPLE):
        load_plugins(["attnbench_example"])
        yield


def failed(preset: str) -> dict[str, str]:
    return {verdict.check: verdict.problem for verdict in verify_preset(preset) if not verdict.holds}


def with_methods(multiply_adds: Callable[..., float] | None = None, **methods: Any) -> str:
    """Register the template's model with other methods; returns the name of the preset.

    A method takes that of the template as its first argument, then those of the model.
    """
    from attnbench_example.convolution import ConvGru, ConvGruConfig, count_multiply_adds

    class Config(ConvGruConfig):
        pass

    class Model(ConvGru):
        pass

    for name, method in methods.items():

        def changed(self: Any, *rest: Any, method: Any = method, name: str = name) -> Any:
            return method(getattr(super(Model, self), name, None), self, *rest)

        setattr(Model, name, changed)
    family = Family(
        name="changed",
        config=Config,
        build=Model,
        multiply_adds=multiply_adds or count_multiply_adds,
        width_fields=("hidden_size", "embedding_size"),
    )
    register_family(family)
    register_preset("changed", Preset(about="a", source="b", architecture=Config(encoder_layers=1)))
    return "changed"


# Methods that break a rule.


def sees_the_future(features: Any, self: Any, *inputs: Any) -> Any:
    output = features(*inputs)
    return output._replace(hidden=output.hidden + 0.01 * output.hidden.flip(1))


def trains_another_model(features: Any, self: Any, *inputs: Any) -> Any:
    output = features(*inputs)
    return output._replace(hidden=output.hidden * (2 if torch.is_grad_enabled() else 1))


def reads_padding(encode: Any, self: Any, src: Tensor, mask: Tensor) -> Any:
    return encode(src, None)._replace(mask=encode(src, mask).mask)


def mixes_the_batch(encode: Any, self: Any, src: Tensor, mask: Tensor) -> Any:
    memory = encode(src, mask)
    return memory._replace(start=memory.start + 0.01 * memory.start.mean(0))


def mixes_the_beam(step: Any, self: Any, tokens: Tensor, state: Any, memory: Any) -> Any:
    return step(tokens, (state[0] + 0.01 * (state[0] - state[0].mean(1, True)),), memory)


def puts_the_beam_first(init_state: Any, self: Any, *inputs: Any) -> Any:
    return (init_state(*inputs)[0].transpose(0, 1),)


def attends_to_padding(attention: Any, self: Any, src: Tensor, mask: Tensor, tgt_in: Tensor) -> Any:
    return {"cross": torch.full((len(src), 1, tgt_in.size(1), src.size(1)), 1 / src.size(1))}


def has_an_unused_layer(init: Any, self: Any, *arguments: Any) -> None:
    init(*arguments)
    self.unused = torch.nn.Linear(2, 2)


def keeps_dropout(train: Any, self: Any, mode: bool = True) -> Any:
    return train(True)


def ignores_the_seed(init: Any, self: Any, *arguments: Any) -> None:
    init(*arguments)
    torch.seed()
    torch.nn.init.normal_(self.bridge.weight)


NUMBERS = count()


def hides_a_weight(features: Any, self: Any, *inputs: Any) -> Any:
    self.hidden = getattr(self, "hidden", None) or 0.1 * (
        1 + next(NUMBERS)
    )  # in no file, and in each model another
    output = features(*inputs)
    return output._replace(hidden=output.hidden + self.hidden)


def raises(attention: Any, self: Any, *inputs: Any) -> Any:
    raise NotImplementedError("later\nmuch later")


def prepares_other_weights(_: Any, self: Any) -> None:
    self.output = torch.nn.Linear(self.output.in_features, self.output.out_features)


BROKEN = [
    ("features", sees_the_future, "causality"),
    ("encode", reads_padding, "padding and neighbours"),
    ("encode", mixes_the_batch, "padding and neighbours"),
    ("step", mixes_the_beam, "step equals forward"),
    ("init_state", puts_the_beam_first, "interface"),
    ("features", trains_another_model, "loss"),
    ("prepare_decoding", prepares_other_weights, "step equals forward"),
    ("attention", attends_to_padding, "attention weights"),
    ("__init__", has_an_unused_layer, "gradients"),
    ("train", keeps_dropout, "interface"),
    ("__init__", ignores_the_seed, "seed"),
    ("features", hides_a_weight, "saved weights"),
    ("attention", raises, "attention weights"),
]


@pytest.mark.parametrize(("name", "method", "check"), BROKEN, ids=[case[1].__name__ for case in BROKEN])
def test_a_broken_rule_is_found_by_its_check(name: str, method: Callable[..., Any], check: str):
    failures = failed(with_methods(**{name: method}))
    assert check in failures
    assert all(problem and "\n" not in problem for problem in failures.values())
    if method is raises:
        (problem,) = failures.values()
        assert re.fullmatch(rf"{re.escape(__file__)}:\d+: NotImplementedError: later", problem)


def test_a_wrong_count_of_operations_is_found():
    name = with_methods(lambda *_: 1e6)
    problem = failed(name)["FLOPs"]
    assert "the family's formula gives 4,0" in problem
    assert "torch counts" in problem


def test_the_commands_status_says_whether_all_checks_hold(
    capsys: pytest.CaptureFixture[str], refusal: Refusal
):
    random, dtype = torch.get_rng_state(), torch.get_default_dtype()
    assert main(["models", "conv-gru", "--verify"]) == 0
    assert len(re.findall(r"\w  +ok\n", capsys.readouterr().out)) == 13
    assert main(["models", with_methods(attention=raises), "--verify"]) == 1
    assert re.search(r"attention weights +\S+: NotImplementedError: later\n", capsys.readouterr().out)
    assert main(["models", "lstm", "--verify", "--json"]) == 0
    assert all(verdict["holds"] for verdict in json.loads(capsys.readouterr().out))
    assert refusal("models", "--verify").startswith("--verify checks one preset: name it")
    assert "unknown preset 'conv-gur'; did you mean 'conv-gru'?" in refusal("models", "conv-gur", "--verify")
    assert torch.equal(random, torch.get_rng_state())
    assert torch.get_default_dtype() == dtype


# First tries at a score, which ``run`` verifies.


def init(self: Any, *sizes: Any) -> None:
    super(type(self), self).__init__(*sizes)


def without_sizes(self: Any, *sizes: Any) -> None:
    super(type(self), self).__init__()


def with_plain_tensor(self: Any, *sizes: Any) -> None:
    init(self, *sizes)
    self.strength = torch.ones(1)


def with_listed_modules(self: Any, *sizes: Any) -> None:
    init(self, *sizes)
    self.parts = [torch.nn.Linear(4, 4)]


def product(self: Any, queries: Any, keys: Tensor) -> Tensor:
    return (queries.state @ keys.transpose(1, 2)).unsqueeze(1)


SCORES_OF_A_BEGINNER = {
    "no sizes": (without_sizes, product, "missing 3 required positional arguments"),
    "plain tensor": (with_plain_tensor, product, "use nn.Parameter or a buffer"),
    "modules in a list": (with_listed_modules, product, "use nn.ModuleList"),
    "shape": (init, lambda *inputs: product(*inputs)[:, 0], "(sentences, heads, queries, source positions)"),
    "mean over padding": (
        init,
        lambda self, queries, keys: product(self, queries, keys * keys.mean(1, keepdim=True)),
        "padding of the source",
    ),
    "another device": (
        init,
        lambda self, queries, keys: product(self, queries, keys) + torch.zeros(keys.size(1)),
        "pass device=keys.device",
    ),
    "no number": (init, lambda *inputs: product(*inputs) / 0, "the logits are NaN or infinite"),
    "numpy": (
        init,
        lambda *inputs: product(*inputs) * torch.tensor(inputs[2].detach().numpy()).new_ones(1),
        "use the functions of torch",
    ),
    "detached": (init, lambda self, queries, keys: product(self, queries, keys.detach()).tanh(), ""),
    "right": (init, lambda *inputs: product(*inputs).tanh(), ""),
}


@pytest.mark.parametrize("case", SCORES_OF_A_BEGINNER)
def test_a_score_is_verified_before_training_and_each_mistake_has_its_rule_and_line(
    case: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    """The right one overrides ``score`` of a ``ProductScore``, whose steps are joined in training.

    A parameter without gradient is warned of, as some settings give it none.
    """
    *methods, rule = SCORES_OF_A_BEGINNER[case]
    members = dict(zip(("__init__", "score"), methods, strict=True))
    register_score("mine", type("Mine", (GeneralScore,), members))
    path = tmp_path / "e.toml"
    path.write_text('[[models]]\npreset = "luong-general"\nlabel = "own"\nscore = "mine"\n')
    (run,) = resolve_models(load_experiment(path))
    if not rule:
        ensure_verified(run)
        assert ("no gradient for decoder.attention.scorer.key.weight" in caplog.text) == (case == "detached")
        return
    with pytest.raises(ValueError, match=rf"models\.own: {re.escape(__file__)}:\d+: ") as error:
        ensure_verified(run)
    assert rule in str(error.value)
