"""Write a page at the old address of each renamed or merged page, which redirects to the new page."""

from __future__ import annotations

import html
import posixpath
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

REDIRECTS = {
    "explanation/abi": "explanation/design#the-c-abi",
    "explanation/activation": "explanation/design#activation",
    "explanation/inlining": "explanation/design#inlining-ptx",
    "explanation/link-plan": "explanation/design#the-link-plan",
    "explanation/security": "how-to/deploy#trust",
    "explanation/speed": "how-to/speed",
    "how-to/export": "reference/export",
    "how-to/index": "index",
    "how-to/launcher": "how-to/launch#from-c",
    "how-to/libraries": "how-to/link#cupy",
    "how-to/load": "how-to/launch",
    "how-to/many": "how-to/deploy#many-functions",
    "how-to/nvcc": "start/cpp",
    "migration": "start/numba#from-another-package",
    "reference/artifacts": "reference/export#files",
    "reference/checks": "explanation/design#checks-before-a-link",
    "reference/compared": "start/numba#beside-stock-numba-cuda",
    "reference/cxx": "how-to/structs",
    "reference/platforms": "reference/versions",
    "reference/toolkits": "reference/versions#which-tool-makes-machine-code",
    "start/words": "explanation/design#forms-of-code",
}
"""The page that replaces each old page, or the section of a page, by the name of the old page."""

_PAGE = """\
<!DOCTYPE html>
<meta charset="utf-8">
<title>Moved</title>
<meta http-equiv="refresh" content="0; url={url}">
<link rel="canonical" href="{url}">
<p>Moved to <a href="{url}">{url}</a>.</p>
"""


def write_redirects(app: Sphinx, exception: Exception | None) -> None:
    """Write the pages after a build of HTML; *exception* is the error that has ended the build, if any."""
    if exception or app.builder.format != "html":
        return
    for old_page, target in REDIRECTS.items():
        page, _, section = target.partition("#")
        path = Path(app.outdir, f"{old_page}.html")
        url = posixpath.relpath(f"{page}.html", posixpath.dirname(old_page) or ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_PAGE.format(url=html.escape(f"{url}#{section}" if section else url)))


def setup(app: Sphinx) -> dict[str, bool]:
    """Let Sphinx call `write_redirects` at the end of a build."""
    app.connect("build-finished", write_redirects)
    return {"parallel_read_safe": True}
