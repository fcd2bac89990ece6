"""Calls whose translation gave other numbers, or none; expected values are eager's in float64."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional

import daceml
from daceml.errors import PositionError
from tests.support.eager_twin import Function, cases_unlike_eager, unlike_eager

INF, NAN = math.inf, math.nan
ATEN = torch.ops.aten


@pytest.mark.parametrize("gradients", [False, True])
def test_tails_of_special_functions_are_left_to_torch(gradients):
    cases = {
        "erfcx": (torch.special.erfcx, [torch.tensor([4.0, 9.0, 12.0, -3.0])]),
        "log_ndtr": (torch.special.log_ndtr, [torch.tensor([-8.0, -5.0, 1.0])]),
    }
    assert cases_unlike_eager(cases, gradients=gradients) == []


def test_gradients_keep_their_digits_where_the_result_is_almost_flat():
    x = torch.tensor([-20.0, -15.0, -10.0, -1.0, -1e-4, 0.0, 0.5, INF])
    cases = {
        f"{function.__name__} {dtype}": (function, [x.to(dtype)])
        for function in (functional.elu, functional.selu, functional.celu)
        for dtype in (torch.float32, torch.float64)
    }
    assert cases_unlike_eager(cases, gradients=True) == []


@pytest.mark.parametrize("gradients", [False, True])
def test_elu_scales_the_input_of_negative_numbers_alone(gradients):
    x = torch.tensor([3.0, -1.0, -8.0, 0.0])
    cases = {
        "input": (lambda x: ATEN.elu(x, 1.0, 1.0, 3.0), [x]),
        "all": (lambda x: ATEN.elu(x, 1.5, 2.0, 0.5), [x]),
    }
    assert cases_unlike_eager(cases, gradients=gradients) == []


@pytest.mark.parametrize("gradients", [False, True])
def test_a_row_of_minus_infinity_has_a_safe_softmax_of_zeros(gradients):
    x = torch.tensor([[-INF, -INF, -INF], [0.0, -INF, 1.0], [2.0, 3.0, 4.0]])
    cases = {
        "rows": (lambda x: ATEN._safe_softmax(x, -1), [x]),
        "columns": (lambda x: ATEN._safe_softmax(x, 0), [x]),
    }
    assert cases_unlike_eager(cases, gradients=gradients) == []


def test_a_single_number_is_a_row_of_one():
    x = torch.randn(2, 3)
    cases = {
        f"{name} of {t.item()}": (function, [t])
        for t in (torch.tensor(0.7), torch.tensor(0.0), torch.tensor(-INF))
        for name, function in {
            "softmax": lambda t: t.softmax(0),
            "log_softmax": lambda t: functional.log_softmax(t, -1),
            "safe softmax": lambda t: ATEN._safe_softmax(t, 0),
            "norm": lambda t: torch.linalg.vector_norm(t.clamp(-1), 2, dim=0),
            "third norm": lambda t: torch.linalg.vector_norm(t.clamp(-1), 3, dim=-1, keepdim=True),
            "flip": lambda t: t.flip(()) * 2,
        }.items()
    }
    cases["flip of no dimensions"] = (lambda x: x.flip(()).exp(), [x])
    assert cases_unlike_eager(cases, gradients=True) == []


def batch(dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    return (
        torch.randn(4, 3, 5, generator=generator, dtype=dtype),
        torch.rand(3, generator=generator, dtype=dtype),
        torch.rand(3, generator=generator, dtype=dtype) + 0.5,
    )


def test_batch_norms_of_aten_update_statistics_and_give_those_of_the_batch():
    def function(operator, training):
        return lambda x, mean, variance: (
            operator(x, None, None, mean, variance, training, 0.5, 0.6),
            mean * 1,
        )

    cases = {
        f"{operator}, training={training}": (function(operator, training), batch())
        for operator in (
            ATEN.native_batch_norm,
            ATEN._native_batch_norm_legit,
            ATEN._native_batch_norm_legit_functional,
        )
        for training in (False, True)
    }
    assert cases_unlike_eager(cases) == []


def test_batch_norms_without_running_statistics():
    legit, inference = ATEN._native_batch_norm_legit.no_stats, ATEN._native_batch_norm_legit_no_training
    cases = {
        "native": (lambda x, w, b: torch.native_batch_norm(x, w, b, None, None, True, 0.1, 1e-5), batch()),
        "legit": (lambda x, w, b: legit(x, w, b, True, 0.1, 1e-5), batch()),
        "inference": (lambda x, w, b: inference(x, w, b, w, b, 0.1, 1e-5), batch()),
    }
    assert cases_unlike_eager(cases) == []


def test_an_addend_times_zero_may_be_nan():
    given = torch.full((3,), NAN), torch.randn(2, 3, 4), torch.randn(2, 4, 5)
    functions = {
        "addmv": lambda a, m, v: torch.addmv(a, m[0], v[0, :, 0], beta=0, alpha=2),
        "addbmm": lambda a, m, v: torch.addbmm(a[:, None], m, v, beta=0),
        "baddbmm": lambda a, m, v: torch.baddbmm(a[:, None], m, v, beta=0),
        "addmm": lambda a, m, v: torch.addmm(a[:, None], m[0], v[0], beta=0),
    }
    assert cases_unlike_eager({name: (function, given) for name, function in functions.items()}) == []


@pytest.mark.parametrize("gradients", [False, True])
def test_addends_and_products_are_scaled(gradients):
    matrices = torch.randn(2, 3, 4), torch.randn(2, 4, 5)
    finite = lambda a, m, v: (  # noqa: E731
        torch.addmv(a, m[0], v[0, :, 0], beta=0.5, alpha=2),
        torch.addbmm(a[:, None], m, v, beta=3, alpha=0.5),
    )
    assert unlike_eager(finite, torch.ones(3), *matrices, gradients=gradients) == []


def test_nll_loss_forward_gives_the_weight_of_its_targets():
    target = torch.tensor([0, 2, -100, 1])

    def loss(weight, reduction):
        return lambda x: ATEN.nll_loss_forward(x, target, weight, reduction, -100)

    cases = {
        f"reduction {reduction}, weight {weight}": (loss(weight, reduction), [torch.randn(4, 3)])
        for reduction in (0, 1, 2)
        for weight in (None, torch.tensor([0.5, 1.0, 2.0]))
    }
    assert cases_unlike_eager(cases) == []


@pytest.mark.parametrize("gradients", [False, True])
def test_tensors_without_dimensions(gradients):
    scalar, slope = torch.tensor(-1.5), torch.tensor([0.3])
    cases = {
        "scalar": (functional.prelu, [scalar, slope]),
        "scalars": (functional.prelu, [scalar, slope[0]]),
        "slope": (functional.prelu, [torch.randn(2, 3), slope[0]]),
        "select": (lambda x: torch.index_select(x, 0, torch.tensor([0])) * 2, [scalar]),
    }
    assert cases_unlike_eager(cases, gradients=gradients) == []


@pytest.mark.parametrize("gradients", [False, True])
def test_linear_with_a_vector_for_a_weight(gradients):
    x, weight = torch.randn(2, 4, 3), torch.randn(3)
    cases = {
        "weight": (functional.linear, [x, weight]),
        "bias": (functional.linear, [x, weight, torch.tensor(2.0)]),
        "vectors": (functional.linear, [x[0, 0], weight]),
    }
    assert cases_unlike_eager(cases, gradients=gradients) == []


@pytest.mark.parametrize("function", [torch.argmax, torch.argmin])
def test_places_of_extremes_of_everything_keep_dimensions(function):
    shapes = ((2, 3, 4), (5,), ())
    kept = {f"kept {shape}": (lambda x: function(x, keepdim=True), [torch.randn(shape)]) for shape in shapes}
    plain = {f"plain {shape}": (function, [torch.randn(shape)]) for shape in shapes}
    along = {"along": (lambda x: function(x, dim=0, keepdim=True), [torch.tensor(2.0)])}
    assert cases_unlike_eager(kept | plain | along) == []


def test_a_replicated_edge_that_is_cut_off_is_left_to_torch():
    x = torch.arange(8.0).reshape(1, 2, 4)
    pad = lambda x: functional.pad(x, (-4, 5), "replicate")  # noqa: E731
    assert unlike_eager(pad, x) == []


def test_an_operator_in_place_without_a_twin_of_its_overload():
    assert unlike_eager(lambda x, y: (x * 2).ldexp_(y), torch.tensor(1.5), torch.tensor(3.0)) == []


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_variance_without_degrees_of_freedom_is_infinite(dynamic):
    x = torch.arange(12.0).reshape(2, 6) ** 2

    def both(correction):
        return lambda x: (x.var(1, correction=correction), torch.std_mean(x, 1, correction=correction))

    cases = {f"correction {correction}": (both(correction), [x]) for correction in (5, 6, 7.5)}
    assert cases_unlike_eager(cases, dynamic=dynamic) == []


def test_numbers_of_two_types_are_chosen_from():
    flags = torch.tensor([True, False])
    assert unlike_eager(lambda c: (torch.where(c, 1, 2.0), torch.where(c, 1, 2)), flags) == []


@pytest.mark.parametrize("gradients", [False, True])
def test_columns_without_a_batch_are_folded(gradients):
    fold = lambda x: functional.fold(x, (4, 5), (2, 3), padding=(1, 0), stride=(2, 1))  # noqa: E731
    cases = {
        "square": (lambda x: functional.fold(x, (3, 3), 2), [torch.randn(4, 4)]),
        "padded": (fold, [torch.randn(12, 9)]),
    }
    assert cases_unlike_eager(cases, gradients=gradients) == []


def test_a_draw_in_place_has_its_default_probability():
    assert unlike_eager(lambda x: x.clone().bernoulli_(), torch.ones(40), random=True) == []


def test_gradients_of_bags_are_scaled_by_frequency():
    indices = torch.tensor([[1, 2, 1], [2, 2, 0]])

    def bag(mode):
        return lambda w: functional.embedding_bag(indices, w, scale_grad_by_freq=True, mode=mode)

    cases = {mode: (bag(mode), [torch.randn(4, 2)]) for mode in ("sum", "mean")}
    assert cases_unlike_eager(cases, gradients=True) == []


def test_bytes_are_interpolated_as_torch_rounds_them():
    x = (torch.arange(48) * 5).to(torch.uint8).reshape(1, 1, 6, 8)

    def resized(mode, size):
        return lambda x: functional.interpolate(x, size=size, mode=mode)

    cases = {
        f"{mode} {size}": (resized(mode, size), [x])
        for mode in ("bilinear", "bicubic")
        for size in ((4, 5), (9, 11))
    }
    assert cases_unlike_eager(cases) == []


@pytest.mark.filterwarnings("ignore:.*is deprecated on 0-D tensors")
def test_scalars_are_rows_of_one_element():
    functions = {
        "scatter": lambda x, y: torch.scatter(x, 0, torch.tensor(0), y) * 2,
        "scatter a vector": lambda x, y: torch.scatter(x, 0, torch.tensor([0]), y[None]),
        "scatter a number": lambda x, y: torch.scatter(x, 0, torch.tensor(0), 5.0) + y,
        "add": lambda x, y: torch.scatter_add(x, 0, torch.tensor(0), y),
        "add to a vector": lambda x, y: torch.scatter_add(x[None], 0, torch.tensor(0), y),
        "transposed": lambda x, y: (x.mT, y.mH * 2, y.adjoint() + x),
    }
    given = torch.tensor(1.5), torch.tensor(-2.0)
    assert cases_unlike_eager({name: (f, given) for name, f in functions.items()}, gradients=True) == []


def test_gradients_pass_through_the_roundings_of_fake_quantization():
    x = torch.linspace(-4.0, 4.0, 23)
    scales, zeros = torch.tensor([0.02] * 23), torch.zeros(23, dtype=torch.int32)
    functions = {
        "tensor": lambda x: torch.fake_quantize_per_tensor_affine(x, 0.02, 3, -128, 127),
        "channel": lambda x: torch.fake_quantize_per_channel_affine(x, scales, zeros, 0, -128, 127),
    }
    assert cases_unlike_eager({name: (f, [x]) for name, f in functions.items()}, gradients=True) == []


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
def test_a_variance_of_too_few_elements_has_torch_s_gradient():
    x = torch.tensor([0.5, 1.0, -2.0, 3.25, 4.0, -7.0])  # whose mean is no element

    def functions(correction):
        return {
            "var": lambda x: torch.var(x, 0, correction=correction),
            "std": lambda x: torch.std(x, 0, correction=correction),
            "var_mean": lambda x: torch.var_mean(x, 0, correction=correction)[0],
        }

    cases = {f"{name} {c}": (f, [x]) for c in (6, 7, 9) for name, f in functions(c).items()}
    assert cases_unlike_eager(cases, gradients=True) == []


def test_a_part_that_starts_from_the_end():
    x = torch.arange(10.0).reshape(5, 2)

    def part(start, length):
        return lambda x: torch.narrow(x, 0, start, length) * 2

    parts = ((-3, 3), (-3, 2), (-5, 5), (2, 3), (0, 0), (-2, 0))
    assert cases_unlike_eager({f"{p}": (part(*p), [x]) for p in parts}, gradients=True) == []


@pytest.mark.parametrize("dynamic", [False, True])
def test_rows_that_are_filled_count_from_either_end(dynamic):
    x, rows = torch.randn(4, 5, 3), torch.tensor([0, -1, -3])
    assert unlike_eager(lambda x, i: x.index_fill(1, i, 2.5), x, rows, gradients=True, dynamic=dynamic) == []
    assert (
        unlike_eager(lambda x, i, v: x.index_fill(-1, i, v), x, rows, torch.tensor(2.0), dynamic=dynamic)
        == []
    )
    for outside in (5, -6):
        places = torch.tensor([outside, 0])
        assert unlike_eager(lambda x, i: x.index_fill(1, i, 2.5), x, places, dynamic=dynamic) == []


@pytest.mark.parametrize("index", [6, -1, -7, 12])
def test_an_index_outside_of_its_image_is_no_place_to_unpool_to(index):
    x = torch.randn(1, 2, 3)
    places = torch.tensor([[[0, 2, index], [1, 3, 5]]])
    compiled = daceml.compile(Function(lambda x, i: functional.max_unpool1d(x, i, 2)), backward=False)
    good = places.clamp(0, 5)
    assert torch.equal(compiled(x, good), functional.max_unpool1d(x, good, 2))
    for call in (compiled, lambda x, i: functional.max_unpool1d(x, i, 2)):
        with pytest.raises((RuntimeError, PositionError)):
            call(x, places)


def test_what_was_pooled_is_placed_back():
    def there_and_back(shape):
        pool, unpool = (
            (functional.max_pool3d, functional.max_unpool3d)
            if len(shape) == 5
            else (functional.max_pool2d, functional.max_unpool2d)
        )
        return lambda x: unpool(*pool(x, 2, return_indices=True), 2)

    shapes = ((2, 3, 4, 6), (3, 4, 6), (1, 2, 4, 4, 6))
    cases = {f"{shape}": (there_and_back(shape), [torch.randn(shape)]) for shape in shapes}
    assert cases_unlike_eager(cases, gradients=True) == []


def test_the_gradient_of_an_entropy_is_infinite_at_zero():
    x = torch.tensor([0.0, -0.0, INF, -INF, NAN, 1.0, 2.0, 1e-3, -1.0])
    types = (torch.float32, torch.float64, torch.bfloat16)
    cases = {f"{dtype}": (torch.special.entr, [x.to(dtype)]) for dtype in types}
    assert cases_unlike_eager(cases, gradients=True) == []


def test_nan_has_no_gradient_through_bounds():
    """As in eager's vector loop; in eager's loop over a rest that fills no vector it keeps its gradient."""
    x = torch.tensor([NAN, 0.5, -3.0, 9.0, 1.0, -1.0, 6.0, 0.0] * 8)
    cases = {f.__name__: (f, [x]) for f in (functional.hardtanh, functional.relu6)}
    assert cases_unlike_eager(cases, gradients=True) == []
