"""Texts below the fields of a dataclass, which Python itself does not keep."""

import ast
import inspect


def field_docstrings(kind: type) -> dict[str, str]:
    """Read the text below each field of a dataclass and of its bases, in one line each, as Markdown."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__[:-1]):
        (definition,) = ast.parse(inspect.getsource(base)).body
        assert isinstance(definition, ast.ClassDef)
        name = ""
        for node in definition.body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                name = node.target.id
            elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and name:
                found[name] = " ".join(str(node.value.value).split()).replace("``", "`")
    return found
