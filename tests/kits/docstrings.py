"""Finds parameters, fields and methods of public functions and classes that no docstring describes."""

import ast
import dataclasses
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

PACKAGES = ("compare", "data", "seq2seq", "transformer")


def undocumented(name: str, value: Any) -> Iterator[str]:
    """List what the docstring of ``value``, a public function or class, does not describe."""
    if inspect.isclass(value):
        yield from (
            f"{name}: field {field}" for field in sorted({*_fields(value)} - _described_fields(value))
        )
        for method_name, member in vars(value).items():
            method = getattr(member, "__func__", member)
            if inspect.isfunction(method) and not method_name.startswith("_"):
                described = _described_in_class(value, method_name)
                missing = [each for each in _parameters(method) if each not in described]
                yield from (f"{name}.{method_name}: {each}" for each in missing)
                if not method.__doc__:
                    yield f"{name}.{method_name}: no docstring"
    elif inspect.isfunction(value):
        missing = [each for each in _parameters(value) if each not in arguments(value.__doc__)]
        yield from (f"{name}: {each}" for each in missing)
    if (inspect.isclass(value) or inspect.isfunction(value)) and not value.__doc__:
        yield f"{name}: no docstring"


def arguments(docstring: str | None) -> set[str]:
    """The names in the section "Args:" of a docstring."""
    section = re.search(
        r"^Args:\n((?:(?:    .*)?\n)*)", inspect.cleandoc(docstring or "") + "\n", re.MULTILINE
    )
    return set(re.findall(r"^    (\w+):", section[1], re.MULTILINE)) if section else set()


def _parameters(function: Callable[..., Any]) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]


def _bases(cls: type) -> list[type]:
    """The class and its base classes, of our packages only."""
    return [base for base in cls.__mro__ if base.__module__.split(".")[0] in PACKAGES]


def _fields(cls: type) -> list[str]:
    """Fields of a dataclass or named tuple, or parameters of one of our constructors."""
    if dataclasses.is_dataclass(cls):
        return [field.name for field in dataclasses.fields(cls)]
    if hasattr(cls, "_fields"):
        return list(cls._fields)
    constructor = next((vars(base)["__init__"] for base in _bases(cls) if "__init__" in vars(base)), None)
    is_protocol = getattr(cls, "_is_protocol", False)
    return [] if constructor is None or is_protocol else _parameters(constructor)


def _dataclass_fields(cls: type) -> tuple["dataclasses.Field[Any]", ...]:
    return dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ()


def _described_fields(cls: type) -> set[str]:
    """Fields with a docstring below them, and those in Args of the class or its constructor."""
    described = {each.name for each in _dataclass_fields(cls) if each.metadata.get("about")}
    for base in _bases(cls):
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(definition, ast.ClassDef)
        for field, after in zip(definition.body, definition.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(after, ast.Expr):
                described.add(ast.unparse(field.target))
        described |= arguments(base.__doc__)
        if "__init__" in vars(base):
            described |= arguments(vars(base)["__init__"].__doc__)
    return described


def _described_in_class(cls: type, method: str) -> set[str]:
    """Names that a method may use: of its own text, of what it overrides, and of what it refers to.

    The text of a short docstring counts ("Encode src (B, S)"), and so do Args of the class and of methods
    that it names in double backticks ("arguments as for ``forward``").
    """
    own = [vars(base)[method].__doc__ or "" for base in _bases(cls) if method in vars(base)]
    references = {name for text in own for name in re.findall(r"``(\w+)``", text)}
    names = {word for text in own for word in re.findall(r"\w+", text)}
    for base in _bases(cls):
        for name in {"__init__"} | references:
            names |= arguments(getattr(vars(base).get(name), "__doc__", ""))
        names |= arguments(base.__doc__)
    return names
