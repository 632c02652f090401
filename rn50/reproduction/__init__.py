"""Reproduce a result: what it claims, what this machine can be expected to give, what it gave
(``rn50 reproduce``)."""
