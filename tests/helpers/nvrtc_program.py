"""
Print what an NVRTC says about the source in the standard input: `python nvrtc_program.py LIBRARY OPTION ...`.

It imports nothing else, since the library is asked a hundred times, each time in a process of its own.
"""

import ctypes
import sys


def log(library: str, options: list[str], source: bytes) -> str:
    """Return the diagnostics of NVRTC at the path *library*."""
    nvrtc = ctypes.CDLL(library)
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, b"source", 0, None, None)
    arguments = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    nvrtc.nvrtcCompileProgram(program, len(options), arguments)
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, text)
    return text.value.decode()


if __name__ == "__main__":
    sys.stdout.write(log(sys.argv[1], sys.argv[2:], sys.stdin.buffer.read()))
