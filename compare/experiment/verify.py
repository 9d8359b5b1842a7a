"""Check that a model keeps the contract of ``compare.protocol``; plug-ins are checked before training.

Shapes: B sentences, K hypotheses each, S source and T target positions, V target vocabulary.
"""

import inspect
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import cross_entropy

from compare.config.resolve import Run
from compare.decoding.translator import decoding_copy
from compare.models.presets import find_preset
from compare.models.registry import ResolvedModel, build, forward_flops
from compare.protocol import keep, select
from compare.system.messages import first_line
from compare.system.plugins import user_line
from compare.training.checkpoints import load_weights, model_weights, save_weights, set_weights
from compare.training.loss import TranslationLoss

if TYPE_CHECKING:
    from compare.models.registry import Architecture, Model

logger = logging.getLogger(__name__)

PAD, BOS, EOS = 0, 2, 3
V = 13
"""Size of the target vocabulary; that of the source is smaller by 2, unless the two are tied."""
LENGTHS = (5, 3, 1, 4)
"""Tokens of each source sentence, including the end of sentence."""
ATOL = 1e-9
"""Largest difference between logits in float64 that counts as rounding."""
WIDTHS = (16, 32, 64)
"""Widths to try for the first of the family's ``width_fields``; the others follow in proportion."""
SOUND_BUT_FAILING = ("source", "gradients", "FLOPs")
"""Checks that some sound settings fail; a sparse normaliser, for example, has gradients of 0."""
DEVICE_REMEDIES = {
    "expected device": "a tensor is created on the CPU: pass device=keys.device",
    "numpy": "numpy has no gradients and no GPU: use the functions of torch",
}
"""Explanations by a part of torch's message."""
INTERNAL = frozenset(vars(nn.Module()))


class ContractError(ValueError):
    """A model does not do what ``compare.protocol`` requires."""


