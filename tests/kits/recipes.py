"""The recipes of CONTRIBUTING.md: read as a person reads them, and applied to a copy of the tree."""

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import indent
from typing import NamedTuple

from tests.kits.paths import ROOT

TREE = ("compare", "data", "seq2seq", "transformer", "tests/kits", "tests/__init__.py", "pyproject.toml")
"""What a copy of the tree consists of."""
BLOCK = re.compile(
    r"^(?P<instruction>[^\n]+):\n\n```(?:python|toml)\n(?P<code>.*?)```$", re.DOTALL | re.MULTILINE
)
INSTRUCTION = re.compile(
    r"(?:New|In) (?:file )?`(?P<path>[^`]+)`(?:, (?P<action>import|add at the end|add before|add to)"
    r"(?: `(?P<name>\w+)`)?)?"
)


class Change(NamedTuple):
    """One code block with the instruction above it."""

    path: str
    action: str
    """Empty: the block is a new file."""
    name: str
    code: str


def sections(text: str) -> dict[str, str]:
    """Return the recipes by heading."""
    _, *parts = re.split(r"^### (.+)\n", text.split("## Recipes")[1].split("\n## ")[0], flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def changes(recipe: str) -> Iterator[Change]:
    """Yield the changes of a recipe in order; every code block must have an instruction."""
    blocks = list(BLOCK.finditer(recipe))
    assert len(blocks) == recipe.count("```python") + recipe.count("```toml")
    for block in blocks:
        match = INSTRUCTION.fullmatch(block["instruction"])
        assert match, block["instruction"]
        yield Change(match["path"], match["action"] or "", match["name"] or "", block["code"])


def apply(change: Change, tree: Path) -> None:
    """Make a change in a copy of the tree."""
    path = tree / change.path
    assert path.exists() == bool(change.action), change.path
    if not change.action:
        path.write_text(change.code, encoding="utf-8")
        return
    text = path.read_text(encoding="utf-8")
    start, code = _position(ast.parse(text), text, change), change.code
    if change.action == "add before":
        code = f"{code}\n\n"
    elif change.action == "add at the end":
        code = f"\n\n{code}"
    elif change.action == "add to" and text[start] in ")]}":
        separator = "" if text[:start].rstrip().endswith(",") else ","
        code = f"{separator}\n{code.rstrip().rstrip(',')},\n"
    elif change.action == "add to":
        code = indent(code, "    ")
    path.write_text(text[:start] + code + text[start:], encoding="utf-8")


def _position(module: ast.Module, text: str, change: Change) -> int:
    """Find where the code of a change begins, as an index into ``text``."""
    if change.action == "add at the end":
        return len(text)
    if change.action == "import":
        imports = [node for node in module.body if isinstance(node, ast.Import | ast.ImportFrom)]
        return _index(text, imports[-1].end_lineno, None)
    node = _definition(module, change.name)
    if change.action == "add before":
        return _index(text, node.lineno, 0)
    if isinstance(node, ast.ClassDef):  # after the last field and its docstring
        last = [part for part in node.body if not isinstance(part, ast.FunctionDef)][-1]
        return _index(text, last.end_lineno, None)
    assert isinstance(node, ast.Assign | ast.AnnAssign)
    value = node.value
    if isinstance(value, ast.DictComp):  # {item.name: item for item in (...)}
        value = value.generators[0].iter
    assert isinstance(value, ast.Dict | ast.Tuple | ast.List)
    end = _index(text, value.end_lineno, value.end_col_offset)
    return end - 1  # before the closing bracket


def _definition(module: ast.Module, name: str) -> ast.stmt:
    """Find the only class or assignment of that name."""
    found = [
        node
        for node in ast.walk(module)
        if (isinstance(node, ast.ClassDef) and node.name == name)
        or (isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == name)
        or (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name)
    ]
    (node,) = found
    return node


def _index(text: str, line: int | None, column: int | None) -> int:
    """Convert a line and a column in bytes (None: the start of the next line) to an index into ``text``."""
    assert line is not None
    lines = text.splitlines(keepends=True)
    if column is None:
        return len("".join(lines[:line]))
    return len("".join(lines[: line - 1])) + len(lines[line - 1].encode()[:column].decode())


def copy_tree(folder: Path) -> Path:
    """Copy the tree into ``folder``."""
    for name in TREE:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(ROOT / name, folder / name)
    return folder


def python(tree: Path, *arguments: str) -> str:
    """Run Python in a copy of the tree and return its output; nothing is imported from elsewhere."""
    environment = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1", "no_proxy": "*"}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=tree, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout
