"""The apparatus of the course: examples, figures, display and exercises.

Nothing here computes attention; that is what ``self_attention`` is for.
"""
