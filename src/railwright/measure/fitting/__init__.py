"""Constants of collectives fitted to measured curves: the fit, what it can tell, the profile file."""
