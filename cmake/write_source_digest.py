"""
Write the digest of the source of a package to a file: write_source_digest.py PACKAGE_FOLDER OUTPUT_FILE.

Each key of the package's cache contains the digest.
"""

import runpy
import sys
from pathlib import Path

package, output = map(Path, sys.argv[1:])
key_module = runpy.run_path(str(package / "cache" / "key.py"))
output.parent.mkdir(parents=True, exist_ok=True)
output.write_text(key_module["source_digest"](package))
