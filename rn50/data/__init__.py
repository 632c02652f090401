"""Data sets: records, packing, certification, the input pipeline, the generated data set."""
