"""``compare.formulas`` against what trains, searches and scores; and that every mechanism has a formula."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import seq2seq.formulas
import transformer.formulas
from compare import formulas
from compare.decoding.search import LengthPenalty, best_continuations, mean_probability
from compare.models.presets import PRESETS
from compare.models.registry import build
from compare.optim_config import SCHEDULES, OptimConfig, decay_updates
from compare.training.checkpoints import MovingAverage
from compare.training.optimizer import build_optimizer
from seq2seq import NORMALISERS, SCORES, Seq2SeqConfig
from tests.kits.contract import tiny

N, V = 7, 11
Y = torch.tensor([0, 10, 3, 3, 7, 1, 2])


def draw(*shapes: tuple[int, ...]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(5)
    return [torch.randn(s, generator=generator, dtype=torch.float64).requires_grad_() for s in shapes]


@pytest.mark.parametrize("epsilon", [0.0, 0.1])
def test_losses_are_those_of_torch(epsilon: float) -> None:
    p, q = draw((N, V), (N, V))
    loss = functional.cross_entropy(p, Y, label_smoothing=epsilon, reduction="sum")
    torch.testing.assert_close(formulas.label_smoothing(p, Y, epsilon), loss)
    torch.testing.assert_close(formulas.perplexity(p, Y), functional.cross_entropy(p, Y).exp())
    divergence = functional.kl_div(q.log_softmax(1), p.log_softmax(1), log_target=True, reduction="sum")
    torch.testing.assert_close(formulas.kl_divergence(p, q), divergence)


def test_schedules() -> None:
    warmup, last, d_model = 4, 20, 64
    rates = {
        "inverse-sqrt": lambda n: formulas.noam_rate(n, d_model, warmup),
        "linear": lambda n: formulas.linear_rate(n, 2.0, warmup, last),
        "cosine": lambda n: formulas.cosine_rate(n, 2.0, warmup, last),
        "stable": lambda n: formulas.stable_rate(n, 2.0, last, 0.25),
    }
    for schedule, formula in rates.items():
        peak = (d_model * warmup) ** -0.5 if schedule == "inverse-sqrt" else 2.0
        config = OptimConfig(learning_rate=peak, schedule=schedule, warmup_updates=warmup)
        computed = [config.learning_rate_at(n, last, 0.25) for n in range(1, last + 1)]
        expected = [formulas.warmup_rate(n, peak, warmup) for n in range(1, warmup + 1)]
        expected += [formula(n) for n in range(warmup + 1, last + 1)]
        assert computed == pytest.approx(expected, rel=1e-12)


def rates(updates: int, **settings: float | int | str) -> list[float]:
    config = OptimConfig(learning_rate=2.0, **settings)  # type: ignore[arg-type]
    return [config.learning_rate_at(update, updates) for update in range(1, updates + 1)]


def test_training_without_warmup_begins_at_the_peak_and_may_end_within_it() -> None:
    assert rates(4, schedule="linear", warmup_updates=0) == pytest.approx([2.0, 1.5, 1.0, 0.5])
    falling = rates(4, schedule="inverse-sqrt", warmup_updates=0)
    assert falling == pytest.approx([2.0, 2 / 2**0.5, 2 / 3**0.5, 1.0])
    assert [decay_updates(*share) for share in ((100, 0.29), (10, 0.01))] == [29, 1]
    for schedule in SCHEDULES:
        expected = [2.0 * update / 50 for update in range(1, 6)]
        assert rates(5, schedule=schedule, warmup_updates=50) == pytest.approx(expected)


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_adamw_clipping_and_the_moving_average(decay: float) -> None:
    (start, *gradients) = [part.detach() for part in draw(*[(3, 2)] * 6)]
    module = nn.Linear(2, 3, bias=False).double()
    module.weight.data.copy_(start)
    optimizer = build_optimizer(module, OptimConfig(learning_rate=0.01, weight_decay=decay, beta2=0.98))
    average, w, m, v, seen = MovingAverage(module, 0.9), start, *[torch.zeros(3, 2).double()] * 2, []
    for update, gradient in enumerate(gradients, start=1):
        module.weight.grad = gradient.clone()
        nn.utils.clip_grad_norm_(module.parameters(), 1.5)
        optimizer.step()
        average.add(update)
        w, m, v = formulas.adamw(w, formulas.clip(gradient, 1.5), m, v, update, 0.01, 0.98, decay)
        seen.append(w)
        torch.testing.assert_close(
            module.weight.detach(), w, rtol=0, atol=1e-7
        )  # torch adds 1e-6 in clipping
        torch.testing.assert_close(
            average.weights["weight"], formulas.moving_average(seen, 0.9), atol=1e-7, rtol=0
        )


def test_muon_steps_along_the_nearest_orthogonal_matrix() -> None:
    start, *gradients = [part.detach() for part in draw(*[(6, 4)] * 3)]
    module = nn.Linear(4, 6, bias=False).double()
    module.weight.data.copy_(start)
    optimizer = build_optimizer(module, OptimConfig(optimizer="muon", learning_rate=0.01, weight_decay=0.1))
    w, m = start, torch.zeros(6, 4).double()
    for gradient in gradients:
        before, module.weight.grad = module.weight.detach().clone(), gradient.clone()
        optimizer.step()
        new, m = formulas.muon(w, gradient, m, 0.01, 0.1)
        step, exact = module.weight.detach() - 0.999 * before, new - 0.999 * w
        assert functional.cosine_similarity(step.flatten(), exact.flatten(), dim=0) > 0.97  # five iterations
        assert float(step.norm() / exact.norm()) == pytest.approx(0.95, abs=0.25)
        w = module.weight.detach().clone()


def test_a_restored_muon_takes_the_same_step() -> None:
    gradients = [part.detach() for part in draw((6, 4), (6,))]
    modules = [nn.Linear(4, 6).double() for _ in range(2)]
    optimizers = [build_optimizer(module, OptimConfig(optimizer="muon")) for module in modules]

    def step(number: int, rate: float) -> None:
        for group in optimizers[number].param_groups:
            group["lr"] = rate
        for parameter, gradient in zip(modules[number].parameters(), gradients, strict=True):
            parameter.grad = gradient.clone()
        optimizers[number].step()

    step(0, 0.1)
    for one, other in (modules, optimizers):
        other.load_state_dict(one.state_dict())
    for number in range(2):
        step(number, 0.2)
    close = {"rtol": 0, "atol": 5e-3}  # Muon rounds to bfloat16
    torch.testing.assert_close(modules[1].state_dict(), modules[0].state_dict(), **close)


@pytest.mark.parametrize("name", ["bahdanau", "transformer-learned"])
def test_muon_leaves_embeddings_vectors_and_the_output_layer_to_adamw(name: str) -> None:
    model = build(tiny(name, "none").architecture, 9, 9)
    muon, *adamw = build_optimizer(model, OptimConfig(optimizer="muon")).param_groups
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    assert all(parameter.dim() == 2 and 1 not in parameter.shape for parameter in muon["params"])
    parts = {part for parameter in muon["params"] for part in names[id(parameter)].split(".")}
    assert not parts & {"embedding", "table", "places", "output", "energy"}
    assert sum(len(group["params"]) for group in (muon, *adamw)) == len(names)


@pytest.mark.parametrize("name", ["rnmt-plus", "min-gru", "transformer"])
def test_weight_decay_leaves_biases_and_gains_alone(name: str) -> None:
    changes = {"positions": "t5"} if name == "transformer" else {}
    module = build(tiny(name).override(changes).architecture, 9, 9)
    before = {name: weight.detach().clone() for name, weight in module.named_parameters()}
    sum(weight.sum() for weight in module.parameters()).mul(0.0).backward()
    build_optimizer(module, OptimConfig(learning_rate=0.1, weight_decay=0.5)).step()
    for name, after in module.named_parameters():
        is_matrix = after.dim() > 1 and "gain" not in name and "bias" not in name
        torch.testing.assert_close(after, before[name] * (1 - 0.1 * 0.5) if is_matrix else before[name])


def test_length_penalties() -> None:
    for length in (1, 7, 40):
        assert LengthPenalty(0.6).divisor(length) == pytest.approx(formulas.wu_penalty(length, 0.6))
        assert LengthPenalty(0.6, "length").divisor(length) == pytest.approx(
            formulas.length_penalty(length, 0.6)
        )


def test_a_step_of_beam_search_and_of_an_ensemble() -> None:
    scores, one, other = (part.detach() for part in draw((2, 3), (2, 3, 130), (2, 3, 130)))
    one[..., 7] = one[..., 90] = one.amax(-1)  # ties
    logp = formulas.log_softmax(one)
    for row in range(2):
        actual = [part[row] for part in best_continuations(scores, logp, 6)]
        for left, right in zip(actual, formulas.beam_step(scores[row], logp[row], 6), strict=True):
            torch.testing.assert_close(left, right, rtol=0, atol=1e-12)
    expected = formulas.ensemble([one, other])
    torch.testing.assert_close(mean_probability([logp, formulas.log_softmax(other)]), expected)


MODULES = {"seq2seq": seq2seq.formulas, "transformer": transformer.formulas}


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_lists_the_formulas_of_its_settings(name: str) -> None:
    """In the order of the file; a setting whose value has a formula of that name is among them."""
    preset, listed = PRESETS[name], PRESETS[name].formulas
    for package, functions in listed.items():
        order = list(vars(MODULES[package]))
        assert functions == sorted(functions, key=order.index)
    defined = {function for package in listed for function in vars(MODULES[package])}
    values = {(key, str(value).replace("-", "_")) for key, value in preset.model.settings().items()}
    named = {name for key, value in values for name in (value, f"{value}_{key}") if name in defined}
    without = {"self_attention", *(["relu"] if name == "ladder" else [])}
    every = {function for functions in listed.values() for function in functions}
    assert named - without <= every
    decoder = getattr(preset.model.architecture, "decoder", preset.model.architecture)
    steps = {"lstm_step", "bahdanau_step", "luong_step", "gnmt_step"}
    assert len(steps & every) == (isinstance(decoder, Seq2SeqConfig) and not name.endswith("-lm"))
    attention = getattr(decoder, "attention", None)
    assert ("mapped_values" in every) == bool(attention and SCORES[attention.score].is_mapped(attention))


def test_every_mechanism_of_attention_has_a_formula() -> None:
    other_names = {"concat": "additive", "entmax-1.5": "entmax15"}
    names = [f"{other_names.get(name, name)}_score" for name in SCORES]
    names += [other_names.get(name, name) for name in NORMALISERS]
    assert all(hasattr(seq2seq.formulas, name.replace("-", "_")) for name in names)
