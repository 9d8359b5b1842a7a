"""Run a Python file in percent format (``# %%`` cells, as jupytext reads it) and write it as Markdown."""

import ast
import contextlib
import io
import re
from typing import Any

CELL = re.compile(r"^# %%(?: \[(markdown)\])?.*\n", re.MULTILINE)
HEADER = re.compile(r"\A# ---\n(?:#.*\n)*?# ---\n")


def cells(text: str) -> list[tuple[bool, str]]:
    """Divide a file into cells.

    Args:
        text: the file; a header between ``# ---`` lines is left out.

    Returns:
        For each cell whether it is Markdown, and its text, for Markdown without the comment signs.
    """
    _, *parts = CELL.split(HEADER.sub("", text))
    divided = []
    for kind, body in zip(parts[::2], parts[1::2], strict=True):
        if kind:
            body = re.sub(r"^# ?", "", body, flags=re.MULTILINE)
        if body.strip():
            divided.append((bool(kind), body.strip("\n")))
    return divided


def render(text: str, *, run: bool = True) -> tuple[str, dict[str, bytes]]:
    """Run a file in percent format.

    Args:
        text: the file.
        run: whether to run the cells with code; without, the page has no output.

    Returns:
        The page in Markdown, and its figures, SVG by file name. Below each cell with code stand what it
        prints, the value of its last expression unless that is None, and the figures it draws.

    Raises:
        Exception: whatever a cell raises.
    """
    import matplotlib

    matplotlib.use("agg")
    page, figures = [], {}
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for is_markdown, body in cells(text):
        if is_markdown:
            page.append(body)
            continue
        page.append(f"```python\n{body}\n```")
        if not run:
            continue
        if printed := _run(body, namespace):
            page.append(f"```text\n{printed}\n```")
        for caption, content in _take_figures():
            name = f"tutorial-{len(figures) + 1}.svg"
            figures[name] = content
            page.append(f"![{caption}]({name})")
    return "\n\n".join(page) + "\n", figures


def _run(body: str, namespace: dict[str, Any]) -> str:
    """Execute a cell as a notebook does; returns what it shows."""
    tree = ast.parse(body)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(tree, "tutorial", "exec"), namespace)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "tutorial", "eval"), namespace)
            if value is not None:
                print(value)
    return printed.getvalue().rstrip()


def _take_figures() -> list[tuple[str, bytes]]:
    """Close all figures; returns the titles of each one's axes and its SVG."""
    from matplotlib import pyplot

    taken = []
    for number in pyplot.get_fignums():
        figure = pyplot.figure(number)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="svg", bbox_inches="tight", metadata={"Date": None})
        titles = [figure.get_suptitle(), *(axes.get_title() for axes in figure.axes)]
        taken.append(("; ".join(filter(None, titles)), buffer.getvalue()))
        pyplot.close(figure)
    return taken
