"""Names: of policies that mean something wherever policies are named, of papers, and of what is
declared by name."""

import re
from collections.abc import Iterable, Mapping
from typing import Protocol, TypeVar

FULL, ORACLE, RANDOM, RECENCY = "full", "oracle", "random", "recency"
REFERENCES = (FULL, ORACLE, RANDOM, RECENCY)  # of every run
# Have no rank; the last one is in a run that names no policies.
CONTROLS = (*REFERENCES, "random+ends")
TO_BEAT = (RANDOM, RECENCY)  # a method that is no better than these should look like it
PLAIN = "plain"  # the way of a policy that protects nothing
# As policies are named; a plug-in with arguments ends with a bracket.
# The first part is greedy: of ``snapkv+pages16+int4`` the way is ``int4``, and the rest is the
# plain policy, which is split in its turn.
PROTECTED = re.compile(r"(?P<plain>.+)\+(?P<way>[a-z][a-z0-9._-]*(\([^()]*\))?)")


class PolicyError(ValueError):
    """A policy that is not known, or that cannot treat this context; one line that says what to
    do."""


class BrokenPlugInError(PolicyError):
    """A plug-in that is there and cannot be used: a run records it as failed, and all others go
    on."""


class LevelError(ValueError):
    """A text that names no levels of a kind; one line that says what to do."""


def plain_and_way(policy: str) -> tuple[str, str]:
    """Splits the name of a protected policy into the plain one and the way; any other name is that
    of a plain one."""
    match = PROTECTED.fullmatch(policy)
    return (match["plain"], match["way"]) if match else (policy, PLAIN)


def split_outside_brackets(text: str) -> list[str]:
    """Splits a text at the commas that stand in no bracket and in no double quotes; empty parts are
    left out."""
    parts, depth, is_quoted = [""], 0, False
    for character in text:
        if character == '"':
            is_quoted = not is_quoted
        # Within quotes commas and brackets are text, as in the name of a file.
        if is_quoted:
            parts[-1] += character
            continue
        if character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    stripped = [part.strip() for part in parts]
    return [part for part in stripped if part]


class Named(Protocol):
    @property
    def name(self) -> str: ...


Declared = TypeVar("Declared", bound=Named)


def by_name(kind: str, declared: Iterable[Declared], error: type[Exception]) -> dict[str, Declared]:
    """Returns what is declared by its name; a name taken twice raises ``error``."""
    named: dict[str, Declared] = {}
    for entry in declared:
        if entry.name in named:
            raise error(f"two {kind} are named '{entry.name}': give one of them another name")
        named[entry.name] = entry
    return named


_ADDRESSES = {
    "arXiv": "https://arxiv.org/abs/",
    "doi": "https://doi.org/",
    "openreview": "https://openreview.net/forum?id=",
}


def paper_address(paper: str) -> str:
    """Returns where a paper is to be read; nothing where no registrar of papers is named."""
    registrar, _, number = paper.partition(" ")
    address = _ADDRESSES.get(registrar, "")
    return f"{address}{number}" if address else ""


# The titles of the papers that policies name, where they are known to us.
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
