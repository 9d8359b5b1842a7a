"""Metrics of programs outside this environment, such as COMET, and files of segment scores.

A learned metric has dependencies that ours exclude, so it runs as a program of its own; only its scores come
back.
"""

import math
import re
import shlex
import shutil
import subprocess
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from compare.results.external_file import SegmentScores
from compare.scoring.metrics import METRICS
from compare.scoring.score import SystemScores
from compare.system.hints import abbreviate
from data.text.files import parse_json
from data.text.lines import read_lines

COMET_PACKAGE = "unbabel-comet==2.2.6"
"""What uvx installs, for itself alone."""
COMET_MODEL = "Unbabel/wmt22-comet-da"
"""Rei et al. 2022; it needs the source and a reference."""


def add_external_scores(
    scores: Mapping[str, SystemScores],
    metrics: Sequence[str],
    references: Sequence[str | Path],
    src: str | Path | None = None,
) -> dict[str, SystemScores]:
    """Add the scores of metrics from outside to those of ``score_files``.

    Args:
        scores: by the path of each system's translations.
        metrics: "comet", which uvx runs; NAME=COMMAND, a program whose arguments contain {hyp}, and {src} or
            {ref} where it needs them; or NAME=FILE, or NAME=FILE,FILE with one file per system. Program and
            files give one number per line; a first line "# ..." is the signature.
        references: files of references; COMET and commands take one.
        src: the file of the source text.

    Returns:
        The scores with the columns NAME and NAME_signature.

    Raises:
        ValueError: a name that is taken, a program that fails or is missing, no source or several references
            where one is needed, or scores that are no numbers or not one per line.
    """
    found = score_externally(metrics, [Path(system) for system in scores], references, src)
    result = dict(scores)
    for number, (system, own) in enumerate(scores.items()):
        columns = dict(own.scores)
        for name, of_systems in found.items():
            columns |= of_systems[number].columns(name)
        result[system] = replace(own, scores=columns)
    return result


def score_externally(
    metrics: Sequence[str],
    systems: Sequence[Path],
    references: Sequence[str | Path],
    src: str | Path | None = None,
    runs: Sequence[str] = (),
) -> dict[str, list[SegmentScores]]:
    """Score files of translations by metrics from outside.

    Args:
        metrics: as for ``add_external_scores``; {run} in NAME=FILE stands for each of ``runs``.
        systems: files of translations.
        references: files of references.
        src: the file of the source text.
        runs: the name of each system's run, if they are runs.

    Returns:
        By name of the metric, the scores of each system.

    Raises:
        ValueError: see ``add_external_scores``.
    """
    lengths = [len(read_lines(system, allow_blank=True)) for system in systems]
    found: dict[str, list[SegmentScores]] = {}
    for text in metrics:
        name, _, value = text.partition("=")
        _check_name(name, text, found)
        if not value and name != "comet":
            raise ValueError(
                f"--external {text}: known is comet; else give NAME=COMMAND with {{hyp}}, or NAME=FILE"
            )
        if value and "{hyp}" not in value:
            found[name] = _read_files(name, value, len(systems), runs)
        else:
            found[name] = _run_program(name, value, systems, [Path(path) for path in references], src)
        for system, each, lines in zip(systems, found[name], lengths, strict=True):
            if len(each.segments) != lines:
                raise ValueError(f"{name}: {len(each.segments)} scores for {lines} lines of {system}")
    return found


def _check_name(name: str, text: str, found: Collection[str]) -> None:
    """Reject a name that cannot be that of a column, or is one already."""
    if not re.fullmatch("[a-z][a-z0-9_]*", name) or name in METRICS:
        raise ValueError(
            f"--external {text}: the name must be of lower-case letters, digits and underscores, "
            f"and none of {', '.join(METRICS)}"
        )
    if name in found:
        raise ValueError(f"--external {text}: there is a column {name!r} already: choose another name")


def _read_files(name: str, files: str, systems: int, runs: Sequence[str]) -> list[SegmentScores]:
    """Read one file of scores per system; without a line "# ...", the signature is the names of the files."""
    texts = files.split(",")
    paths = [files.replace("{run}", run) for run in runs] if runs and "{run}" in files else texts
    if len(paths) != systems:
        raise ValueError(f"--external {name}: {len(paths)} files of scores for {systems} systems")
    signature = f"{name}|file:{','.join(map(_last_parts, texts))}"
    return [_parse(Path(path).read_text(encoding="utf-8"), path, signature) for path in paths]


