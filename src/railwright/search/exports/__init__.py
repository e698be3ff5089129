"""Layouts as arguments of Megatron-LM, NeMo and torchtitan, and what those have no setting for."""
