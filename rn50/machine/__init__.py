"""The machine: its cores, GPUs and limits, the installed software, its power, and the binding of ranks to
cores."""
