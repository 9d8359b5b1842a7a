"""A page in the browser that translates a sentence with two models and shows their attention (gradio)."""

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compare.attention.viewer import embed_viewer
from compare.integrations.hub import import_extra
from compare.report.attention_plots import find_runs, read_test_line
from compare.results.trained_model import load_model
from compare.system.messages import explain

if TYPE_CHECKING:
    from compare.decoding.translator import Translator

TITLE = "attnbench: two models, one sentence"
MAX_LENGTH = 500
"""Characters of a sentence; a heat map of more is not readable."""
LOADED_MODELS = 4
"""Models that are kept in memory; a further one takes the place of that used least recently."""
CSS = """
.gradio-container { max-width: 84rem !important; }
"""


class DemoModels:
    """The models of a page by name, loaded when they are first asked for."""

    def __init__(self, runs: Mapping[str, Path], device: str = "cpu") -> None:
        """Take folders of finished runs, by the names in the page."""
        self.runs = dict(runs)
        self._load: Callable[[str], Translator] = lru_cache(LOADED_MODELS)(
            lambda name: load_model(self.runs[name], device)
        )

    def load(self, name: str) -> "Translator":
        """Return a model, from memory if it is there."""
        return self._load(name)

    def show(self, sentence: str, name: str) -> tuple[str, str]:
        """Translate a sentence.

        Args:
            sentence: one line of text.
            name: the model.

        Returns:
            The translation, or what is wrong with the sentence, and the viewer of its attention as HTML.
        """
        line = " ".join(sentence.split())[:MAX_LENGTH]
        if not line:
            return "Type a sentence.", ""
        try:
            attention = self.load(name).attend(line)
        except (ValueError, OSError) as error:  # such as a sentence that is too long for this model
            return explain(error), ""
        maps = embed_viewer(line, [attention.words().viewed()], texts=False)
        return attention.translation or "(nothing)", maps


def collect_runs(folders: Sequence[Path]) -> dict[str, Path]:
    """Return the finished runs of experiments and of single runs, by names that tell them apart.

    Raises:
        ValueError: a folder without finished runs, or a run that is named twice.
    """
    found: dict[str, Path] = {}
    for folder in folders:
        for name, run in find_runs(folder).items():
            if run.resolve() in {other.resolve() for other in found.values()}:
                raise ValueError(f"{run} is given twice: name each run or its experiment once")
            parts, depth = run.resolve().parts, 1
            while name in found:
                depth += 1
                name = "/".join(parts[-depth:])
            found[name] = run
    return found


def build_page(models: DemoModels, sentence: str) -> Any:
    """Return the page as a ``gradio.Blocks``: a sentence, and one or two models side by side.

    Args:
        models: what can be chosen; the first two are chosen at first.
        sentence: the text in the input at first.

    Raises:
        ValueError: gradio is not installed.
    """
    os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
    gr = import_extra("gradio", "demo", "attnbench demo")
    names = list(models.runs)
    with gr.Blocks(title=TITLE, analytics_enabled=False) as page:
        gr.Markdown(f"# {TITLE}")
        with gr.Row(equal_height=True):
            text = gr.Textbox(
                sentence, label="Sentence", max_length=MAX_LENGTH, scale=5, min_width=320, autofocus=True
            )
            button = gr.Button("Translate", variant="primary", scale=1, min_width=120)
        with gr.Row():
            for place, name in enumerate(names[:2]):
                with gr.Column(min_width=320):
                    choice = gr.Dropdown(names, value=name, label=("Left model", "Right model")[place])
                    translation = gr.Textbox(label="Translation", interactive=False, lines=2)
                    attention = gr.HTML()
                shown = [translation, attention]
                for listen in (button.click, text.submit, choice.change, page.load):
                    listen(models.show, [text, choice], shown, show_progress="minimal")
    return page


def serve_page(
    folders: Sequence[Path], *, port: int, device: str = "cpu", announce: Callable[[str], None]
) -> None:
    """Serve the page on this machine until Ctrl-C.

    Args:
        folders: experiments or single runs, with weights.
        port: port on 127.0.0.1; 0: a free one.
        device: where the models compute.
        announce: is called with the address once the page can be opened.

    Raises:
        ValueError: gradio is not installed, no finished run, a run without weights, or the port is taken.
    """
    gr = import_extra("gradio", "demo", "attnbench demo")
    runs = collect_runs(folders)
    models = DemoModels(runs, device)
    for name in list(runs)[:2]:
        models.load(name)  # fails now rather than in the browser
    page = build_page(models, _first_sentence(runs))
    theme = gr.themes.Default(font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"])
    try:
        _, address, _ = page.launch(
            server_name="127.0.0.1",
            server_port=port or None,
            prevent_thread_lock=True,
            quiet=True,
            share=False,
            footer_links=[],
            ssr_mode=False,
            theme=theme,
            css=CSS,
        )
    except OSError:
        raise ValueError(f"port {port} cannot be used: choose another with --port") from None
    announce(address)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        pass
    finally:
        page.close()


def _first_sentence(runs: Mapping[str, Path]) -> str:
    """Return a test sentence of the first experiment that has one."""
    for run in runs.values():
        try:
            return read_test_line(run.resolve().parent, 1)
        except (OSError, ValueError):
            continue
    return ""
