"""Explorers: figures that answer to the reader, without a kernel.

Each function takes a chapter's plain arrays and gives one piece of HTML that
stands on its own: the figure as it is at the start, the controls, a table for
those who cannot see or operate it, the numbers as JSON, and a short script
that computes the rest. Nothing is fetched. The same piece works in the page,
in JupyterLab and in a saved file; without scripts it is a still figure.

``query``  which word asks: its weights and its output
``scale``  what the scores are divided by: from flat to one-hot
``masks``  padding and causal masks on one table of weights
``heads``  the heads of a model: lines from one word to the others
"""

from course.explorers.frame import Explorer
from course.explorers.heads import explore_heads
from course.explorers.masks import explore_masks
from course.explorers.query import explore_query
from course.explorers.scale import explore_scale

__all__ = ["Explorer", "explore_heads", "explore_masks", "explore_query",
           "explore_scale"]
