"""Attention against torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from tests.onnx_ops.native.single_node import Case, Outcome, random
from tests.support.sampling import slowed

t = torch.from_numpy
Q, K, V = random(2, 4, 5, 8), random(2, 4, 7, 8, seed=1), random(2, 4, 7, 6, seed=2)
GROUPED = K[:, :2].copy(), V[:, :2].copy()
FLOAT_MASK, BOOL_MASK = random(5, 7, seed=3), random(2, 1, 5, 7, seed=4) > -0.5
BOOL_MASK[1, 0, 3] = False


def attention(q=Q, k=K, v=V, mask=None, causal=False, **attributes) -> Case:
    expected = functional.scaled_dot_product_attention(
        t(q),
        t(k),
        t(v),
        None if mask is None else t(mask),
        is_causal=causal,
        scale=attributes.get("scale"),
        enable_gqa=q.shape[1] != k.shape[1],
    )
    return Case(
        op="Attention",
        inputs=[q, k, v] if mask is None else [q, k, v, mask],
        attributes={"is_causal": int(causal), **attributes},
        expected=[expected.numpy()],
        version=23,
    )


def flat(x: np.ndarray) -> np.ndarray:
    return x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], -1).copy()


PAST = random(2, 4, 3, 8, seed=7), random(2, 4, 3, 6, seed=8)
JOINED = np.concatenate([PAST[0], K], 2), np.concatenate([PAST[1], V], 2)
LENGTHS = np.array([3, 5], np.int64)
MASK = random(Q.shape[2], K.shape[2], seed=21)


def with_scores(
    mode: int, cap: float, mask: np.ndarray | None = None, is_causal: int = 0
) -> list[np.ndarray | None]:
    """The result, and the matrix of scores after a step: products, softcap, mask, softmax; from the words."""
    products = Q @ K.swapaxes(-1, -2) / np.sqrt(Q.shape[-1])
    capped = np.tanh(products / cap) * cap if cap else products
    masked = capped if mask is None else capped + mask
    if is_causal:
        rows, columns = np.ogrid[: Q.shape[2], : K.shape[2]]
        masked = np.where(columns <= rows, masked, -np.inf)
    weights = torch.softmax(t(masked), -1).numpy()
    return [weights @ V, None, None, (products, capped, masked, weights)[mode].astype(np.float32)]


CASES = {
    "plain": attention(),
    "scale": attention(scale=0.3),
    "causal": attention(causal=True),
    "float mask": attention(mask=FLOAT_MASK),
    "boolean mask, one row empty": attention(mask=BOOL_MASK),
    "grouped heads": attention(k=GROUPED[0], v=GROUPED[1]),
    "rank 3": Case(
        op="Attention",
        inputs=[flat(Q), flat(K), flat(V)],
        attributes={"q_num_heads": 4, "kv_num_heads": 4},
        expected=[flat(functional.scaled_dot_product_attention(t(Q), t(K), t(V)).numpy())],
        version=23,
    ),
    "rank 3 grouped": Case(
        op="Attention",
        inputs=[flat(Q), flat(GROUPED[0]), flat(GROUPED[1])],
        version=23,
        attributes={"q_num_heads": 4, "kv_num_heads": 2},
    ),
    "softcap": Case(op="Attention", inputs=[Q, K, V], attributes={"softcap": 2.0}, version=23),
    "cache": Case(
        op="Attention",
        inputs=[Q, K, V, None, *PAST],
        version=23,
        expected=[functional.scaled_dot_product_attention(t(Q), t(JOINED[0]), t(JOINED[1])).numpy(), *JOINED],
    ),
    **{
        f"scores after step {mode}, {title}": Case(
            op="Attention",
            inputs=[Q, K, V, *further],
            attributes={"qk_matmul_output_mode": mode, "softcap": cap} | attributes,
            version=24,
            expected=with_scores(mode, cap, *further, **attributes),
        )
        for mode in range(4)
        for cap in (0.0, 1.5)
        for title, further, attributes in (
            (f"softcap {cap}", (), {}),
            (f"softcap {cap}, masked", (MASK,), {}),
            (f"softcap {cap}, causal", (), {"is_causal": 1}),
        )
    },
    "keys of each sample that are padding": Case(
        op="Attention", inputs=[Q, K, V, None, None, None, LENGTHS], version=24
    ),
    "the same, causal": Case(
        op="Attention",
        inputs=[Q, K, V, None, None, None, LENGTHS],
        attributes={"is_causal": 1},
        version=24,
    ),
    **{
        f"a window of {left} and {right}, causal {causal}": Case(
            op="Attention",
            inputs=[Q, K, V],
            attributes={"left_window_size": left, "right_window_size": right, "is_causal": causal},
            version=25,
        )
        for left, right, causal in ((1, 0, 0), (2, -1, 0), (-1, 1, 0), (1, 1, 1))
    },
    "a window behind a cache": Case(
        op="Attention",
        inputs=[Q, K, V, None, *PAST],
        attributes={"left_window_size": 2, "right_window_size": 1},
        version=25,
        outputs=3,
    ),
    **{
        f"a mask of {width} columns, {np.dtype(kind).name}": Case(
            op="Attention",
            inputs=[Q, K, V, (MASK[..., :width] > 0) if kind is bool else MASK[..., :width]],
            version=24,
        )
        for width in (2, 3)
        for kind in (bool, np.float32)
    },
    "symbolic": Case(
        op="Attention",
        inputs=[random(3, 2, 11, 4)] * 3,
        attributes={"is_causal": 1},
        version=23,
        symbolic={3: "B", 11: "S"},
    ),
    "float16": Case(
        op="Attention",
        inputs=[Q.astype(np.float16), K.astype(np.float16), V.astype(np.float16)],
        version=23,
        expected=[functional.scaled_dot_product_attention(t(Q), t(K), t(V)).numpy().astype(np.float16)],
        rtol=1e-2,
        atol=2e-3,
    ),
}


# parts of cases that stay: scores of each step come with a cap and a mask, and causal
SLOW = (
    "rank 3",
    "softcap",
    "a window of 2 and -1, causal 0",
    "a mask of 2 columns, float32",
    "a mask of 3 columns, bool",
    *(
        f"scores after step {mode}, {how}"
        for mode in range(4)
        for how in ("softcap 0.0", "softcap 0.0, masked", "softcap 1.5", "softcap 1.5, causal")
    ),
)


@pytest.mark.parametrize("title", slowed(CASES, *SLOW))
def test_values(outcome: Outcome) -> None:
    outcome.check()
