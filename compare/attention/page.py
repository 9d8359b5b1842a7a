"""Render a template as one self-contained HTML file, in which only the scripts of this package run."""

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from data.text.control_characters import visible_lines


def render_page(
    package: str, template: str, *, scripts: Sequence[str], styles: Sequence[str], **values: Any
) -> str:
    """Render a page; text of models and data is escaped, and control characters in it are shown.

    Args:
        package: the package that holds the template.
        template: its file name.
        scripts: texts of the scripts, joined to one; the template gets it as ``script``, and as
            ``script_hash`` what a content security policy says to let no other run.
        styles: texts of the style sheets, joined to one: ``style``.
        values: what else the template prints; ``svg`` marks texts as markup.
    """
    script = "\n".join(scripts)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        _environment(package)
        .get_template(template)
        .render(
            style=Markup("\n".join(styles)),
            script=Markup(script),
            script_hash=f"'sha256-{digest}'",
            svg=Markup,
            **values,
        )
    )


@cache
def read_asset(package: str, name: str) -> str:
    """Read a style sheet or a script of ``package``."""
    return (files(package) / name).read_text(encoding="utf-8")


def _environment(package: str) -> Environment:
    environment = Environment(
        loader=PackageLoader(package, "."),
        autoescape=True,
        finalize=_visible,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["breakable"] = _breakable
    environment.policies["json.dumps_function"] = _dump_json
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "ensure_ascii": False}
    return environment


def _visible(value: Any) -> Any:
    """Escape control characters in what the template prints; this package's own markup stays as it is."""
    return visible_lines(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _breakable(text: str) -> Markup:
    """Let a line end after each _ and before each bracket, where a table has no space for one line."""
    return Markup("<wbr>").join(re.split(r"(?<=_)|(?= \()", visible_lines(text)))


def _dump_json(value: Any, **options: Any) -> str:
    """Serialise to JSON, in which the characters that HTML forbids are escaped."""
    return visible_lines(json.dumps(value, **options))
