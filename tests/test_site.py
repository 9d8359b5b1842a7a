"""The documentation site: links and anchors, navigation, commands that the pages name, the tutorial."""

import re
from pathlib import Path

import pytest
import typer

from compare.cli import app
from docs.generator.check_site import check_site
from docs.generator.check_tutorial import check_tutorial
from docs.generator.pages import Pages, navigation, place
from docs.generator.percent import cells, render
from tests.kits.paths import ROOT

PAGES = sorted((ROOT / "docs").glob("*.md"))
COMMAND = re.compile(r"(?:^    |`)(?:[^`\n]*\| )?attnbench ([^\n`|#&<>]+)", re.MULTILINE)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Pages:
    """The pages of the site, written but not built."""
    written = Pages(tmp_path_factory.mktemp("pages"))
    written.write()
    return written


def test_every_link_leads_to_a_file_and_every_page_is_in_the_navigation(pages: Pages):
    assert pages.mistakes == []
    missing = [page for page in navigation() if not (pages.folder / page).is_file()]
    assert missing == ["tutorial.md"]  # made by running it


def test_files_of_the_repository_become_pages(pages: Pages):
    """Those that pages link to: text as code, Markdown with its own links."""
    shown = (pages.folder / "repository" / "constraints.txt.md").read_text("utf-8")
    assert shown.startswith("# constraints.txt\n\n```text\n")
    assert "](repository/constraints.txt.md)" in (pages.folder / "install.md").read_text("utf-8")
    assert "](../docs/" not in (pages.folder / "repository" / "README.md").read_text("utf-8")


def test_mistakes_are_found(tmp_path: Path):
    written = Pages(tmp_path)
    text = "[a](nowhere.md) [b](../README.md#models) `[c](code.md)` [d](https://d.org) [e](tutorial.py)"
    assert written.convert(text, "docs/x.md") == (
        "[a](nowhere.md) [b](repository/README.md#models) `[c](code.md)` [d](https://d.org) [e](tutorial.md)"
    )
    assert written.mistakes == ["docs/x.md: no file docs/nowhere.md"]
    code = "```\n[a](b.md)\n```\n`a \\| b`"
    assert written.convert(code, "docs/x.md") == code.replace("\\|", "|")
    assert place("docs/generator/build.py") == "repository/docs/generator/build.py.md"


def test_a_built_site_is_checked(tmp_path: Path):
    (tmp_path / "a.html").write_text(
        '<p id="here"><a href="#here">1</a><a href="#gone">2</a><a href="b.html#x">3</a><a href="c.html">4'
        '</a><a href="https://d.org">5</a><script src="https://d.org/a.js"></script><img src="a.svg">'
    )
    (tmp_path / "b.html").write_text("<a href='a.html#here'>back</a>")
    assert sorted(check_site(tmp_path)) == [
        "a.html: loads https://d.org/a.js",
        "a.html: no anchor for #gone",
        "a.html: no anchor for b.html#x",
        "a.html: no file for a.svg",
        "a.html: no file for c.html",
    ]


def test_cells_are_run_as_in_a_notebook():
    markdown = "# ---\n# x: 1\n# ---\n\n# %% [markdown]\n# # Title\n#\n# Text\n\n"
    text = markdown + "# %%\na = 2\n\n# %%\nprint(a)\na + 1\n"
    assert cells(text) == [(True, "# Title\n\nText"), (False, "a = 2"), (False, "print(a)\na + 1")]
    page, figures = render(text)
    assert page.endswith("```python\nprint(a)\na + 1\n```\n\n```text\n2\n3\n```\n")
    assert figures == {}
    with pytest.raises(ZeroDivisionError):
        render("# %%\n1 / 0\n")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_of_the_pages_exist(page: Path):
    """With all options that a page shows."""
    program = typer.main.get_command(app)
    for line in COMMAND.findall(page.read_text(encoding="utf-8")):
        words, command = line.split(), program
        while words and hasattr(command, "commands") and words[0] in command.commands:
            command = command.commands[words.pop(0)]
        known = {name for parameter in command.params for name in parameter.opts} | {"--help", "--version"}
        options = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert options <= known, line
        assert not hasattr(command, "commands") or options or not words, line


def test_the_tutorial_is_a_page_with_links_of_the_site(pages: Pages):
    page = pages.write_tutorial(run=False)
    assert pages.mistakes == []
    assert page.count("](first-experiment.md)") == 1


def test_results_that_contradict_the_tutorial_are_found():
    """`make docs` runs the tutorial, and calls this with the page."""
    shares = {
        "lstm": [12.0, 2.0, 0.0, 0.0, 0.0],
        "bahdanau": [100.0, 98.0, 80.0, 4.0, 0.0],
        "luong-general": [14.0, 10.0, 0.0, 0.0, 0.0],
        "transformer": [100.0, 100.0, 96.0, 0.0, 0.0],
    }

    def mistakes(**changed: list[float]) -> list[str]:
        lines = [
            f"{name:14}  34,125 parameters, exact by number of clauses: {found}"
            for name, found in (shares | changed).items()
        ]
        figures = [f"![Title {number}](tutorial-{number}.svg)" for number in range(1, 6)]
        return list(check_tutorial("\n\n".join([*figures, "```text", "\n".join(lines), "```"])))

    assert mistakes() == []
    assert mistakes(bahdanau=[100, 98, 79, 0, 0]) == [
        "tutorial: bahdanau does not solve the lengths of its training: [100.0, 98.0, 79.0, 0.0, 0.0]"
    ]
    assert len(mistakes(transformer=[79, 100, 100, 0, 0])) == 1
    assert len(mistakes(lstm=[14, 0, 0, 0, 0])) == 1
    assert len(mistakes(lstm=[12, 51, 0, 0, 0])) == 1
    assert list(check_tutorial("no output")) == [
        "tutorial: 0 figures, not 5",
        "tutorial: no exact translations of bahdanau, lstm, luong-general, transformer",
    ]
