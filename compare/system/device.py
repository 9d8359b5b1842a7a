"""Processor and GPU: names, choice, precision, how exactly they compute; what makes a processor fast."""

import copy
import ctypes
import os
import platform
import re
import statistics
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol, TypeGuard, TypeVar, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from data.workers import available_cores

FAST_BF16 = {"amx_bf16", "avx512_bf16", "bf16"}
"""Flags in /proc/cpuinfo of processors with bfloat16 products in hardware (x86 and Arm names)."""
FAST_BF16_GPU = (8, 0)
"""Lowest compute capability of GPUs with bfloat16 products in hardware."""
CPUINFO = Path("/proc/cpuinfo")


def processor() -> tuple[str, set[str]]:
    """Return the processor's name and feature flags; no flags except on Linux."""
    text = CPUINFO.read_text(encoding="utf-8") if CPUINFO.is_file() else ""
    name = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    flags = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", text, re.MULTILINE)
    label = name[1] if name else platform.processor() or platform.machine() or "cpu"
    return label, set(flags[1].split() if flags else ())


def clock_mhz() -> float | None:
    """Return the median of the clocks that Linux reports for the processors now; None elsewhere."""
    text = CPUINFO.read_text(encoding="utf-8") if CPUINFO.is_file() else ""
    clocks = [float(clock) for clock in re.findall(r"^cpu MHz\s*:\s*([\d.]+)$", text, re.MULTILINE)]
    return statistics.median(clocks) if clocks else None


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
    else:
        return device
    raise ValueError(f"train.device is {name}, but {missing}: use cpu or auto (see `attnbench doctor`)")


def device_name(device: torch.device) -> str:
    """Return the name of the GPU or the processor; that of a GPU of another machine is not known here."""
    if device.type == "cuda":
        is_here = (device.index or 0) < torch.cuda.device_count()
        return torch.cuda.get_device_name(device) if is_here else str(device)
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


def rng_state(device: torch.device) -> torch.Tensor:
    """Return the state of a GPU's generator of random numbers; empty for a processor."""
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.empty(0)


def set_rng_state(state: torch.Tensor, device: torch.device) -> None:
    """Restore what ``rng_state`` returned."""
    if device.type == "cuda":
        torch.cuda.set_rng_state(state, device)


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

    def __str__(self) -> str:
        """Name what decides rounding and speed: "AMD EPYC, torch 2.13.0, threads: 2"."""
        return f"{self.device}, torch {self.torch}, threads: {self.threads}"


def this_machine(device: torch.device) -> Machine:
    """Describe this machine, and this process's use of it."""
    return Machine(
        device=device_name(device),
        torch=torch.__version__,
        threads=torch.get_num_threads(),
        cores=available_cores(),
        clock_mhz=clock_mhz(),
    )


# Precisions: fp32, and bf16, which trains by autocast over fp32 weights and decodes with bf16 weights.


DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
"""Data type of matrix products by its name in configs and results; auto has been replaced by one of them."""


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """Return the context manager in which a model computes in ``precision``."""
    return torch.autocast(device.type, torch.bfloat16, enabled=DTYPES[precision] is torch.bfloat16)


# How exactly a GPU computes: fp32 without rounding of inputs, and the same bits each time if asked for.


def set_numerics(device: torch.device, *, deterministic: bool = False) -> None:
    """Set how torch computes on ``device``, before the first work there; nothing to set for a processor.

    Products of fp32 stay fp32: torch would use TensorFloat-32, which rounds inputs to 10 bits, in recurrent
    layers alone, so that some models of a comparison would be less exact.

    Args:
        device: where the models will compute.
        deterministic: choose algorithms that give the same bits each time, which are slower; an operation
            that has none raises a RuntimeError.
    """
    if device.type == "cpu":
        return
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    if deterministic:
        # Read at the first product of the process. Of the two values that torch accepts, this is the one
        # that cuDNN's recurrent layers need too.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    torch.use_deterministic_algorithms(deterministic)
    torch.backends.cudnn.deterministic = deterministic


