"""Plug-ins that are installed and name themselves: entry points of the group ``attnbench.plugins``."""

import logging
from importlib.metadata import entry_points

from compare.config.plugins import load_plugins

logger = logging.getLogger(__name__)

GROUP = "attnbench.plugins"
"""Group of the entry points; the value of each is a module."""


def load_installed_plugins() -> list[str]:
    """Import every installed plug-in; one that cannot be used is left out with a warning.

    Returns:
        The names of the modules that are imported now.
    """
    modules = []
    for module in sorted({point.module for point in entry_points(group=GROUP)}):
        try:
            load_plugins([module], "installed")
            modules.append(module)
        except ValueError as error:  # a command that does not need it works without it
            logger.warning(f"left out: {error}")
    return modules
