"""The PFlash benchmark: what survives compression, what answers lose, what time is won."""
