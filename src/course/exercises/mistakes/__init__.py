"""The catalogue of mistakes, by the stage that they spoil.

Each function of a family gives the mistakes of one stage, for whatever names
the values have in an exercise. So an exercise gets every mistake whose
stages it has.
"""
