"""Models that nobody here chose, from transformers, timm, torchvision, torch_geometric and torchaudio."""
