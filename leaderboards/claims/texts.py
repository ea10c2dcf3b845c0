"""The texts whose claims are put to the test."""

from leaderboards.claims.declaration import Text

F = Text("F", "KV Cache is More Robust Than You Think", "Qwen2.5 1.5B and 7B, GSM8K")
E = Text("E", "Effect of KV Cache Error on Inference Accuracy", "Llama 3.2 1B, IFEval and next tokens")
R = Text("R", "arXiv 2603.01426 (routing, Global Eviction Ratio)", "Llama 3 and Qwen 2.5, 3 to 14 B")
N = Text("N", "arXiv 2604.15409 (decoding with and without the cache)", "Llama 2 7B, Mistral 7B and Gemma 2 2B, GSM8K")
P = Text("P", "arXiv 2510.00231 (pitfalls of KV cache compression)", "Llama 3.1 8B and Qwen 2.5 14B, IFEval")
