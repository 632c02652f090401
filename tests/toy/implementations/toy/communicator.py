"""The ranks of a toy job on one machine."""

from rn50.run.local_ranks import LocalRanks

SharedMemory = LocalRanks
