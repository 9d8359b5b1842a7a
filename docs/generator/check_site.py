"""Check a built site: every link leads to a file and an anchor of it, and nothing is loaded from outside."""

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {"script": "src", "img": "src", "source": "src", "iframe": "src", "link": "href"}
"""Elements that a browser loads by itself, with the attribute that says from where."""
NOT_LOADED = {"canonical", "next", "prev"}


class Page(HTMLParser):
    """Anchors, links and loaded files of one page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = {""}
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what the element refers to."""
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif LOADED.get(tag) in values and values.get("rel") not in NOT_LOADED:
            self.loaded.append(values[LOADED[tag]])


def check_site(site: Path) -> Iterator[str]:
    """Yield one line per link that leads nowhere and per file that would be loaded from the network."""
    pages = {path: Page(path) for path in sorted(site.rglob("*.html")) if path.name != "404.html"}
    for path, page in pages.items():
        name = path.relative_to(site)
        yield from (f"{name}: loads {url}" for url in page.loaded if urlsplit(url).netloc)
        for url in {*page.links, *page.loaded}:
            parts = urlsplit(url)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file():
                yield f"{name}: no file for {url}"
            elif target in pages and unquote(parts.fragment) not in pages[target].anchors:
                yield f"{name}: no anchor for {url}"
