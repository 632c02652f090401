"""The input pipeline: the shards of a split, and batches from DALI or a DataLoader."""
