"""`daceml predict`: a step of a model on devices, from shapes alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from daceml.cli import options
from daceml.cli.failing_inputs import blamed_on_inputs
from daceml.cli.input_file import load_inputs
from daceml.cli.input_text import TensorText, parse_input
from daceml.cli.inputs import ModelInputs, parse_dims
from daceml.cli.model_reference import resolve
from daceml.cli.prediction_targets import (
    Criterion,
    Database,
    Models,
    Prices,
    Sort,
    To,
    check_criterion,
    devices_of,
    predicted_each,
)
from daceml.cli.work import working
from daceml.errors import CaptureError, ModelReferenceError, StepPredictionError

if TYPE_CHECKING:
    from daceml.prediction.model_step import ModelStep, Precision


Batch = Annotated[
    float | None,
    typer.Option("--batch", metavar="N", help="first size of every input: samples in a step"),
]
PrecisionName = Annotated[
    str | None,
    typer.Option("--precision", metavar="bf16|fp16|tf32", help="precision on the target (default: fp32)"),
]
Dims = Annotated[
    list[str] | None,
    typer.Option("--dim", metavar="NAME=SIZE", help="size of a named dimension of a .onnx file"),
]
Inference = Annotated[
    bool, typer.Option("--inference", help="forward pass only (default: forward, backward, optimizer)")
]
Together = Annotated[
    int, typer.Option("--devices", metavar="N", help="number of data-parallel devices, 1 to 8")
]
Optimizer = Annotated[
    str, typer.Option("--optimizer", metavar="NAME", help="optimizer of torch.optim, or none")
]
Context = Annotated[
    str | None,
    typer.Option(
        "--context",
        metavar="SIZE",
        help="GPU memory of a process without tensors (default: 551MiB)",
    ),
]
Kinds = Annotated[bool, typer.Option("--kinds", help="time of each kind of operator, and longest layers")]


def predict(
    model: options.Model,
    to: To,
    inputs: options.Inputs = None,
    inputs_file: options.InputsFile = None,
    dims: Dims = None,
    batch: Batch = None,
    price: Prices = None,
    sort: Sort = Criterion.TIME,
    precision: PrecisionName = None,
    database: Database = None,
    models: Models = None,
    inference: Inference = False,
    devices: Together = 1,
    optimizer: Optimizer = "adam",
    context: Context = None,
    kinds: Kinds = False,
    wide: options.Wide = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Predict a step of a model on devices from shapes alone: time, throughput, cost.

    `daceml trace predict` predicts a recorded run.
    """
    with ExitStack() as files, working(quiet=quiet, imports_torch=True):
        from daceml.cli.learn import learned_durations
        from daceml.operations.database.store import OpDatabase
        from daceml.prediction.model_steps.predict_step import predict_step
        from daceml.prediction.prices import prices_of
        from daceml.report.step_prediction_text import (
            by_criterion,
            step_prediction_json,
            step_prediction_text,
        )
        from daceml.simulation.network.quantities import size_bytes

        targets = devices_of(to)
        prices = prices_of(price or (), targets)
        check_criterion(sort, prices)
        wanted = cast("Precision", precision or "fp32")
        step = _step(
            model,
            inputs,
            inputs_file,
            dims,
            batch,
            train=not inference,
            optimizer=optimizer,
            precision=wanted,
        )
        rows = None if database is None else files.enter_context(OpDatabase(database, create=False))
        learned = [] if models is None else [learned_durations(models, rows)]
        context_bytes = None if context is None else int(size_bytes(context))
        predictions = predicted_each(
            targets,
            lambda one: predict_step(
                step,
                device=one,
                devices=devices,
                precision=wanted,
                database=rows,
                learned=learned,
                context_bytes=context_bytes,
            ),
            precision=precision,
        )
    ordered = by_criterion(predictions, prices, sort.value)
    if as_json:
        typer.echo(json.dumps(step_prediction_json(ordered, prices), indent=2))
    else:
        typer.echo(step_prediction_text(ordered, prices, layers=kinds or len(ordered) == 1))


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
            f"--batch {batch:g} is not a number of samples", fix="give a whole number above 0"
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
        given = (
            ModelInputs(args=(), kwargs=called)
            if isinstance(called, dict)
            else ModelInputs(args=called, kwargs={})
        )
        with blamed_on_inputs(model, given):
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
            "the inputs of the model are unknown",
            why="the operations of a step follow from the shapes of its inputs",
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
