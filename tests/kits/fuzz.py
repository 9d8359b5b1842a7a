"""Damage for the fuzz tests: bytes are cut, copied and inserted, values exchanged line by line."""

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, event, settings
from hypothesis import strategies as st

INPUTS = int(os.environ.get("ATTNBENCH_FUZZ", "0"))
"""Number of inputs over all targets; 0: a short run with fixed inputs."""
TARGETS = 13
fuzz = settings(
    max_examples=-(-INPUTS // TARGETS) or 150,
    derandomize=not INPUTS,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)

SNIPPETS = [
    *(b"", b"[" * 3000, b'{"a":' * 3000, b"a." * 3000, b"9" * 5000, b"9" * 400, b"-1", b"0", b"1e999"),
    *(b"NaN", b"null", b"true", b"{}", b"[]", b"[[]]", b'""', b'"x"', b'"\\ud800"', b'"\\u0000"', b"0.5"),
    *(b'{"x": {"bleu": 1.5}}', b'{"x": {"bleu": "y"}}', b'["../..", "a\\u0000b"]', b"9223372036854775808"),
    *(b"\x00", b"\r", b"\r\n", b"\n", b"\x0b", b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\xfe\xff"),
    *("\u2028".encode(), "\u0085".encode(), "\u00a0".encode(), "😀".encode(), b'"', b"'", b"=", b"#", b","),
]
PIECES = st.binary(max_size=6) | st.sampled_from(SNIPPETS)
WORDS = b'0 1 -1 7 1.5 -0.5 1e300 9999999999 true null "" "x" "a|b" "\xc3\xb6" "cpu" "done" [] {}'.split()
VALUES = st.sampled_from(WORDS)
"""Valid JSON values, and TOML values except null: the syntax stays valid, the content is wrong."""


@st.composite
def damaged(draw: st.DrawFn, samples: Sequence[bytes]) -> bytes:
    """One of ``samples`` after one to three accidents of a kind."""
    content = draw(st.sampled_from(samples))
    accident = draw(st.sampled_from([_spliced, _exchanged, _revalued]))
    for _ in range(draw(st.integers(1, 3))):
        content = accident(draw, content)
    return content


def _spliced(draw: st.DrawFn, content: bytes) -> bytes:
    """Something in the place of up to 40 bytes, or of the rest."""
    start = draw(st.integers(0, len(content)))
    end = draw(st.sampled_from([start, start + draw(st.integers(0, 40)), len(content)]))
    return content[:start] + draw(PIECES) + content[end:]


def _exchanged(draw: st.DrawFn, content: bytes) -> bytes:
    """Something after the = or : of a line."""
    return _with_value(draw, content, PIECES)


def _revalued(draw: st.DrawFn, content: bytes) -> bytes:
    """Another value after the = or : of a line."""
    return _with_value(draw, content, VALUES)


def _with_value(draw: st.DrawFn, content: bytes, values: st.SearchStrategy[bytes]) -> bytes:
    """One of ``values`` in a line that has one."""
    lines = content.split(b"\n")
    number = draw(st.integers(0, len(lines) - 1))
    if match := re.match(rb"([^=:]+[=:]) *(?!.*[\[{]$).*?(,?)$", lines[number]):
        lines[number] = match[1] + b" " + draw(values) + match[2]
    return b"\n".join(lines)


def survives(read: Callable[[], Any], place: Path) -> None:
    """Whether ``read`` gives something, or refuses as a command line can show: in short, naming the file."""
    try:
        read()
        event("read")
    except (ValueError, OSError) as error:
        event("refused")
        text = str(error)
        assert len(text) < 1000, text[:2000]
        assert place.name in text or place.parent.name in text, text
