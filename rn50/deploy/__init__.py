"""The verbs after training: export weights as an ONNX model, quantise it, evaluate it, and time models on
inference engines."""
