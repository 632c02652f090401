"""RN50: an MLPerf-style ResNet-50 time-to-accuracy training submission."""

__version__ = "0.3.0"
