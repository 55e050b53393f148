"""Let the search lead to sections and know Chinese words and numbers.

Sphinx's search names pages. A chapter of this course is fifty screens long,
so ``_static/course_search.js`` reads the pages that Sphinx's index names and
shows the places in them.
"""

from sphinx.application import Sphinx


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    # book_pages.py takes it from all pages but that of the search.
    app.add_js_file("course_search.js")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
