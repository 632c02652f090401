"""``rn50 verify``: every record looked at, findings, and the certificate."""
