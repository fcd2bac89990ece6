"""What users hold: `DaceModule`, `ONNXModel`, `StandaloneSDFG`, the Dynamo backend."""