def sharpen(model: nn.Module, seed: int = 5) -> None:
    """Change every weight so much that all of them matter and no two tokens have the same score."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.4 * torch.randn_like(parameter))


def sources(lengths: tuple[int, ...] = LENGTHS, width: int | None = None) -> tuple[Tensor, Tensor]:
    """Draw random sources (B, S) and their mask; ``width`` is S and does not change the sentences."""
    generator = torch.Generator().manual_seed(1)
    mask = torch.arange(width or max(lengths)) < torch.tensor(lengths).unsqueeze(1)
    src = torch.full(mask.shape, PAD)
    for row, length in enumerate(lengths):
        src[row, : length - 1] = torch.randint(4, V - 2, (length - 1,), generator=generator)
        src[row, length - 1] = EOS
    return src, mask


def targets(steps: int = 6, rows: int = len(LENGTHS)) -> Tensor:
    """Draw random targets (B, T) that begin with the begin-of-sentence id."""
    generator = torch.Generator().manual_seed(2)
    ids = torch.randint(4, V, (rows, steps), generator=generator)
    ids[:, 0] = BOS
    return ids


def leaves(tree: Any) -> list[Tensor]:
    """List the tensors of a memory or state; ContractError if another leaf cannot be reordered."""
    if isinstance(tree, tuple):
        return [leaf for part in tree for leaf in leaves(part)]
    if isinstance(tree, Tensor):
        return [tree]
    if callable(getattr(tree, "select", None)) and callable(getattr(tree, "keep", None)):
        return []
    raise ContractError(
        f"a leaf of memory or state is {type(tree).__name__}: expected tensors in tuples, or an object with "
        "methods select and keep"
    )


def check_interface(model: "Model", src: Tensor, mask: Tensor, tgt_in: Tensor) -> None:
    """Shapes are right, ``forward`` is ``output`` of the features, and evaluation repeats itself."""
    _shape("output.weight", model.output.weight, (V, model.output.in_features))
    features = model.features(src, mask, tgt_in, mask.sum(1))
    _shape("features(...).hidden", features.hidden, (*tgt_in.shape, model.output.in_features))
    _require(features.choices is None, "the choices must be None in evaluation")
    logits = model(src, mask, tgt_in)
    _require(bool(logits.isfinite().all()), "the logits are NaN or infinite")
    _require(torch.equal(logits, model(src, mask, tgt_in)), "two passes in evaluation give different logits")
    _equal(logits, model.output(features.hidden), "forward and output of the features")
    memory: Any = model.encode(src, mask)
    for leaf in leaves(memory):
        _require(leaf.size(0) == len(src), f"a tensor of the memory has {leaf.size(0)} rows, not {len(src)}")
    for leaf in leaves(model.init_state(memory, 3, 6)):
        sizes = tuple(leaf.shape[:2])
        _require(sizes == (len(src), 3), f"a tensor of the state begins with sizes {sizes}, not (B, K)")


def check_steps(model: "Model", src: Tensor, mask: Tensor, tgt_in: Tensor) -> None:
    """Each hypothesis of a beam has the logits of forward, also when sentences leave and beams swap."""
    tokens = torch.stack([tgt_in.roll(k, dims=0) for k in range(3)], dim=1)  # (B, 3, T)
    rows, parents = torch.tensor([0, 3]), torch.tensor([[2, 0, 0], [1, 2, 1]])
    past = tokens[rows, :, :2].gather(1, parents.unsqueeze(2).expand(-1, -1, 2))
    later = torch.cat((past, tokens[rows, :, 2:]), dim=2)
    before = _beam_logits(model, src, mask, tokens)
    after = _beam_logits(model, src[rows], mask[rows], later)
    for what, stepper in (
        ("step", model),
        ("step of the copy for a search", decoding_copy(model, always=True)),
    ):
        fed, expected = tokens, before
        memory: Any = stepper.encode(src, mask)
        state: Any = stepper.init_state(memory, 3, tokens.size(2))
        for t in range(tokens.size(2)):
            if t == 2:
                memory, state = keep(memory, rows), select(keep(state, rows), parents)
                fed, expected = later, after
            logits, state = stepper.step(fed[:, :, t], state, memory)
            _equal(logits, expected[:, :, t], f"the logits of {what} and forward")
    _equal(_beam_logits(model, src, mask, tokens), before, "the logits before and after a search")


def _beam_logits(model: "Model", src: Tensor, mask: Tensor, tokens: Tensor) -> Tensor:
    return torch.stack([model(src, mask, tokens[:, k]) for k in range(tokens.size(1))], dim=1)


def check_loss(model: "Model", src: Tensor, mask: Tensor, tgt_in: Tensor) -> None:
    """The loss is the cross-entropy of the logits of forward."""
    tgt_out, real = tgt_in.roll(-1, 1), torch.ones_like(tgt_in, dtype=torch.bool)
    with torch.enable_grad():
        nll = TranslationLoss(model, 0.0).eval()(src, mask, tgt_in, tgt_out, real).nll.detach()
    expected = cross_entropy(model(src, mask, tgt_in).flatten(0, 1), tgt_out.flatten(), reduction="sum")
    _equal(nll, expected, "the loss and the cross-entropy of the logits")


def check_causality(model: "Model", src: Tensor, mask: Tensor, tgt_in: Tensor) -> None:
    """A target position sees the tokens up to itself, and no later one."""
    other = torch.cat((tgt_in[:, :3], torch.where(tgt_in[:, 3:] == 5, 6, 5)), dim=1)
    one, two = model(src, mask, tgt_in), model(src, mask, other)
    _equal(one[:, :3], two[:, :3], "the logits before a changed target token")
    # An ignored token changes no bit; a token that matters may change little in a deep model.
    ignored = (one[:, 3] == two[:, 3]).all(dim=1).any()
    _require(not ignored, "a target token does not change the logits of its own position")


def check_source(model: "Model", src: Tensor, mask: Tensor, tgt_in: Tensor) -> None:
    """Every source token counts; in a model with ``reads_source`` False, none."""
    counts = getattr(model, "reads_source", True)
    for position in range(LENGTHS[0]):
        other = src.clone()
        other[0, position] = 4 + (src[0, position] - 3) % 6
        ignored = torch.equal(model(src, mask, tgt_in)[0], model(other, mask, tgt_in)[0])
        effect = "changes no logit" if counts else "changes a logit, but reads_source is False"
        _require(ignored != counts, f"source token {position} {effect}")


def check_neighbours(model: "Model", src: Tensor, mask: Tensor, tgt_in: Tensor) -> None:
    """A sentence has the same logits alone, in another batch, and with more padding."""
    expected = model(src, mask, tgt_in)
    wide_src, wide_mask = sources(width=9)
    _equal(model(wide_src, wide_mask, tgt_in), expected, "the logits with more padding of the source")
    noise = model(torch.where(wide_mask, wide_src, 7), wide_mask, tgt_in)
    _equal(noise, expected, "the logits with other ids in the padding of the source")
    longer = torch.cat((tgt_in, torch.full((len(src), 3), PAD)), dim=1)
    _equal(model(src, mask, longer)[:, :6], expected, "the logits with padding of the target")
    order = torch.tensor([2, 0, 3, 1])
    shuffled = model(src[order], mask[order], tgt_in[order])
    _equal(shuffled, expected[order], "the logits of the sentences of a batch in another order")
    for row, length in enumerate(LENGTHS):
        alone = model(src[row : row + 1, :length], mask[row : row + 1, :length], tgt_in[row : row + 1])
        _equal(alone[0], expected[row], f"the logits of sentence {row} alone and in a batch")


def check_attention(model: "Model", src: Tensor, mask: Tensor, tgt_in: Tensor) -> None:
    """Attention weights are at least 0, sum up to at most 1, and see neither padding nor the future."""
    weights: Mapping[str, Tensor] = model.attention(src, mask, tgt_in)
    s, t = src.size(1), tgt_in.size(1)
    for name, matrix in weights.items():
        kind = name.split(".")[0]
        rows, columns = {"encoder": (s, s), "decoder": (t, t)}.get(kind, (t, s))
        _shape(name, matrix, (len(src), matrix.size(1), rows, columns))
        sums = matrix.sum(-1)
        _require(bool((matrix >= 0).all()), f"a weight of {name} is below 0")
        _require(0 < sums.max().item() < 1 + ATOL, f"weights of {name} sum up to {sums.max().item():.3g}")
        if kind == "decoder":
            unseen = torch.ones(t, t).triu(1) > 0
        else:
            unseen = ~mask[:, None, None] & (mask[:, None, :, None] if kind == "encoder" else True)
        _require(not matrix[unseen.expand_as(matrix)].any(), f"{name} sees padding or later target tokens")


CHECKS: Mapping[str, Callable[["Model", Tensor, Tensor, Tensor], None]] = {
    "interface": check_interface,
    "loss": check_loss,
    "causality": check_causality,
    "source": check_source,
    "padding and neighbours": check_neighbours,
    "step equals forward": check_steps,
    "attention weights": check_attention,
}
"""Checks in evaluation mode, in float64, with sharpened weights."""


def check_construction(make: "Callable[[], Model]") -> None:
    """The model can be built; a score takes (query_size, value_size, config) and calls super().__init__."""
    make()


def check_device(model: "Model") -> None:
    """Every tensor is a parameter, a buffer, or created on the device of the inputs.

    The check moves the model to another device.
    """
    lost = "which is not trained, saved or moved to a GPU"
    for part in model.modules():
        for name, value in vars(part).items():
            if name in INTERNAL or type(part).__module__.startswith("torch."):
                continue
            owner, kind = f"{type(part).__name__}.{name}", type(value).__name__
            items = value.values() if isinstance(value, dict) else value
            for item in items if isinstance(value, dict | list | tuple | set) else [value]:
                if isinstance(item, Tensor) and item.dim() > 0:
                    raise ContractError(f"{owner} has a plain tensor, {lost}: use nn.Parameter or a buffer")
                if isinstance(item, nn.Module):
                    raise ContractError(f"{owner} has modules in a plain {kind}, {lost}: use nn.ModuleList")
    (src, mask), meta = sources(), torch.device("meta")
    try:
        model.to(meta).features(src.to(meta), mask.to(meta), targets().to(meta), mask.sum(1))
    except (RuntimeError, TypeError) as error:  # some only read a value, which this device does not have
        for reason, remedy in DEVICE_REMEDIES.items():
            if reason in str(error):
                raise ContractError(remedy).with_traceback(error.__traceback__) from error


def check_seed(make: "Callable[[int], Model]") -> None:
    """The seed, which is the argument of ``make``, decides the weights, and all of them are finite."""
    one, two, other = (make(seed).state_dict() for seed in (3, 3, 4))
    for name, tensor in one.items():
        _require(torch.equal(tensor, two[name]), f"two models with the same seed differ in {name}")
        _require(bool(tensor.isfinite().all()), f"{name} is not finite at the start")
    _require(any(not torch.equal(one[name], other[name]) for name in one), "two seeds give equal weights")


def check_gradients(model: "Model") -> None:
    """Every parameter has a gradient in training mode."""
    sharpen(model)
    (src, mask), tgt_in = sources(), targets()
    real = torch.ones_like(tgt_in, dtype=torch.bool)
    TranslationLoss(model, 0.1)(src, mask, tgt_in, tgt_in.roll(-1, 1), real)[0].backward()
    for name, parameter in model.named_parameters():
        has_gradient = parameter.grad is not None and bool((parameter.grad != 0).any())
        _require(has_gradient or not parameter.requires_grad, f"the loss has no gradient for {name}")


def check_saving(model: "Model", other: "Model") -> None:
    """Weights that are saved and loaded into another model give the same logits."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "weights.safetensors"
        save_weights(path, model_weights(model))
        set_weights(other, load_weights(path), "saved weights")
    (src, mask), tgt_in = sources(), targets()
    _equal(other(src, mask, tgt_in), model(src, mask, tgt_in), "the logits of saved and loaded weights")


