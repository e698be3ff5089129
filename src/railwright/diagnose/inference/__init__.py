"""Which elements are at fault: a posterior over sets of faults, and the test that tells them apart."""
