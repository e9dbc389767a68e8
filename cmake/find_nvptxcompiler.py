"""Print where wheels keep nvPTXCompiler's header, library and licence, and cuda.h, one per line."""

import sys
from importlib import metadata

WANTED = {
    "nvidia-nvptxcompiler": ("nvPTXCompiler.h", "libnvptxcompiler_static.a", "License.txt"),
    "nvidia-cuda-runtime": ("cuda.h",),
    "nvidia-cuda-crt": ("host_defines.h",),
}

found = {}
for distribution, names in WANTED.items():
    try:
        files = metadata.files(distribution) or []
    except metadata.PackageNotFoundError:
        sys.exit(f"this Python has no distribution {distribution}")
    found |= {file.name: file.locate() for file in files if file.name in names}
    missing = [name for name in names if name not in found or not found[name].is_file()]
    if missing:
        sys.exit(f"the distribution {distribution} has no {', '.join(missing)}")
print(found["nvPTXCompiler.h"].parent)
print(found["libnvptxcompiler_static.a"])
print(found["License.txt"])
print(found["cuda.h"].parent)
