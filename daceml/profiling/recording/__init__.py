"""Recording a training run with torch's profiler, so that it can be studied without torch."""
