"""Print what differs between two records: `python differences.py BEFORE.json AFTER.json`."""

from __future__ import annotations

import difflib
import json
import sys
from pathlib import Path


def main() -> int:
    """Print each entry that differs; return how many do."""
    before, after = (json.loads(Path(path).read_text()) for path in sys.argv[1:3])
    different = [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
    for name in different:
        print(f"== {name}")
        texts = [json.dumps(record.get(name), indent=1).splitlines() for record in (before, after)]
        print(*list(difflib.unified_diff(*texts, "before", "after", lineterm="", n=1))[2:], sep="\n")
    print(f"{len(different)} of {len({*before, *after})} entries differ")
    return len(different)


if __name__ == "__main__":
    sys.exit(bool(main()))
