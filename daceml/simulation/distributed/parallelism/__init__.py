"""Steps of training with data, tensor and pipeline parallelism, made from tables instead of traces."""
