"""The model card of a saved model: README.md with the row of its result table and how to load it."""

from compare.config.run import Run
from compare.experiment.published_config import corpus_name
from compare.models.presets import PRESETS
from compare.report.tables.table import render_table
from compare.results.markdown import escape_markdown
from compare.results.result import Result

CARD = """---
language: [{languages}]
library_name: attnbench
pipeline_tag: {pipeline}
tags: [attnbench, {preset}]
metrics: [{metrics}]
---

# {label}: {title}

{about}, trained and measured by attnbench.

## Result

{table}
## Training

- Corpus: {corpus}, {src} to {tgt}; sha256 {data_hash}
- Vocabulary: {kind}, at most {size:,} entries, {joint}
- Seed {seed}, {updates} updates of at most {batch_tokens:,} target tokens, {precision}
- Code: attnbench {code_version}; settings {settings_hash}

`config.toml` has every setting, `result.json` every figure with the sha256 of the files that it comes from.
The weights are trained on the corpus above: its licence and its content decide what they may be used for.

## Use

{use}"""
TRANSLATION = """```python
from compare import {load}  # pip install attnbench

model = {load}("FOLDER")  # {where}
print(model.translate(["..."]))
```
"""
LANGUAGE_MODELLING = """    attnbench score-model FOLDER --tgt TEXT  # {where}
"""
NO_CODE = "\nLoading reads TOML, JSON and safetensors, and runs no code of this folder.\n"
PLUGINS = "\nThe model needs the plug-ins {plugins}, and loading it runs their code: read them first.\n"


def model_card(run: Run, result: Result) -> str:
    """Compose the README.md of a saved model.

    Args:
        run: its settings.
        result: its result, of a run that is done.
    """
    vocabulary, data, translates = run.vocabulary, run.data, run.task == "translation"
    return CARD.format(
        languages=f"{data.src}, {data.tgt}" if translates else data.tgt,
        pipeline="translation" if translates else "text-generation",
        metrics="bleu, chrf, ter" if translates else "perplexity",
        title=f"{data.src} to {data.tgt}" if translates else f"language model of {data.tgt}",
        use=_use(run),
        src=data.src,
        tgt=data.tgt,
        label=escape_markdown(run.label),
        preset=run.preset,
        about=_about(run),
        table=render_table([result]),
        corpus=escape_markdown(corpus_name(run.data.root)) or "built in",
        data_hash=result.data_hash,
        kind=vocabulary.kind,
        size=vocabulary.size,
        joint="joint" if vocabulary.joint else "one for each language",
        seed=result.seed,
        updates=result.updates,
        batch_tokens=run.train.batch_tokens,
        precision=run.train.precision,
        code_version=result.code_version,
        settings_hash=(result.settings_hash or "unknown")[:12],
    )


def _use(run: Run) -> str:
    """Describe how the model is loaded, and what that runs; ``from_pretrained`` refuses plug-ins."""
    from_hub = run.task == "translation" and not run.plugins
    load = "from_pretrained" if from_hub else "load_model"
    where = "this folder, or OWNER/NAME on the hub" if from_hub else "this folder"
    use = TRANSLATION if run.task == "translation" else LANGUAGE_MODELLING
    loading = PLUGINS.format(plugins=", ".join(run.plugins)) if run.plugins else NO_CODE
    return use.format(load=load, where=where) + loading


def _about(run: Run) -> str:
    """Describe the model: its preset with the source of it."""
    preset = PRESETS.get(run.preset)
    described = f" ({preset.about}; {preset.source})" if preset else ""
    return f"A model made from the preset `{run.preset}`{described}"