# Speed on a CPU: settings of the libraries under torch.


M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
"""Parameters of glibc's mallopt(3)."""
MIN_KERNELS, MAX_KERNELS = 64, 1_024
"""Range of the number of cached oneDNN kernels: a search needs 60; 1,024 is the default."""
KERNELS_TIMES_TOKENS = 64 * 3_340
"""Cached kernels times tokens per batch: each cached kernel costs about as much memory as a tensor."""
PROBE_SIZE, FP32_ERROR = 512, 1e-5
"""Size of the matrices that tell fp32 from lower precisions, and the largest relative error of fp32."""


def tune_cpu(*, batch_tokens: int | None = None) -> None:
    """Make training and decoding in this process as fast as the CPU allows; the precision stays the same.

    Args:
        batch_tokens: tokens per training batch. None for a process that only decodes: it has the memory to
            cache all compiled kernels, which makes it about 10% faster.
    """
    _keep_freed_memory()
    if batch_tokens is not None:
        _limit_kernel_cache(min(max(MIN_KERNELS, KERNELS_TIMES_TOKENS // batch_tokens), MAX_KERNELS))
    _multiply_by_onednn()


def _keep_freed_memory() -> None:
    """Keep freed memory in the process instead of returning it to the system; glibc only.

    By default each tensor over 32 MB is mapped, zeroed and unmapped again at every update.
    """
    if platform.libc_ver()[0] != "glibc":
        return
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_MAX, 0)
        libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def _limit_kernel_cache(capacity: int) -> None:
    """Limit the compiled kernels that oneDNN and torch cache, unless the user's environment does.

    Takes effect only before the first matrix product. Nearly every batch has new sizes, and compiling a
    kernel for them takes 0.2 ms. The 1,024 kernels cached by default fragment the heap: training grew from
    1.2 to 3 GB within 80 updates.
    """
    for variable in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        os.environ.setdefault(variable, str(capacity))


def _multiply_by_onednn() -> None:
    """Compute fp32 matrix products with oneDNN instead of MKL, if oneDNN computes them in fp32.

    MKL does not use AVX-512 on processors of other makers than Intel: 109 GFLOP/s per core against 245. In
    torch the only switch to oneDNN is to permit bfloat16, which oneDNN uses on processors with AMX alone.
    Nothing changes where the user's program has chosen a precision.
    """
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return
    setting = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    if setting.fp32_precision != "none":
        return
    if torch.accelerator.is_available():  # torch's older switch, below, would permit TF32 there
        setting.fp32_precision = "bf16"
        if not _multiplies_in_fp32():
            setting.fp32_precision = "none"
    else:  # the newer one lets get_float32_matmul_precision() fail, which torch.compile calls
        torch.set_float32_matmul_precision("medium")
        if not _multiplies_in_fp32():
            torch.set_float32_matmul_precision("highest")


def sends_fp32_to_onednn() -> bool:
    """Return whether ``tune_cpu`` has sent fp32 matrix products to oneDNN in this process."""
    return str(torch.backends.mkldnn.matmul.fp32_precision) == "bf16"  # type: ignore[attr-defined]


def _multiplies_in_fp32() -> bool:
    """Test whether fp32 matrices are multiplied in fp32; in bfloat16 the relative error would be 2e-3."""
    random = torch.Generator().manual_seed(0)
    left, right = torch.randn(2, PROBE_SIZE, PROBE_SIZE, generator=random)
    exact = left.double() @ right.double()
    return bool(((left @ right) - exact).abs().max() < FP32_ERROR * exact.abs().max())


# Linear layers whose weights are stored in the layout of oneDNN's kernels, for decoding on a CPU.
#
# At every product oneDNN copies the weights into blocks as its kernel reads them. With the few rows of a
# decoding step this copy takes as long as the product itself. torch has operators that copy once and then
# multiply by the copy, which torch.compile calls. They are not public: where they are missing or disagree
# with ``torch.nn.functional.linear``, layers stay as they are. In fp32 they also do unless ``tune_cpu`` has
# sent products to oneDNN: not in a process that did not call it, nor on processors of Intel with AMX.


TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 1e-2}
"""Largest difference between both products of the trial, whose results are about 1, by dtype."""
MIN_MULTIPLY_ADDS = 2**20
"""Size of the smallest packed product: calling torch's operator costs more than it saves below."""


class PackedLinear(nn.Linear):
    """y = W x + b with a second copy of W, in oneDNN's layout, made of the first when it is first used.

    The first copy serves gradients, single rows, and whoever reads ``weight``. Later changes of it do not
    reach the second.
    """

    def __init__(self, layer: nn.Linear) -> None:
        """Take over the parameters of a layer."""
        self.__dict__.update(vars(layer), _parameters=layer._parameters.copy())  # far faster than to create
        self.packed: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Map x (..., in_features) to (..., out_features)."""
        if torch.is_grad_enabled() or x.dtype is not self.weight.dtype or not self._is_faster(x):
            return super().forward(x)
        if self.packed is None:
            self.packed = _pack(self.weight)
        return _multiply(x, self.packed, self.bias)

    def _is_faster(self, x: Tensor) -> bool:
        """Return whether the packed product takes less time; autocast multiplies in another dtype."""
        several_rows = x.numel() > self.in_features  # for a product with one vector nothing is copied
        is_large = x.numel() * self.out_features >= MIN_MULTIPLY_ADDS
        return several_rows and is_large and not torch.is_autocast_enabled(x.device.type)


def is_packable(module: nn.Module) -> TypeGuard[nn.Linear]:
    """Return whether a ``PackedLinear`` computes the same as this module, and torch can pack its dtype.

    It does not in place of modules of subclasses, of hooks, such as those of weight normalisation and
    pruning, or of weights that are no plain tensors, such as quantised ones.
    """
    if type(module) is not nn.Linear or module._forward_hooks or module._forward_pre_hooks:
        return False
    weight = module.weight
    return (
        "forward" not in vars(module)
        and type(weight) is nn.Parameter
        and weight.is_contiguous()
        and weight.numel() > 0
        and weight.device.type == "cpu"
        and packs(weight.dtype)
    )


def packs(dtype: torch.dtype) -> bool:
    """Return whether linear layers with weights of a dtype are packed in this process."""
    by_onednn = dtype is torch.bfloat16 or (dtype is torch.float32 and sends_fp32_to_onednn())
    return by_onednn and _agrees(dtype)


@cache
def _agrees(dtype: torch.dtype) -> bool:
    """Test whether the operators exist and compute the product of ``linear``."""
    random = torch.Generator().manual_seed(0)
    shapes = (3, 2, 64), (96, 64), (96,)
    x, weight, bias = (torch.rand(*shape, generator=random).to(dtype) for shape in shapes)
    weight = weight / 64
    try:
        with torch.no_grad():
            difference = _multiply(x, _pack(weight), bias) - linear(x, weight, bias)
    except (AttributeError, RuntimeError):
        return False
    return bool(difference.abs().max() <= TOLERANCE[dtype])


def _pack(weight: Tensor) -> Tensor:
    operators: Any = torch.ops.mkldnn
    packed: Tensor = operators._reorder_linear_weight(weight.detach())
    return packed


def _multiply(x: Tensor, packed: Tensor, bias: Tensor | None) -> Tensor:
    """Compute W x + b; the operator can also apply a function to it, here none."""
    operators: Any = torch.ops.mkldnn
    product: Tensor = operators._linear_pointwise(x, packed, bias, "none", [], "")
    return product


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


def for_decoding(model: Module, precision: str) -> Module:
    """Return a copy for search in a precision: bf16 weights beat autocast; see ``decoding_copy``."""
    dtype = DTYPES[precision]
    return decoding_copy(model if dtype is torch.float32 else copy.deepcopy(model).to(dtype))
