"""How Sphinx builds the site (`make docs`). Pages are Markdown; examples are in ../examples."""

import os
import re
from importlib.metadata import version as version_of

import matplotlib
from docutils import nodes
from latex2mathml.converter import convert
from sphinx_gallery.sorting import ExplicitOrder

matplotlib.use("Agg")
os.environ.setdefault("LOKY_MAX_CPU_COUNT", str(os.cpu_count() or 1))

project = "manygp"
author = "The manygp developers"
copyright = "2026, the manygp developers"
release = version = version_of("manygp")

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.doctest",
    "sphinx.ext.viewcode",
    "numpydoc",
    "myst_parser",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = [
    "_build",
    "sg_execution_times.rst",
    "gallery/**/*.ipynb",
    "gallery/**/*.py",
    "gallery/**/*.md5",
]
templates_path = ["_templates"]
smartquotes = False
toc_object_entries_show_parents = "hide"
suppress_warnings = ["config.cache", "myst.header"]  # tables of benchmarks begin at level 3

# Markdown
myst_enable_extensions = ["colon_fence", "deflist", "attrs_inline", "dollarmath"]
myst_heading_anchors = 4

# API reference
default_role = "literal"
autosummary_generate = True
autosummary_imported_members = True
autodoc_typehints = "none"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_validation_checks = set()
trim_doctests_flags = True
doctest_test_doctest_blocks = "default"

# Gallery
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"plot_",
    "within_subsection_order": ExplicitOrder(
        [
            "plot_first_steps.py",
            "plot_boosted_trees.py",
            "plot_migrating.py",
            "plot_local_noise.py",
            "plot_noise_per_row.py",
            "plot_which_columns.py",
            "plot_kernels.py",
            "plot_trend.py",
            "plot_intervals.py",
            "plot_small_data.py",
            "plot_many_rows.py",
            "plot_tables.py",
            "plot_files.py",
            "plot_paper.py",
            "plot_emulator.py",
            "plot_optimisation.py",
            "*",
        ]
    ),
    "show_memory": False,
    "min_reported_time": 10_000,
    "write_computation_times": False,  # these pages would load scripts from elsewhere
    "remove_config_comments": True,
    "download_all_examples": False,
    "show_signature": False,
    "reset_modules": ("matplotlib",),
    "reference_url": {},
    "doc_module": ("manygp",),
    "backreferences_dir": "gallery/backreferences",
}

# Pages
html_theme = "pydata_sphinx_theme"
html_math_renderer = "mathml"
html_title = "manygp"
html_static_path = ["_static"]
html_logo = html_favicon = "_static/logo.svg"
html_css_files = ["site.css"]
html_extra_path = ["llms.txt"]
html_show_sourcelink = False
html_copy_source = True
html_sourcelink_suffix = ""
html_context = {"default_mode": "auto"}
html_sidebars = {"index": [], "glossary": []}
html_theme_options = {
    "logo": {"text": f"manygp {release}"},
    "navbar_align": "left",
    "header_links_before_dropdown": 6,
    "show_prev_next": True,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "navigation_with_keys": False,
    "show_nav_level": 1,
    "pygments_light_style": "tango",
    "pygments_dark_style": "monokai",
}

# Links of pages to files that have a page of their own on the site.
MOVED = {
    "../README.md": "index.md",
    "../CHANGELOG.md": "changelog.md",
    "../CONTRIBUTING.md": "contributing.md",
    "../SECURITY.md": "security.md",
    "../benchmarks/quality/tables.md": "tables_quality.md",
    "../benchmarks/trust/tables.md": "tables_trust.md",
    "../benchmarks/folds/tables.md": "tables_folds.md",
    "../benchmarks/small/tables.md": "tables_small.md",
    "../benchmarks/messy/tables.md": "tables_messy.md",
    "../benchmarks/speed/tables.md": "tables_speed.md",
    "../benchmarks/paper/tables.md": "tables_paper.md",
    "../benchmarks/paper": "tables_paper.md",
    "../examples/README.rst": "gallery/index",
}
PICTURE = re.compile(r'<img [^>]*"sphx-glr-single-img"/>')
EXAMPLE = re.compile(r"\]\(\.\./examples/(plot_\w+)\.py\)")
CELL = re.compile(r"<td>.*?</td>", re.DOTALL)


def on_site(app, docname, source):
    """Let links to other Markdown files and to examples lead to their pages."""
    for path, page in MOVED.items():
        source[0] = re.sub(rf"\]\({re.escape(path)}(#[^)]*)?\)", rf"]({page}\1)", source[0])
    source[0] = EXAMPLE.sub(r"](gallery/\1)", source[0])


def write_mathml(display):
    """Formulas as MathML, which browsers set themselves: no script, from here or elsewhere."""

    def visit(translator, node):
        formula = convert(node.astext(), display=display)
        block = display == "block"
        translator.body.append(f'<div class="formula">{formula}</div>' if block else formula)
        raise nodes.SkipNode

    return visit, None


def is_skipped(app, what, name, obj, skip, options):
    """Leave out what scikit-learn's metadata routing adds: its texts refer to pages of theirs."""
    return True if re.fullmatch(r"set_\w+_request", name) else None


def keep_together(cell):
    """A cell whose numbers break after a slash or before a bracket, not elsewhere."""
    text = re.sub(r"(?<=\d) / (?=[-.\d])", "&nbsp;/ ", cell[0])
    return re.sub(r"\(([\d.]+) \+ ([\d.]+)\)", r"(\1&#8239;+&#8239;\2)", text)


def finish_page(app, pagename, templatename, context, doctree):
    """Give pictures of examples a box of their own, which scrolls on a phone; see to cells."""
    if "body" in context:
        body = PICTURE.sub(r'<div class="picture">\g<0></div>', context["body"])
        context["body"] = CELL.sub(keep_together, body)


def setup(app):
    app.connect("html-page-context", finish_page)
    app.connect("source-read", on_site)
    app.connect("autodoc-skip-member", is_skipped)
    app.add_html_math_renderer("mathml", write_mathml("inline"), write_mathml("block"))
