"""The type of a fixture of tests of the command line."""

from collections.abc import Callable

Refusal = Callable[..., str]
