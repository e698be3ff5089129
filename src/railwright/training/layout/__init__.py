"""Where ranks, layers and passes are: sizes of groups, ranks on GPUs, the order of passes on each stage."""
