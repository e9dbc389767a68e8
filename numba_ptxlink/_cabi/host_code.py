"""
Render the host side of an object file: C++ that embeds fat binaries and registers them with the CUDA runtime.

The form is that of the objects of `nvcc -rdc=true`, as nvcc 13.0 and 13.5 write and read them:

- the fat binary lies in the section `__nv_relfatbin`, the name of the module in `__nv_module_id`, and the
  device linker takes both out of the object;
- a constructor calls `__cudaRegisterLinkedBinary` with the module's name appended, which the device link
  defines (crt/link.stub of the toolkit), and passes the function that registers the kernels;
- `kernel<<<...>>>` calls a host function of the kernel's name, whose address is the kernel for
  `cudaLaunchKernel`;
- the section `.nvHRKE` lists the kernels that the host uses, for a device linker that removes the others.

An object can also hold the kernels as a whole program, and registers it by a weak definition of what the
device link defines. What either defines is hidden: a library without a device link would find the one of a
program with the same export, and take the place of that program's kernels.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .signatures import Signature

# Declared by their symbols: what headers of CUDA declare under these names has other types.
_RUNTIME = """\
#include <stddef.h>
#include <stdlib.h>
#define NUMBA_PTXLINK_HERE __attribute__((visibility("hidden")))
struct numba_ptxlink_dim3 { unsigned x, y, z; };
extern "C" {
void numba_ptxlink_linked(void (*)(void**), const void*, const void*, void (*)(void*))
    __asm__("__cudaRegisterLinkedBinary%(module)s") NUMBA_PTXLINK_HERE;
extern const char numba_ptxlink_linkable[] __asm__("__fatbinwrap%(module)s") NUMBA_PTXLINK_HERE;
extern const char numba_ptxlink_module[] __asm__(".Lnumba_ptxlink_module") NUMBA_PTXLINK_HERE;
}
"""
_CUDA = """\
#if __has_include(<cuda_runtime.h>)
#include <cuda_runtime.h>
#endif
"""
_KERNELS = """\
extern "C" {
void numba_ptxlink_register(
    void**, const void*, const char*, const char*, int, void*, void*, void*, void*, int*)
    __asm__("__cudaRegisterFunction");
int numba_ptxlink_pop(numba_ptxlink_dim3*, numba_ptxlink_dim3*, size_t*, void**)
    __asm__("__cudaPopCallConfiguration");
int numba_ptxlink_launch(
    const void*, numba_ptxlink_dim3, numba_ptxlink_dim3, void**, size_t, void*)
    __asm__("cudaLaunchKernel");
}
static void numba_ptxlink_call(const void* kernel, void** arguments) {
  numba_ptxlink_dim3 grid, block;
  size_t shared;
  void* stream;
  if (numba_ptxlink_pop(&grid, &block, &shared, &stream) == 0)
    numba_ptxlink_launch(kernel, grid, block, arguments, shared, stream);
}
"""
_WHOLE = """\
extern "C" {
void** numba_ptxlink_load(const void*) __asm__("__cudaRegisterFatBinary");
void numba_ptxlink_loaded(void**) __asm__("__cudaRegisterFatBinaryEnd");
void numba_ptxlink_unload(void**) __asm__("__cudaUnregisterFatBinary");
extern const char numba_ptxlink_whole[] __asm__(".Lnumba_ptxlink_whole") NUMBA_PTXLINK_HERE;
}
static void** numba_ptxlink_handle;
static void numba_ptxlink_leave() { numba_ptxlink_unload(numba_ptxlink_handle); }
__attribute__((weak)) void numba_ptxlink_linked(
    void (*kernels)(void**), const void*, const void*, void (*)(void*)) {
  numba_ptxlink_handle = numba_ptxlink_load(numba_ptxlink_whole);
  kernels(numba_ptxlink_handle);
  numba_ptxlink_loaded(numba_ptxlink_handle);
  atexit(numba_ptxlink_leave);
}
"""
_START = """\
static void numba_ptxlink_unused(void*) {}
__attribute__((constructor)) static void numba_ptxlink_start() {
  numba_ptxlink_linked(
      numba_ptxlink_kernels, numba_ptxlink_linkable, numba_ptxlink_module, numba_ptxlink_unused);
}
"""
# What the runtime calls __fatBinC_Wrapper_t in fatbinary_section.h: magic, version, the fat binary, no name.
_WRAPPER = """\
.pushsection .nvFatBinSegment,"aw"
.balign 8
{label}:
.long 0x466243b1, 1
.quad {code}, 0
.popsection
"""
_BYTES = """\
.pushsection {section},"a"
.balign 8
{label}:
.incbin "{file}"
.balign 8
.popsection
"""
_NAMES = """\
.pushsection {section},"a"
{label}{names}
.popsection
"""


def module_name(stem: str, digest: str) -> str:
    """Return the name of an object's module: a part of symbols, which *digest* sets apart from any other."""
    return f"_{digest}_{re.sub(r'[^A-Za-z0-9_]', '_', stem)}"


