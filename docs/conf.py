"""Sphinx configuration: `sphinx-build -W docs build/docs`."""

project = "numba-ptxlink"
author = "the numba-ptxlink developers"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
autodoc_typehints = "description"
autodoc_member_order = "bysource"
exclude_patterns = ["_build"]
