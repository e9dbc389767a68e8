"""Write the digest of a package's source, which is part of every key of its cache: PACKAGE OUTPUT."""

import runpy
import sys
from pathlib import Path

package, output = map(Path, sys.argv[1:])
key = runpy.run_path(str(package / "cache" / "key.py"))
output.parent.mkdir(parents=True, exist_ok=True)
output.write_text(key["source_digest"](package))
