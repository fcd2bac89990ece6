"""Every model, by name."""

from __future__ import annotations

from benchmarks.strangers import from_graphs_and_sound, from_transformers, from_vision

MODELS = {
    model.name: model
    for model in (*from_transformers.MODELS, *from_vision.MODELS, *from_graphs_and_sound.MODELS)
}
