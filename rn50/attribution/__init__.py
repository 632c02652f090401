"""Attribute the gain between two configurations to groups of their settings (``rn50 attribute``)."""