def render(
    module: str,
    kernels: Sequence[Signature],
    *,
    header: str,
    linkable: str,
    whole: str | None,
    like_cuda: bool = False,
) -> str:
    """
    Return the C++17 source of an object, for GCC and Clang on Linux.

    Args:
        module: The name of `module_name`.
        kernels: The kernels that the host can launch.
        header: The file name of the header that declares them.
        linkable: The file name of the fat binary with relocatable code.
        whole: That of the fat binary which serves the kernels without a device link; None for none.
        like_cuda: Whether the header includes others that expect what nvcc includes first in any CUDA C++.
    """
    pieces = [f'{_CUDA * like_cuda}#include "{header}"\n'] if kernels else []
    pieces.append(_RUNTIME % {"module": module})
    pieces += [_KERNELS, *map(_launcher, kernels)] if kernels else []
    pieces.append(_registration(kernels))
    pieces += [_WHOLE] if whole else []
    pieces.append(_START)
    pieces.append(_assembly(module, kernels, linkable, whole))
    return "\n".join(pieces)


def _launcher(kernel: Signature) -> str:
    """Return the host function that `kernel<<<...>>>` calls."""
    names = ", ".join(f"const_cast<void*>((const void*)&{name})" for name, _ in kernel.params) or "nullptr"
    return (
        f'extern "C" {kernel} {{\n'
        f"  void* numba_ptxlink_arguments[] = {{{names}}};\n"
        f"  numba_ptxlink_call((const void*)&{kernel.name}, numba_ptxlink_arguments);\n}}\n"
    )


def _registration(kernels: Sequence[Signature]) -> str:
    lines = "".join(
        f'  numba_ptxlink_register(handle, (const void*)&{kernel.name}, "{kernel.name}", "{kernel.name}", '
        "-1, nullptr, nullptr, nullptr, nullptr, nullptr);\n"
        for kernel in kernels
    )
    return f"static void numba_ptxlink_kernels(void** handle) {{\n  (void)handle;\n{lines}}}\n"


def _assembly(module: str, kernels: Sequence[Signature], linkable: str, whole: str | None) -> str:
    wrapper = f"__fatbinwrap{module}"
    # Compilers leave the visibility of what is declared and not defined to those who define it.
    text = f".hidden __cudaRegisterLinkedBinary{module}\n"
    text += f".globl {wrapper}\n.hidden {wrapper}\n"
    text += _BYTES.format(section="__nv_relfatbin", label=".Lnumba_ptxlink_linkable_code", file=linkable)
    text += _WRAPPER.format(label=wrapper, code=".Lnumba_ptxlink_linkable_code")
    if whole:
        text += _BYTES.format(section=".nv_fatbin", label=".Lnumba_ptxlink_whole_code", file=whole)
        text += _WRAPPER.format(label=".Lnumba_ptxlink_whole", code=".Lnumba_ptxlink_whole_code")
    text += _NAMES.format(
        section="__nv_module_id", label=".Lnumba_ptxlink_module:\n", names=f'.asciz "{module}"'
    )
    if kernels:
        names = "\n".join(f'.asciz "{kernel.name}"' for kernel in kernels)
        text += _NAMES.format(section=".nvHRKE", label="", names=names)
    lines = "".join(f'  "{_escaped(line)}\\n"\n' for line in text.splitlines())
    return f"__asm__(\n{lines});\n"


def _escaped(line: str) -> str:
    return line.replace("\\", "\\\\").replace('"', '\\"')
