"""The figures of the course, drawn from plain arrays.

Each function takes arrays (NumPy, or anything ``np.asarray`` takes) and gives
a matplotlib figure; none knows a framework or computes attention. One colour
stands for one thing in the whole book (``style.COLOURS``), weights are always
drawn on the scale from 0 to 1, queries run down and keys run across, and a
masked cell is hatched, so that it cannot be mistaken for a small weight.

``style``     colours, fonts, the frame of every figure
``matrices``  vectors, matrices and their products as coloured cells
``weights``   score and weight tables, bars, several heads
"""

from course.figures.matrices import matrix_product, vectors
from course.figures.style import COLOURS, use_style
from course.figures.weights import (
    heads_grid,
    mask_table,
    score_table,
    weight_bars,
    weight_table,
)

__all__ = ["COLOURS", "heads_grid", "mask_table", "matrix_product",
           "score_table", "use_style", "vectors", "weight_bars",
           "weight_table"]
