"""``rn50 pack`` and ``rn50 unpack``: from an image folder to records, and back."""
