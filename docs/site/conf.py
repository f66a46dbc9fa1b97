"""Sphinx's settings for the site. stage.py puts its source together; `make docs` does both."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpydoc.xref

import gpureduce

project = "gpureduce"
author = "The gpureduce authors"
version = release = gpureduce.__version__
copyright = "MIT licence"

extensions = ["myst_parser", "numpydoc", "sphinx.ext.autodoc", "sphinx.ext.autosummary"]
exclude_patterns = ["_generated"]
nitpicky = True
nitpick_ignore = [
    ("c:identifier", name)
    for name in ("uint8_t", "uint32_t", "uint64_t", "int32_t", "int64_t", "size_t")
]

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4

add_module_names = False
python_use_unqualified_type_names = True
autodoc_typehints = "none"  # numpydoc's sections say more
autodoc_member_order = "bysource"
autosummary_generate = True
numpydoc_show_class_members = False
numpydoc_xref_param_type = True
numpydoc_xref_aliases = {
    name: f"gpureduce.{name}" for name in gpureduce.__all__ if name[0].isupper()
}
numpydoc_xref_ignore = "all"
# They lead to other projects' sites, which a build does not ask for.
numpydoc.xref.DEFAULT_LINKS.clear()

# Autosummary would look beside the source.
templates_path = [str(Path(__file__).parent / "_templates")]
html_theme = "furo"
html_title = f"gpureduce {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_show_copyright = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#3b6d00", "color-brand-content": "#2f6100"},
    "dark_css_variables": {"color-brand-primary": "#8fce3f", "color-brand-content": "#a5d86b"},
}
pygments_style = "default"
pygments_dark_style = "github-dark"


def hide_record_fields(
    _app: Any, what: str, _name: str, thing: Any, _options: Any, _text: str, _returns: Any
) -> Any:
    """Records are made by functions: nobody is to call their long constructors."""
    return ("", None) if what == "class" and dataclasses.is_dataclass(thing) else None


def find_inner_record(app: Any, env: Any, node: Any, content: Any) -> Any:
    """Finds classes of private modules, which docstrings call by their bare names."""
    if node["refdomain"] != "py" or "." in node["reftarget"]:
        return None
    domain = env.domains["py"]
    found = domain.find_obj(env, None, None, node["reftarget"], node["reftype"], 1)
    if len(found) != 1:
        return None
    (name, entry), *_ = found
    from sphinx.util.nodes import make_refnode

    return make_refnode(app.builder, node["refdoc"], entry.docname, entry.node_id, content, name)


def check_complete(_app: Any, env: Any) -> None:
    """Every public name has its place in the reference."""
    from sphinx.util import logging

    documented = env.domains["py"].objects
    for name in gpureduce.__all__:
        if name != "__version__" and f"gpureduce.{name}" not in documented:
            logging.getLogger(__name__).warning(
                "gpureduce.%s is in no page of the reference: see docs/site/api", name
            )


def setup(app: Any) -> None:
    app.connect("autodoc-process-signature", hide_record_fields)
    app.connect("missing-reference", find_inner_record)
    app.connect("env-check-consistency", check_complete)
