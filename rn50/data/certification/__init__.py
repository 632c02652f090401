"""``rn50 verify``: the audit of every record, the findings, and the certificate."""
