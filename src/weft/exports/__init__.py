"""Models for other programs: ONNX, CTranslate2 and GGUF. Written from weft's own weights, checked in their runtimes."""
