"""The part of `daceml predict` that takes a model: a step that nobody has run, from shapes alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import typer

from daceml.cli.input_file import load_inputs
from daceml.cli.input_text import TensorText, parse_input
from daceml.cli.inputs import parse_dims
from daceml.cli.model_reference import resolve
from daceml.cli.prediction_targets import check_criterion, devices_of
from daceml.cli.work import working
from daceml.errors import CaptureError, ModelReferenceError, StepPredictionError

if TYPE_CHECKING:
    from daceml.prediction.model_step import ModelStep, Precision
    from daceml.report.step_prediction_text import Criterion


def predict_model(
    reference: str,
    *,
    to: str,
    batch: float | None = None,
    price: Sequence[str] | None = None,
    sort: str = "time",
    precision: str | None = None,
    database: Path | None = None,
    models: Path | None = None,
    inputs: Sequence[str] | None = None,
    inputs_file: Path | None = None,
    dims: Sequence[str] | None = None,
    train: bool = True,
    devices: int = 1,
    optimizer: str = "adam",
    layers: bool = False,
    as_json: bool = False,
    quiet: bool = False,
) -> None:
    """Print what a step of a model takes on each device.

    Args:
        reference: path.py:Name, package.module:Name or a .onnx file.
        to: names of devices with commas between.
        batch: samples of a step on one device: the first size of every input, or of a file's named ones.
        price: "H100=2.95@2026-05-20" of each device.
        inputs, inputs_file, dims: values of --input, --inputs and --dim.
        database, models: of durations, and of what `daceml learn` made of some.
        devices: 1 to 8 that train data-parallel.
    Raises:
        DacemlError: of the model, its inputs, a device, a price, or of what cannot be predicted; says why.
    """
    from daceml.cli.learn import learned_durations
    from daceml.operations.database.store import OpDatabase
    from daceml.prediction.model_steps.predict_step import predict_step
    from daceml.prediction.prices import prices_of
    from daceml.report.step_prediction_text import by_criterion, step_prediction_json, step_prediction_text

    targets = devices_of(to)
    prices = prices_of(price or (), targets)
    check_criterion(sort, prices)
    wanted = cast("Precision", precision or "fp32")
    with ExitStack() as files, working(quiet=quiet):
        step = _step(
            reference, inputs, inputs_file, dims, batch, train=train, optimizer=optimizer, precision=wanted
        )
        rows = None if database is None else files.enter_context(OpDatabase(database, create=False))
        learned = [] if models is None else [learned_durations(models, rows)]
        predictions = [
            predict_step(step, device=one, devices=devices, precision=wanted, database=rows, learned=learned)
            for one in targets
        ]
    ordered = by_criterion(predictions, prices, cast("Criterion", sort))
    if as_json:
        typer.echo(json.dumps(step_prediction_json(ordered, prices), indent=2))
    else:
        typer.echo(step_prediction_text(ordered, prices, layers=layers or len(ordered) == 1))


def _step(
    reference: str,
    inputs: Sequence[str] | None,
    inputs_file: Path | None,
    dims: Sequence[str] | None,
    batch: float | None,
    *,
    train: bool,
    optimizer: str,
    precision: Precision,
) -> ModelStep:
    import torch

    from daceml.prediction.model_steps.predict_step import captured

    if batch is not None and (batch < 1 or batch != int(batch)):
        raise StepPredictionError(
            f"--batch {batch:g} is no number of samples", fix="give a whole number above 0"
        )
    size = None if batch is None else int(batch)
    maker = None if optimizer == "none" else optimizer
    if reference.endswith(".onnx"):
        if inputs or inputs_file is not None:
            raise ModelReferenceError(
                f"{reference} is predicted without --input and --inputs",
                why="an ONNX file says itself which inputs it has",
                fix="leave them out; --dim NAME=SIZE gives a named dimension its size",
            )
        sizes = parse_dims(dims or ())
        if size is not None:
            from daceml.operations.onnx_graph import named_batch

            sizes = {named_batch(Path(reference)): size} | sizes
        return captured(Path(reference), sizes, train=train, optimizer=maker, precision=precision)
    if dims:
        raise ModelReferenceError(
            "--dim was given for a module",
            why="only .onnx files have named dimensions",
            fix="write the sizes in --input",
        )
    called = _inputs(inputs, inputs_file, size)

    def step_of(model: Any) -> ModelStep:
        return captured(model, called, train=train, optimizer=maker, precision=precision)

    try:
        with torch.device("meta"):  # without memory for its weights
            model = resolve(reference, train=train)
        return step_of(model)
    except (CaptureError, ModelReferenceError) as error:
        if error.__cause__ is None:  # no such file or name, or a question without an answer
            raise
        # a model that looks at values when it is made, or keeps tensors that are no buffers
        return step_of(resolve(reference, train=train))


def _inputs(texts: Sequence[str] | None, file: Path | None, batch: int | None) -> Any:
    """What the model is called with, without values: a tuple, or a dictionary of keyword arguments."""
    if texts and file is not None:
        raise ModelReferenceError(
            "--input and --inputs were both given",
            why="the file has every input",
            fix="leave one of them out",
        )
    if file is not None:
        args, kwargs = load_inputs(file)
        if args and kwargs:
            raise ModelReferenceError(
                f"--inputs {file} has inputs by place and by name",
                why="a prediction takes one or the other",
                fix="name all of them",
            )
        told = {name: _with_batch(one, batch) for name, one in kwargs.items()}
        return told or tuple(_with_batch(one, batch) for one in args)
    if not texts:
        raise ModelReferenceError(
            "nobody says what the model is called with",
            why="its operations follow from the shapes of its inputs",
            fix="add --input SHAPE for each, such as --input 8,3,224,224 or --input 8,128:int64",
        )
    return tuple(_with_batch(_empty(parse_input(text)), batch) for text in texts)


def _empty(text: TensorText) -> Any:
    import torch

    return torch.empty(text.shape, dtype=getattr(torch, text.kind), device="meta")


def _with_batch(tensor: Any, batch: int | None) -> Any:
    if batch is None or not tensor.ndim:
        return tensor
    return tensor.new_empty((batch, *tensor.shape[1:]), device="meta")
