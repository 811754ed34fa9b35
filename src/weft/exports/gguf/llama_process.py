"""llama.cpp's server in a process of its own, so that a crash in C++ is not one of weft.

Started as a program by `runtime.py`. The first line of standard input holds its settings as JSON; the first line of
standard output tells its address. It ends when standard input ends, hence also when the process that started it dies.
"""

import json
import os
import sys

import xllamacpp


def _serve() -> None:
    asked = json.loads(sys.stdin.readline())
    settings = xllamacpp.CommonParams()
    settings.model.path = asked["file"]
    settings.port = 0  # any that is free
    settings.api_keys = [asked["key"]]
    settings.embedding = asked["embedding"]
    settings.n_parallel = 1
    settings.n_ctx = settings.n_batch = settings.n_ubatch = asked["context"]
    settings.n_threads_http = 2
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = asked["threads"]
    settings.warmup = settings.cache_prompt = settings.cache_idle_slots = settings.fit_params = False
    settings.cache_ram_mib = 0
    settings.verbosity = 1
    # As exact as it can be: keys and values in float32, and no fused attention, which has them in 16 bits.
    settings.cache_type_k = settings.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    settings.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    server = xllamacpp.Server(settings)
    try:
        print(server.listening_address, flush=True)
        sys.stdin.read()
    finally:  # also if nobody listens any more: the server's threads would keep the process
        os._exit(0)


if __name__ == "__main__":
    _serve()
