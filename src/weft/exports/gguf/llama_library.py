"""llama.cpp's C library in a process of its own: runs encoder–decoders, which llama-server has no way to.

Started as a program by `runtime.py`: JSON on standard input, logits as JSON on standard output. The library is the one
inside xllamacpp, called without its headers: its structs of settings are handed back as they were given, in a buffer
that is longer than theirs.
"""

import ctypes
import json
import sys
from ctypes import POINTER, c_bool, c_char_p, c_float, c_int8, c_int32, c_uint8, c_void_p
from typing import Any

import numpy as np
import xllamacpp.xllamacpp as extension


class _Settings(ctypes.Structure):
    _fields_ = (("bytes", c_uint8 * 1024),)


class _Tokens(ctypes.Structure):
    """llama_batch."""

    _fields_ = (
        ("n_tokens", c_int32),
        ("token", POINTER(c_int32)),
        ("embd", POINTER(c_float)),
        ("pos", POINTER(c_int32)),
        ("n_seq_id", POINTER(c_int32)),
        ("seq_id", POINTER(POINTER(c_int32))),
        ("logits", POINTER(c_int8)),
    )


_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "llama_model_default_params": (_Settings, []),
    "llama_context_default_params": (_Settings, []),
    "llama_model_load_from_file": (c_void_p, [c_char_p, _Settings]),
    "llama_init_from_model": (c_void_p, [c_void_p, _Settings]),
    "llama_batch_get_one": (_Tokens, [POINTER(c_int32), c_int32]),
    "llama_encode": (c_int32, [c_void_p, _Tokens]),
    "llama_decode": (c_int32, [c_void_p, _Tokens]),
    "llama_get_logits_ith": (POINTER(c_float), [c_void_p, c_int32]),
    "llama_get_memory": (c_void_p, [c_void_p]),
    "llama_memory_clear": (None, [c_void_p, c_bool]),
    "llama_set_n_threads": (None, [c_void_p, c_int32, c_int32]),
}


def _answer() -> None:
    asked = json.loads(sys.stdin.read())
    llama = ctypes.CDLL(extension.__file__)
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(llama, name)
        function.restype, function.argtypes = result, arguments
    model = llama.llama_model_load_from_file(asked["file"].encode(), llama.llama_model_default_params())
    context = llama.llama_init_from_model(model, _exact(llama.llama_context_default_params()))
    llama.llama_set_n_threads(context, asked["threads"], asked["threads"])
    answers = []
    for source, target in asked["pairs"]:
        llama.llama_memory_clear(llama.llama_get_memory(context), True)
        for run, ids in ((llama.llama_encode, source), (llama.llama_decode, target)):
            numbers = (c_int32 * len(ids))(*ids)
            if run(context, llama.llama_batch_get_one(numbers, len(ids))) != 0:
                sys.exit("llama.cpp did not compute a sequence")
        found = np.ctypeslib.as_array(llama.llama_get_logits_ith(context, -1), (asked["vocabulary"],))
        answers.append(found.tolist())
    print(json.dumps(answers))


def _exact(settings: _Settings) -> _Settings:
    """Keys and values in float32 instead of float16 (two neighbouring 1s), no fused attention (the last of four -1s).
    Their places are guessed from the defaults. If they are not found, results are less exact.
    """
    numbers = np.ctypeslib.as_array(settings.bytes).view(np.int32)
    halves = [place for place in range(16, 40) if tuple(numbers[place : place + 2]) == (1, 1)]
    automatic = [place for place in range(8, 16) if tuple(numbers[place : place + 4]) == (-1, -1, -1, -1)]
    if len(halves) == 1 and len(automatic) == 1:
        numbers[halves[0] : halves[0] + 2] = 0
        numbers[automatic[0] + 3] = 0
    return settings


if __name__ == "__main__":
    _answer()