def check_flops(architecture: "Architecture", model: "Model") -> None:
    """The closed formula agrees with torch's counter.

    The counter may give less, down to half: it misses fused kernels, and the formula counts causal attention
    as the full square.
    """
    from torch.utils.flop_counter import FlopCounterMode

    (src, mask), tgt_in = sources((5, 5)), targets(7, 2)
    counter = FlopCounterMode(display=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns when oneDNN is switched off
        with torch.backends.mkldnn.flags(enabled=False), sdpa_kernel(SDPBackend.MATH), counter:
            model(src, mask, tgt_in)
    counted = counter.get_total_flops()
    formula = len(src) * forward_flops(architecture, src_len=5, tgt_len=7, tgt_vocabulary=V)
    _require(
        formula / 2 <= counted <= 1.02 * formula,
        f"the family's formula gives {formula:,.0f} FLOPs, torch counts {counted:,}",
    )


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise ContractError(message)


def _shape(name: str, tensor: Tensor, expected: tuple[int, ...]) -> None:
    _require(tensor.shape == expected, f"{name} has shape {tuple(tensor.shape)}, not {expected}")


def _equal(tensor: Tensor, expected: Tensor, what: str) -> None:
    """Raise ContractError unless two tensors are equal up to ``ATOL``; NaN is never equal."""
    _shape(what, tensor, tuple(expected.shape))
    difference = (tensor - expected).abs().max().item()
    _require(difference <= ATOL, f"{what} differ by {difference:.3g}")


# All checks of a preset.


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Outcome of one check."""

    check: str
    holds: bool
    problem: str
    """The line of the author's file, the fault and the rule; "" if the model passes."""


def verify_preset(name: str) -> list[Verdict]:
    """Check that the model of a preset does what training, search and analysis require.

    It is built in float64 and, if possible, with narrow layers. There is one verdict per check.

    Raises:
        ValueError: the preset is unknown; the message suggests the nearest name.
    """
    model = find_preset(name).model
    with _float64():
        return list(_verify(model))


def ensure_verified(run: Run) -> None:
    """Check the model of a run before training; ValueError has the rule and the author's line."""
    with _float64():
        for verdict in _verify(run.model):
            if not verdict.holds and verdict.check in SOUND_BUT_FAILING:
                logger.warning(f"models.{run.label}: {verdict.problem}")
            elif not verdict.holds:
                raise ValueError(f"models.{run.label}: {verdict.problem}")


@contextmanager
def _float64() -> Iterator[None]:
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        torch.set_default_dtype(dtype)


def _first_line_of(part: Any) -> str:
    """Return "FILE:LINE" of a function or a constructor; "" if it has none."""
    function = part if hasattr(part, "__code__") else getattr(part, "__init__", None)
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else ""


def shrink(model: ResolvedModel) -> ResolvedModel:
    """Return the model with narrow layers in the same proportions, or unchanged if it cannot be narrow."""
    widths = model.widths()
    base = next(iter(widths.values()), 0)
    for width in WIDTHS:
        if width >= base:
            break
        narrow = {key: max(width * round(value / base), min(value, width)) for key, value in widths.items()}
        with suppress(ValueError):  # the number of heads may not divide the width
            return model.override(narrow)
    return model


def _verify(model: ResolvedModel) -> Iterator[Verdict]:
    model = shrink(model)
    tied, part = model.settings().get("tie") == "all", _first_line_of(model.plugin_part())

    def make(seed: int = 0) -> "Model":
        torch.manual_seed(seed)
        return build(model.architecture, V if tied else V - 2, V)

    def sharpened(seed: int = 5) -> "Model":
        made = make().eval()
        sharpen(made, seed)
        return made

    def run(name: str, check: Callable[..., Any], *arguments: Any) -> Verdict:
        problem = _find_problem(check, arguments, part)
        return Verdict(check=name, holds=not problem, problem=problem)

    yield (built := run("construction", check_construction, make))
    if not built.holds:
        return
    subject, (src, mask) = sharpened(), sources(width=7)
    with torch.no_grad():
        for name, check in CHECKS.items():
            yield run(name, check, subject, src, mask, targets())
        yield run("device", check_device, sharpened())
        yield run("saved weights", check_saving, subject, sharpened(6))
    yield run("seed", check_seed, make)
    yield run("gradients", check_gradients, make().train())
    yield run("FLOPs", check_flops, model.architecture, subject)


def _find_problem(check: Callable[..., Any], arguments: tuple[Any, ...], part: str) -> str:
    """Run a check; return "" or the line of the author's code, the error and the rule."""
    try:
        check(*arguments)
    except Exception as error:
        line, is_contract = user_line(error) or part, isinstance(error, ContractError)
        text = f"{line}: " if line else ""
        text += str(error) if is_contract else f"{type(error).__name__}: {first_line(error)}"
        if "dtype" in text or "scalar type" in text:
            text += " (keep the dtype of the inputs, which is float64 in this check)"
        rule = inspect.getdoc(check) if is_contract or check is check_construction else None
        return f"{text}. Rule: {rule.splitlines()[0]}" if rule else text
    return ""
