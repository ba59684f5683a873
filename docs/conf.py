"""Sphinx configuration: `./scripts/docs` builds the site into out/docs, without a network."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import graphsvx

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

project = "graphsvx"
author = "The graphsvx developers"
copyright = author
version = release = graphsvx.__version__

extensions = [
    "myst_parser",
    "plain_types",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
    "plain_docstrings",
    "command_reference",
    "schema_reference",
]
exclude_patterns = ["_extensions", "examples", "gallery/*.html", "tutorials"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
suppress_warnings = [
    "config.cache",  # settings of sphinx-gallery that cannot be pickled
    "myst.header",  # pages of results have no second level
    "ref.python",  # a name in a type that several classes have as an attribute
]
nitpicky = False

myst_enable_extensions = ["dollarmath", "deflist", "colon_fence", "fieldlist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_class_signature = "mixed"
autodoc_type_aliases = {"ArrayLike": "ArrayLike"}
python_use_unqualified_type_names = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False

mathjax_path = "mathjax/tex-svg.js"  # vendored: pages read nothing from elsewhere

html_theme = "furo"
html_title = "graphsvx"
html_favicon = "_static/favicon.svg"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b5cad", "color-brand-content": "#0b5cad"},
    "dark_css_variables": {"color-brand-primary": "#7cb7ff", "color-brand-content": "#7cb7ff"},
}

sphinx_gallery_conf = {
    "examples_dirs": ["tutorials"],
    "gallery_dirs": ["auto_tutorials"],
    # Those at full size need data sets that are downloaded: run where these are at hand.
    "filename_pattern": r"\.py$" if os.environ.get("GRAPHSVX_DATA") else r"tutorials/\d+_\w+\.py$",
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "remove_config_comments": True,
    "abort_on_example_error": True,
    "write_computation_times": False,
    "image_scrapers": ("matplotlib",),
    "matplotlib_animations": False,
    "capture_repr": (),
}
