"""``rn50 verify``: the checks of a data set, their findings, and the certificate."""
