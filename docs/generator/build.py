"""Build the documentation site into build/docs/site; any warning and any broken link is an error.

``python -m docs.generator.build``, or ``make docs``. ``--without-tutorial`` does not run the tutorial, which
trains models.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from docs.generator.check_site import check_site
from docs.generator.check_tutorial import check_tutorial
from docs.generator.pages import CONFIG, ROOT, Pages

BUILD = ROOT / "build" / "docs"
COLOUR = re.compile(r"\x1b\[[\d;]*m")


def build(folder: Path, *, tutorial: bool = True) -> list[str]:
    """Build the site in ``folder`` and return its mistakes, one text each."""
    shutil.rmtree(folder, ignore_errors=True)
    pages = Pages(folder / "pages")
    pages.write()
    if not pages.mistakes:
        pages.write_live()
        page = pages.write_tutorial(run=tutorial)
        pages.mistakes += check_tutorial(page) if tutorial else ()
    return pages.mistakes or generate(folder)


def generate(folder: Path) -> list[str]:
    """Make ``folder``/site of ``folder``/pages and return its mistakes."""
    shutil.copy(CONFIG, folder)
    shutil.copy(CONFIG.with_name("site.css"), folder / "pages")
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    done = subprocess.run(
        command, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    printed = COLOUR.sub("", done.stdout)
    if done.returncode or "warning" in printed.lower():
        return [printed]
    return list(check_site(folder / "site"))


def main() -> int:
    """Build, and print what is wrong."""
    mistakes = build(BUILD, tutorial="--without-tutorial" not in sys.argv)
    for mistake in mistakes:
        print(f"docs: {mistake}", file=sys.stderr)
    if not mistakes:
        print(f"open {(BUILD / 'site' / 'index.html').relative_to(ROOT)}")
    return 1 if mistakes else 0


if __name__ == "__main__":
    sys.exit(main())
