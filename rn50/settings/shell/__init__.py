"""Shell files from strangers, read without running them."""
