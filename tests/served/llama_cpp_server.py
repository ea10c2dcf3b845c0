"""Runs llama.cpp's own server on the loopback address until its input ends, and prints the address.
It runs in a Python that has ``xllamacpp``, llama.cpp in a wheel.

Arguments: a GGUF file, the type of the cached keys and values, such as ``q4_0``, and a port."""

import sys

from xllamacpp import (  # type: ignore[import-not-found]
    CommonParams,
    Server,
    ggml_type,
    llama_flash_attn_type,
)

path, kind, port = sys.argv[1:4]
options = CommonParams()
options.model.path = path
options.port = int(port)
options.n_ctx = 4096
options.n_parallel = 2
options.cpuparams.n_threads = 1
options.cache_type_k = options.cache_type_v = getattr(ggml_type, f"GGML_TYPE_{kind.upper()}")
# As `--flash-attn on`: without it llama.cpp stores no values in fewer bits.
options.flash_attn_type = llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_ENABLED
server = Server(options)
print(server.listening_address, flush=True)
sys.stdin.read()
