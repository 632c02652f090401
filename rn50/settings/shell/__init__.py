"""Shell files of strangers, read without running them."""
