"""Copies of models that decode faster on a CPU, made anew for every search."""

from typing import Protocol, TypeVar, runtime_checkable

from torch import nn

from compare.system.packed_linear import PackedLinear, is_packable, packs

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
