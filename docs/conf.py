"""Sphinx configuration: `sphinx-build -W docs build/docs`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

project = "numba-ptxlink"
author = copyright = "the numba-ptxlink developers"  # noqa: A001 - Sphinx's names
extensions = [
    "generated",
    "redirects",
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
]
exclude_patterns = ["_build"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
autodoc_typehints = "description"
autodoc_member_order = "bysource"
html_theme = "furo"
html_title = "numba-ptxlink"
html_static_path = ["_static"]
html_css_files = ["site.css"]
# Code is shown, and copied, as it is.
smartquotes = False
