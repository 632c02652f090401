"""The input pipeline: splits, shards, augmentation, DALI's graph."""
