"""Settings of Sphinx for the site; `build.py` uses them."""

project = "nkilab"
author = "the nkilab authors"
copyright = author
extensions = ["myst_parser", "sphinx_copybutton"]
html_theme = "furo"
html_title = "nkilab"
html_static_path = ["_static"]
html_css_files = ["nkilab.css"]
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
myst_heading_anchors = 3
myst_links_external_new_tab = True
# every colour of both stands out from its ground by 4.5: tests/docs/test_code_colours.py
pygments_style = "xcode"
pygments_dark_style = "github-dark"
copybutton_prompt_text = "$ "
copybutton_line_continuation_character = "\\"
# numbers of tables are told by their columns; what a page may leave out is decided in build.py
suppress_warnings = ["misc.highlighting_failure"]
