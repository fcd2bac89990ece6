"""What a rank computes of a transformer, as operators, and where its tensor-parallel group must meet.

A layer as Megatron-LM shares it (Shoeybi et al., 2019, section 3): the first product of attention and of the
feed-forward network is split by columns, the second by rows, and an all-reduce follows each of the two; its
backward has two more, in front of what came before. Normalisations, residuals and their dropout are done by
every rank. Fused kernels stand as the framework's operator that moves as many bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from daceml.operations.database.records import Operand, Operation
from daceml.simulation.distributed.parallelism.transformer import Transformer

MASTER = "float32"  # of the optimizer's copy of the weights, and its moments

# What Megatron-LM's fused kernel takes: a multiple of so many matrices of scores, rows of at most so many
_FUSED_SCORES, _FUSED_ROW = 4, 2048

# Partial sums of the gradients of scale and shift, these, and the gradient of the input (NVIDIA/apex,
# csrc/layer_norm_cuda_kernel.cu, HostLayerNormGradient). All others launch one.
_LAUNCHES = {"aten::native_layer_norm_backward": 3}

# Small kernels, by Megatron-LM v2.4. Of a batch: sizes and tokens are copied and broadcast (mpu/data.py: 5),
# split (pretrain_gpt.py: 2), masked and numbered (utils.py, get_ltor_masks_and_position_ids: 7).
_OF_BATCH = 14
# Words of other ranks are masked (mpu/layers.py), and the result turned.
_OF_WORDS, _OF_TURNING = 7, 1
# Where the answer is, and the loss of a token (mpu/cross_entropy.py: 12); its mean by the mask, over replicas
# and micro-batches, scaled (pretrain_gpt.py, schedules.py: 9). Backward: these (6), where the answer is (6),
# and what turns (3).
_OF_LOSS, _OF_LOSS_BACKWARD = 21, 15
# Words are sorted, and equal ones added up, and so are positions (torch, EmbeddingBackwardKernel.cu).
_OF_EMBEDDING_BACKWARD = 11


@dataclass(frozen=True, kw_only=True)
class Block:
    """Operators in a row.

    Attributes:
        reduced_bytes: of the all-reduce over the tensor-parallel group behind them; 0 for none.
        small: kernels besides, for masks, positions, indices and single numbers: a host has to launch them,
            and a device has next to nothing to do.
        waits: the host waits for its device before: it asks for a result.
    """

    name: str
    operations: tuple[Operation, ...]
    reduced_bytes: float = 0.0
    small: int = 0
    waits: bool = False

    @property
    def launches(self) -> int:
        """Kernels that a host launches for them, and for the all-reduce."""
        return sum(map(launches_of, self.operations)) + self.small + (self.reduced_bytes > 0)


def launches_of(operation: Operation) -> int:
    """Kernels of one operator."""
    return _LAUNCHES.get(operation.operator, 1)


@dataclass(frozen=True, kw_only=True)
class Share:
    """What a rank has of a transformer's work on one micro-batch."""

    model: Transformer
    micro_batch: int
    tensor: int

    @property
    def tokens(self) -> int:
        return self.micro_batch * self.model.sequence

    @property
    def boundary_bytes(self) -> float:
        """Of the activations between two layers."""
        return float(self._tensor(self.tokens, self.model.hidden).size_bytes)

    def layer_forward(self) -> tuple[Block, ...]:
        """Attention, then the feed-forward network; each begins with the residual of what came before."""
        h, wide, narrow = self.model.hidden, 4 * self.model.hidden // self.tensor, self._narrow
        scores, heads = self._scores, self._heads
        attention = (
            self._residual(),
            self._normalisation(),
            self._linear(3 * narrow, h),
            self._op("aten::add", (self.tokens, 3 * narrow), (3 * narrow,)),
            self._op("aten::bmm", heads, (heads[0], heads[2], heads[1])),
            *self._softmax("aten::_softmax", (scores,)),
            self._op("aten::native_dropout", scores),
            self._op("aten::bmm", scores, heads),
            self._op("aten::clone", (self.tokens, narrow)),
            self._linear(h, narrow),
        )
        feed_forward = (
            self._residual(),
            self._normalisation(),
            self._linear(wide, h),
            self._op("aten::gelu", (self.tokens, wide)),
            self._linear(h, wide),
        )
        return self._shared("attention", attention), self._shared("feed-forward", feed_forward)

    def layer_backward(self) -> tuple[Block, ...]:
        """The feed-forward network, then attention; each product has two, of its input and its weight.

        Gradients of parameters are added to those of the micro-batches before.
        """
        h, wide, narrow = self.model.hidden, 4 * self.model.hidden // self.tensor, self._narrow
        scores, heads = self._scores, self._heads
        turned = (heads[0], heads[2], heads[1])
        feed_forward = (
            *self._residual_backward(),
            *self._linear_backward(h, wide),
            self._op("aten::gelu_backward", (self.tokens, wide), (self.tokens, wide)),
            self._sum(wide),
            *self._linear_backward(wide, h),
            *map(self._added, ((wide, h), (wide,), (h, wide), (h,))),
        )
        attention = (
            self._normalisation_backward(),
            self._residual(),
            *self._residual_backward(),
            *self._linear_backward(h, narrow),
            self._op("aten::bmm", heads, turned),
            self._op("aten::bmm", scores, heads),
            self._dropout_backward(scores),
            *self._softmax("aten::_softmax_backward_data", (scores, scores)),
            *(self._op("aten::bmm", scores, heads), self._op("aten::mul", heads)) * 2,
            self._op("aten::clone", (self.tokens, 3 * narrow)),
            *self._linear_backward(3 * narrow, h),
            self._sum(3 * narrow),
            self._normalisation_backward(),
            self._residual(),
            *map(self._added, ((3 * narrow, h), (3 * narrow,), (h, narrow), *((h,),) * 5)),
        )
        return self._shared("feed-forward", feed_forward), self._shared("attention", attention)

    def embedding_forward(self) -> Block:
        """Words and positions."""
        h = self.model.hidden
        words = self._op("aten::embedding", (self.model.words_of(self.tensor), h), (self.tokens,))
        rest = (self._residual(), self._op("aten::native_dropout", (self.tokens, h)))
        small = _OF_BATCH + _OF_TURNING + (_OF_WORDS if self.tensor > 1 else 0)
        return self._shared("embedding", (words, *rest), small)

    def embedding_backward(self) -> Block:
        """Gradients are added up where the words are."""
        h = self.model.hidden
        words = self._added((self.model.words_of(self.tensor), h))
        operations = (self._dropout_backward((self.tokens, h)), self._residual(), words)
        return Block(name="embedding", operations=operations, small=_OF_EMBEDDING_BACKWARD)

    def head_forward(self, *, batch: bool) -> tuple[Block, Block]:
        """A last normalisation and the scores of all words, then their loss in float32, as Megatron-LM does.

        Its vocab-parallel cross entropy (mpu/cross_entropy.py) finds the largest score of each token, takes
        it off, sums exponentials, and divides them by their sum. In between it writes where a mask says, for
        which torch asks the device how often that is.

        Args:
            batch: whether it reads the answers by itself, as a stage does that has not read the words.
        """
        logits = (self.tokens, self.model.words_of(self.tensor))
        wide = Operand(shape=logits, dtype="float32")
        row = Operand(shape=(self.tokens, 1), dtype="float32")
        # a maximum reads and writes as much as a sum
        summed = Operation(operator="aten::sum", operands=(wide,), attributes={"dim": (1,)})
        scores = (
            *(self._residual(), self._normalisation(), self._linear(logits[1], self.model.hidden)),
            Operation(operator="aten::copy_", operands=(wide, self._tensor(*logits))),
            summed,
        )
        loss = (
            Operation(operator="aten::sub", operands=(wide, row)),
            Operation(operator="aten::exp", operands=(wide,)),
            summed,
            Operation(operator="aten::div", operands=(wide, row)),
        )
        shared = self.tensor > 1
        # the largest score; then the score of the answer and the sum, float32 each
        return (
            Block(
                name="head", operations=scores, reduced_bytes=4.0 * self.tokens * shared,
                small=_OF_BATCH if batch else 0,
            ),
            Block(
                name="loss", operations=loss, reduced_bytes=8.0 * self.tokens * shared, small=_OF_LOSS,
                waits=True,
            ),
        )  # fmt: skip

    def head_backward(self) -> Block:
        """Of the loss, of the product, and of the last normalisation."""
        words, h = self.model.words_of(self.tensor), self.model.hidden
        wide = Operand(shape=(self.tokens, words), dtype="float32")
        operations = (
            Operation(operator="aten::mul", operands=(wide,)),
            Operation(operator="aten::copy_", operands=(self._tensor(self.tokens, words), wide)),
            *self._linear_backward(words, h),
            self._added((words, h)),
            self._normalisation_backward(),
        )
        return self._shared("head", operations, _OF_LOSS_BACKWARD)

    def _shared(self, name: str, operations: tuple[Operation, ...], small: int = 0) -> Block:
        reduced = self.boundary_bytes if self.tensor > 1 else 0.0
        return Block(name=name, operations=operations, reduced_bytes=reduced, small=small)

    @property
    def _narrow(self) -> int:
        return self.model.heads_of(self.tensor) * self.model.head_size

    @property
    def _heads(self) -> tuple[int, int, int]:
        count = self.micro_batch * self.model.heads_of(self.tensor)
        return count, self.model.sequence, self.model.head_size

    @property
    def _scores(self) -> tuple[int, int, int]:
        return self._heads[0], self.model.sequence, self.model.sequence

    @property
    def _below_diagonal(self) -> tuple[int, int, int]:
        """As many scores as a causal mask leaves."""
        count, rows, columns = self._scores
        return count, rows, (columns + 1) // 2

    def _tensor(self, *shape: int) -> Operand:
        return Operand(shape=shape, dtype=self.model.dtype)

    def _op(self, operator: str, *shapes: tuple[int, ...]) -> Operation:
        return Operation(operator=operator, operands=tuple(self._tensor(*shape) for shape in shapes))

    def _linear(self, columns: int, inner: int) -> Operation:
        return self._op("aten::linear", (self.tokens, inner), (columns, inner))

    def _linear_backward(self, columns: int, inner: int) -> tuple[Operation, Operation]:
        """dX = dY W and dW = dYᵀ X, as `aten::linear` of operands that lie otherwise."""
        of_input = self._op("aten::linear", (self.tokens, columns), (inner, columns))
        of_weight = self._op("aten::linear", (columns, self.tokens), (inner, self.tokens))
        return of_input, of_weight

    def _residual(self) -> Operation:
        shape = (self.tokens, self.model.hidden)
        return self._op("aten::add", shape, shape)

    def _normalisation(self) -> Operation:
        h = self.model.hidden
        return self._op("aten::native_layer_norm", (self.tokens, h), (h,), (h,))

    def _normalisation_backward(self) -> Operation:
        h = self.model.hidden
        shape = (self.tokens, h)
        return self._op("aten::native_layer_norm_backward", shape, shape, (h,), (h,))

    def _dropout_backward(self, shape: tuple[int, ...]) -> Operation:
        mask = Operand(shape=shape, dtype="bool")
        return Operation(operator="aten::native_dropout_backward", operands=(self._tensor(*shape), mask))

    def _residual_backward(self) -> tuple[Operation, Operation]:
        """Of its dropout, and of the bias in front of that."""
        return self._dropout_backward((self.tokens, self.model.hidden)), self._sum(self.model.hidden)

    def _softmax(self, operator: str, shapes: tuple[tuple[int, ...], ...]) -> tuple[Operation, ...]:
        """One kernel with scale and mask, which takes scores by the four (Megatron-LM, fused_softmax.py).

        It writes all scores and reads those that the mask leaves: as a copy from half as many. Otherwise
        scores become float32, are scaled, masked and narrowed again.
        """
        if self._heads[0] % _FUSED_SCORES == 0 and self.model.sequence <= _FUSED_ROW:
            return (self._op("aten::copy_", self._scores, *(self._below_diagonal for _ in shapes)),)
        wide = Operand(shape=self._scores, dtype="float32")
        narrow = self._tensor(*self._scores)
        return (
            Operation(operator="aten::copy_", operands=(wide, narrow)),
            Operation(operator="aten::mul", operands=(wide,)),
            Operation(operator="aten::mul", operands=(wide,)),
            Operation(operator=operator, operands=(wide,) * len(shapes)),
            Operation(operator="aten::copy_", operands=(narrow, wide)),
        )

    def _added(self, shape: tuple[int, ...]) -> Operation:
        """The gradient of a parameter, to what there is of it."""
        return self._op("aten::add", shape, shape)

    def _sum(self, columns: int) -> Operation:
        """The gradient of a bias."""
        operand = self._tensor(self.tokens, columns)
        return Operation(operator="aten::sum", operands=(operand,), attributes={"dim": (0,)})


def optimizer(parameters: int, dtype: str) -> Block:
    """Adam in mixed precision on so many parameters of a rank: in float32, and weights narrow again."""
    master = Operand(shape=(parameters,), dtype=MASTER)
    narrow = Operand(shape=(parameters,), dtype=dtype)
    return Block(
        name="optimizer",
        operations=(
            Operation(operator="aten::copy_", operands=(master, narrow)),
            Operation(operator="aten::linalg_vector_norm", operands=(master,)),
            Operation(operator="aten::mul", operands=(master,)),  # clipped by the norm
            Operation(operator="aten::_fused_adam", operands=(master,) * 4, attributes={"self": 1}),
            Operation(operator="aten::copy_", operands=(narrow, master)),
        ),
    )
