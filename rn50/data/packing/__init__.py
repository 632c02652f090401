"""``rn50 pack``: image folders to records, and back."""
