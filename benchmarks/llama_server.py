"""llama.cpp's own HTTP server (`llama-server`), as `xllamacpp` embeds it, in a process of its own.

    python benchmarks/llama_server.py MODEL.gguf --port 8080 --slots 64 --context 512

As fast as it was found to be: a context of its own for every slot (one for all is slower the more slots it has), OpenMP
threads that wait actively. Nothing is kept of a prompt after its answer.
"""

import argparse
import time

import xllamacpp


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--slots", type=int, default=64)
    parser.add_argument("--context", type=int, default=512, help="tokens of a slot")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--exact", action="store_true", help="keys and values in float32")
    options = parser.parse_args()
    settings = xllamacpp.CommonParams()
    settings.model.path = options.model
    settings.port = options.port
    settings.n_parallel = options.slots
    settings.n_ctx = options.slots * options.context
    settings.kv_unified = False
    settings.n_threads_http = 2 * options.slots + 4  # a thread serves one connection, also while it is idle
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = options.threads
    settings.cont_batching = True
    settings.cache_prompt, settings.cache_ram_mib, settings.cache_idle_slots = False, 0, False
    settings.slot_prompt_similarity = 0.0
    settings.verbosity = 1
    if options.exact:
        settings.cache_type_k = settings.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    server = xllamacpp.Server(settings)
    print(server.listening_address, flush=True)
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    main()
