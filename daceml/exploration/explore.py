"""`daceml.explore`: the variants of a model in hand, a table to look at and programs to run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from daceml.errors import ExplorationError
from daceml.exploration.exploration_text import exploration_text
from daceml.exploration.results import Exploration, Objective, Row
from daceml.notebook import html_of
from daceml.time_budget import budget_s

if TYPE_CHECKING:
    from torch import nn

    from daceml.prediction.prices import Price
    from daceml.tuning.model_call import Subject
    from daceml.tuning.variant import Variant


def explore(
    model: nn.Module,
    *inputs: Any,
    budget: str | float = "2m",
    devices: Sequence[str] = (),
    objective: Objective = "time",
    training: bool | None = None,
    precisions: Sequence[str] = (),
    batches: Sequence[int] = (),
    ranks: Sequence[int] = (),
    prices: Mapping[str, Price] | None = None,
    measurements: int = 4,
    most: int = 160,
    seed: int = 0,
    observe: Callable[[Row], None] | None = None,
    **named: Any,
) -> Explored:
    """Predict every variant of a model, measure those that may be the best, and keep the winner.

    Nothing of the model is changed. Programs and times of steps stay in the cache: what an exploration has
    learned the next one knows, and one that was interrupted goes on where it was.

    Args:
        model: any nn.Module, also a compiled one.
        inputs, named: of the call, arguments of `forward`.
        budget: "90s", "2m", or seconds; one measurement that has begun is ended.
        devices: of `daceml devices`, for which variants are predicted besides.
        objective: "time" of a step, "memory" at its peak, or "cost" of a step on devices with a price.
        training: whether a step is a forward and a backward pass; None: whether the model is in training
            mode.
        precisions: element types to try besides that of the model, such as "bfloat16".
        batches: numbers of samples of a call to try besides its own, which is the leading dimension of its
            first tensor; all times are for as many samples as the given call has.
        ranks: numbers of devices that share the work, on the other devices.
        prices: device -> price of an hour.
        measurements: variants that are compiled and measured besides the standard one, at the most.
        most: different programs that are lowered, at the most.
        seed: of the order of measurements, and of what the model draws.
        observe: is given each row as soon as it is known.
    Raises:
        ExplorationError: something that cannot be explored.
        ConfigurationError: a budget that is none.
    """
    from torch import nn

    from daceml.exploration.variant_search import explored
    from daceml.module.module import eager_module
    from daceml.tuning.model_call import Subject

    if not isinstance(model, nn.Module):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ExplorationError(
            f"a {type(model).__name__} cannot be explored", fix="give an nn.Module, and the inputs of a call"
        )
    seconds = budget_s(budget, name="budget")
    model = eager_module(model)
    subject = Subject(model, inputs, named, training=model.training if training is None else training)
    found = explored(
        subject, budget_s=seconds, devices=devices, objective=objective, precisions=precisions,
        batches=batches, ranks=ranks, prices=prices, measurements=measurements, most=most, seed=seed,
        observe=observe,
    )  # fmt: skip
    return Explored(found, subject)


class Explored:
    """What `daceml.explore` gives: its rows, and the model as any of them says.

    Attributes:
        exploration: the records.
    """

    def __init__(self, exploration: Exploration, subject: Subject) -> None:
        self.exploration, self._subject = exploration, subject

    @property
    def rows(self) -> tuple[Row, ...]:
        """See `Exploration`."""
        return self.exploration.rows

    @property
    def best(self) -> Row:
        """The row of the winner."""
        return self.exploration.best

    def compiled(self, variant: Variant | None = None) -> nn.Module:
        """The model as a variant says; shares parameters with the model, unless the precision is another.

        A call of it has the variant's number of samples and its precision: cast the inputs, and split or join
        the batches.

        Args:
            variant: of a row; None is the winner.
        Raises:
            ExplorationError: it is one of another device.
        """
        from daceml.module.module import compile_module

        chosen = self._here(variant)
        module, _, _ = self._subject.as_variant(chosen)
        return compile_module(module, **self._subject.options(chosen))

    def options(self, variant: Variant | None = None) -> dict[str, Any]:
        """What to give to `daceml.compile` instead, for a module in the variant's precision.

        Raises:
            ExplorationError: it is one of another device.
        """
        return self._subject.options(self._here(variant))

    def _repr_html_(self) -> str:
        return html_of("exploration", self.exploration)

    def __str__(self) -> str:
        return exploration_text(self.exploration)

    def _here(self, variant: Variant | None) -> Variant:
        found = self.best.variant if variant is None else variant
        if not found.here:
            raise ExplorationError(
                f"{found.title!r} cannot run here",
                why="it is predicted for another device",
                fix="take a row of this machine: [row for row in explored.rows if row.variant.here]",
            )
        return found
