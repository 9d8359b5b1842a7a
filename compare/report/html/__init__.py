"""One page that shows an experiment: a single HTML file that needs neither network nor server."""

from compare.report.html.page import build_report

__all__ = ["build_report"]
