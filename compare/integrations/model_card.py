"""The model card of a saved model: README.md with the row of its result table and how to use it."""

from compare.config.run import Run
from compare.experiment.published_config import corpus_name
from compare.models.presets import PRESETS
from compare.report.tables.table import render_table
from compare.results.markdown import escape_markdown
from compare.results.result import Result

CARD = """---
language: [{src}, {tgt}]
library_name: attnbench
pipeline_tag: translation
tags: [attnbench, {preset}]
metrics: [bleu, chrf, ter]
---

# {label}: {src} to {tgt}

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

```python
from compare import from_pretrained  # pip install attnbench

model = from_pretrained("FOLDER")  # this folder, or OWNER/NAME on the hub
print(model.translate(["..."]))
```

Loading reads TOML, JSON and safetensors, and runs no code of this folder.
"""


def model_card(run: Run, result: Result) -> str:
    """Compose the README.md of a saved model.

    Args:
        run: its settings.
        result: its result, of a run that is done.
    """
    vocabulary = run.vocabulary
    return CARD.format(
        src=run.data.src,
        tgt=run.data.tgt,
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


def _about(run: Run) -> str:
    """Describe the model: its preset with the source of it."""
    preset = PRESETS.get(run.preset)
    described = f" ({preset.about}; {preset.source})" if preset else ""
    return f"A model made from the preset `{run.preset}`{described}"
