"""After training: a network's weights exported, pruned and quantised."""
