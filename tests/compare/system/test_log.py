"""Log messages: silent in a library, printed by a command, and each one in the log.txt of a run."""

import logging
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from compare.system.log import hide_messages, log_to_file, no_messages

LOGGER, DATA = logging.getLogger("compare.somewhere"), logging.getLogger("data.somewhere")
ShowLog = Callable[..., None]


class Collector(logging.Handler):
    """Keeps the messages that it gets."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


@pytest.fixture
def collector() -> Iterator[Collector]:
    """A handler of the user's on the root logger."""
    handler = Collector()
    logging.getLogger().addHandler(handler)
    yield handler
    logging.getLogger().removeHandler(handler)


def log_all() -> None:
    LOGGER.debug("details")
    LOGGER.info("100% [red]plain[/red]")
    DATA.warning("few pairs")
    LOGGER.error("x: failed")


def test_a_command_prints_plain_lines(show_log: ShowLog, capsys: pytest.CaptureFixture[str]):
    show_log()
    log_all()
    assert capsys.readouterr() == ("", "100% [red]plain[/red]\nwarning: few pairs\nx: failed\n")
    hide_messages()
    log_all()
    assert capsys.readouterr() == ("", "")


def test_a_command_prints_each_message_once(
    show_log: ShowLog, collector: Collector, capsys: pytest.CaptureFixture[str]
):
    show_log()
    log_all()
    assert capsys.readouterr().err.count("few pairs") == 1
    assert not collector.messages


def test_quiet_keeps_messages_off_the_screen_only(
    show_log: ShowLog, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    show_log(quiet=True)
    with log_to_file(tmp_path / "log.txt"):
        log_all()
    log_all()
    assert capsys.readouterr() == ("", "")
    assert len((tmp_path / "log.txt").read_text().splitlines()) == 3


def test_a_file_gets_every_line_with_the_time(show_log: ShowLog, tmp_path: Path):
    show_log()
    path = tmp_path / "log.txt"
    path.write_text("earlier\n")
    with log_to_file(path):
        log_all()
    LOGGER.info("afterwards")
    first, *lines = path.read_text().splitlines()
    assert first == "earlier"
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \S", line) for line in lines)
    assert [line[20:] for line in lines] == ["100% [red]plain[/red]", "warning: few pairs", "x: failed"]


def test_a_file_that_cannot_be_written_is_an_error(tmp_path: Path):
    with pytest.raises(OSError, match=r"log\.txt") as caught, log_to_file(tmp_path / "missing" / "log.txt"):
        LOGGER.info("lost")
    assert caught.value.filename == str(tmp_path / "missing" / "log.txt")


@pytest.mark.parametrize("level", [logging.INFO, logging.WARNING])
def test_a_users_level_is_honoured(level: int, tmp_path: Path, collector: Collector):
    """Also while a run writes its log.txt, which needs a lower level."""
    logger = logging.getLogger("compare")
    before = logger.level, list(logger.handlers), logger.propagate
    own = Collector()
    logger.addHandler(own)
    logger.setLevel(level)
    try:
        with log_to_file(tmp_path / "outer.txt"), log_to_file(tmp_path / "inner.txt"):
            LOGGER.info("step")
            LOGGER.warning("few pairs")
            LOGGER.debug("details")
    finally:
        logger.removeHandler(own)
        logger.setLevel(before[0])
    expected = ["step", "few pairs"] if level == logging.INFO else ["few pairs"]
    assert own.messages == collector.messages == expected
    assert all(len((tmp_path / name).read_text().splitlines()) == 2 for name in ("outer.txt", "inner.txt"))
    assert (logger.level, logger.handlers, logger.propagate) == before


def test_a_users_debug_messages_are_not_lost_while_a_run_writes_its_log(tmp_path: Path, collector: Collector):
    logger = logging.getLogger("compare")
    before = logger.level
    logger.setLevel(logging.DEBUG)
    try:
        with log_to_file(tmp_path / "log.txt"):
            LOGGER.debug("details")
    finally:
        logger.setLevel(before)
    assert collector.messages == ["details"]


CODE = """
import logging, sys
from pathlib import Path
import compare, data
from compare.system.log import log_to_file
if sys.argv[2] == "True":
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
with log_to_file(Path(sys.argv[1])):
    logging.getLogger("compare.somewhere").info("step")
    logging.getLogger("data.somewhere").error("failed")
logging.getLogger("compare.somewhere").error("failed")
"""


@pytest.mark.parametrize("configured", [False, True])
def test_a_library_prints_nothing_unless_logging_is_configured(configured: bool, tmp_path: Path):
    command = [sys.executable, "-c", CODE, str(tmp_path / "log.txt"), str(configured)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    expected = ["compare.somewhere: step", "data.somewhere: failed", "compare.somewhere: failed"]
    assert done.stderr.splitlines() == (expected if configured else [])
    assert done.stdout == ""
    assert len((tmp_path / "log.txt").read_text().splitlines()) == 2


def test_the_messages_of_one_module_can_be_discarded(show_log: ShowLog, capsys: pytest.CaptureFixture[str]):
    show_log()
    with no_messages(LOGGER.name):
        LOGGER.error("lost")
        DATA.info("kept")
    LOGGER.info("afterwards")
    assert capsys.readouterr().err == "kept\nafterwards\n"
