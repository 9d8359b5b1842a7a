"""Device, machine and precision: choice, names, native bfloat16, and copies of a model for decoding."""

import copy
from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

import torch
from torch import nn

from compare.system.cpu import PackedLinear, is_packable, packs
from compare.system.processor import FAST_BF16, FAST_BF16_GPU, clock_mhz, processor, usable_processors

# The device that a config names: choice, name, cores, and native bfloat16 arithmetic.


def pick_device(name: str) -> torch.device:
    """Return the device that ``[train] device`` names; auto means the first GPU of CUDA if there is one.

    Raises:
        ValueError: torch does not find the device.
    """
    device = (
        torch.device("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else torch.device(name)
    )
    if device.type == "cuda" and not torch.cuda.is_available():
        missing = "torch finds no GPU"
    elif device.type == "cuda" and (device.index or 0) >= max(1, torch.cuda.device_count()):
        missing = f"torch finds only {torch.cuda.device_count()} GPUs, counted from cuda:0"
    elif device.type == "mps" and not torch.backends.mps.is_available():
        missing = "torch finds no GPU of Apple"
    else:
        return device
    raise ValueError(f"train.device is {name}, but {missing}: use cpu or auto (see `attnbench doctor`)")


def device_name(device: torch.device) -> str:
    """Return the name of the GPU or the processor; that of a GPU of another machine is not known here."""
    if device.type == "mps":
        return f"{processor()[0]} (mps)"
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device) if torch.cuda.is_available() else device)
    return processor()[0]


def has_fast_bf16(device: torch.device) -> bool:
    """Test whether the hardware computes in bf16; elsewhere it is emulated, which is slower than fp32."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= FAST_BF16_GPU
    return device.type == "cpu" and bool(FAST_BF16 & processor()[1])


def synchronize(device: torch.device) -> None:
    """Wait until a GPU has done all work queued there; a processor queues none."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def rng_state(device: torch.device) -> torch.Tensor:
    """Return the state of a GPU's generator of random numbers; empty for a processor."""
    if device.type == "cuda":
        return torch.cuda.get_rng_state(device)
    return torch.mps.get_rng_state() if device.type == "mps" else torch.empty(0)


def set_rng_state(state: torch.Tensor, device: torch.device) -> None:
    """Restore what ``rng_state`` returned."""
    if device.type == "cuda":
        torch.cuda.set_rng_state(state, device)
    elif device.type == "mps":
        torch.mps.set_rng_state(state)


# Machine that figures were measured on.


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Hardware and libraries that speeds depend on; the names are fields of ``Result``."""

    device: str
    """Name of the processor or GPU."""
    torch: str
    """Version of torch."""
    threads: int
    """CPU threads of torch."""
    cores: int
    """Logical processors that this process may use."""
    clock_mhz: float | None
    """Median clock of the processors now; None where the system does not tell."""


def this_machine(device: torch.device) -> Machine:
    """Describe this machine, and this process's use of it."""
    return Machine(
        device=device_name(device),
        torch=torch.__version__,
        threads=torch.get_num_threads(),
        cores=len(usable_processors()),
        clock_mhz=clock_mhz(),
    )


# Copies of models that decode faster on a CPU, made anew for every search.


Module = TypeVar("Module", bound=nn.Module)

_REGISTERED = ("_parameters", "_buffers", "_non_persistent_buffers_set", "_modules")
"""Attributes in which a module keeps what is registered with it."""


@runtime_checkable
class PreparesDecoding(Protocol):
    """A module that computes something of its weights before a search, in ``prepare_decoding``."""

    def prepare_decoding(self) -> None:
        """Prepare for a search, in which no weight changes; called of a shallow copy of the module.

        The copy may get other parameters, buffers and modules; those that it has are the model's own, and
        must not be written to.
        """


def decoding_copy(model: Module) -> Module:
    """Return a copy of a model for as long as its weights stay, or the model itself where none is faster.

    A copy is made on a CPU if products of the model's dtype are packed there (``packs``). It takes less than
    a millisecond at the sizes of the demo, and longer where ``prepare_decoding`` copies large weights: each
    LSTM layer of width 1,024 that reads as many inputs copies 34 MB of fp32 weights at every call.
    """
    parameter = next(model.parameters(), None)
    if parameter is None or parameter.device.type != "cpu" or not packs(parameter.dtype):
        return model
    return prepare_copy(model)


def prepare_copy(model: Module) -> Module:
    """Copy a model for searches on a CPU, of any dtype; the model itself if nothing in it changes.

    In the copy linear layers are packed (``PackedLinear``), and modules with a method ``prepare_decoding``
    are copied and told to prepare. Modules that hold one of these are new too. Everything else, parameters
    included, is the model's own: so nothing of a model has to be copyable.
    """
    return _copy(model, {})


def _copy(module: Module, copies: dict[nn.Module, nn.Module]) -> Module:
    """Return the copy of a module, or itself if nothing in it changes.

    Args:
        module: the module.
        copies: the copies made before. As a key, a module stays alive, and no other one gets its identity.
    """
    if module not in copies:
        copies[module] = PackedLinear(module) if is_packable(module) else _copy_tree(module, copies)
    return copies[module]  # type: ignore[return-value]


def _copy_tree(module: nn.Module, copies: dict[nn.Module, nn.Module]) -> nn.Module:
    result = module
    if isinstance(module, PreparesDecoding):
        result = prepared = _shallow(module)
        prepared.prepare_decoding()
    children = {name: child for name, child in result._modules.items() if child is not None}
    changed = {name: copy for name, child in children.items() if (copy := _copy(child, copies)) is not child}
    if changed:
        result = _shallow(module) if result is module else result
        result._modules.update(changed)
    return result


def _shallow(module: Module) -> Module:
    """Return a module with the same attributes, which can register others without changing the first."""
    result = object.__new__(type(module))
    result.__dict__.update(module.__dict__)
    result.__dict__.update({name: module.__dict__[name].copy() for name in _REGISTERED})
    return result


# Precisions: fp32, and bf16, which trains by autocast over fp32 weights and decodes with bf16 weights.


DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
"""Data type of matrix products by its name in configs and results; auto has been replaced by one of them."""


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """Return the context manager in which a model computes in ``precision``."""
    return torch.autocast(device.type, torch.bfloat16, enabled=DTYPES[precision] is torch.bfloat16)


def precision_of(model: nn.Module) -> str:
    """Return the precision of a model's weights, in which it decodes."""
    dtype = next(model.parameters()).dtype
    return next(name for name, known in DTYPES.items() if known is dtype)


def for_decoding(model: Module, precision: str) -> Module:
    """Return a copy for search in a precision: bf16 weights beat autocast; see ``decoding_copy``."""
    dtype = DTYPES[precision]
    return decoding_copy(model if dtype is torch.float32 else copy.deepcopy(model).to(dtype))
