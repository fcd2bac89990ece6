"""`daceml learn`: models of operations, from a database of their durations."""

from __future__ import annotations

import json
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer

from daceml.cli import options
from daceml.cli.output_files import check_targets, written_aside
from daceml.cli.work import working
from daceml.errors import DeviceError, EstimationError
from daceml.runtime.progress import publish
from daceml.text_tables import render, table
from daceml.time_budget import budget_s

if TYPE_CHECKING:
    from daceml.devices.specification import Device
    from daceml.operations.models.fitting.from_database import Lesson
    from daceml.operations.models.learned import LearnedDurations
    from daceml.operations.models.operator_model import OperatorModel

_BETWEEN_SAVES_S = 10.0
_LEAST_SHARE = 0.2  # of the budget, for the models where imports took most of it


def learn(
    database: Annotated[
        Path, typer.Argument(metavar="DATABASE", help="operation database of `daceml measure`")
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="FILE", help="file for the models, for `daceml predict --models`"
        ),
    ] = Path("models.npz"),
    device: Annotated[
        str | None,
        typer.Option(
            "--device",
            metavar="DEVICE",
            help="fit models for this device only; rows of other devices still help",
        ),
    ] = None,
    describe: Annotated[
        list[str] | None,
        typer.Option(
            "--describe",
            metavar="FILE",
            help="description of a device: .toml, or JSON of `daceml doctor --measure`; repeatable",
        ),
    ] = None,
    budget: Annotated[
        str,
        typer.Option(
            "--budget",
            metavar="TIME",
            help="time limit for all models: 90s, 10m; 0 tries one architecture of each",
        ),
    ] = "10m",
    wide: options.Wide = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Fit a model to each kind of operation with enough measurements on a device."""
    begun, seconds = monotonic(), budget_s(budget, may_be_zero=True)
    check_targets([("--output", output)], read=database)
    figures, done = Figures(describe or ()), Done(output)

    def observe(lesson: Lesson) -> None:
        done.add(lesson)
        if not quiet:
            _show(lesson)

    with working(quiet=quiet, imports_torch=True):
        from daceml.operations.database.store import OpDatabase
        from daceml.operations.models.fitting.from_database import fit_all

        with OpDatabase(database, create=False) as rows:
            publish("fitting models")
            only = None if device is None else figures.need(device).name
            try:
                # importing torch counts, too; a budget of 0 is one architecture of each
                left_s = max(seconds - (monotonic() - begun), _LEAST_SHARE * seconds)
                lessons = fit_all(rows.entries(), figures.find, only=only, budget_s=left_s, observe=observe)
            finally:
                done.save()
    if not done.models:
        unknown = f"; no figures are known of {', '.join(figures.unknown)}" if figures.unknown else ""
        raise EstimationError(
            f"nothing can be learned from {database}",
            why=("; ".join(sorted({one.why for one in lessons})) or "it has no rows of such a device")
            + unknown,
            fix="measure more operations of one kind, or describe the device: --describe FILE, for a"
            " processor the file of: daceml doctor --measure --json > processor.json",
        )
    told: dict[str, Any] = {
        "output": str(output),
        "models": [_as_json(one) for one in lessons],
        "devices_without_figures": figures.unknown,
    }
    typer.echo(json.dumps(told, indent=2) if as_json else _text(lessons, figures.unknown, output))


class Done:
    """The models that were fitted until now, which a file has soon after each."""

    def __init__(self, output: Path) -> None:
        self.models: list[OperatorModel] = []
        self._output = output
        self._saved, self._saved_at = 0, monotonic()

    def add(self, lesson: Lesson) -> None:
        """Take what was learned; the file follows some seconds later."""
        if lesson.fitted is not None:
            self.models.append(lesson.fitted.model)
        if monotonic() > self._saved_at + _BETWEEN_SAVES_S:
            self.save()

    def save(self) -> None:
        """Write the models that the file does not have."""
        from daceml.operations.models.model_file import write_models

        if len(self.models) > self._saved:
            with written_aside("--output", self._output) as aside:
                write_models(self.models, aside)
            self._saved = len(self.models)
        self._saved_at = monotonic()


class Figures:
    """Figures of devices by the names that a database has, from the catalogue and from files."""

    def __init__(self, files: list[str] | tuple[str, ...] = ()) -> None:
        from daceml.devices.catalogue import find_devices

        self._described = [one for file in files for one in find_devices(file)]
        self.unknown: list[str] = []

    def need(self, name: str) -> Device:
        """Figures of a device that is asked for.

        Raises:
            DeviceError: nobody has described it.
        """
        from daceml.devices.catalogue import find_device

        described = [one for one in self._described if one.is_called(name)]
        return described[0] if described else find_device(name)

    def find(self, name: str) -> Device | None:
        """Figures of a device that is met; the names of those without any are kept."""
        is_file = Path(name).suffix.lower() in (".toml", ".json")  # a row says a name, and no file to read
        try:
            if not is_file:
                return self.need(name)
        except DeviceError:
            pass
        self.unknown.append(name)
        return None


def learned_durations(models: Path, database: Any = None) -> LearnedDurations:
    """The source of durations that a file of models is, with rows of other devices from a database."""
    from daceml.operations.models.learned import LearnedDurations
    from daceml.operations.models.model_file import read_models

    return LearnedDurations(read_models(models), database=database, device_of=Figures().find)


def _show(lesson: Lesson) -> None:
    done = lesson.why if lesson.fitted is None else f"off by {lesson.fitted.error:.1%}"
    typer.echo(f"{_operator(lesson)} on {lesson.device}: {done}", err=True)


def _operator(lesson: Lesson) -> str:
    return lesson.kind.split("'")[1]


def _as_json(lesson: Lesson) -> dict[str, Any]:
    fitted = lesson.fitted
    return {
        "operator": _operator(lesson),
        "device": lesson.device,
        "rows": lesson.rows,
        "references": lesson.references,
        "odd_rows": lesson.odd,
        "why": lesson.why,
        "error": None if fitted is None else fitted.error,
        "follows": "" if fitted is None or not fitted.model.component else fitted.model.component.text(),
        "tried": {} if fitted is None else {one.architecture: one.error for one in fitted.tried},
    }


def _text(lessons: list[Lesson], unknown: list[str], output: Path) -> str:
    rows = table("operator", "device", "rows", "error", "follows", left=2, words=("follows",))
    notes: list[str] = []
    for one in lessons:
        told = _as_json(one)
        error = "" if told["error"] is None else f"{told['error']:.1%}"
        rows.add_row(told["operator"], one.device, str(one.rows), error, told["follows"])
        reasons = [
            one.why if one.fitted is None else "",
            "fitted with the times of other devices, too" if one.references else "",
            f"{one.odd} rows of sizes without work left out" if one.odd else "",
        ]
        if any(reasons):
            notes.append(f"{told['operator']} on {one.device}: {'; '.join(filter(None, reasons))}")
    notes += [f"no figures are known of {name}: its rows were left out" for name in unknown]
    count = sum(one.fitted is not None for one in lessons)
    return render(rows, *notes, f"{count} models: {output}")
