"""Models drawn by a seed from all that timm, torchvision and transformers can make by name.

Those of timm and torchvision are as they are, the smallest one of a few of each of timm's families. Those
of transformers have configurations of two narrow layers: attributes with the names of sizes have small
ones. What cannot be made so, or takes other inputs than tokens, images or sound, is "not made".
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable
from functools import partial
from importlib import import_module
from itertools import zip_longest
from typing import Any

import torch
from torch import nn

from benchmarks.strangers.stranger import Inputs, Stranger, images

_IMAGE_SIZES = (64, 96, 128, 224, 288)
_MOST_PARAMETERS = 60_000_000
_OF_A_FAMILY = 8  # models of which the smallest stands for a family of timm
_SIZES: dict[str, Any] = {
    name: size
    for size, names in {
        1: "n_group topk_group first_k_dense_replace bos_token_id",
        2: "num_hidden_layers n_layer num_layers n_layers encoder_layers decoder_layers num_decoder_layers "
        "num_key_value_heads num_experts_per_tok eos_token_id decoder_start_token_id",
        4: "num_attention_heads n_head num_heads n_heads encoder_attention_heads decoder_attention_heads "
        "num_experts num_local_experts n_routed_experts window_size",
        8: "head_dim d_kv d_head qk_rope_head_dim qk_nope_head_dim v_head_dim patch_size state_size "
        "sliding_window",
        16: "q_lora_rank kv_lora_rank moe_intermediate_size projection_dim num_mel_bins max_source_positions "
        "decoder_hidden_size",
        32: "hidden_size d_model dim n_embd embed_dim embedding_size hidden_dim image_size "
        "max_target_positions word_embed_proj_dim shared_expert_intermediate_size",
        64: "intermediate_size encoder_ffn_dim decoder_ffn_dim d_ff ffn_dim d_inner ffn_hidden_size "
        "max_position_embeddings n_positions",
        100: "vocab_size",
        0: "pad_token_id",
    }.items()
    for name in names.split()
} | {"use_cache": False}


def drawn(count: int, seed: int) -> list[str]:
    """Names of as many models, of the libraries in turn; the same ones for a seed and their versions."""
    timm, torchvision = import_module("timm"), import_module("torchvision")
    tables = import_module("transformers.models.auto.modeling_auto")
    known = {
        "timm": [family for family in timm.list_modules() if timm.list_models(module=family)],
        "torchvision": [name for name in torchvision.models.list_models() if "quantized" not in name],
        "transformers": list(tables.MODEL_MAPPING_NAMES),
    }
    order = random.Random(seed)
    shuffled = [
        [f"{library} {name}" for name in order.sample(sorted(names), len(names))]
        for library, names in known.items()
    ]
    in_turn = [name for row in zip_longest(*shuffled) for name in row if name is not None]
    return in_turn[:count]


def stranger(name: str) -> Stranger:
    """A drawn model.

    Raises:
        Exception: it cannot be made.
    """
    library, _, known = name.partition(" ")
    return {"timm": _of_timm, "torchvision": _of_torchvision, "transformers": _of_transformers}[library](
        known
    )


def _of_timm(family: str) -> Stranger:
    timm = import_module("timm")
    known: list[str] = timm.list_models(module=family)
    some = random.Random(0).sample(known, min(_OF_A_FAMILY, len(known)))

    def parameters(name: str) -> int:
        with torch.device("meta"):
            return sum(p.numel() for p in timm.create_model(name).parameters())

    name = min(some, key=parameters)

    def make(size: int) -> nn.Module:
        torch.manual_seed(0)
        try:
            return timm.create_model(name, num_classes=10, img_size=size)
        except TypeError:  # it takes images of any size
            return timm.create_model(name, num_classes=10)

    return _of_images(f"timm {family}", make)


def _of_torchvision(name: str) -> Stranger:
    models = import_module("torchvision").models
    builder = models.get_model_builder(name)
    options: dict[str, Any] = {"weights": None}
    if "weights_backbone" in inspect.signature(builder).parameters:
        options["weights_backbone"] = None

    def make(size: int) -> nn.Module:
        torch.manual_seed(0)
        return builder(**options)

    return _of_images(f"torchvision {name}", make)


def _of_images(name: str, make: Callable[[int], nn.Module]) -> Stranger:
    """With the smallest images that it takes."""
    refusals: list[str] = []
    for size in _IMAGE_SIZES:
        try:
            module = _small(make(size)).eval()
            with torch.no_grad():
                module(torch.randn(1, 3, size, size))
        except Exception as error:
            refusals.append(f"{size}: {error}")
            continue
        return Stranger(name=name, make=partial(make, size), inputs=images(size))
    raise ValueError(f"{name} takes no images of {_IMAGE_SIZES} pixels: {refusals[-1]}")


def _small(module: nn.Module) -> nn.Module:
    count = sum(parameter.numel() for parameter in module.parameters())
    if count > _MOST_PARAMETERS:
        raise ValueError(f"it has {count} parameters, more than {_MOST_PARAMETERS}")
    return module


def _of_transformers(kind: str) -> Stranger:
    transformers = import_module("transformers")
    configurations = import_module("transformers.models.auto.configuration_auto").CONFIG_MAPPING
    tables = import_module("transformers.models.auto.modeling_auto")
    wanted = (
        tables.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        tables.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
        tables.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES,
        tables.MODEL_MAPPING_NAMES,
    )
    found = next(table[kind] for table in wanted if kind in table)
    model = getattr(transformers, found if isinstance(found, str) else found[0])

    def make() -> nn.Module:
        torch.manual_seed(0)
        return _small(model(_narrow(configurations[kind])))

    return Stranger(
        name=f"transformers {kind}",
        make=make,
        inputs=lambda batch: _inputs(model, _narrow(configurations[kind]), batch),
    )


def _narrow(kind: type[Any]) -> Any:
    """A configuration with small sizes, and so are those of its parts."""
    whole = kind()
    values = whole.to_dict()
    given = {
        name: size
        for name, size in _SIZES.items()
        if isinstance(values.get(name), int | float) or (name in values and name == "num_key_value_heads")
    }
    for name in getattr(kind, "sub_configs", None) or {}:
        part = getattr(whole, name, None)
        if hasattr(part, "to_dict"):
            given[name] = _narrow(type(part)).to_dict()
    return kind(**given)


def _inputs(model: type[Any], configuration: Any, batch: int) -> Inputs:
    taken = inspect.signature(model.forward).parameters
    main = getattr(model, "main_input_name", "input_ids")
    found: dict[str, Any]
    if main == "input_ids":
        found = {main: torch.randint(3, 100, (batch, 16))}
        if "attention_mask" in taken:
            found["attention_mask"] = torch.ones(batch, 16, dtype=torch.int64)
            found["attention_mask"][0, :5] = 0  # padding on the left
        if "pixel_values" in taken and "CausalLM" not in model.__name__:
            found["pixel_values"] = torch.randn(batch, 3, 32, 32)
    elif main == "pixel_values":
        size = getattr(configuration, "image_size", 64)
        size = size if isinstance(size, int) else size[0]
        found = {main: torch.randn(batch, getattr(configuration, "num_channels", 3), size, size)}
    elif main == "input_values":
        found = {main: torch.randn(batch, 4000)}
    elif main == "input_features":
        found = {main: torch.randn(batch, getattr(configuration, "num_mel_bins", 16), 32)}
    else:
        raise ValueError(f"its input is {main}")
    if "decoder_input_ids" in taken:
        found["decoder_input_ids"] = torch.randint(3, 100, (batch, 12))
    return {**found, "use_cache": False} if "use_cache" in taken else found
