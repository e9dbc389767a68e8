"""Print where the wheel nvidia-nvptxcompiler keeps header directory, library and licence, one per line."""

import sys
from importlib import metadata

WANTED = ("nvPTXCompiler.h", "libnvptxcompiler_static.a", "License.txt")

try:
    files = metadata.files("nvidia-nvptxcompiler") or []
except metadata.PackageNotFoundError:
    sys.exit("this Python has no distribution nvidia-nvptxcompiler")

found = {file.name: file.locate() for file in files if file.name in WANTED}
missing = [name for name in WANTED if name not in found or not found[name].is_file()]
if missing:
    sys.exit(f"the distribution nvidia-nvptxcompiler has no {', '.join(missing)}")
print(found["nvPTXCompiler.h"].parent)
print(found["libnvptxcompiler_static.a"])
print(found["License.txt"])
