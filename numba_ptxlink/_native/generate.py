"""
Generate the C source of the extension module: python -m numba_ptxlink._native.generate.

The C file is committed, so that building needs no cffi. Its text depends on cffi's version,
hence exactly one version may write it.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import cffi

CFFI_VERSION = "2.1.1"
"""The one version of cffi that writes the file; the extra "test" pins the same."""

_NAME = "numba_ptxlink._native._nvptxcompiler"

# The flow callback is left out: it would call back into Python from the compiler's threads.
_DECLARATIONS = """
typedef struct nvPTXCompiler *nvPTXCompilerHandle;

typedef enum {
    NVPTXCOMPILE_SUCCESS,
    NVPTXCOMPILE_ERROR_INVALID_COMPILER_HANDLE,
    NVPTXCOMPILE_ERROR_INVALID_INPUT,
    NVPTXCOMPILE_ERROR_COMPILATION_FAILURE,
    NVPTXCOMPILE_ERROR_INTERNAL,
    NVPTXCOMPILE_ERROR_OUT_OF_MEMORY,
    NVPTXCOMPILE_ERROR_COMPILER_INVOCATION_INCOMPLETE,
    NVPTXCOMPILE_ERROR_UNSUPPORTED_PTX_VERSION,
    NVPTXCOMPILE_ERROR_UNSUPPORTED_DEVSIDE_SYNC,
    NVPTXCOMPILE_ERROR_CANCELLED,
    ...
} nvPTXCompileResult;

nvPTXCompileResult nvPTXCompilerGetVersion(unsigned int *major, unsigned int *minor);
nvPTXCompileResult nvPTXCompilerGetNumSupportedVersions(int *count);
nvPTXCompileResult nvPTXCompilerGetSupportedVersions(int (*versions)[2]);
nvPTXCompileResult nvPTXCompilerGetNumSupportedArchs(int *count);
nvPTXCompileResult nvPTXCompilerGetSupportedArchs(int *archs);

nvPTXCompileResult nvPTXCompilerCreate(nvPTXCompilerHandle *compiler, size_t length, const char *ptx);
nvPTXCompileResult nvPTXCompilerDestroy(nvPTXCompilerHandle *compiler);
nvPTXCompileResult nvPTXCompilerCompile(nvPTXCompilerHandle compiler, int count,
                                        const char *const *options);

nvPTXCompileResult nvPTXCompilerGetCompiledProgramSize(nvPTXCompilerHandle compiler, size_t *size);
nvPTXCompileResult nvPTXCompilerGetCompiledProgram(nvPTXCompilerHandle compiler, void *program);
nvPTXCompileResult nvPTXCompilerGetErrorLogSize(nvPTXCompilerHandle compiler, size_t *size);
nvPTXCompileResult nvPTXCompilerGetErrorLog(nvPTXCompilerHandle compiler, char *log);
nvPTXCompileResult nvPTXCompilerGetInfoLogSize(nvPTXCompilerHandle compiler, size_t *size);
nvPTXCompileResult nvPTXCompilerGetInfoLog(nvPTXCompilerHandle compiler, char *log);
"""


def generate() -> str:
    """
    Return the C source of the extension module.

    Deterministic for one version of cffi.
    """
    ffi = cffi.FFI()
    ffi.cdef(_DECLARATIONS)
    ffi.set_source(_NAME, "#include <nvPTXCompiler.h>")
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, "generated.c")
        ffi.emit_c_code(str(path))
        return path.read_text(encoding="utf-8")


def main() -> None:
    """Write the C file into the source tree."""
    if cffi.__version__ != CFFI_VERSION:
        sys.exit(
            f"cffi {cffi.__version__} writes another text than cffi {CFFI_VERSION}; "
            f"install the pinned version: python -m pip install cffi=={CFFI_VERSION}"
        )
    Path(__file__).with_name("_nvptxcompiler.c").write_text(generate(), encoding="utf-8")


if __name__ == "__main__":
    main()
