"""The titles of the papers that policies name, where they are known to us."""

from collections.abc import Mapping

TITLES: Mapping[str, str] = {
    "arXiv 2306.14048": "H2O: Heavy-Hitter Oracle for Efficient Generative Inference of Large Language Models",
    "arXiv 2309.06180": "Efficient Memory Management for Large Language Model Serving with PagedAttention",
    "arXiv 2309.17453": "Efficient Streaming Language Models with Attention Sinks",
    "arXiv 2401.06104": "Transformers are Multi-State RNNs",
    "arXiv 2404.14469": "SnapKV: LLM Knows What You are Looking for Before Generation",
    "arXiv 2406.02069": "PyramidKV: Dynamic KV Cache Compression based on Pyramidal Information Funneling",
    "arXiv 2406.11430": "A Simple and Effective L2 Norm-Based Strategy for KV Cache Compression",
    "arXiv 2406.13035": "D2O: Dynamic Discriminative Operations for Efficient Generative Inference of "
    "Large Language Models",
    "arXiv 2407.11550": "Ada-KV: Optimizing KV Cache Eviction by Adaptive Budget Allocation for "
    "Efficient LLM Inference",
    "arXiv 2407.21018": "ThinK: Thinner Key Cache by Query-Driven Pruning",
    "arXiv 2410.10819": "DuoAttention: Efficient Long-Context LLM Inference with Retrieval and Streaming Heads",
    "arXiv 2410.13846": "SimLayerKV: A Simple Framework for Layer-Level KV Cache Reduction",
    "arXiv 2502.00299": "ChunkKV: Semantic-Preserving KV Cache Compression for Efficient Long-Context LLM Inference",
    "arXiv 2502.03805": "Identify Critical KV Cache in LLM Inference from an Output Perturbation Perspective",
    "arXiv 2503.02812": "Q-Filters: Leveraging QK Geometry for Efficient KV Cache Compression",
    "arXiv 2504.04704": "LagKV: Lag-Relative Information of the KV Cache Tells Which Tokens Are Important",
    "arXiv 2504.15364": "KeyDiff: Key Similarity-Based KV Cache Eviction for Long-Context LLM Inference in "
    "Resource-Constrained Environments",
    "arXiv 2505.23416": "KVzip: Query-Agnostic KV Cache Compression with Context Reconstruction",
    "arXiv 2506.05345": "Inference-Time Hyper-Scaling with KV Cache Compression",
    "arXiv 2507.08143": "Compactor: Calibrated Query-Agnostic KV Cache Compression with Approximate Leverage Scores",
    "arXiv 2509.04377": "PagedEviction: Structured Block-wise KV Cache Pruning for Efficient "
    "Large Language Model Inference",
    "arXiv 2509.05165": "KVCompose: Efficient Structured KV Cache Compression with Composite Tokens",
    "arXiv 2509.15038": "Value-Guided KV Compression for LLMs via Approximated CUR Decomposition",
    "arXiv 2510.00231": "The Pitfalls of KV Cache Compression",
    "arXiv 2510.00636": "Expected Attention: KV Cache Compression by Estimating Attention from Future "
    "Queries Distribution",
    "arXiv 2601.07891": "KVzap: Fast, Adaptive, and Faithful KV Cache Pruning",
    "arXiv 2601.17668": "Fast KVzip: Efficient and Accurate LLM Inference with Gated KV Eviction",
    "arXiv 2602.08585": "Predicting Future Utility: Global Combinatorial Optimization for Task-Agnostic "
    "KV Cache Eviction",
    "arXiv 2604.25975": "Rethinking KV Cache Eviction via a Unified Information-Theoretic Objective",
    "doi 10.1162/tacl_a_00716": "FINCH: Prompt-guided Key-Value Cache Compression for Large Language Models",
    "openreview LCTmppB165": "CaM: Cache Merging for Memory-efficient LLMs Inference",
}
