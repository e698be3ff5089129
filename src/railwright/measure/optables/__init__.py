"""Op tables of the PyPI package aiconfigurator-core as measured kernels of serving (`railwright kernels`)."""
