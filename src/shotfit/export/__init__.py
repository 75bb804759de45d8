"""A fitted classifier for other programs: ONNX, a plain transformers checkpoint, a PEFT adapter."""
