"""Write the pages of the site: docs/, files of the repository that they link to, an API page per package.

A link to a page of docs/ stays as it is. Any other file of the repository becomes a page or a file below
``repository/``, and the link leads there, so the site is complete without the repository.
"""

import importlib
import os
import re
import shutil
import tomllib
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote

from compare import export_page
from docs.generator.percent import render

ROOT = Path(__file__).resolve().parents[2]
CONFIG = Path(__file__).with_name("zensical.toml")
TUTORIAL = "docs/tutorial.py"
MADE = ("tutorial.md", "live.md")
"""Pages that are made from code and models, not from a page of docs/."""
LIVE_MODELS = ("bahdanau", "luong-general", "transformer")
LIVE = """# Attention, live

Type a sentence, and three small models translate it in your browser, word by word: Bahdanau's, Luong's and
the Transformer. They know the words of the built-in sentences.

[Open the page](attention-live.html), a single file that you can save and open without a network.
`attnbench export` makes such a page from [your own runs](export.md#export-to-a-page).
"""
PACKAGES = ("compare", "data", "seq2seq", "transformer")
"""Packages whose ``__all__`` is the public interface."""
SHOWN_AS_CODE = {".py": "python", ".sh": "bash", ".toml": "toml", ".txt": "text"}
CODE = re.compile(r"^(`{3,}).*?^\1 *$|(`+)[^`\n]+?\2(?!`)", re.DOTALL | re.MULTILINE)
"""Fenced blocks and code between backticks, where nothing is a link."""
LINK = re.compile(r"(?<=\]\()([^()\s]+)(?=\))")
ELSEWHERE = re.compile(r"[a-z]+:|//|#")


class Pages:
    """The pages of a site, written into a folder as they are linked to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mistakes: list[str] = []
        """Links that lead nowhere, and pages that the navigation forgets; one line each."""
        self._waiting = [f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md"))]
        self._known = set(self._waiting)

    def write(self) -> None:
        """Write all pages but the tutorial, which has to be run."""
        named = set(navigation())
        for page in named:
            if page.startswith("repository/"):
                self._add(page.removeprefix("repository/"), "the navigation")
            elif not page.startswith("reference/") and page not in MADE:
                self._add(f"docs/{page}", "the navigation")
        while self._waiting:
            source = self._waiting.pop()
            target = self.folder / place(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            suffix = PurePosixPath(source).suffix
            if suffix == ".md":
                target.write_text(self.convert((ROOT / source).read_text("utf-8"), source), "utf-8")
            elif suffix in SHOWN_AS_CODE:
                target.write_text(show_as_code(source), "utf-8")
            else:
                shutil.copy(ROOT / source, target)
        pages = {source for source in self._known if source.startswith("docs/") and source.endswith(".md")}
        forgotten = {place(source) for source in pages} - named  # pictures are no pages
        self.mistakes += [f"docs/{page}: not in {CONFIG.relative_to(ROOT)}" for page in sorted(forgotten)]
        for package in PACKAGES:
            page = self.folder / "reference" / f"{package}.md"
            page.parent.mkdir(exist_ok=True)
            page.write_text(reference(package), "utf-8")

    def write_tutorial(self, *, run: bool = True) -> str:
        """Write the tutorial with its figures; returns the page. ``run=False`` leaves out all output."""
        text, figures = render((ROOT / TUTORIAL).read_text("utf-8"), run=run)
        for name, content in figures.items():
            self._known.add(f"docs/{name}")
            target = self.folder / place(f"docs/{name}")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        page = self.convert(text, TUTORIAL)
        (self.folder / place(TUTORIAL)).write_text(page, "utf-8")
        return page

    def write_live(self) -> None:
        """Write the page on which published models translate what is typed."""
        (self.folder / "live.md").write_text(LIVE, "utf-8")
        runs = [ROOT / "results" / "demo" / f"{label}-seed1" for label in LIVE_MODELS]
        export_page(runs, self.folder / "attention-live.html")

    def convert(self, text: str, source: str) -> str:
        """Let the links of a page lead to files of the site.

        Args:
            text: the page, Markdown.
            source: its path in the repository, from which its links count.

        Returns:
            The page as the generator reads it: unlike GitHub, it shows the backslash of a pipe in code.
        """
        parts, end = [], 0
        for code in CODE.finditer(text):
            parts += [self._convert_links(text[end : code.start()], source), code[0].replace("\\|", "|")]
            end = code.end()
        return "".join([*parts, self._convert_links(text[end:], source)])

    def _convert_links(self, text: str, source: str) -> str:
        return LINK.sub(lambda link: self._convert_link(link[1], source), text)

    def _convert_link(self, link: str, source: str) -> str:
        if ELSEWHERE.match(link):
            return link
        path, hash_sign, anchor = link.partition("#")
        linked = os.path.normpath(PurePosixPath(source).parent / unquote(path)).replace(os.sep, "/")
        if (ROOT / linked).is_dir():
            linked += "/README.md"
        self._add(linked, source)
        start = PurePosixPath(place(source)).parent
        return os.path.relpath(place(linked), start).replace(os.sep, "/") + hash_sign + anchor

    def _add(self, source: str, linked_from: str) -> None:
        if source in self._known or source == TUTORIAL:
            return
        if not (ROOT / source).is_file() or source.startswith(".."):
            self.mistakes.append(f"{linked_from}: no file {source}")
            return
        self._known.add(source)
        self._waiting.append(source)


def navigation() -> list[str]:
    """Return the pages that the navigation names, in order."""
    return list(_leaves(tomllib.loads(CONFIG.read_text("utf-8"))["project"]["nav"]))


def _leaves(entry: Any) -> Any:
    match entry:
        case str():
            yield entry
        case dict():
            for inner in entry.values():
                yield from _leaves(inner)
        case list():
            for inner in entry:
                yield from _leaves(inner)


def place(source: str) -> str:
    """Return where a file of the repository stands in the site's folder of pages."""
    if source == TUTORIAL:
        return "tutorial.md"
    inside = source.removeprefix("docs/") if source.endswith(".md") else source
    if "/" not in inside and inside != source:
        return inside
    return f"repository/{source}" + (".md" if PurePosixPath(source).suffix in SHOWN_AS_CODE else "")


def show_as_code(source: str) -> str:
    """Return a page with the text of a file."""
    text = (ROOT / source).read_text("utf-8").rstrip("\n")
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=2))
    return f"# {source}\n\n{fence}{SHOWN_AS_CODE[PurePosixPath(source).suffix]}\n{text}\n{fence}\n"


def reference(package: str) -> str:
    """Return the API page of a package: the docstrings of everything in its ``__all__``."""
    module = importlib.import_module(package)
    names = [name for name in module.__all__ if not name.startswith("_") and not name.isupper()]
    return "\n".join([f"# {package}\n\n{module.__doc__}", *(f"::: {package}.{name}\n" for name in names)])
