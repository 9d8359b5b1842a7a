"""List what breaks the rules of CONTRIBUTING.md ("How to write") that a program can see."""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("data", "seq2seq", "transformer", "compare", "benchmarks", "docs", "tests")
FRAGMENT = re.compile(r"#:? (of|which|whose|as|its|what)\b", re.IGNORECASE)
QUESTION = re.compile(r"(what|which|whose|how|of|whether|where|who)\b", re.IGNORECASE)
FORBIDDEN = frozenset({"found", "each", "known", "kept", "given", "own", "place"})
MAX_WORDS = {"message": 25, "page-sentence": 30}
"""Largest number of words in a sentence."""
NO_SENTENCE = re.compile(r"^(?:    |\||#|!\[|<!--|- [^ ]+$)|^$")
CODE = re.compile(r"```.*?```|<!-- (?!end)[^>]*-->.*?<!-- end -->", re.DOTALL)
LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")

Violation = tuple[str, int, str]
"""Rule, line and text."""


def check_code(source: str) -> Iterator[Violation]:
    """Yield what breaks a rule in a Python file."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and FRAGMENT.match(token.string):
            yield "comment", token.start[0], token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module):
            yield from _check_docstring(node)
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            for argument in node.exc.args[:1]:
                yield from _check_length("message", _message(argument), node.lineno)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in FORBIDDEN:
            yield "name", node.lineno, node.id
        elif isinstance(node, ast.arg) and node.arg in FORBIDDEN:
            yield "name", node.lineno, node.arg


def _check_docstring(node: ast.FunctionDef | ast.ClassDef | ast.Module) -> Iterator[Violation]:
    text = ast.get_docstring(node)
    if text is None:
        return
    first, line = text.splitlines()[0], getattr(node, "lineno", 1)
    if QUESTION.match(first):
        yield "docstring-start", line, first
    if isinstance(node, ast.FunctionDef) and node.name.startswith("_") and not node.name.endswith("__"):
        code = (node.end_lineno or line) - node.body[0].end_lineno  # type: ignore[operator]
        if len(text.splitlines()) > code:
            yield "docstring-length", line, node.name


def _message(node: ast.expr) -> str:
    """Return the text of a string; a value in an f-string counts as one word."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr():
            return "".join(map(_message, node.values))
        case ast.BinOp():
            return _message(node.left) + _message(node.right)
    return "value"


def _check_length(rule: str, text: str, line: int) -> Iterator[Violation]:
    for sentence in re.split(r"(?<=[.:?!])\s", text):
        if (words := len(sentence.split())) > MAX_WORDS[rule]:
            yield rule, line, f"{words} words: {sentence.strip()[:80]}"


def check_page(text: str) -> Iterator[Violation]:
    """Yield what breaks a rule on a page: its prose, list by list, without code, tables and made parts."""
    text = CODE.sub(lambda match: "\n" * match[0].count("\n"), text)
    start, block = 1, ""
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        if NO_SENTENCE.match(line) or line.startswith("- "):
            yield from _check_sentences(block, start)
            start, block = number, line if line.startswith("- ") else ""
        else:
            start, block = (start, f"{block} {line}") if block else (number, line)


def _check_sentences(block: str, line: int) -> Iterator[Violation]:
    block = LINK.sub(r"\1", block).replace("**", "")
    block = re.sub(r"`[^`]*`", "code", block)
    if re.search(r"\([^()]*\([^()]*\)", block):
        yield "page-parentheses", line, block[:80]
    yield from _check_length("page-sentence", block, line)


def violations() -> Iterator[tuple[Path, Violation]]:
    """Yield what breaks a rule, file by file."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for violation in check_code(path.read_text("utf-8")):
                yield path.relative_to(ROOT), violation
    for path in [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]:
        for violation in check_page(path.read_text("utf-8")):
            yield path.relative_to(ROOT), violation


def main() -> int:
    """Print what breaks a rule, with its place; returns the exit status."""
    status = 0
    for path, (rule, line, text) in violations():
        print(f"{path}:{line}: {rule}: {text}")
        status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
