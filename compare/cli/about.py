"""Commands that describe: models, doctor."""

import json
from typing import Annotated

import typer

from compare.cli.app import AsJson, PluginModules, app, load_all_plugins, print_visible


@app.command()
def models(
    name: Annotated[str | None, typer.Argument(help="Describe this preset.")] = None,
    vocabulary: Annotated[int, typer.Option(min=5, help="Entries of each side's vocabulary.")] = 8000,
    verify: Annotated[
        bool, typer.Option("--verify", help="Check that the preset NAME does what a model must.")
    ] = False,
    plugin: PluginModules = None,
    as_json: AsJson = False,
) -> int:
    """List the presets, or describe one.

    A description shows settings, departures from the paper, formulas, modules with their weights, and shapes.
    With --verify, the model is built small and run on a few sentences: step against forward, causality,
    padding, batch neighbours, beams, saved weights, FLOPs; the exit status is 1 if a check fails.

    Example: attnbench models luong-local-p
    """
    from dataclasses import asdict

    from compare.config.schema import current_preset
    from compare.models.catalogue import catalogue_presets, describe_preset, render_description, render_list

    load_all_plugins(plugin)
    if verify and name is None:
        raise ValueError("--verify checks one preset: name it, such as attnbench models bahdanau --verify")
    if verify:
        from compare.integrations.verify import render_verdicts, verify_preset

        preset = current_preset(str(name))
        verdicts = verify_preset(preset)
        as_text = json.dumps([asdict(verdict) for verdict in verdicts], indent=2)
        print_visible(as_text if as_json else render_verdicts(preset, verdicts))
        return 0 if all(verdict.holds for verdict in verdicts) else 1
    if name is not None:
        found = describe_preset(current_preset(name), vocabulary)
        print_visible(json.dumps(found, indent=2) if as_json else render_description(found))
        return 0
    entries = catalogue_presets(vocabulary)
    as_text = json.dumps([asdict(entry) for entry in entries], indent=2)
    print_visible(as_text if as_json else render_list(entries, vocabulary))
    return 0


@app.command()
def doctor(
    peak: Annotated[bool, typer.Option("--peak", help="Measure peak FLOP/s, 2 s.")] = False,
    yardstick: Annotated[bool, typer.Option("--yardstick", help="Same as --peak.", hidden=True)] = False,
    as_json: AsJson = False,
) -> int:
    """Describe this machine and name what is missing."""
    from dataclasses import asdict

    from compare.system.doctor import diagnose, render_diagnoses

    findings = diagnose(measure_peak=peak or yardstick)
    print_visible(
        json.dumps([asdict(item) for item in findings], indent=2) if as_json else render_diagnoses(findings)
    )
    return 1 if any(item.level == "missing" for item in findings) else 0
