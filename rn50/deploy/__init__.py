"""After training: a network's weights exported, quantised, evaluated and timed."""
