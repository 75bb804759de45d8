"""Exported classifiers without torch and transformers: numpy, Pillow, tokenizers, onnxruntime.

from shotfit.runtime import ExportedClassifier

classifier = ExportedClassifier.load("my-classifier-onnx")
classifier.predict("photo.jpg")
"""

from shotfit.runtime.classifier import ExportedClassifier

__all__ = ["ExportedClassifier"]
