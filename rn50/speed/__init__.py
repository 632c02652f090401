"""Speed measurements of the input pipeline, storage, communication and training; tuning of the input
pipeline."""
