"""Speed, measured: the input pipeline, storage, communication, training; the input pipeline, tuned."""
