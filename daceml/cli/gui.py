"""`daceml gui`: a model, an exploration or a recorded run as a page on this machine, or as a file."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from daceml.cli import options
from daceml.cli.failing_inputs import blamed_on_inputs
from daceml.cli.inputs import make_inputs
from daceml.cli.model_reference import load_file, resolve
from daceml.cli.output_files import check_targets, written_aside
from daceml.cli.work import working
from daceml.errors import ConfigurationError, PageError, TraceFileError

if TYPE_CHECKING:
    from daceml.exploration.guided.guided import Start
    from daceml.gui.pages import ModelPage, TracePage, VariantsPage
    from daceml.transformations.recipe import Recipe

_MODEL = re.compile(r".+:[A-Za-z_][\w.]*")

Target = Annotated[
    str,
    typer.Argument(
        metavar="MODEL|VARIANTS|TRACE",
        help="model, file of `daceml explore -o`, or torch.profiler trace (.json, .json.gz)",
    ),
]
Report = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", metavar="FILE", help="file for the page as one self-contained HTML document"
    ),
]
RecipeFile = Annotated[
    Path | None,
    typer.Option(
        "--recipe", metavar="FILE", help="Python file with RECIPE to start from, such as an exported one"
    ),
]

PassesFile = Annotated[
    Path | None,
    typer.Option("--passes", metavar="FILE", help="Python file with PASSES to offer in addition"),
]


def gui(
    target: Target,
    inputs: options.Inputs = None,
    inputs_file: options.InputsFile = None,
    train: options.Train = False,
    start: Annotated[str, typer.Option(help="initial recipe of a model: standard, or nothing")] = "standard",
    recipe: RecipeFile = None,
    passes: PassesFile = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="port of the server; 0 takes a free one")] = 0,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="print the address and do not open a browser")
    ] = False,
    output: Report = None,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Serve a page: optimize a model by clicks, or inspect a recorded run or explored variants."""
    check_targets([("--output", output)])
    with working(quiet=quiet, imports_torch=True):
        if _MODEL.fullmatch(target):
            page = _model_page(target, inputs, inputs_file, train, _start(start), recipe, passes)
        else:
            page = _file_page(Path(target))
    if output is not None:
        from daceml.gui.page import report_page

        with written_aside("--output", output) as aside, working(quiet=quiet, imports_torch=True):
            aside.write_text(report_page(_report(page)), encoding="utf-8")
        typer.echo(f"written to {output}")
        return
    _serve(page, port, browser=not no_browser)


def _serve(page: ModelPage | TracePage | VariantsPage, port: int, *, browser: bool) -> None:
    from daceml.gui.opening import opened_in_browser
    from daceml.gui.pages import ModelPage
    from daceml.gui.server import PageServer

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with PageServer(page, port=port) as server:
        typer.echo(server.url)
        typer.echo("interrupt (Ctrl-C) ends it", err=True)
        with suppress(KeyboardInterrupt), opened_in_browser(server.url) if browser else nullcontext():
            server.wait()
    if isinstance(page, ModelPage):
        page.close()


def _model_page(
    target: str,
    inputs: Sequence[str] | None,
    inputs_file: Path | None,
    train: bool,
    start: Start,
    recipe: Path | None,
    passes: Path | None,
) -> ModelPage:
    from torch import nn

    from daceml.exploration.guided.guided import Guided
    from daceml.gui.pages import ModelPage

    module = resolve(target, train=train)
    if not isinstance(module, nn.Module):
        raise ConfigurationError(
            f"{target} is not a module", why="passes are chosen for PyTorch modules", fix="give path.py:Name"
        )
    call = make_inputs(module, list(inputs or ()) or None, None, inputs_file)
    own, offered = _recipe_of(recipe, "RECIPE"), _recipe_of(passes, "PASSES")
    with blamed_on_inputs(module, call):
        guided = Guided(
            module, call.args, call.kwargs, training=train, start=start, recipe=own, offered=offered
        )
    # what a recipe's script makes anew has random inputs, by position
    repeatable = inputs_file is None
    return ModelPage(guided, title=type(module).__name__, target=target if repeatable else "")


def _file_page(path: Path) -> TracePage | VariantsPage:
    from daceml.gui.pages import TracePage, VariantsPage

    if not path.is_file():
        raise PageError(
            f"{path} is neither a model nor a file",
            where=f"folder {Path.cwd()}",
            fix="give path.py:Name, a file of daceml explore --output, or a trace of torch.profiler",
        )
    if _is_exploration(path):
        from daceml.exploration.results import Exploration

        return VariantsPage(Exploration.load(path))
    from daceml.profiling.kineto import read_trace
    from daceml.simulation import build
    from daceml.simulation.whatif.gradients import Gradients
    from daceml.simulation.whatif.questions import Network, optimization_of, words_of

    try:
        recorded = read_trace(path)
    except TraceFileError as error:
        raise PageError(
            f"{path} cannot be shown: {error.what}", why=error.why,
            fix=f"{error.fix}; or give what daceml explore --output wrote",
        ) from error  # fmt: skip
    network = Network(link=None, inside=None, gradients=Gradients.recorded(recorded.header))

    def ask(words: Sequence[str]) -> list[Any]:
        return [optimization_of(word, network) for word in words_of(list(words))]

    return TracePage(build(recorded), ask=ask)


def _is_exploration(path: Path) -> bool:
    with path.open("rb") as file:
        head = file.read(200)
    return b'"form"' in head and b'"model"' in head


def _recipe_of(path: Path | None, name: str) -> Recipe | None:
    """What a Python file calls so."""
    from daceml.transformations import Recipe

    if path is None:
        return None
    if path.is_file() and path.suffix != ".py":
        raise ConfigurationError(f"{path} is no Python file", fix=f"name a .py file that has {name}")
    found = getattr(load_file(path), name, None)
    if not isinstance(found, Recipe):
        raise ConfigurationError(
            f"{path} has no {name}", why=f"its {name} is no Recipe" if found else f"it defines no {name}",
            fix=f"write {name} = Recipe(…) in it",
        )  # fmt: skip
    return found


def _report(page: ModelPage | TracePage | VariantsPage) -> dict[str, Any]:
    from daceml.gui.pages import ModelPage

    return page.report() if isinstance(page, ModelPage) else page.view()


def _start(text: str) -> Start:
    if text not in ("standard", "nothing"):
        raise ConfigurationError(f"--start {text} is none", fix="take standard or nothing")
    return text
