"""
Print the paths, in the installed wheels, that CMakeLists.txt needs, one per line.

In this order: the folder of nvPTXCompiler.h, the static library, its licence, and the folder of cuda.h.
"""

import sys
from importlib import metadata

FILES = {
    "nvidia-nvptxcompiler": ("nvPTXCompiler.h", "libnvptxcompiler_static.a", "License.txt"),
    "nvidia-cuda-runtime": ("cuda.h",),
    "nvidia-cuda-crt": ("host_defines.h",),
}

paths = {}
for distribution, names in FILES.items():
    try:
        files = metadata.files(distribution) or []
    except metadata.PackageNotFoundError:
        sys.exit(f"this Python has no distribution {distribution}")
    paths |= {file.name: file.locate() for file in files if file.name in names}
    missing = [name for name in names if name not in paths or not paths[name].is_file()]
    if missing:
        sys.exit(f"the distribution {distribution} has no {', '.join(missing)}")
print(paths["nvPTXCompiler.h"].parent)
print(paths["libnvptxcompiler_static.a"])
print(paths["License.txt"])
print(paths["cuda.h"].parent)
