r"""Visible forms of the characters that a terminal, a browser or a table would obey instead of showing.

File names, labels, error messages and corpora may contain them. ESC becomes ``\x1b``; from DEL on, the form
is that of JSON, ``\u202e``, so that JSON stays JSON with the same content.
"""

import re

_OBEYED = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
"""Controls, line separators, bidirectional overrides and isolates, and what no file or XML may contain."""
_SHORT = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def visible(text: str) -> str:
    r"""Replace every control character of one line of text by an escape sequence such as ``\x1b``."""
    return _OBEYED.sub(_spell, text)


def visible_lines(text: str) -> str:
    """Replace control characters as ``visible`` does, except line feeds and tabs."""
    return _OBEYED.sub(lambda match: match[0] if match[0] in "\n\t" else _spell(match), text)


def _spell(match: re.Match[str]) -> str:
    """Return the escape sequence of a character."""
    character = match[0]
    code = ord(character)
    return _SHORT.get(character) or (f"\\x{code:02x}" if code < 0x20 else f"\\u{code:04x}")
