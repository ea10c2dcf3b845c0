"""Reads models in GGUF, the one-file format of llama.cpp."""