def _last_parts(path: str) -> str:
    """Return folder and name of a file, not the whole path, which is of one machine."""
    return "/".join(part for part in Path(path).parts[-2:] if part != Path(path).anchor)


def _run_program(
    name: str, command: str, systems: Sequence[Path], references: Sequence[Path], src: str | Path | None
) -> list[SegmentScores]:
    """Run COMET, or a command, on plain copies of the files."""
    needs_reference = not command or "{ref}" in command
    if (not command or "{src}" in command) and src is None:
        raise ValueError(f"--external {name} reads the source text: give it with --src")
    if needs_reference and len(references) != 1:
        raise ValueError(f"--external {name} takes one reference, found {len(references)}")
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        texts = {"ref": _copy(references[0], folder / "ref")} if needs_reference else {}
        if src is not None:
            texts["src"] = _copy(Path(src), folder / "src")
        hypotheses = [_copy(path, folder / f"hyp{number}") for number, path in enumerate(systems)]
        if not command:
            return _run_comet(texts, hypotheses, folder / "scores.json")
        arguments = shlex.split(command)
        found = []
        for hypothesis in hypotheses:
            paths = {**texts, "hyp": hypothesis}
            filled = [_fill(argument, paths) for argument in arguments]
            signature = f"{name}|program:{Path(arguments[0]).name}"
            found.append(_parse(_run(name, filled), f"{name}: {arguments[0]}", signature))
        return found


def _run_comet(texts: Mapping[str, Path], hypotheses: Sequence[Path], out: Path) -> list[SegmentScores]:
    """Score all systems in one call, which loads the model once; scores are times 100, as others are."""
    command = ["uvx", "--from", COMET_PACKAGE, "comet-score", "--model", COMET_MODEL]
    command += ["--quiet", "--only_system", "--gpus", str(int(shutil.which("nvidia-smi") is not None))]
    command += ["-s", str(texts["src"]), "-r", str(texts["ref"]), "-t", *map(str, hypotheses)]
    _run("comet", [*command, "--to_json", str(out)])
    try:
        records = parse_json(out.read_bytes())
        segments = [[100 * float(each["COMET"]) for each in records[str(path)]] for path in hypotheses]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ValueError(f"comet: no scores in the output of comet-score: {error}") from None
    signature = f"comet|model:{COMET_MODEL}|{COMET_PACKAGE.replace('==', ':')}"
    return [SegmentScores(segments=each, signature=signature) for each in segments]


def _copy(path: Path, target: Path) -> Path:
    """Write a text, which may be compressed, as a plain file."""
    target.write_text("".join(f"{line}\n" for line in read_lines(path, allow_blank=True)), encoding="utf-8")
    return target


def _fill(argument: str, paths: Mapping[str, Path]) -> str:
    """Replace {hyp}, {ref} and {src} by paths."""
    for name, path in paths.items():
        argument = argument.replace(f"{{{name}}}", str(path))
    return argument


def _run(name: str, command: Sequence[str]) -> str:
    """Run a program to its end and return what it prints.

    Raises:
        ValueError: it is missing or fails; the message has the last line of its errors.
    """
    try:
        done = subprocess.run(command, capture_output=True, check=False)
    except OSError as error:
        hint = ": install uv (https://docs.astral.sh/uv), which runs it" if command[0] == "uvx" else ""
        raise ValueError(f"{name}: {command[0]} cannot be started ({error.strerror}){hint}") from None
    if done.returncode:
        errors = done.stderr.decode(errors="replace").strip().splitlines() or ["it prints no error"]
        raise ValueError(f"{name}: {command[0]} failed with status {done.returncode}: {errors[-1]}")
    return done.stdout.decode(errors="replace")


def _parse(text: str, context: str, signature: str) -> SegmentScores:
    """Read one score per line, after an optional signature."""
    lines = text.splitlines()
    if lines and lines[0].startswith("#"):
        signature = lines.pop(0).lstrip("#").strip()
    segments = []
    for number, line in enumerate(lines, start=1):
        try:
            value = float(line)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise ValueError(f"{context}: score {number} is no number: {abbreviate(line)}")
        segments.append(value)
    if not segments:
        raise ValueError(f"{context}: no scores")
    return SegmentScores(segments=segments, signature=signature)
