"""Models of other libraries: transformers, timm, torchvision, torch_geometric and torchaudio."""
