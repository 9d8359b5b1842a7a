"""Text that tries to be more than text, and what must not be left of it."""

import re

from hypothesis import strategies as st

ESCAPE = "\x1b[31mred\x1b[0m"
"""Text that a terminal would colour."""
HOSTILE = (
    f"{ESCAPE}\r\x9b2J\u202eabc\u2028\x00\x7f",
    "</script><script>alert(1)</script>",
    "a|b\\|c\\\\|d\n| e \\",
    '=HYPERLINK("http://x")',
    "@SUM(1+1)\t\r\n",
    "\\input{x} ^^5c $ # % & _ {}",
)

texts = st.one_of(
    st.text(), st.sampled_from(HOSTILE), st.text(alphabet="'=+-@\\|<a \t\r\n\x1b\x9b\x85\u2028\u202e,\"*[%$#")
)


def obeyed(line: str) -> list[str]:
    """List the characters of one line that a terminal may obey; the code has a list of its own."""
    return re.findall("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]", line)
