"""``rn50 atlas``: all published results on one page, and own ones beside them."""
