"""The variants of one module, by the calls that they are for."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, cast

from daceml.compiler.guards import (
    CallKey,
    ConstantKey,
    TensorKey,
    is_number,
    key_difference,
    same_but_sizes,
)
from daceml.config import config
from daceml.frontend.capture.object_arguments import has_objects
from daceml.frontend.capture.redirected_forward import forward_of
from daceml.module.compiled_variant import EagerVariant, Variant

if TYPE_CHECKING:
    import torch
    from torch import nn

    from daceml.frontend.capture.arguments import Arguments

log = logging.getLogger(__name__)


class KnownVariants:
    """Finds the variant for a call.

    Args:
        eager: the module as the user wrote it.
        symbolic: whether its variants are traced with symbolic sizes.
    Attributes:
        moving: id of a module or class and attribute, of what forward changes where it is not one program.
    """

    def __init__(self, eager: nn.Module, *, symbolic: bool) -> None:
        self.eager = eager
        self.symbolic = symbolic
        self._of_key: dict[CallKey, list[Variant | EagerVariant]] = {}
        self._counting: dict[Any, set[int]] = {}  # by the structure of the arguments
        self.moving: AbstractSet[tuple[int, str]] = frozenset()

    def __iter__(self) -> Iterator[Variant]:
        """Every compiled variant, for each key that leads to it."""
        return (v for known in self._of_key.values() for v in known if isinstance(v, Variant))

    def compiled_for(self, key: CallKey) -> list[Variant]:
        """Compiled variants for the same inputs, the last one first."""
        return [v for v in self._of_key.get(key, ()) if isinstance(v, Variant)]

    def count(self, key: CallKey) -> int:
        """How often the module was traced for the same inputs."""
        return len(self._of_key.get(key, ()))

    def has_run(self, variant: EagerVariant) -> None:
        """Note the module as a call leaves it: what forward itself changes is no reason to trace it again."""
        if variant.watch is not None and not variant.watch.unchanged():
            variant.watch = variant.watch.without_moved(self.eager, self.moving)
            self.moving = variant.watch.moving

    def clear(self) -> None:
        """Forget everything."""
        self._of_key.clear()
        self._counting.clear()
        self.moving = frozenset()

    def remember(self, key: CallKey, variant: Variant | EagerVariant) -> None:
        """Add a variant; the oldest key makes room where there are too many."""
        if key not in self._of_key and len(self._of_key) >= config().variants:
            self._make_room()
        self._of_key.setdefault(key, []).insert(0, variant)

    def drop(self, variant: Variant) -> None:
        """Forget one variant."""
        for key, known in list(self._of_key.items()):
            self._of_key[key] = [other for other in known if other is not variant]
            if not self._of_key[key]:
                del self._of_key[key]

    def replace(self, variant: Variant, other: EagerVariant) -> None:
        """Let another variant run wherever this one did."""
        for known in self._of_key.values():
            known[:] = [other if one is variant else one for one in known]

    def find(self, key: tuple[Any, ...], tensors: Sequence[torch.Tensor]) -> Variant | EagerVariant | None:
        """A variant for this very key, if the module is what it was."""
        # a tuple equals the named tuple of the same content
        for variant in self._of_key.get(key, ()):  # pyright: ignore[reportCallIssue, reportArgumentType]
            if variant.watch is None or (
                variant.watch.unchanged() and variant.same_gradients() and variant.same_values(tensors)
            ):
                return variant
        return None

    def find_alike(self, key: CallKey, tensors: Sequence[torch.Tensor]) -> Variant | EagerVariant | None:
        """A variant for another state of the module, or for other sizes, that is right here as well.

        It is remembered for this key.
        """
        for variant in self._of_key.get(key, ()):
            if variant.same_gradients() and variant.same_values(tensors) and self._is_alike(variant):
                return variant
        shapes = [tensor.shape for tensor in tensors]
        for variant in self.of_any_size(key, tensors):
            fits = variant.sizes is not None and variant.sizes.problem(shapes) is None
            if fits and variant.same_gradients():
                self.remember(key, variant)
                return variant
        return None

    def find_cut(self, key: CallKey) -> EagerVariant | None:
        """What runs calls of other sizes because they are not one program; remembered for this key.

        Tracing takes long and meets the same line again: with symbolic sizes whatever the sizes are, else if
        it has at two of them.
        """
        others = [v for other, known in self._of_key.items() if same_but_sizes(other, key) for v in known]
        cuts = [v for v in others if isinstance(v, EagerVariant) and v.cut is not None and self._is_alike(v)]
        if not cuts or len(cuts) < len(others):
            return None
        places = Counter(v.cut.where or v.cut.what for v in {id(v): v for v in cuts}.values() if v.cut)
        if not self.symbolic and max(places.values()) < 2:
            return None
        self.remember(key, cuts[0])
        return cuts[0]

    def of_any_size(self, key: CallKey, tensors: Sequence[torch.Tensor]) -> list[Variant]:
        """Variants with symbolic sizes for calls that differ from this one in sizes only."""
        open_sizes: dict[Variant, CallKey] = {}
        for other, known in self._of_key.items():
            for variant in known:
                if isinstance(variant, Variant) and variant.sizes is not None:
                    open_sizes.setdefault(variant, other)  # its keys differ in sizes only
        return [
            variant
            for variant, other in open_sizes.items()
            if same_but_sizes(other, key) and variant.same_values(tensors) and self._is_alike(variant)
        ]

    def counting(self, structure: Any) -> set[int] | None:
        """Places of numbers that differ from call to call, for arguments of this structure."""
        return self._counting.get(structure) if self._counting else None

    def count_numbers(self, key: CallKey) -> bool:
        """Let numbers that differ among calls with the same objects, as a counter does, be symbolic sizes.

        Returns:
            whether there are any that were not known.
        """
        if not has_objects(key.structure):
            return False
        numbers = {place for place, leaf in enumerate(key.leaves) if is_number(leaf)}
        others = [other for other in self._of_key if same_but_sizes(other, key, numbers)]
        changing = {
            place for place in numbers for other in others if other.leaves[place] != key.leaves[place]
        }
        if changing:
            self._counting.setdefault(key.structure, set()).update(changing)
        return bool(changing)

    def changing(self, key: CallKey) -> tuple[frozenset[int], ...] | None:
        """Of each tensor, the dimensions that differ among calls with the same objects; None where none do.

        A cache has another length at every call: a program for each length would be one for each call.
        """
        if not has_objects(key.structure):
            return None
        counting = self._counting.get(key.structure, set())
        others = [other for other in self._of_key if same_but_sizes(other, key, counting)]
        found = tuple(
            frozenset(
                d for other in others for d, n in enumerate(leaf.shape)
                if place in counting or cast("TensorKey", other.leaves[place]).shape[d] != n
            )
            for place, leaf in enumerate(key.leaves) if isinstance(leaf, TensorKey)
        )  # fmt: skip
        return found if any(found) else None

    def reason(self, key: CallKey, arguments: Arguments) -> str:
        """Which guard of the nearest variant failed."""
        if not self._of_key:
            return "first call"
        if known := self.compiled_for(key):
            was = known[0].watch
            changed = was.difference(was.retaken(self.eager))
            if changed is None and (other := known[0].other_value(arguments.tensors)):
                return other
            return f"{changed or 'what requires a gradient'} of the module has changed"
        places = [f"argument {i}" for i in range(len(key.leaves))]
        tensors = iter(arguments.names(forward_of(self.eager)))
        places = [
            p if isinstance(leaf, ConstantKey) else next(tensors)
            for p, leaf in zip(places, key.leaves, strict=True)
        ]
        similar = [other for other in reversed(self._of_key) if same_but_sizes(other, key)]
        for variant in self.of_any_size(key, arguments.tensors):
            if variant.sizes is not None and (
                problem := variant.sizes.problem([x.shape for x in arguments.tensors])
            ):
                return problem
        nearest = similar[0] if similar else next(reversed(self._of_key))
        return key_difference(nearest, key, places) or "other inputs"

    def _is_alike(self, variant: Variant | EagerVariant) -> bool:
        """Whether the module is what it was for a variant, in other objects perhaps."""
        if variant.watch is None or variant.watch.unchanged():
            return True
        if variant.watch.plainly_changed():
            return False
        now = variant.watch.retaken(self.eager)
        if variant.watch.difference(now) is not None:
            return False
        variant.watch = now
        return True

    def _make_room(self) -> None:
        """Forget one key: of a variant that others lead to, if there is one."""
        uses = Counter(id(variant) for known in self._of_key.values() for variant in known)
        spare = (key for key, known in self._of_key.items() if all(uses[id(v)] > 1 for v in known))
        oldest = next(spare, None)
        if oldest is None:
            oldest = next(iter(self._of_key))
            log.warning(
                "%s is called with more than %d kinds of inputs: the variant of the oldest is dropped "
                "(compile it with dynamic=True, or set DACEML_VARIANTS)",
                type(self.eager).__name__, config().variants,
            )  # fmt: skip
        del self._of_key[oldest]
