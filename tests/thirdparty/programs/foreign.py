"""Write PTX of Triton and of Warp that has calls: `python foreign.py FOLDER`."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))


def triton_ptx(folder: Path) -> None:
    """Compile the Triton kernel."""
    os.environ["TRITON_CACHE_DIR"] = str(folder / "triton")
    import triton
    import triton_parts
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    signature = {"x": "*fp32", "y": "*fp32", "n": "i32", "BLOCK": "constexpr"}
    source = ASTSource(fn=triton_parts.weigh, signature=signature, constexprs={"BLOCK": 256})
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32))
    (folder / "triton_parts.ptx").write_text(compiled.asm["ptx"])


def warp_ptx(folder: Path) -> None:
    """Compile the Warp kernel."""
    import warp

    warp.config.quiet = True
    warp.config.kernel_cache_dir = str(folder / "warp")
    import warp_calls

    warp.init()
    (path,) = warp.compile_aot_module(warp_calls, arch=90, module_dir=str(folder / "warp"), use_ptx=True)
    path.rename(folder / "warp_calls.ptx")


if __name__ == "__main__":
    triton_ptx(Path(sys.argv[1]))
    warp_ptx(Path(sys.argv[1]))
