"""Copies of models that decode faster on a CPU and are made within a millisecond."""

from typing import Protocol, TypeVar, runtime_checkable

from torch import nn

from compare.system.packed_linear import PackedLinear, is_packable

Module = TypeVar("Module", bound=nn.Module)


@runtime_checkable
class PreparesDecoding(Protocol):
    """A module that computes something of its weights before a search, in ``prepare_decoding``."""

    def prepare_decoding(self) -> None:
        """Prepare for a search, in which no weight changes; called of a shallow copy of the module."""


def decoding_copy(model: Module) -> Module:
    """Return a copy of a model on a CPU for as long as its weights stay; on other devices the model itself.

    In the copy linear layers are packed (``PackedLinear``), and modules with a method ``prepare_decoding``
    are copied and told to prepare. Modules that hold one of these are new too. Everything else, parameters
    included, is the model's own: so nothing of a model has to be copyable, and little time is needed.
    """
    parameter = next(model.parameters(), None)
    if parameter is None or parameter.device.type != "cpu":
        return model
    return _copy(model, {})


def _copy(module: Module, copies: dict[int, nn.Module]) -> Module:
    """Return the copy of a module, or itself if nothing in it changes; ``copies`` are those made, by id."""
    if id(module) not in copies:
        copies[id(module)] = PackedLinear(module) if is_packable(module) else _copy_tree(module, copies)
    return copies[id(module)]  # type: ignore[return-value]


def _copy_tree(module: nn.Module, copies: dict[int, nn.Module]) -> nn.Module:
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
    """Return a module with the same attributes, whose modules can be replaced."""
    result = object.__new__(type(module))
    result.__dict__.update(module.__dict__, _modules=module._modules.copy())
    return result
